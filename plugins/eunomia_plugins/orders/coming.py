"""The remaining time of jobs with known coming regimes: each regime has its own rate."""

from typing import NamedTuple

import numpy as np

from eunomia import LinearKey, Menus
from eunomia.contract.menus import Regimes
from eunomia.units import Reals, Rows


class Now(NamedTuple):
    """Progress and rate of jobs, with one entry for each job."""

    left: Reals
    """Iterations left of the whole work, coming regimes included."""
    rate: Reals
    """Iterations a second at present; 0: the job does not run."""
    seconds: float
    """Time in seconds since the start."""
    gpus: Reals
    """Factor on times: 1 for keys in seconds, GPUs for keys in GPU-seconds."""


def through_regimes(key: LinearKey, menus: Menus, jobs: Rows, speed: Reals, now: Now) -> LinearKey:
    """Replace the keys of jobs that have known coming regimes.

    The regimes of a job are in their order, and are the last of its work: what is left before them is the present
    regime's. A job that has less work left than its coming regimes have has done the first of them.

    Args:
        key: of the jobs at their present rates.
        menus: with or without regimes.
        jobs: job rows.
        speed: by job, iterations a second at its own size in the present regime.
        now: the jobs' progress.
    """
    regimes = menus.regimes
    if regimes is None or not np.isin(jobs, regimes.job).any():
        return key
    intercept, slope = key.intercept.copy(), np.broadcast_to(key.slope, jobs.shape).copy()
    until = np.broadcast_to(key.valid_until, jobs.shape).copy()
    stretches = _by_job(regimes)
    for index in np.flatnonzero(np.isin(jobs, regimes.job)).tolist():
        left, rate = float(now.left[index]), float(now.rate[index])
        behind, seconds, pace = _present(left, stretches[int(jobs[index])], float(speed[index]))
        if not (left > 0.0 and np.isfinite(seconds)):
            continue  # the work is done, or not known
        falls = rate / pace
        at = ((left - behind) / pace + seconds) * now.gpus[index]
        slope[index] = -falls * now.gpus[index]
        intercept[index] = at - slope[index] * now.seconds
        until[index] = now.seconds + (left - behind) / rate if rate > 0.0 else np.inf
    return LinearKey(intercept=intercept, slope=slope, valid_until=until)


def seconds_through(regimes: Regimes, jobs: Rows, left: Reals, speed: Reals) -> Reals:
    """Return the seconds left of jobs that all have coming regimes; NaN: not known.

    Args:
        regimes: of these jobs, and maybe of others.
        jobs: job rows.
        left: by job, iterations left.
        speed: by job, iterations a second in the present regime.
    """
    stretches, found = _by_job(regimes), np.empty(jobs.size)
    for index, (job, work, rate) in enumerate(zip(jobs.tolist(), left.tolist(), speed.tolist(), strict=True)):
        behind, seconds, pace = _present(work, stretches[job], rate)
        found[index] = (work - behind) / pace + seconds if pace > 0.0 else np.nan
    return found


def _by_job(regimes: Regimes) -> dict[int, list[tuple[float, float]]]:
    """Iterations and rate of each regime, by job row, in order."""
    found: dict[int, list[tuple[float, float]]] = {}
    columns = (regimes.job.tolist(), regimes.iterations.tolist(), regimes.rate.tolist())
    for job, iterations, rate in zip(*columns, strict=True):
        found.setdefault(job, []).append((iterations, rate))
    return found


def _present(left: float, stretches: list[tuple[float, float]], speed: float) -> tuple[float, float, float]:
    """Return the present regime: iterations after it, the seconds that these take, and its rate."""
    behind = seconds = 0.0
    for iterations, rate in reversed(stretches):
        if left <= behind + iterations:
            return behind, seconds, rate
        behind += iterations
        seconds += iterations / rate if rate > 0.0 else np.nan
    return behind, seconds, speed
