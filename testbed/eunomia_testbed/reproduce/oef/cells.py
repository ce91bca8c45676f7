"""One cell of OEF's reproduction: an allocation of GPUs to tenants, or a simulation of their jobs."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from eunomia.model.shapes import value
from eunomia.units import Reals
from eunomia_testbed.audit.instances import AuditInstance
from eunomia_testbed.audit.policy import AuditedPolicy
from eunomia_testbed.reproduce.oef.tenants import (
    CHANGE,
    OF_A_TYPE,
    SECOND,
    TYPES,
    Group,
    Tenants,
    ending,
    endless,
    instance,
    speeds_of,
)
from eunomia_testbed.reproduce.paper import cell_key
from eunomia_testbed.reproduce.recipes import Recipe, run_profile
from eunomia_testbed.reproduce.rows import read_policies
from eunomia_testbed.simulator import Keep, Reports, SimulatedRun, SimulationOptions, simulate_one
from eunomia_testbed.simulator.options import Costs
from eunomia_testbed.workload import Workload

VERSION = 1
"""Version of the stored results; results of other versions are not reused."""
POLICIES = read_policies(Path(__file__).parent)
"""Policies by their names in the paper."""
ROUNDED_BY_GAVEL = ("gavel", "gandiva_fair")
"""Policies whose shares the refiner ``gavel_rounds`` turns into GPUs; the others use ``rounding``."""
ROUND = "300s"
RESTART = 10.0
"""Seconds that a start takes (assumed; the paper does not state it)."""
BEFORE = 1800.0
"""Throughput before a change is averaged over the first 1800 s, since a leaving tenant's jobs end one by one."""
ALLOCATION, ROUNDS, COMPLETION, OVERHEAD = "allocation", "rounds", "completion", "overhead"
LEAVES, JOINS = "leaves", "joins"


@value
class OefCell:
    """One allocation or simulation of the reproduction."""

    what: str
    """The task: ``allocation``: shares alone; ``rounds``: simulated jobs that do not end; ``completion``: simulated
    jobs that end; ``overhead``: the time of one allocation."""
    policy: str
    seed: int
    tenants: int
    speeds: str
    throughputs: str = ""
    placement: str = "packed"
    lie: float = 1.0
    """Factor by which tenant 1 misreports its speedup on the fastest type; the square root of it on the middle type."""
    error: float = 0.0
    """Relative error of the reported rates by GPU type."""
    change: str = ""
    """Change in the 40th minute: ``leaves``: tenant 4 leaves; ``joins``: tenant 1 adds jobs of a second model."""
    hours: float = 8.0
    load: float = 1.0
    """Total work of jobs that end, over what the cluster does in three days if all GPUs are of the slowest type."""
    one_refiner: bool = False
    """Whether all policies use the refiner ``rounding``, in rounds that may move every job, and Gavel recomputes shares
    at every arrival, so that policies differ only in the allocation."""

    @property
    def key(self) -> str:
        """Return the unique name of the cell."""
        return cell_key(dataclasses.replace(self, throughputs=""), VERSION, self.what, self.policy, self.seed)

    @property
    def drawn(self) -> Tenants:
        """Return the tenants of the cell."""
        return Tenants(speeds=self.speeds, throughputs=self.throughputs, count=self.tenants, seed=self.seed)


@value
class OefFigures:
    """The results of a cell; throughputs are in GPUs of a tenant's slowest type."""

    before: tuple[float, ...] = ()
    """Throughput of each tenant before the change."""
    throughput: tuple[float, ...] = ()
    """Throughput of each tenant after the change; a second model of tenant 1 comes last."""
    with_others: tuple[float, ...] = ()
    """Largest throughput that each tenant would have with the GPUs of another tenant."""
    with_first: tuple[float, ...] = ()
    """Throughput that each tenant would have with the GPUs of tenant 1."""
    promised: float = 0.0
    """Sum of throughputs according to the reported speedups."""
    mean_jct_seconds: float = 0.0
    mixed: float = 0.0
    """Fraction of the GPU time of gangs that spanned machines of several GPU types."""
    several: float = 0.0
    """Fraction of the GPU time of gangs that spanned several hosts."""
    finished: float = 1.0
    """Fraction of the jobs that finished."""
    cpu_seconds: float = 0.0

    @property
    def total(self) -> float:
        """Return the sum of the tenants' throughputs."""
        return sum(self.throughput)


