"""The time that a job has left when its coming regimes are known: each stretch of work at its own rate."""

from typing import NamedTuple

import numpy as np

from eunomia import LinearKey, Menus
from eunomia.units import Reals, Rows


class Now(NamedTuple):
    """What jobs have done and how fast they go, one entry a job."""

    left: Reals
    """Iterations left of the whole work, the coming regimes included."""
    rate: Reals
    """Iterations a second in truth; 0: it does not run."""
    seconds: float
    """Time in seconds since the start."""
    gpus: Reals
    """By which a time is multiplied: 1 for seconds."""


def through_regimes(key: LinearKey, menus: Menus, jobs: Rows, speed: Reals, now: Now) -> LinearKey:
    """Replace the keys of jobs whose coming regimes are known.

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
    for index in np.flatnonzero(np.isin(jobs, regimes.job)).tolist():
        own = regimes.job == jobs[index]
        stretches = [*zip(regimes.iterations[own].tolist(), regimes.rate[own].tolist(), strict=True)]
        left, rate = float(now.left[index]), float(now.rate[index])
        behind, seconds, pace = _present(left, stretches, float(speed[index]))
        if not (left > 0.0 and np.isfinite(seconds)):
            continue  # the work is done, or not known
        falls = rate / pace
        at = ((left - behind) / pace + seconds) * now.gpus[index]
        slope[index] = -falls * now.gpus[index]
        intercept[index] = at - slope[index] * now.seconds
        until[index] = now.seconds + (left - behind) / rate if rate > 0.0 else np.inf
    return LinearKey(intercept=intercept, slope=slope, valid_until=until)


def _present(left: float, stretches: list[tuple[float, float]], speed: float) -> tuple[float, float, float]:
    """The present stretch: iterations behind it, the seconds that these take, and the rate in it."""
    behind = seconds = 0.0
    for iterations, rate in reversed(stretches):
        if left <= behind + iterations:
            return behind, seconds, rate
        behind += iterations
        seconds += iterations / rate if rate > 0.0 else np.nan
    return behind, seconds, speed
