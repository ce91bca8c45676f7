"""Algorithm 1 of AFS: how many GPUs each job gets, by inequality (3) between two jobs at a time.

The inequality with the swap by remaining length is not transitive: jobs whose speedups from one GPU to two are 7/5, 8/5
and 2, from the shortest to the longest, form a cycle. So the outcome depends on the order in which jobs are scanned,
and every function here takes jobs in that order.
"""

from typing import NamedTuple

import numpy as np

from eunomia.units import Ints, Reals, Rows

NONE_LEFT = -np.inf
"""The gain of a job that has no greater size."""


class Ladder(NamedTuple):
    """What one job can have: its sizes, ascending, and for each the seconds that it still takes there."""

    sizes: list[int]
    seconds: list[float]


def first_sizes(ladders: list[Ladder], gpus: int) -> list[int]:
    """Stage one: the smallest size for each job, until no GPU is left; a job that does not fit waits.

    The paper states this as a consequence of (3), which it is not for jobs of exactly linear speedup: with two GPUs the
    shorter of two such jobs would get both. Here it holds for all jobs.

    Args:
        ladders: in order of service.
        gpus: to share.

    Returns:
        By job, the index of its size, or -1 without GPUs.
    """
    steps = []
    for ladder in ladders:
        fits = bool(ladder.sizes) and ladder.sizes[0] <= gpus
        steps.append(0 if fits else -1)
        gpus -= ladder.sizes[0] if fits else 0
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
    """Whether a scanned job takes the place of the best one so far; at a tie the earlier one stays."""
    if not known:
        return _prefers(ladders, steps, best, job)
    if ladders[best].seconds[steps[best]] >= ladders[job].seconds[steps[job]]:
        return not _prefers(ladders, steps, job, best)
    return _prefers(ladders, steps, best, job)


def _prefers(ladders: list[Ladder], steps: list[int], shorter: int, longer: int) -> bool:
    """Inequality (3): whether the next GPUs go to the longer of two jobs."""
    return _gain_of_longer(ladders[longer], steps[longer]) > _gain_of_shorter(ladders[shorter], steps[shorter])


def _gain_of_longer(ladder: Ladder, step: int) -> float:
    """(p' - p) / p', with p in 1 / seconds, for each additional GPU."""
    now, then = ladder.seconds[step], ladder.seconds[step + 1]
    return (now - then) / now / (ladder.sizes[step + 1] - ladder.sizes[step])


def _gain_of_shorter(ladder: Ladder, step: int) -> float:
    """(p' - p) / p."""
    now, then = ladder.seconds[step], ladder.seconds[step + 1]
    return (now - then) / then / (ladder.sizes[step + 1] - ladder.sizes[step])


class Raising:
    """Stage two by the best jobs of prefixes: the same outcome as ``raised``, without scanning all jobs for each GPU.

    The scan is a fold: the best of the first i jobs does not depend on later ones. When a job gets more, only the
    prefixes from its place on change, and from there a new best job is found by one comparison of columns for each job
    that takes over.
    """

    def __init__(self, ladders: list[Ladder], steps: list[int], gpus: int, *, known: bool) -> None:
        self._ladders, self._known, self.steps = ladders, known, list(steps)
        self._gpus = gpus
        count = len(ladders)
        self._longer, self._shorter = np.full(count, NONE_LEFT), np.full(count, NONE_LEFT)
        self._seconds, self._needs = np.zeros(count), np.full(count, np.iinfo(np.int64).max)
        for job in range(count):
            self._refresh(job)

    def run(self) -> list[int]:
        """By job, the index of its size."""
        takeovers: list[int] = []
        start = 0
        while True:
            takeovers = self._scan(takeovers, start)
            if not takeovers:
                return self.steps
            best = takeovers[-1]
            self.steps[best] += 1
            self._gpus -= int(self._needs[best])
            self._refresh(best)
            # A job that no longer fits leaves every prefix.
            start = best if self._gpus >= self._widest(best) else 0
            takeovers = [job for job in takeovers if job < start]

    def _widest(self, changed: int) -> int:
        """The most GPUs that any job's next size needs; jobs that cannot grow need none."""
        needs = self._needs[self._longer > NONE_LEFT]
        return int(needs.max(initial=0))

    def _scan(self, takeovers: list[int], start: int) -> list[int]:
        """The jobs that are the best of some prefix, in order; those before ``start`` are known."""
        able = (self._longer > NONE_LEFT) & (self._needs <= self._gpus)
        found = list(takeovers)
        if not found:
            first = np.flatnonzero(able[start:])
            if first.size == 0:
                return []
            found, start = [start + int(first[0])], start + int(first[0]) + 1
        while True:
            later = self._takers(found[-1], start, able)
            if later < 0:
                return found
            found.append(later)
            start = later + 1

    def _takers(self, best: int, start: int, able: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> int:
        """The first job from ``start`` on that takes the place of the best one; -1: none."""
        takes = self._longer[start:] > self._shorter[best]
        if self._known:
            as_longer = self._seconds[best] >= self._seconds[start:]
            takes = np.where(as_longer, ~(self._longer[best] > self._shorter[start:]), takes)
        at = np.flatnonzero(takes & able[start:])
        return start + int(at[0]) if at.size else -1

    def _refresh(self, job: int) -> None:
        ladder, step = self._ladders[job], self.steps[job]
        if not 0 <= step < len(ladder.sizes) - 1:
            self._longer[job] = self._shorter[job] = NONE_LEFT
            return
        self._longer[job], self._shorter[job] = _gain_of_longer(ladder, step), _gain_of_shorter(ladder, step)
        self._seconds[job] = ladder.seconds[step]
        self._needs[job] = ladder.sizes[step + 1] - ladder.sizes[step]


def as_ladders(claim: Rows, gpus: Ints, seconds: Reals, claims: Rows) -> list[Ladder]:
    """The ladders of some claims, in their order, from columns sorted by claim and GPUs.

    Args:
        claim: [row].
        gpus: [row] sizes, ascending within a claim.
        seconds: [row] seconds left.
        claims: those asked for.
    """
    start, end = np.searchsorted(claim, claims), np.searchsorted(claim, claims, side="right")
    sizes, left = gpus.tolist(), seconds.tolist()
    return [Ladder(sizes[one:other], left[one:other]) for one, other in zip(start.tolist(), end.tolist(), strict=True)]
