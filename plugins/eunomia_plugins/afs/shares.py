"""Algorithm 1 of AFS: the number of GPUs of each job, by inequality (3) between pairs of jobs.

The inequality, which treats the shorter and the longer job differently, is not transitive: jobs whose speedups from one
GPU to two are 7/5, 8/5 and 2, from the shortest to the longest, form a cycle. The result therefore depends on the order
in which jobs are scanned, and every function here takes jobs in that order.
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
    """The ladders of several jobs as columns, with consecutive rows for each job.

    Attributes:
        start: [job + 1] first row of each job, and the total number of rows.
        sizes: [row] number of GPUs, ascending within a job.
        seconds: [row] seconds left of the job at that size.
    """

    start: Ints
    sizes: Ints
    seconds: Reals

    @classmethod
    def of(cls, ladders: list[Ladder]) -> Self:
        """Build the columns from a list of ladders."""
        start = np.cumsum([0, *(len(each.sizes) for each in ladders)])
        sizes = np.array([size for each in ladders for size in each.sizes], np.int64)
        return cls(start, sizes, np.array([left for each in ladders for left in each.seconds], float))

    def each(self) -> list[Ladder]:
        """Return the ladder of each job."""
        sizes, left, start = self.sizes.tolist(), self.seconds.tolist(), self.start.tolist()
        return [Ladder(sizes[one:end], left[one:end]) for one, end in itertools.pairwise(start)]

    def take(self, jobs: Ints) -> Self:
        """Return the ladders of the given jobs, in the given order."""
        begin, count = self.start[jobs], self.start[jobs + 1] - self.start[jobs]
        start = np.concatenate([[0], np.cumsum(count)])
        rows = np.repeat(begin - start[:-1], count) + np.arange(start[-1])
        return type(self)(start, self.sizes[rows], self.seconds[rows])

    def smallest(self) -> list[int]:
        """Return the smallest size of each job; 0 if it has none."""
        has = self.start[1:] > self.start[:-1]
        found = np.zeros(has.size, np.int64)
        found[has] = self.sizes[self.start[:-1][has]]
        return found.tolist()


def first_sizes(smallest: list[int], gpus: int) -> list[int]:
    """Stage one: give each job its smallest size until no GPU is left; a job that does not fit waits.

    The paper derives this from (3), but for jobs with exactly linear speedup it does not follow: with two GPUs the
    shorter of two such jobs would get both. Here it applies to all jobs.

    Args:
        smallest: [job] smallest size, in order of service; 0: the job has no size.
        gpus: number of GPUs to share.

    Returns:
        [job] index of its size in its ladder; -1 without GPUs.
    """
    steps = []
    for size in smallest:
        fits = 0 < size <= gpus
        steps.append(0 if fits else -1)
        gpus -= size if fits else 0
    return steps


def raised(ladders: list[Ladder], steps: list[int], gpus: int, *, known: bool) -> list[int]:
    """Stage two as in the paper: give the job of highest priority its next size, until no GPU is left.

    Args:
        ladders: ladders of jobs, in the order of the scan.
        steps: [job] index of its size in its ladder; -1: it gets no GPUs.
        gpus: number of GPUs to share in this stage. A job whose next size needs more is skipped.
        known: whether lengths may be compared (AFS-L); else (3) is tested in both directions (AFS-P).

    Returns:
        [job] index of its size in its ladder.
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
    """Return whether a scanned job is better than the best one so far; in a tie the earlier job stays best."""
    if not known:
        return _prefers(ladders, steps, best, job)
    if ladders[best].seconds[steps[best]] >= ladders[job].seconds[steps[job]]:
        return not _prefers(ladders, steps, job, best)
    return _prefers(ladders, steps, best, job)


def _prefers(ladders: list[Ladder], steps: list[int], shorter: int, longer: int) -> bool:
    """Return whether inequality (3) gives the next GPUs to the longer of two jobs."""
    return gain_of_longer(ladders[longer], steps[longer]) > gain_of_shorter(ladders[shorter], steps[shorter])


def gain_of_longer(ladder: Ladder, step: int) -> float:
    """Return (p' - p) / p' per additional GPU, with p = 1 / seconds; 0 if the job has no work left."""
    now, then = ladder.seconds[step], ladder.seconds[step + 1]
    return (now - then) / now / (ladder.sizes[step + 1] - ladder.sizes[step]) if now > 0.0 else 0.0


def gain_of_shorter(ladder: Ladder, step: int) -> float:
    """Return (p' - p) / p per additional GPU, with p = 1 / seconds; 0 if the job has no work left."""
    now, then = ladder.seconds[step], ladder.seconds[step + 1]
    return (now - then) / then / (ladder.sizes[step + 1] - ladder.sizes[step]) if then > 0.0 else 0.0