def recipe_of(cell: OefCell) -> Recipe:
    """Return the recipe of a cell, with rounds of five minutes; placement by types starts with the fastest GPUs."""
    if cell.what == OVERHEAD:
        return Recipe(policy=cell.policy, preset=POLICIES[cell.policy].preset)
    settings: dict[str, object] = {"stages.placement": cell.placement}
    if cell.one_refiner:
        settings |= _one_refiner(cell.policy)
    elif cell.policy in ROUNDED_BY_GAVEL:
        settings["plugins.gavel_rounds.round_length"] = ROUND
        settings["plugins.gavel_rounds.types"] = list(reversed(TYPES[cell.speeds]))
    else:
        settings["plugins.rounding.round_length"] = ROUND
    return Recipe(policy=cell.policy, preset=POLICIES[cell.policy].preset, settings=settings)


def _one_refiner(policy: str) -> dict[str, object]:
    """Return the settings under which policies differ only in the allocation."""
    settings: dict[str, object] = {
        "stages.refiners": ["rounding"],
        "plugins.rounding.round_length": ROUND,
        "rounds.scope": "all",
    }
    if policy in ROUNDED_BY_GAVEL:
        settings["plugins.rounding.shares"] = "time"
        settings[f"plugins.{'max_min_fairness' if policy == 'gavel' else policy}.least_between"] = "0s"
    return settings


def run_cell(cell: OefCell) -> OefFigures:
    """Run the cell's task and return its results."""
    began = time.process_time()
    found = _RUN[cell.what](cell)
    return found if found.cpu_seconds else dataclasses.replace(found, cpu_seconds=time.process_time() - began)


# --- shares alone -----------------------------------------------------------------------------------------------------


def _allocated(cell: OefCell) -> OefFigures:
    """Return the throughputs of the shares, for all tenants and after the change."""
    policy = AuditedPolicy(run_profile(recipe_of(cell)), seed=cell.seed)
    models = list(cell.drawn.models)
    speedup, weight = cell.drawn.speedups(models), [1.0] * len(models)
    first = _shares(cell, policy, instance(speedup, weight))
    if not cell.change:
        return first
    if cell.change == LEAVES:
        later = instance(speedup[:-1], weight[:-1])
    else:
        both = np.vstack([speedup, cell.drawn.speedups([SECOND[cell.speeds]])])
        later = instance(both, [0.5, *weight[1:], 0.5])
    return dataclasses.replace(_shares(cell, policy, later), before=first.throughput)


def _shares(cell: OefCell, policy: AuditedPolicy, of: AuditInstance) -> OefFigures:
    reports = _reports(cell, of)
    gpus = policy.outcome(of, tuple(map(tuple, reports.tolist()))).gpus
    speeds = of.speeds()
    with_others = speeds @ gpus.T
    own = np.diag(with_others)
    apart = with_others - np.diag(np.full(own.size, np.inf))
    relative = reports / reports.min(axis=1, keepdims=True)
    return OefFigures(
        throughput=tuple(own.tolist()),
        with_others=tuple(apart.max(axis=1).tolist()),
        with_first=tuple(with_others[:, 0].tolist()),
        promised=float((relative * gpus).sum()),
    )


def _reports(cell: OefCell, of: AuditInstance) -> Reals:
    """Return the speedups that tenants report, [tenant, type]."""
    luck = np.random.default_rng([cell.seed, 20])
    reports = of.speeds() * luck.uniform(1.0 - cell.error, 1.0 + cell.error, (of.users, of.types))
    reports[0] *= cell.lie ** (np.arange(of.types) / (of.types - 1))
    return reports


# --- simulations ------------------------------------------------------------------------------------------------------


def _rounds(cell: OefCell) -> OefFigures:
    """Return the throughputs over simulated rounds, before and after the change."""
    groups = _groups(cell)
    run = _simulated(cell, endless(cell.drawn, groups), until=cell.hours * 3600.0)
    from_seconds = 2.0 * CHANGE if cell.change else 0.0
    after = _throughput(run, len(groups), from_seconds, cell.hours * 3600.0)
    before = _throughput(run, len(groups), 0.0, BEFORE) if cell.change else ()
    mixed, several = _apart(run, cell)
    return OefFigures(before=before, throughput=after, mixed=mixed, several=several)


def _groups(cell: OefCell) -> list[Group]:
    models = cell.drawn.models
    groups = [Group(tenant=row, model=model) for row, model in enumerate(models)]
    if cell.change == LEAVES:
        expected = _allocated(dataclasses.replace(cell, change="")).throughput[-1]
        groups[-1] = dataclasses.replace(groups[-1], work=expected * CHANGE)
    if cell.change == JOINS:
        groups.append(Group(tenant=0, model=SECOND[cell.speeds], arrives=CHANGE))
    return groups


