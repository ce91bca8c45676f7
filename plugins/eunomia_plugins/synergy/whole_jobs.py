"""Turn the fractional solution of the relaxation into whole jobs.

The steps are rounding, repair by moves and pairs of moves, and an integer solver on small instances.
"""

from typing import Final

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals
from eunomia_plugins.synergy.integer import solved
from eunomia_plugins.synergy.programme import EXACT, SLACK, OptProgramme, Priced, priced

MOVES: Final = 500
"""Number of moves with the smallest loss that are tried in pairs."""
FEW: Final = 24
"""Maximum number of jobs for which an integer solver closes the gap left by the repair."""
ROUNDS: Final = 60
"""Maximum number of moves, or pairs of moves, of the repair."""


@builds
class ChosenPoints:
    """A solution: numbers of jobs by group and point, with an upper bound on the value of any solution."""

    jobs: Ints
    """[group, point] number of jobs."""
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """Return the maximum relative distance of the value from the optimum."""
        return max(0.0, 1.0 - self.value / self.bound) if self.bound > 0.0 else 0.0


def solve(instance: OptProgramme, *, certify: bool = True) -> ChosenPoints | None:
    """Solve a programme; return None if neither the lightest nor the first points of all jobs fit.

    Args:
        instance: the programme.
        certify: whether to use an integer solver on small instances if a gap is left.
    """
    lightest = instance.need.sum(axis=0).argmin(axis=1)
    starts = [point for point in (lightest, np.zeros_like(lightest)) if instance.fits(point)]
    if not starts:
        return None
    found = priced(instance, starts[0])
    jobs = _rounded(instance, found.jobs, starts[0])
    if not _Repair(instance, found, jobs).run():
        jobs[:] = 0
        jobs[np.arange(lightest.size), starts[0]] = instance.count
    value = instance.worth(jobs)
    bound = max(value, found.bound)
    if certify and bound - value > EXACT * bound and instance.count.sum() <= FEW:
        better = solved(instance)
        if instance.worth(better) > value:
            jobs, value = better, instance.worth(better)
        bound = value
    return ChosenPoints(jobs=jobs, value=value, bound=bound)


def _rounded(instance: OptProgramme, parts: Reals, lightest: Ints) -> Ints:
    """Return whole numbers of jobs by rounding down; the remaining jobs get their lightest point."""
    jobs = np.floor(parts + 1e-6).astype(np.int64)
    over = np.maximum(jobs.sum(axis=1) - instance.count, 0)
    jobs[np.arange(lightest.size), jobs.argmax(axis=1)] -= over
    jobs[np.arange(lightest.size), lightest] += instance.count - jobs.sum(axis=1)
    return jobs


class _Repair:
    """A local search that moves jobs to other points: first until all fit, then while moves raise the value."""

    def __init__(self, instance: OptProgramme, found: Priced, jobs: Ints) -> None:
        self._made, self._jobs = instance, jobs
        self._prices = found.prices

    def run(self) -> bool:
        """Apply the best move or pair of moves until none raises the value; return False if the jobs do not fit."""
        for _ in range(ROUNDS):
            if not (self._less() or self._single() or self._pair()):
                break
        return bool((self._left() >= 0.0).all())

    def _moves(self) -> tuple[Ints, Ints, Ints, Reals, Reals]:
        """Return the group, old point, new point and gain of each move, and its additional need, [2, move]."""
        group, before = np.nonzero(self._jobs)
        gain = self._made.value[group] - self._made.value[group, before][:, None]
        more = self._made.need[:, group] - self._made.need[:, group, before][:, :, None]
        row, after = np.nonzero((gain != 0.0) | (more != 0.0).any(axis=0))
        return group[row], before[row], after, gain[row, after], more[:, row, after]

    def _left(self) -> Reals:
        left: Reals = 1.0 + SLACK - self._made.used(self._jobs)
        return left

    def _less(self) -> bool:
        """Apply the move with the least loss per freed resource until the jobs fit; return whether they do."""
        left = self._left()
        if (left >= 0.0).all():
            return False
        group, before, after, gain, more = self._moves()
        saved = np.maximum(-left, 0.0).sum() - np.maximum(more - left[:, None], 0.0).sum(axis=0)
        if (saved <= 0.0).all():
            return False
        loss = np.maximum(self._prices @ more - gain, 0.0) + SLACK
        at = int(np.where(saved > 0.0, loss / np.where(saved > 0.0, saved, 1.0), np.inf).argmin())
        self._move(int(group[at]), int(before[at]), int(after[at]), 1)
        return True

    def _single(self) -> bool:
        group, before, after, gain, more = self._moves()
        fits = (more <= self._left()[:, None]).all(axis=0) & (gain > SLACK)
        if not fits.any():
            return False
        at = int(np.where(fits, gain, -1.0).argmax())
        step = more[:, at]
        room = np.where(step > 0.0, self._left() / np.where(step > 0.0, step, 1.0), np.inf).min()
        count = int(max(1, min(float(self._jobs[group[at], before[at]]), np.floor(room))))
        self._move(int(group[at]), int(before[at]), int(after[at]), count)
        return True

    def _pair(self) -> bool:
        group, before, after, gain, more = self._moves()
        loss = self._prices @ more - gain
        few = np.argsort(loss, kind="stable")[:MOVES]
        group, before, after, gain, more = group[few], before[few], after[few], gain[few], more[:, few]
        left, both = self._left(), gain[:, None] + gain
        fits = both > SLACK
        for column, room in zip(more, left, strict=True):
            fits &= column[:, None] + column <= room
        same = (group[:, None] == group) & (before[:, None] == before)
        fits &= ~same | (self._jobs[group, before] > 1)[:, None]
        if not fits.any():
            return False
        first, second = np.unravel_index(int(np.where(fits, both, -1.0).argmax()), both.shape)
        for at in (int(first), int(second)):
            self._move(int(group[at]), int(before[at]), int(after[at]), 1)
        return True

    def _move(self, group: int, before: int, after: int, count: int) -> None:
        self._jobs[group, before] -= count
        self._jobs[group, after] += count
