"""The plan of a replay: real jobs with iterations, arrivals and sizes, and the scaled workload that simulates them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds, value
from eunomia.platform.profiles import Profile
from eunomia_testbed.performance.replay_profiles import Profiles
from eunomia_testbed.replay.draft import Draft, DraftJob, dropped
from eunomia_testbed.replay.faults.plan import FaultPlan
from eunomia_testbed.replay.scaling import Factors, scaled_profile, unscaled_profile
from eunomia_testbed.workload import Regime, Workload
from eunomia_testbed.workload.adaptation import named_model
from eunomia_testbed.workload.search import SimulatedSearch
from eunomia_testbed.workload.workload import AppColumns, JobColumns

LEAST_ITERATIONS: Final = 5
"""Fewest iterations of a job; a shorter job would consist mostly of its start."""
TOO_SHORT: Final = f"a job must have at least {LEAST_ITERATIONS} iterations at this speed"


@value
class PlannedApp:
    """An app of a replay: a single training job, or a search with several trials.

    Attributes:
        program: name of the program that its jobs train.
        command: command line of the program.
        batch_size: first global batch size.
        iterations: total work of a job in optimizer steps.
        alone_seconds: seconds of a job alone at its largest size, by the measured rates.
        model: the model in the trace; empty: the trace names none.
        why_stand_in: why the program stands in for the model; empty: it has the model's architecture.
        live: whether the job changes its size without a restart.
        trials: number of jobs.
        search: the search of the trace; None: the app has one job.
    """

    name: str
    user: str
    weight: float
    arrives_at_seconds: float
    least: int
    most: int
    program: str
    command: str
    batch_size: int
    mode: str
    iterations: int
    alone_seconds: float
    model: str
    why_stand_in: str
    live: bool = False
    trials: int = 1
    search: SimulatedSearch | None = None


@builds
class ReplayPlan:
    """The jobs, policies, cluster and faults that a replay runs and simulates.

    Attributes:
        apps: apps in order of arrival.
        workload: the same apps for the simulator, at the replay's times.
        profiles: policies by name, with scaled times.
        changes: by policy, the profile's times that are scaled, or that stay on an arbiter that runs, as text.
        seeds: seeds of the repeats.
        rho: kind of rho by which apps are judged.
        unfair_above: rho above which an app counts as treated unfairly.
        live: whether jobs of several sizes change their size without a restart.
        faults: faults of each run, real and simulated; None: no faults.
    """

    apps: tuple[PlannedApp, ...]
    workload: Workload
    profiles: Mapping[str, Profile]
    changes: Mapping[str, tuple[str, ...]]
    factors: Factors
    cluster: Cluster
    cluster_text: str
    seeds: tuple[int, ...]
    rho: str
    unfair_above: float
    live: bool = False
    faults: FaultPlan | None = None

    @property
    def demand(self) -> float:
        """Return the jobs' slot-seconds alone over the cluster's slot-seconds until the last arrival; inf: no time."""
        last = max((app.arrives_at_seconds for app in self.apps), default=0.0)
        work = math.fsum(app.alone_seconds * app.most * app.trials for app in self.apps)
        return work / (last * self.cluster.gpus) if last > 0.0 else math.inf

    @property
    def stand_ins(self) -> Mapping[str, tuple[str, str]]:
        """Return, for each model without a program of its own, the stand-in program and the reason."""
        return {app.model: (app.program, app.why_stand_in) for app in self.apps if app.why_stand_in}


def plan_of(
    draft: Draft,
    profiles: Profiles,
    *,
    speed: float,
    seeds: Sequence[int],
    trace_slots: int | None = None,
    scaled: bool = True,
) -> ReplayPlan:
    """Return the plan of a replay: each job's iterations, and the scaled arrivals and policies.

    A job has as many iterations as it makes alone, at its largest size on the fastest slot type, in its time in the
    trace divided by ``speed``.

    Args:
        draft: the jobs and their programs.
        profiles: measured rates.
        speed: seconds of the trace per second of the replay.
        seeds: seeds of the repeats.
        trace_slots: GPUs of the trace's own cluster; None: unknown.
        scaled: whether the times of the policies are scaled; those of an arbiter that runs are not.

    Raises:
        InputError: no job has enough iterations at this speed, or a rate is missing.
    """
    cluster = None if trace_slots is None else trace_slots / draft.slots.size
    factors = Factors(time=speed, gangs=draft.gangs, cluster=cluster)
    lengths = {job.row: _regimes(job, profiles, factors, draft) for job in draft.jobs}
    short = np.zeros(draft.workload.size, dtype=bool)
    work = [math.fsum(part.iterations for part in lengths[row]) for row in range(draft.workload.size)]
    short[[row for row, iterations in enumerate(work) if iterations < LEAST_ITERATIONS]] = True
    kept = dropped(draft.workload, {TOO_SHORT: (short, [f"{each:.3g} iterations" for each in work])})
    place = {name: row for row, name in enumerate(kept.jobs.id)}
    left = [job for job in draft.jobs if draft.workload.jobs.id[job.row] in place]
    workload, names = _workload(kept, left, lengths, factors, draft)
    make = scaled_profile if scaled else unscaled_profile
    policies = {name: make(profile, factors) for name, profile in draft.trace.profiles.items()}
    return ReplayPlan(
        apps=_apps(workload, lengths, names, factors, draft),
        workload=workload,
        profiles={name: each.profile for name, each in policies.items()},
        changes={name: each.changes for name, each in policies.items()},
        factors=factors,
        cluster=draft.slots.cluster,
        cluster_text=draft.slots.cluster_text,
        seeds=tuple(seeds),
        rho=draft.trace.rho,
        unfair_above=draft.trace.unfair_above,
        live=draft.live,
    )


def _regimes(job: DraftJob, profiles: Profiles, factors: Factors, draft: Draft) -> tuple[Regime, ...]:
    """Return the regimes of a job in whole iterations; a job that keeps its batch size has one."""
    found = []
    for regime in job.regimes:
        rate = _best_rate(job, regime.batch_size, profiles, draft)
        iterations = max(0, round(factors.seconds(regime.alone_seconds) * rate))
        found.append(
            Regime(iterations=iterations, batch_size=regime.batch_size, seconds_per_iteration=math.nan),
        )
    return tuple(part for part in found if part.iterations > 0)


def _best_rate(job: DraftJob, batch_size: int, profiles: Profiles, draft: Draft) -> float:
    """Return iterations per second at the job's largest size, on the slot type on which the job is fastest."""
    counts = draft.slots.counts
    able = [name for name, count in counts.items() if count >= job.most] or list(counts)
    known = [name for name in able if profiles.points(job.program.name, batch_size, name)]
    if not known:
        rule = "profiles must have the rate of each program and batch size on some slot type of the replay"
        value_found = f"none of {job.program.name} with batch size {batch_size} on {', '.join(able)}"
        raise InputError(rule, value=value_found, place="--profiles")
    return max(profiles.rate(job.program.name, batch_size, job.most, name) for name in known)


