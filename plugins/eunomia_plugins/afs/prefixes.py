"""Stage two of Algorithm 1 without a scan of all jobs per GPU; the sizes equal those of ``shares.raised``."""

import itertools
from typing import Final, NamedTuple

import numpy as np

from eunomia_plugins.afs.shares import Ladder, gain_of_longer, gain_of_shorter

NEAR: Final = 48
"""Number of jobs that are compared one by one before the rest is compared by columns."""


class Raising:
    """Stage two computed incrementally from the best job of each prefix of the scan.

    The scan is a fold: the best of the first i jobs does not depend on later jobs. When a job gets more GPUs, only the
    prefixes from its position on change. From there, each new best job is searched among the next ``NEAR`` jobs one by
    one, and among the rest by comparing columns.
    """

    def __init__(self, ladders: list[Ladder], steps: list[int], gpus: int, *, known: bool) -> None:
        self._ladders, self._known, self._steps = ladders, known, list(steps)
        self._gpus = gpus
        self._widest = max((b - a for one in ladders for a, b in itertools.pairwise(one.sizes)), default=1)
        self._rows = [self._row(job) for job in range(len(ladders))]
        self._columns = np.array(self._rows, float).reshape(-1, 4).T

    def run(self) -> list[int]:
        """Return the index of each job's size in its ladder."""
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
            # A job whose next size no longer fits is removed from every prefix.
            start = best if self._gpus >= self._widest else 0
            while found and found[-1] >= start:
                found.pop()

    def _row(self, job: int) -> "_Row":
        ladder, step = self._ladders[job], self._steps[job]
        if not 0 <= step < len(ladder.sizes) - 1:
            return _CANNOT_GROW
        more = float(ladder.sizes[step + 1] - ladder.sizes[step])
        return _Row(gain_of_longer(ladder, step), gain_of_shorter(ladder, step), ladder.seconds[step], more)

    def _extend(self, found: list[int], start: int) -> None:
        """Append the jobs from ``start`` on that are the best of a prefix, in order."""
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
        """Return the first job from ``start`` on that is better than the best one; -1: none."""
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
    """A job's next size: both gains of inequality (3), the seconds left now, and the GPUs that the size adds."""

    longer: float
    shorter: float
    seconds: float
    needs: float


_CANNOT_GROW: Final = _Row(-np.inf, -np.inf, 0.0, np.inf)
