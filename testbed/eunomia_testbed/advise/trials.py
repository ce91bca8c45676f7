"""A trial of a policy on the beginning of a trace: its CPU time, and whether it uses the lengths of jobs."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from eunomia.errors import EunomiaError
from eunomia.model.shapes import builds
from eunomia_testbed.advise.variations import with_wrong_lengths
from eunomia_testbed.calls.notes import CallNotes
from eunomia_testbed.calls.watch import CallWatch
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.simulator import Progress, SimulatedRun, simulate_one
from eunomia_testbed.spec.fitting import LeftOut
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.taking import taken

TRIAL_APPS: Final = 200
"""Number of apps at the start of the trace on which each policy is tried first."""
GROWTH: Final = 1.3
"""Exponent of the assumed growth of a simulation's CPU time with the number of apps."""


@builds
class FirstRun:
    """A policy's trial on the beginning of the trace."""

    cpu_seconds: float
    """Expected CPU seconds of one run of the whole trace."""
    uses_lengths: bool
    """Whether wrong reports of the jobs' work change the policy's decisions."""
    spent_seconds: float
    """CPU seconds of the trial itself."""
    failure: str = ""
    """Why the policy cannot run on the trace; empty: it can."""


class _TooLongError(Exception):
    """A run of the trial exceeded its limit of CPU time."""


def trial(plan: Plan, name: str, trace: Workload, most_seconds: float) -> FirstRun:
    """Run a policy on the first apps of the trace, with true and with wrong reports of work.

    A run that takes more than ``most_seconds`` of CPU time is cut off: of the first run, the limit counts as its time;
    if only the second run is cut off, the policy counts as one that uses lengths.
    """
    start = start_of(trace)
    longer = (len(trace.apps.id) / len(start.apps.id)) ** GROWTH
    runs = []
    began = time.process_time()
    for each in (plan, with_wrong_lengths(plan)):
        options = each.options_of(start, resampled=True)
        options = dataclasses.replace(options, keep=dataclasses.replace(options.keep, timings=True))
        profile, watch = plan.profiles[name], CallWatch(plan.limits, CallNotes(f"{name}, trial on the first apps"))
        try:
            runs.append(
                simulate_one(
                    start,
                    plan.cluster,
                    profile,
                    options=options,
                    models=plan.models,
                    watch=watch,
                    progress=_until(time.process_time() + most_seconds),
                )
            )
        except _TooLongError:
            spent = time.process_time() - began
            whole = longer * (_seconds(runs[0]) if runs else most_seconds)
            return FirstRun(cpu_seconds=whole, uses_lengths=bool(runs), spent_seconds=spent)
        except EunomiaError as error:
            spent, failure = time.process_time() - began, f"its run failed: {error}"
            return FirstRun(cpu_seconds=0.0, uses_lengths=False, spent_seconds=spent, failure=failure)
    seconds = [_seconds(run) for run in runs]
    same = np.array_equal(runs[0].finish_seconds, runs[1].finish_seconds, equal_nan=True)
    return FirstRun(cpu_seconds=seconds[0] * longer, uses_lengths=not same, spent_seconds=sum(seconds))


def _until(end: float) -> Callable[[Progress], None]:
    """Return a progress callback that aborts the run once ``time.process_time`` passes ``end``."""

    def check(_: Progress) -> None:
        if time.process_time() > end:
            raise _TooLongError

    return check


def _seconds(run: SimulatedRun) -> float:
    return run.timings.get("step", 0.0) + run.timings.get("driver", 0.0)


def start_of(trace: Workload) -> Workload:
    """Return the workload of the first ``TRIAL_APPS`` apps of a trace."""
    apps = min(TRIAL_APPS, len(trace.apps.id))
    return taken(trace, np.arange(apps, dtype=np.int64), trace.apps.arrival_seconds[:apps])


def too_slow(name: str, tried: FirstRun, resamples: int) -> LeftOut:
    """Return the entry of a policy that is left out, because its resamples exceed the budget.

    Args:
        name: the policy.
        tried: its trial.
        resamples: the fewest resamples that give an interval.
    """
    reason = (
        f"too slow for the budget: the trace and {resamples} resamples take about "
        f"{minutes((1 + resamples) * tried.cpu_seconds)} min of CPU time (a larger --budget takes it in)"
    )
    return LeftOut(policy=name, reason=reason)


def minutes(seconds: float) -> int:
    """Return a duration in whole minutes, rounded up."""
    return max(1, math.ceil(seconds / 60.0))
