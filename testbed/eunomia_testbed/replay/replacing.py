"""Replaces one cause after the other in the simulation of a replay by what a real run had, to explain their difference.

These replacements are the only way by which a time of a real run reaches the simulator, and only for this purpose: the
simulation that the real runs are held against gets the plan and what was measured before alone.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from eunomia.model.shapes import builds
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.performance.replay_profiles import Costs, Profiles
from eunomia_testbed.replay.fidelity import Stage, mean_figures
from eunomia_testbed.replay.measuring.reading import MeasuredApp, RateSample, read_samples, starts_of
from eunomia_testbed.replay.measuring.summary import mean_costs, profiles_of
from eunomia_testbed.replay.plan import ReplayPlan
from eunomia_testbed.replay.twin import simulate_plan, slowed, with_draws

RATES: Final = "rates"
"""Iterations per second of each program in each setting, in the mean over the run."""
COSTS: Final = "costs"
"""Seconds of starts, restores, saves and the rest, in the mean over the run."""
ARRIVALS: Final = "arrivals"
"""When each app arrived, and when its app master had added its jobs."""
JOBS: Final = "rates of single jobs"
"""How fast each job was in relation to its program in the run."""


@builds
class RunTimes:
    """What a real run had in place of what was measured before it.

    Attributes:
        profiles: rates; those of settings in which no job ran are as measured before.
        costs: mean costs.
        arrivals: by app, seconds from the first arrival to its own, and to that of its first job.
        slowness: by app, the time that its steps took over the time that they take by ``profiles``.
    """

    profiles: Profiles
    costs: Costs
    arrivals: Mapping[str, tuple[float, float]]
    slowness: Mapping[str, float]


def run_times(record: LiveRecord, plan: ReplayPlan, profiles: Profiles, costs: Costs) -> RunTimes:
    """Return the times of a real run.

    Args:
        record: the record of the run, already read to its end.
        plan: the plan of the run.
        profiles: the rates measured before.
        costs: the costs measured before.
    """
    types = _slot_types(record)
    apps = {
        app.name: MeasuredApp(program=app.program, batch_size=app.batch_size, slot_type=types[0] if types else "")
        for app in plan.apps
        if app.name in record.apps
    }
    samples = read_samples(record, apps)
    keeps_batch = {app.name for app in plan.apps if app.mode == "static"}
    rates = [(name, sample) for name in apps if name in keeps_batch for sample in _rates(record, name, apps, types)]
    found = profiles_of([sample for _, sample in rates], profiles.slot_speeds)
    merged = _merged(profiles, found)
    first = record.arrived_at or 0.0
    arrivals = {}
    for name in apps:
        added = [at for job, at in record.job_arrived_at.items() if job.rpartition("/")[0] == name]
        at = record.apps[name].arrived_at
        arrivals[name] = (at - first, min(added, default=at) - first)
    return RunTimes(
        profiles=merged,
        costs=mean_costs(samples.costs, costs),
        arrivals=arrivals,
        slowness=_slowness(rates, merged),
    )


def stages_of(
    plan: ReplayPlan, profiles: Profiles, costs: Costs, times: RunTimes, *, policy: str, seed: int, folder: Path
) -> list[Stage]:
    """Simulate one policy and repeat with one cause more of the run at each stage, in the mean over draws of rates.

    The last stage has the speed that each job had, and nothing is drawn.

    Args:
        plan: the plan.
        profiles: the rates measured before.
        costs: the costs measured before.
        times: the run's own times.
        policy: the policy of the run.
        seed: the seed of the run.
        folder: folder for the simulations.
    """
    one = dataclasses.replace(plan, profiles={policy: plan.profiles[policy]}, seeds=(seed,))
    drawn = with_draws(one, profiles)
    rest = dataclasses.replace(times.costs, arrive_seconds=0.0)
    arrived = _with_arrivals(drawn, times.arrivals)
    jobs = dataclasses.replace(_with_slowness(arrived, times.slowness), seeds=(seed,))
    inputs = [
        ("", drawn, profiles, costs),
        (RATES, drawn, times.profiles, costs),
        (COSTS, drawn, times.profiles, times.costs),
        (ARRIVALS, arrived, times.profiles, rest),
        (JOBS, jobs, times.profiles.without_spread(), rest),
    ]
    return [
        Stage(cause=cause, figures=mean_figures(simulate_plan(given, known, paid, folder / str(number)), policy))
        for number, (cause, given, known, paid) in enumerate(inputs)
    ]


# -- small parts


def _slot_types(record: LiveRecord) -> list[str]:
    """Return the type of each slot by its number in the cluster."""
    return [machine.gpu_type for machine in record.machines for _ in range(machine.gpus)]


def _rates(
    record: LiveRecord, name: str, apps: Mapping[str, MeasuredApp], types: Sequence[str]
) -> Iterator[RateSample]:
    """Yield the steps of each start of an app's jobs on slots of one type."""
    for start in starts_of(record, name):
        for each in start.stretches:
            on = {types[slot] for slot in each.slots}
            if len(on) == 1:
                yield RateSample(
                    program=apps[name].program,
                    batch_size=apps[name].batch_size,
                    slots=len(each.slots),
                    slot_type=on.pop(),
                    steps=each.steps,
                    seconds=each.seconds,
                )


def _merged(before: Profiles, found: Profiles) -> Profiles:
    """Return the rates found, and for settings without one those measured before."""
    rates = {
        (rate.program, rate.batch_size, rate.slots, rate.slot_type): rate for rate in (*before.rates, *found.rates)
    }
    return Profiles(rates=tuple(rates.values()), slot_speeds=before.slot_speeds)


def _slowness(rates: Sequence[tuple[str, RateSample]], profiles: Profiles) -> dict[str, float]:
    took: dict[str, float] = defaultdict(float)
    due: dict[str, float] = defaultdict(float)
    for name, each in rates:
        took[name] += each.seconds
        due[name] += each.steps / profiles.rate(each.program, each.batch_size, each.slots, each.slot_type)
    return {name: took[name] / due[name] for name in took if due[name] > 0.0}


def _with_arrivals(plan: ReplayPlan, arrivals: Mapping[str, tuple[float, float]]) -> ReplayPlan:
    """Return the plan with the arrivals of a run; an app that did not arrive keeps the planned one."""
    workload = plan.workload
    apps, jobs = workload.apps, workload.jobs
    planned = [(float(at), float(at)) for at in apps.arrival_seconds]
    found = [arrivals.get(name, there) for name, there in zip(apps.id, planned, strict=True)]
    changed = dataclasses.replace(
        workload,
        apps=dataclasses.replace(apps, arrival_seconds=np.array([at for at, _ in found])),
        jobs=dataclasses.replace(jobs, arrival_seconds=np.array([found[app][1] for app in jobs.app.tolist()])),
    )
    return dataclasses.replace(plan, workload=changed)


def _with_slowness(plan: ReplayPlan, slowness: Mapping[str, float]) -> ReplayPlan:
    """Return the plan in which a job that was slower than its program in the run has so much more work."""
    workload = plan.workload
    factors = np.array([slowness.get(workload.apps.id[app], 1.0) for app in workload.jobs.app.tolist()])
    return dataclasses.replace(plan, workload=slowed(workload, factors))
