"""Divides GPUs of each type among claims in gangs, so that no claim stays far from what it was promised."""

import heapq

import numpy as np

from eunomia.units import Ints, Reals

NO_JOB = np.iinfo(np.int64).max
"""The gang size of a claim without a job that can run."""


def apportion(behind: Reals, gang: Ints, free: Ints) -> Ints:
    """Return whole GPUs by claim and type; each gang goes to the claim with the largest deficit.

    A gang is due when half of its GPUs besides the first are owed: claims of one GPU get GPUs while anything is
    owed to them, and deficits and surpluses of gangs are of about the same size.

    Args:
        behind: [claim, type] GPUs that the claim should get now, fractional.
        gang: [claim, type] GPUs that it needs at a time.
        free: [type] free GPUs.

    Returns:
        [claim, type] GPUs; at most the free ones of each type, and only for claims that are behind for that type.
    """
    real = np.zeros(behind.shape, np.int64)
    for kind in range(free.size):
        left = int(free[kind])
        lags, sizes = behind[:, kind].tolist(), gang[:, kind].tolist()
        queue = [(-lag, claim) for claim, lag in enumerate(lags) if _due(lag, sizes[claim])]
        heapq.heapify(queue)
        while queue and left:
            lag, claim = queue[0]
            size = sizes[claim]
            if size > left:
                heapq.heappop(queue)
                continue
            real[claim, kind] += size
            left -= size
            if _due(-lag - size, size):
                heapq.heapreplace(queue, (lag + size, claim))
            else:
                heapq.heappop(queue)
    return real


def _due(behind: float, gang: int) -> bool:
    return behind > (gang - 1) / 2 + 1e-9
