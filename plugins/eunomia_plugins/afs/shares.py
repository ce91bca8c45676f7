"""Algorithm 1 of AFS: how many GPUs each job gets, by inequality (3) between two jobs at a time.

The inequality with the swap by remaining length is not transitive: jobs whose speedups from one GPU to two are 7/5, 8/5
and 2, from the shortest to the longest, form a cycle. So the outcome depends on the order in which jobs are scanned,
and every function here takes jobs in that order.
"""

import itertools
from typing import Final, NamedTuple

import numpy as np

from eunomia.units import Ints, Reals, Rows

NEAR: Final = 48
"""Jobs that are looked at one by one before columns are compared."""


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
    """(p' - p) / p', with p in 1 / seconds, for each additional GPU; 0: nothing is left to do, as was reported."""
    now, then = ladder.seconds[step], ladder.seconds[step + 1]
    return (now - then) / now / (ladder.sizes[step + 1] - ladder.sizes[step]) if now > 0.0 else 0.0


def _gain_of_shorter(ladder: Ladder, step: int) -> float:
    """(p' - p) / p; 0: nothing is left to do."""
    now, then = ladder.seconds[step], ladder.seconds[step + 1]
    return (now - then) / then / (ladder.sizes[step + 1] - ladder.sizes[step]) if then > 0.0 else 0.0


class Raising:
    """Stage two by the best jobs of prefixes: the same outcome as ``raised``, without scanning all jobs for each GPU.

    The scan is a fold: the best of the first i jobs does not depend on later ones. When a job gets more, only the
    prefixes from its place on change. From there each new best job is found among the next ``NEAR`` jobs one by one,
    and among the rest by a comparison of columns.
    """

    def __init__(self, ladders: list[Ladder], steps: list[int], gpus: int, *, known: bool) -> None:
        self._ladders, self._known, self._steps = ladders, known, list(steps)
        self._gpus = gpus
        self._widest = max((b - a for one in ladders for a, b in itertools.pairwise(one.sizes)), default=1)
        self._rows = [self._row(job) for job in range(len(ladders))]
        self._columns = np.array(self._rows, float).reshape(-1, 4).T

    def run(self) -> list[int]:
        """By job, the index of its size."""
        found: list[int] = []
        start = 0
        while True:
            self._extend(found, start)
            if not found:
                return self._steps
            best = found[-1]
            self._steps[best] += 1
            self._gpus -= int(self._rows[best].needs)
            self._rows[best] = self._row(best)
            self._columns[:, best] = self._rows[best]
            # A job that fits no longer leaves every prefix.
            start = best if self._gpus >= self._widest else 0
            while found and found[-1] >= start:
                found.pop()

    def _row(self, job: int) -> "_Row":
        ladder, step = self._ladders[job], self._steps[job]
        if not 0 <= step < len(ladder.sizes) - 1:
            return _CANNOT_GROW
        more = float(ladder.sizes[step + 1] - ladder.sizes[step])
        return _Row(_gain_of_longer(ladder, step), _gain_of_shorter(ladder, step), ladder.seconds[step], more)

    def _extend(self, found: list[int], start: int) -> None:
        """Add the jobs that are the best of a prefix, in order; those before ``start`` are known."""
        if not found:
            first = next((job for job in range(start, len(self._rows)) if self._rows[job].needs <= self._gpus), -1)
            if first < 0:
                return
            found.append(first)
            start = first + 1
        while (taker := self._taker(found[-1], start)) >= 0:
            found.append(taker)
            start = taker + 1

    def _taker(self, best: int, start: int) -> int:
        """The first job from ``start`` on that takes the place of the best one; -1: none."""
        rows, gpus, known = self._rows, self._gpus, self._known
        as_longer, as_shorter, seconds, _ = rows[best]
        end = min(start + NEAR, len(rows))
        for job in range(start, end):
            longer, shorter, left, needs = rows[job]
            if needs > gpus:
                continue
            if known and seconds >= left:
                if not as_longer > shorter:
                    return job
            elif longer > as_shorter:
                return job
        if end == len(rows):
            return -1
        columns = self._columns[:, end:]
        takes = columns[0] > as_shorter
        if known:
            takes = np.where(seconds >= columns[2], ~(as_longer > columns[1]), takes)
        at = np.flatnonzero(takes & (columns[3] <= gpus))
        return end + int(at[0]) if at.size else -1


class _Row(NamedTuple):
    """A job's next size: the gains of (3) as the longer and as the shorter job, its seconds now, and GPUs needed."""

    longer: float
    shorter: float
    seconds: float
    needs: float


_CANNOT_GROW: Final = _Row(-np.inf, -np.inf, 0.0, np.inf)


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
