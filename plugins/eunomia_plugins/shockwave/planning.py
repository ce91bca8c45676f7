"""Plan from a snapshot: build and solve the programme of the present jobs, and return a memo with its record."""

import numpy as np

from eunomia import Menus, Offer, OverTime, Snapshot, Valuations
from eunomia.units import Bools, Rows
from eunomia_plugins.shockwave.instance import Instance, logarithmic
from eunomia_plugins.shockwave.options import ShockwaveOptions
from eunomia_plugins.shockwave.outlook import outlook
from eunomia_plugins.shockwave.plan import RoundPlan, Window, spans_of
from eunomia_plugins.shockwave.planner import Planned, plan_window, record_of
from eunomia_plugins.shockwave.programme import solve_programme
from eunomia_plugins.shockwave.record import PlanRecord
from eunomia_solvers import Limits, SolveError


def present(snapshot: Snapshot) -> dict[str, int]:
    """Return the number of adaptations so far of each active job, by id."""
    adapted, jobs = snapshot.ledger.adaptations, snapshot.active
    names = snapshot.jobs.id[jobs].tolist()
    if not adapted:
        return dict.fromkeys(names, 0)
    return {name: adapted[row].count if row in adapted else 0 for name, row in zip(names, jobs.tolist(), strict=True)}


def planned(
    snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations, options: ShockwaveOptions, begins: float
) -> tuple[RoundPlan, PlanRecord]:
    """Plan the rounds of a window; return the plan as a memo, and its record.

    Args:
        snapshot: the current state.
        menus: sizes, rates and future regimes.
        offer: the offer, with the cluster's GPUs.
        valuations: utilities by rounds granted, and weights.
        options: options of the allocation.
        begins: start of the window, in seconds since the start.
    """
    form = valuations.form(OverTime)
    sizes = menus.span(valuations.claims.rows)[1]
    able: Bools = (sizes > 0) & (sizes <= int(offer.capacity.sum()))
    jobs = valuations.claims.rows[able]
    instance = _instance(snapshot, menus, offer, valuations, options, able)
    running = np.isin(jobs, snapshot.holdings.job)
    made = _solve(instance, running, options)
    window = Window(
        rounds=instance.rounds,
        seconds=float(form.round_seconds),
        capacity=tuple(offer.capacity.tolist()),
        present=present(snapshot),
        turns=spans_of(snapshot.jobs.id[jobs].tolist(), made.rounds),
    )
    return RoundPlan(row=0, due=begins, window=window), made.record


def _instance(
    snapshot: Snapshot,
    menus: Menus,
    offer: Offer,
    valuations: Valuations,
    options: ShockwaveOptions,
    able: Bools,
) -> Instance:
    form, claims = valuations.form(OverTime), valuations.claims
    jobs: Rows = claims.rows[able]
    seen = outlook(snapshot, menus, jobs)
    length = float(form.round_seconds)
    left = np.where(np.isnan(seen.left), (form.utility.shape[1] - 1) * length, seen.left)
    weight = np.ones(claims.rows.size) if claims.weight is None else claims.weight
    return Instance(
        gpus=menus.span(jobs)[1],
        value=logarithmic(form.utility[able], weight[able], options.log_points, options.log_origin),
        left=left,
        total=left + seen.attained,
        capacity=int(offer.capacity.sum()),
        seconds=length,
        regularizer=options.regularizer,
        by_gpus=options.by_gpus,
    )


def _solve(instance: Instance, running: Bools, options: ShockwaveOptions) -> Planned:
    """Solve with the chosen solver; use the fast solver if a limit ends the search without a plan."""
    if options.solver == "fast":
        return plan_window(instance, running)
    limits = Limits(gap=options.gap, nodes=options.nodes, seconds=float(options.seconds) or None)
    try:
        found = solve_programme(instance, running, limits)
    except SolveError:
        return plan_window(instance, running)
    record = record_of(instance, found.rounds, running, found.bound, cut_short=found.cut_short)
    return Planned(found.rounds, record)
