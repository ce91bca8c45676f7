"""Describes the size of a trace in a sentence, so that wrong units are noticed."""

from __future__ import annotations

import numpy as np

from eunomia.units import Reals
from eunomia_testbed.evidence.wording import seconds_in, unit_of
from eunomia_testbed.workload import Workload


def gpu_hours(workload: Workload) -> Reals:
    """Return each job's GPU-hours at its largest gang, by the workload's own times; NaN: unknown."""
    return seconds_alone(workload) * workload.jobs.most / 3600.0


def seconds_alone(workload: Workload) -> Reals:
    """Return each job's run time in seconds at its largest gang, by the workload's own times; NaN: unknown."""
    jobs = workload.jobs
    seconds: Reals = jobs.iterations * jobs.seconds_per_iteration
    for job, regimes in workload.regimes.items():
        of_regimes = sum(regime.iterations * regime.seconds_per_iteration for regime in regimes)
        seconds[job] = seconds[job] if np.isnan(of_regimes) else of_regimes
    return seconds


def extent_of(workload: Workload) -> str | None:
    """Return a sentence with arrival span, GPU-hours and longest job; None: no job has a time."""
    seconds = seconds_alone(workload)
    known = seconds[np.isfinite(seconds)]
    if known.size == 0:
        return None
    span = float(np.ptp(workload.jobs.arrival_seconds))
    hours = float(np.nansum(gpu_hours(workload)))
    work = f"{hours:,.0f}" if hours >= 10.0 else f"{hours:.2g}"
    return (
        f"jobs arrive over {_time(span)}; {work} GPU hours by the trace's times, the longest job {_time(known.max())}"
    )


def _time(seconds: float) -> str:
    unit = unit_of(seconds)
    return f"{seconds_in(unit)(seconds)} {unit}"
