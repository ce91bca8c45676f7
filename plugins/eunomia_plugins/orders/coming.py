"""The remaining time of jobs with known future regimes, each of which has its own rate."""

import functools
import math

import numpy as np

from eunomia import Facts, Linear, Regimes
from eunomia.contract.keys import Line
from eunomia.units import Reals, Rows


def through_regimes(line: Line, facts: Facts, job: int, speed: float, gpus: int) -> Line:
    """Return the key of a job, corrected for its known future regimes if it has any.

    The regimes of a job cover the last part of its work, in order; the work left before them belongs to the present
    regime. A job with less work left than its future regimes has already entered them.

    Args:
        line: the job's key at its present rate.
        facts: facts whose menus have regimes.
        job: the job's row.
        speed: iterations per second at its own size in the present regime.
        gpus: factor on times: 1 for keys in seconds, the job's GPUs for keys in GPU-seconds.
    """
    regimes, table = facts.menus.regimes, facts.jobs
    stretches = None if regimes is None else _by_job(regimes).get(job)
    if stretches is None:
        return line
    running = table.since[job] == table.since[job]  # NaN: it does not run
    rate = table.rate[job] if running else 0.0
    ran = (facts.now - table.since[job]) * rate if running else 0.0
    left = max(table.iterations[job] - table.done[job] - ran, 0.0)
    behind, seconds, pace = _present(left, stretches, speed)
    if not (left > 0.0 and math.isfinite(seconds)):
        return line  # the work is done, or not known
    slope = -(rate / pace) * gpus
    at = ((left - behind) / pace + seconds) * gpus
    return Linear(at - slope * facts.now, slope, facts.now + (left - behind) / rate if rate > 0.0 else math.inf)


def seconds_through(regimes: Regimes, jobs: Rows, left: Reals, speed: Reals) -> Reals:
    """Return the seconds left of jobs that all have future regimes; NaN: not known.

    Args:
        regimes: future regimes of these and possibly other jobs.
        jobs: job rows.
        left: [job] iterations left.
        speed: [job] iterations per second in the present regime.
    """
    stretches, found = _by_job(regimes), np.empty(jobs.size)
    for index, (job, work, rate) in enumerate(zip(jobs.tolist(), left.tolist(), speed.tolist(), strict=True)):
        behind, seconds, pace = _present(work, stretches[job], rate)
        found[index] = (work - behind) / pace + seconds if pace > 0.0 else np.nan
    return found


@functools.lru_cache(maxsize=4)
def _by_job(regimes: Regimes) -> dict[int, list[tuple[float, float]]]:
    """Return the iterations and rate of each regime, by job row, in order."""
    found: dict[int, list[tuple[float, float]]] = {}
    columns = (regimes.job.tolist(), regimes.iterations.tolist(), regimes.rate.tolist())
    for job, iterations, rate in zip(*columns, strict=True):
        found.setdefault(job, []).append((iterations, rate))
    return found


def _present(left: float, stretches: list[tuple[float, float]], speed: float) -> tuple[float, float, float]:
    """Return the iterations after the present regime, the seconds that these take, and the present regime's rate."""
    behind = seconds = 0.0
    for iterations, rate in reversed(stretches):
        if left <= behind + iterations:
            return behind, seconds, rate
        behind += iterations
        seconds += iterations / rate if rate > 0.0 else np.nan
    return behind, seconds, speed
