"""The loop of ``prefixes.Raising`` on columns, compiled by numba on the first call.

It performs the divisions of ``shares`` in the same order, so that every comparison has the same result.
"""

import numpy as np
from numba import njit

from eunomia.units import Ints, Reals


@njit(cache=True)
def raise_sizes(start: Ints, sizes: Ints, seconds: Reals, steps: Ints, gpus: int, known: bool) -> None:
    """Raise the steps of jobs until no further step fits.

    Args:
        start: [job + 1] first row of each job.
        sizes: [row] number of GPUs.
        seconds: [row] seconds left at that size.
        steps: [job] index of its size, or -1 without GPUs; changed in place.
        gpus: number of GPUs to share.
        known: whether the jobs' lengths are known and compared (AFS-L), or not (AFS-P).
    """
    jobs = steps.size
    gains, needs, found = np.empty((3, jobs)), np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    for job in range(jobs):
        _look(start, sizes, seconds, steps, job, gains, needs)
    widest = max(1, np.diff(sizes).max()) if sizes.size > 1 else 1
    count, begin = 0, 0
    while True:
        count = _extend(gains, needs, found, count, begin, gpus, known)
        if count == 0:
            return
        best = found[count - 1]
        steps[best] += 1
        gpus -= needs[best]
        _look(start, sizes, seconds, steps, best, gains, needs)
        # A job whose next size no longer fits is removed from every prefix.
        begin = best if gpus >= widest else 0
        while count and found[count - 1] >= begin:
            count -= 1


@njit(cache=True)
def _look(start: Ints, sizes: Ints, seconds: Reals, steps: Ints, job: int, gains: Reals, needs: Ints) -> None:
    """Store the GPUs that a job's next size adds, its gains as the longer and the shorter job, and its seconds."""
    row = start[job] + steps[job]
    if steps[job] < 0 or row + 1 >= start[job + 1]:
        gains[0, job] = gains[1, job] = -np.inf
        gains[2, job], needs[job] = 0.0, np.iinfo(np.int64).max
        return
    more = sizes[row + 1] - sizes[row]
    now, then = seconds[row], seconds[row + 1]
    gains[0, job] = (now - then) / now / more if now > 0.0 else 0.0
    gains[1, job] = (now - then) / then / more if then > 0.0 else 0.0
    gains[2, job], needs[job] = now, more


@njit(cache=True)
def _extend(gains: Reals, needs: Ints, found: Ints, count: int, begin: int, gpus: int, known: bool) -> int:
    """Append to ``found`` the jobs from ``begin`` on that are the best of a prefix, and return the new count."""
    longer, shorter, left = gains
    for job in range(begin, needs.size):
        if needs[job] > gpus:
            continue
        if count == 0:
            takes = True
        else:
            best = found[count - 1]
            if known and left[best] >= left[job]:
                takes = not longer[best] > shorter[job]
            else:
                takes = longer[job] > shorter[best]
        if takes:
            found[count] = job
            count += 1
    return count