def _workload(
    kept: Workload, jobs: Sequence[DraftJob], lengths: Mapping[int, tuple[Regime, ...]], factors: Factors, draft: Draft
) -> tuple[Workload, dict[str, list[DraftJob]]]:
    """Return the simulator's workload, in which models are programs, and the jobs by app name."""
    by_app: dict[str, list[DraftJob]] = {}
    for job in jobs:
        by_app.setdefault(job.app, []).append(job)
    before = draft.workload
    start = float(before.jobs.arrival_seconds[[job.row for job in jobs]].min())
    of_app = {name: int(before.jobs.app[mine[0].row]) for name, mine in by_app.items()}
    arrival = {
        name: factors.seconds(min(float(before.jobs.arrival_seconds[job.row]) for job in mine) - start)
        for name, mine in by_app.items()
    }
    order = sorted(by_app, key=lambda name: arrival[name])
    rows = [(number, name, job) for number, name in enumerate(order) for job in by_app[name]]
    models = tuple(dict.fromkeys(named_model(job.program.name, job.batch_size) for _, _, job in rows))
    users = list(dict.fromkeys(job.user for _, _, job in rows))
    work = [lengths[job.row] for _, _, job in rows]
    arrivals = np.array([arrival[name] for _, name, _ in rows])
    numbered = [f"{name}/{by_app[name].index(job)}" for _, name, job in rows]
    return (
        dataclasses.replace(
            kept,
            users=dataclasses.replace(kept.users, id=users, weight=np.ones(len(users))),
            apps=AppColumns(
                id=order,
                user=np.array([users.index(by_app[name][0].user) for name in order], dtype=np.int64),
                weight=np.array([float(before.apps.weight[of_app[name]]) for name in order]),
                arrival_seconds=np.array([arrival[name] for name in order]),
            ),
            jobs=JobColumns(
                id=numbered,
                app=np.array([number for number, _, _ in rows], dtype=np.int64),
                arrival_seconds=arrivals,
                least=np.array([job.least for _, _, job in rows], dtype=np.int64),
                most=np.array([job.most for _, _, job in rows], dtype=np.int64),
                iterations=np.array([math.fsum(part.iterations for part in parts) for parts in work]),
                seconds_per_iteration=np.full(len(rows), math.nan),
                model=np.array([models.index(named_model(job.program.name, job.batch_size)) for _, _, job in rows]),
                batch_size=np.array([float(job.batch_size) for _, _, job in rows]),
                adaptation=[job.mode for _, _, job in rows],
            ),
            models=models,
            regimes={at: parts for at, parts in enumerate(work) if len(parts) > 1},
            searches={
                number: _scaled_search(kept.searches[app], by_app[name], before, lengths)
                for number, name in enumerate(order)
                for app in _search_rows(kept, before, of_app[name])
            },
            exclusive_seconds=None,
            reference_type=None,
            assumed_speeds={},
            source="replay",
        ),
        by_app,
    )