def _simulated(cell: OefCell, workload: Workload, *, until: float) -> SimulatedRun:
    kinds = TYPES[cell.speeds]
    lie = {kind: cell.lie ** (row / (len(kinds) - 1)) for row, kind in enumerate(kinds) if row}
    lies = {} if cell.lie == 1.0 else {str(workload.apps.id[0]): lie}
    options = SimulationOptions(
        costs=Costs(start=RESTART),
        reports=Reports(know="oracle", type_lies=lies, errors={"types": cell.error} if cell.error else {}),
        until=until,
        keep=Keep(rounds=False, waits=False, queue=False, records=False, timings=False, segments=True),
    )
    speeds = speeds_of(cell.speeds, cell.throughputs)
    return simulate_one(
        workload, cell.drawn.cluster(), run_profile(recipe_of(cell)), options=options, models=speeds, seed=cell.seed
    )


def _throughput(run: SimulatedRun, groups: int, start: float, end: float) -> tuple[float, ...]:
    """Return each group's iterations per second between two times, in GPUs of its slowest type."""
    rows = run.segments
    stretch = np.minimum(rows.end_seconds, end) - np.maximum(rows.start_seconds, start)
    done = np.maximum(stretch, 0.0) / rows.seconds_per_iteration
    by_job = np.bincount(rows.job, weights=done, minlength=run.finish_seconds.size)
    by_group = by_job.reshape(groups, -1).sum(axis=1) / (end - start)
    return tuple(by_group.tolist())


def _apart(run: SimulatedRun, cell: OefCell) -> tuple[float, float]:
    """Return the fractions of the GPU time of gangs that ran on several GPU types, and on several hosts."""
    cluster, leases = cell.drawn.cluster(), run.leases
    end = np.where(np.isnan(leases.end_seconds), run.end_seconds, leases.end_seconds)
    order = np.lexsort((leases.start_seconds, leases.job))
    job, start = leases.job[order], leases.start_seconds[order]
    first = np.flatnonzero(np.r_[True, (job[1:] != job[:-1]) | (start[1:] != start[:-1])])
    held = (end - leases.start_seconds)[order]
    size = np.diff(np.r_[first, job.size])
    time_held = np.add.reduceat(held, first)[size > 1]
    parts = []
    for of_gpu in (cluster.gpu_type, cluster.machine):
        at = np.asarray(of_gpu)[leases.gpu[order]]
        spread = np.maximum.reduceat(at, first) != np.minimum.reduceat(at, first)
        parts.append(float(time_held[spread[size > 1]].sum() / max(time_held.sum(), 1e-9)))
    return parts[0], parts[1]


def _completion(cell: OefCell) -> OefFigures:
    """Return the completion times of jobs that end, from a run as long as they need, but at most 30 days."""
    workload = ending(cell.drawn, cell.load)
    run = _simulated(cell, workload, until=30.0 * 86_400.0)
    taken = run.app_finish_seconds - workload.apps.arrival_seconds
    mixed, several = _apart(run, cell)
    done = ~np.isnan(taken)
    return OefFigures(
        mean_jct_seconds=float(taken[done].mean()) if done.any() else math.nan,
        mixed=mixed,
        several=several,
        finished=float(done.mean()),
    )


# --- overhead ---------------------------------------------------------------------------------------------------------


def _overhead(cell: OefCell) -> OefFigures:
    """Return the CPU time of one round of an arbiter, for tenants with one job each on ten GPU types (§6.4.1)."""
    luck = np.random.default_rng([cell.seed, cell.tenants])
    types = 10
    speed = np.linspace(1.0, 4.0, types)[None, :] ** luck.uniform(0.1, 1.6, cell.tenants)[:, None]
    speed = speed * luck.lognormal(0.0, 0.08, speed.shape)
    of = AuditInstance(
        speedup=tuple(map(tuple, speed.tolist())),
        weight=(1.0,) * cell.tenants,
        gpus=(OF_A_TYPE,) * types,
        jobs=(1,) * cell.tenants,
    )
    policy = AuditedPolicy(run_profile(recipe_of(cell)), seed=cell.seed)
    began = time.process_time()
    policy.outcome(of)
    return OefFigures(cpu_seconds=time.process_time() - began)


_RUN: Mapping[str, Callable[[OefCell], OefFigures]] = {
    ALLOCATION: _allocated,
    ROUNDS: _rounds,
    COMPLETION: _completion,
    OVERHEAD: _overhead,
}
