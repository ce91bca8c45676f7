"""Apportion the GPUs of each type among claims in whole gangs, so that deficits stay small."""

import heapq

import numpy as np

from eunomia.units import Ints, Reals

NO_JOB = np.iinfo(np.int64).max
"""Placeholder for the gang size of a claim without a job that can run."""


def apportion(behind: Reals, gang: Ints, free: Ints) -> Ints:
    """Return whole GPUs by claim and type; each gang goes to the claim with the largest deficit.

    A gang of n GPUs is granted once (n - 1) / 2 GPUs are owed: claims with gangs of one GPU get GPUs while anything is
    owed, and deficits and surpluses of larger gangs are about equal.

    Args:
        behind: [claim, type] GPUs owed to the claim, fractional.
        gang: [claim, type] gang size.
        free: [type] free GPUs.

    Returns:
        [claim, type] whole GPUs, at most the free ones of each type, and only for claims to which some are owed.
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
