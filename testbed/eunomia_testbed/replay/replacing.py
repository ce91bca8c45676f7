"""Replaces one input after another in a replay's simulation by a real run's, to explain their difference.

Times of a real run reach the simulator only by these replacements, and only for this purpose: the simulation to which
real runs are compared uses only the plan and the measurements from before the replay.
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
"""Cause: mean iterations per second of each program in each setting over the run."""
COSTS: Final = "costs"
"""Cause: mean seconds of starts, restores, saves and the other costs over the run."""
ARRIVALS: Final = "arrivals"
"""Cause: the time at which each app arrived, and at which its app master had added its first job."""
JOBS: Final = "rates of single jobs"
"""Cause: the speed of each app's jobs relative to the mean of their program in the run."""


@builds
class RunTimes:
    """The inputs of a simulation as a real run had them: rates, costs, arrivals and slowness.

    Attributes:
        profiles: rates; for settings in which no job ran, those measured before the run.
        costs: mean costs.
        arrivals: by app, seconds from the run's first arrival to the app's arrival, and to that of the app's first job.
        slowness: by app, the time that the app's steps took over the time predicted by ``profiles``.
    """

    profiles: Profiles
    costs: Costs
    arrivals: Mapping[str, tuple[float, float]]
    slowness: Mapping[str, float]


def run_times(record: LiveRecord, plan: ReplayPlan, profiles: Profiles, costs: Costs) -> RunTimes:
    """Return the rates, costs, arrivals and slowness of a real run.

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
    """Simulate one policy and repeat, with one more cause replaced at each stage; return means over draws.

    The last stage uses the real speed of each app's jobs, and draws no rates.

    Args:
        plan: the plan.
        profiles: the rates measured before.
        costs: the costs measured before.
        times: the inputs as the run had them.
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
    """Yield a rate sample for each period of an app's jobs on slots of a single type."""
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
    """Return the found rates, and for all other settings the earlier ones."""
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
    """Return the plan with the arrivals of a run; an app that did not arrive keeps its planned arrival."""
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
    """Return the plan with each job's work multiplied by the slowness of the job's app in the run."""
    workload = plan.workload
    factors = np.array([slowness.get(workload.apps.id[app], 1.0) for app in workload.jobs.app.tolist()])
    return dataclasses.replace(plan, workload=slowed(workload, factors))