def _search_rows(kept: Workload, before: Workload, app: int) -> list[int]:
    """Return the row of a search in the workload without dropped jobs; empty: the app is not a search."""
    name = before.apps.id[app]
    row = list(kept.apps.id).index(name) if name in kept.apps.id else -1
    return [row] if row in kept.searches else []


def _scaled_search(
    search: SimulatedSearch, jobs: Sequence[DraftJob], before: Workload, lengths: Mapping[int, tuple[Regime, ...]]
) -> SimulatedSearch:
    """Return a search with options in iterations, and intervals of points, scaled to the replay's trials."""
    planned = max(math.fsum(part.iterations for part in lengths[job.row]) for job in jobs)
    ratio = planned / max(float(before.jobs.iterations[job.row]) for job in jobs)
    kept = [job.row for job in jobs]
    first = int(np.flatnonzero(before.jobs.app == before.jobs.app[kept[0]])[0])
    curves = tuple(search.curves[row - first] for row in kept) if search.curves else ()
    options = {
        name: max(1, round(option * ratio)) if isinstance(option, int) and name.endswith("iterations") else option
        for name, option in search.options.items()
    }
    every = max(1, round(search.every * ratio))
    return dataclasses.replace(search, options=options, curves=curves, every=every)


def _apps(
    workload: Workload,
    lengths: Mapping[int, tuple[Regime, ...]],
    by_app: Mapping[str, list[DraftJob]],
    factors: Factors,
    draft: Draft,
) -> tuple[PlannedApp, ...]:
    made = []
    for row, name in enumerate(workload.apps.id):
        mine = by_app[name]
        first = mine[0]
        iterations = [int(math.fsum(part.iterations for part in lengths[job.row])) for job in mine]
        largest = max(part.batch_size for part in first.regimes)
        made.append(
            PlannedApp(
                name=name,
                user=first.user,
                weight=float(workload.apps.weight[row]),
                arrives_at_seconds=float(workload.apps.arrival_seconds[row]),
                least=first.least,
                most=first.most,
                program=first.program.name,
                command=first.program.command(
                    batch_size=first.batch_size,
                    mode=first.mode,
                    largest_batch=largest if first.mode != "static" and largest > first.batch_size else None,
                ),
                batch_size=first.batch_size,
                mode=first.mode,
                iterations=max(iterations),
                alone_seconds=factors.seconds(max(job.alone_seconds for job in mine)),
                model=first.model,
                why_stand_in=first.why_stand_in,
                live=draft.is_live(first),
                trials=len(mine),
                search=workload.searches.get(row),
            )
        )
    return tuple(made)
