"""Algorithm 1 of AFS: how many GPUs each job gets, by inequality (3) between two jobs at a time.

The inequality with the swap by remaining length is not transitive: jobs whose speedups from one GPU to two are 7/5, 8/5
and 2, from the shortest to the longest, form a cycle. So the outcome depends on the order in which jobs are scanned,
and every function here takes jobs in that order.
"""

import itertools
from typing import NamedTuple, Self

import numpy as np

from eunomia.units import Ints, Reals


class Ladder(NamedTuple):
    """The sizes of one job, ascending, and the seconds that the job has left at each."""

    sizes: list[int]
    seconds: list[float]


class Ladders(NamedTuple):
    """The ladders of some jobs, as columns; the rows of a job follow each other.

    Attributes:
        start: [job + 1] the first row of each job, and one past the last row.
        sizes: [row] GPUs, ascending within a job.
        seconds: [row] that the job still takes at that size.
    """

    start: Ints
    sizes: Ints
    seconds: Reals

    @classmethod
    def of(cls, ladders: list[Ladder]) -> Self:
        """Return the columns of ladders, in their order."""
        start = np.cumsum([0, *(len(each.sizes) for each in ladders)])
        sizes = np.array([size for each in ladders for size in each.sizes], np.int64)
        return cls(start, sizes, np.array([left for each in ladders for left in each.seconds], float))

    def each(self) -> list[Ladder]:
        """By job, its ladder."""
        sizes, left, start = self.sizes.tolist(), self.seconds.tolist(), self.start.tolist()
        return [Ladder(sizes[one:end], left[one:end]) for one, end in itertools.pairwise(start)]

    def take(self, jobs: Ints) -> Self:
        """Return the ladders of some jobs, in the order asked for."""
        begin, count = self.start[jobs], self.start[jobs + 1] - self.start[jobs]
        start = np.concatenate([[0], np.cumsum(count)])
        rows = np.repeat(begin - start[:-1], count) + np.arange(start[-1])
        return type(self)(start, self.sizes[rows], self.seconds[rows])

    def smallest(self) -> list[int]:
        """By job, its smallest size; 0: it has none."""
        has = self.start[1:] > self.start[:-1]
        found = np.zeros(has.size, np.int64)
        found[has] = self.sizes[self.start[:-1][has]]
        return found.tolist()


def first_sizes(smallest: list[int], gpus: int) -> list[int]:
    """Stage one: the smallest size for each job, until no GPU is left; a job that does not fit waits.

    The paper states this as a consequence of (3), which does not hold for jobs of exactly linear speedup: with two GPUs
    the shorter of two such jobs would get both. Here it holds for all jobs.

    Args:
        smallest: by job, in order of service, its smallest size; 0: it has none.
        gpus: to share.

    Returns:
        By job, the index of its size, or -1 without GPUs.
    """
    steps = []
    for size in smallest:
        fits = 0 < size <= gpus
        steps.append(0 if fits else -1)
        gpus -= size if fits else 0
    return steps


def raised(ladders: list[Ladder], steps: list[int], gpus: int, *, known: bool) -> list[int]:
    """Stage two as the paper states it: the job of highest priority gets its next size, until no GPU is left.

    Args:
        ladders: in order of the scan.
        steps: by job, the index of its size, or -1: it stays without.
        gpus: to share in this stage. A job whose next size needs more is passed over.
        known: whether lengths may be compared (AFS-L); else (3) is asked both ways (AFS-P).

    Returns:
        By job, the index of its size.
    """
    steps = list(steps)
    while True:
        best = -1
        for job in range(len(ladders)):
            if _can_grow(ladders[job], steps[job], gpus) and (
                best < 0 or _comes_before(ladders, steps, job, best, known=known)
            ):
                best = job
        if best < 0:
            return steps
        steps[best] += 1
        gpus -= ladders[best].sizes[steps[best]] - ladders[best].sizes[steps[best] - 1]


def _can_grow(ladder: Ladder, step: int, gpus: int) -> bool:
    return 0 <= step < len(ladder.sizes) - 1 and ladder.sizes[step + 1] - ladder.sizes[step] <= gpus


def _comes_before(ladders: list[Ladder], steps: list[int], job: int, best: int, *, known: bool) -> bool:
    """Return whether a scanned job is better than the best one so far; at a tie the earlier job stays best."""
    if not known:
        return _prefers(ladders, steps, best, job)
    if ladders[best].seconds[steps[best]] >= ladders[job].seconds[steps[job]]:
        return not _prefers(ladders, steps, job, best)
    return _prefers(ladders, steps, best, job)


def _prefers(ladders: list[Ladder], steps: list[int], shorter: int, longer: int) -> bool:
    """Return whether inequality (3) gives the next GPUs to the longer of two jobs."""
    return gain_of_longer(ladders[longer], steps[longer]) > gain_of_shorter(ladders[shorter], steps[shorter])


def gain_of_longer(ladder: Ladder, step: int) -> float:
    """Return (p' - p) / p' for each additional GPU, with p in 1 / seconds; 0: the job reports no work left."""
    now, then = ladder.seconds[step], ladder.seconds[step + 1]
    return (now - then) / now / (ladder.sizes[step + 1] - ladder.sizes[step]) if now > 0.0 else 0.0


def gain_of_shorter(ladder: Ladder, step: int) -> float:
    """Return (p' - p) / p for each additional GPU; 0: the job has no work left."""
    now, then = ladder.seconds[step], ladder.seconds[step + 1]
    return (now - then) / then / (ladder.sizes[step + 1] - ladder.sizes[step]) if then > 0.0 else 0.0
