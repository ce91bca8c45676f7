"""Check the CPUs and memory that a placement sets: retunes of running jobs, and ranges of all jobs."""

import numpy as np

from eunomia.contract.allocations import Allocation, Grants
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement, Retunes
from eunomia.model.leases import LeaseState
from eunomia.model.workload import JobState
from eunomia.round.answers import PlanError
from eunomia.store.state import State
from eunomia.units import NONE, Ints, Reals, Stage, Unit

_PLACEMENT = Stage.PLACEMENT
_TOLERANCE = 1e-9


def check_retunes(state: State, offer: Offer, placement: Placement, given_up: Ints) -> None:
    """Check that retunes are allowed, and concern only running jobs that keep their GPUs in this round.

    Args:
        state: the present state.
        offer: the offer; its ``retune`` is whether retunes are allowed.
        placement: the placement with retunes.
        given_up: GPUs of the offer that their holders keep only if the placement assigns them.

    Raises:
        PlanError: a retune is not allowed.
    """
    retunes = placement.retunes
    if retunes is None:
        return
    if not offer.retune:
        rule = "a placement may retune jobs only if its contract gives RETUNES"
        raise PlanError(_PLACEMENT, rule, value=f"{retunes.jobs.size} retunes")
    if not state.amounts.shares.are_known:
        rule = "a placement may retune jobs only where the cluster gives CPUs or memory of machines"
        raise PlanError(_PLACEMENT, rule, value='neither; such as "4x8 V100 24cpu 200GB"')
    _check_form(state, retunes)
    taken = {*placement.gpus.tolist(), *given_up.tolist()}
    for job in retunes.jobs.tolist():
        lease = state.leases.get(state.jobs.cells.lease[job])
        place, found = state.job_id(job), JobState(int(state.jobs.live.state[job]))
        if lease is None or lease.state is LeaseState.LEAVING or found is not JobState.RUNNING:
            rule = "a job that is retuned must run on a lease of its own"
            raise PlanError(_PLACEMENT, rule, value=found.name.lower(), place=place)
        if not taken.isdisjoint(lease.gpus):
            rule = "a job that is retuned must not be placed in the same round, nor lose GPUs in it"
            raise PlanError(_PLACEMENT, rule, value=f"GPUs {lease.gpus[:8]}", place=place)


def _check_form(state: State, retunes: Retunes) -> None:
    jobs, ids, used = retunes.jobs.tolist(), state.jobs.cells.id, state.jobs.used
    if [row for row in jobs if not 0 <= row < used or ids[row] is None]:
        raise PlanError(_PLACEMENT, "a retune must name a job that is in use", value=str(retunes.jobs[:8]))
    if len(set(jobs)) != len(jobs):
        raise PlanError(_PLACEMENT, "a job must be retuned once", value=str(retunes.jobs[:8]))
    for name, amount in (("CPUs", retunes.cpus), ("memory", retunes.memory_gib)):
        if amount is None:
            continue
        if amount.shape != retunes.jobs.shape:
            rule = f"retunes must have {name} for each job"
            raise PlanError(_PLACEMENT, rule, value=f"{amount.size} for {retunes.jobs.size}")
        bad = np.flatnonzero(~(np.isfinite(amount) & (amount >= 0.0)))
        if bad.size:
            rule, place = f"{name} of a retune must be at least 0", state.job_id(jobs[int(bad[0])])
            raise PlanError(_PLACEMENT, rule, value=str(amount[bad[0]]), place=place)


def check_ranges(state: State, allocation: Allocation, placement: Placement, targets: tuple[Reals, Reals]) -> None:
    """Check that CPUs and memory are within the range of each claim, or of a retuned job.

    If a claim gets fewer GPUs than granted, its range is scaled down. GPUs that an app keeps also keep their CPUs and
    memory, so that the range applies to its other GPUs.

    Args:
        state: the present state.
        allocation: the allocation with the ranges of its claims.
        placement: the placement of the claims.
        targets: CPUs, and memory in GiB, of each GPU as set by the placement.

    Raises:
        PlanError: an amount is out of range.
    """
    amount, rows, held, retunes = allocation.amount, allocation.claims.rows, state.holdings.live, placement.retunes
    if isinstance(amount, Grants):
        names = state.job_id if allocation.claims.unit is Unit.JOB else state.app_id
        for what, bounds, target in (("CPUs", amount.cpus, targets[0]), ("GiB", amount.memory_gib, targets[1])):
            for at, claim in enumerate(placement.claim.tolist()) if bounds is not None else ():
                gpus = placement.of(at)
                if allocation.claims.unit is not Unit.JOB:
                    kept = (held.app[gpus] == rows[claim]) & (held.successor[gpus] == NONE)
                    gpus = gpus[~kept]
                if bounds is not None and gpus.size:
                    limits = bounds.of(claim, gpus.size / max(1, amount.gpus.item(claim)))
                    _within(what, float(target[gpus].sum()), limits, names(rows.item(claim)))
    for job in () if retunes is None else retunes.jobs.tolist():
        lease = state.leases[state.jobs.cells.lease[job]]
        held_gpus = lease.gpus
        if lease.probe is not None:
            continue
        for what, least, most, target in (
            ("CPUs", held.least_cpus, held.most_cpus, targets[0]),
            ("GiB", held.least_memory_gib, held.most_memory_gib, targets[1]),
        ):
            limits = float(least[held_gpus].sum()), float(most[held_gpus].sum())
            _within(what, float(target[held_gpus].sum()), limits, state.job_id(job))


def _within(what: str, total: float, limits: tuple[float, float], place: str) -> None:
    least, most = limits
    if total < least * (1.0 - _TOLERANCE) or total > most * (1.0 + _TOLERANCE):
        rule = f"a lease must have at least {least:g} and at most {most:g} {what}, as its range says"
        raise PlanError(_PLACEMENT, rule, value=f"{total:g}", place=place)
