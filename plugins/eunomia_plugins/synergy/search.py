"""Exhaustive search for the optimum: tries every solution with a loss at the prices below the gap.

At the prices of the relaxation each point of a job loses something against the job's best point; a solution falls
short of the bound by the losses of its jobs and the price of its slack. A better solution than the known one
therefore consists of points with small losses only. Where these are few, all are tried.
"""

from typing import Final, NamedTuple

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_plugins.synergy.programme import EXACT, SLACK, OptProgramme, Priced

STATES: Final = 4_000
"""Greatest number of partial solutions that are kept."""
TRIED: Final = 150_000
"""Greatest number of partial solutions that are tried."""


def search(instance: OptProgramme, found: Priced, value: float) -> tuple[Ints | None, bool]:
    """Return a better solution, if one is found, and whether all candidates were tried.

    Args:
        instance: the programme.
        found: prices and bound.
        value: of the best known solution.
    """
    return _Search(instance, found, value).run()


class Trail(NamedTuple):
    """Partial solutions, from which whole ones are traced back."""

    state: Reals
    """[3, answer] the parts of CPUs and memory used, and the loss."""
    steps: list[tuple[int, Ints, Ints]]
    """By job in order: its group, and by solution the preceding partial solution and the job's point."""


class _Search:
    def __init__(self, instance: OptProgramme, found: Priced, value: float) -> None:
        self._made, self._found = instance, found
        self._most = found.bound - value - EXACT * found.bound
        score = instance.value - np.tensordot(found.prices, instance.need, axes=1)
        self._loss = score.max(axis=1, keepdims=True) - score

    def run(self) -> tuple[Ints | None, bool]:
        few = [np.flatnonzero(row <= self._most) for row in self._loss]
        size = np.array([points.size for points in few])
        if (size == 0).any():
            return None, False
        settled = np.zeros(self._made.value.shape, np.int64)
        one = np.flatnonzero(size == 1)
        settled[one, [int(few[group][0]) for group in one]] = self._made.count[one]
        order = sorted(np.repeat(np.arange(size.size), np.where(size > 1, self._made.count, 0)).tolist())
        order.sort(key=lambda group: int(size[group]))
        base = np.append(self._made.used(settled), 0.0)[:, None]
        trail, complete = self._grow(base, order, few)
        return (None if trail is None else self._answer(settled, trail)), complete

    def _grow(self, state: Reals, order: list[int], few: list[Ints]) -> tuple[Trail | None, bool]:
        """Return the partial solutions, extended job by job.

        None: there is no better solution, or the search is too long.
        """
        least, most = self._ranges(order, few)
        last, trail = np.full(1, -1), Trail(state, [])
        complete, tried = True, 0
        for turn, group in enumerate(order):
            tried += trail.state.shape[1] * few[group].size
            if tried > TRIED:
                return None, False
            again = turn > 0 and order[turn - 1] == group
            state, parent, point = self._grown(trail.state, last if again else None, group, few[group])
            keep = self._possible(state, least[turn + 1], most[turn + 1])
            if keep.size > STATES:
                keep, complete = keep[np.argsort(state[2, keep], kind="stable")[:STATES]], False
            if not keep.size:
                return None, complete
            last = point[keep]
            trail = Trail(state[:, keep], [*trail.steps, (group, parent[keep], last)])
        return trail, complete

    def _ranges(self, order: list[int], few: list[Ints]) -> tuple[Reals, Reals]:
        """Return [turn, 2] the least and the most that the jobs from a turn on can use."""
        need = self._made.need
        if not order:
            return np.zeros((1, 2)), np.zeros((1, 2))
        low = [[need[k, group, few[group]].min() for k in (0, 1)] for group in order]
        high = [[need[k, group, few[group]].max() for k in (0, 1)] for group in order]
        sums = [np.cumsum(np.array([*part[::-1]]), axis=0)[::-1] for part in (low, high)]
        return np.vstack([sums[0], np.zeros(2)]), np.vstack([sums[1], np.zeros(2)])

    def _grown(self, state: Reals, last: Ints | None, group: int, points: Ints) -> tuple[Reals, Ints, Ints]:
        """Return every partial solution extended by every point of a job; equal jobs take their points in one order."""
        parent, point = np.divmod(np.arange(state.shape[1] * points.size), points.size)
        point = points[point]
        if last is not None:
            rising = point >= last[parent]
            parent, point = parent[rising], point[rising]
        step = np.stack([*self._made.need[:, group, point], self._loss[group, point]])
        return state[:, parent] + step, parent, point

    def _possible(self, state: Reals, least: Reals, most: Reals) -> Ints:
        """Return the partial solutions that can still lead to a better one than the best known."""
        left = np.maximum(1.0 - state[:2] - most[:, None], 0.0)
        short = state[2] + self._found.prices @ left
        fits = (state[:2] + least[:, None] <= 1.0 + SLACK).all(axis=0)
        return np.flatnonzero(fits & (short <= self._most))

    def _answer(self, settled: Ints, trail: Trail) -> Ints:
        short = trail.state[2] + self._found.prices @ (1.0 - trail.state[:2])
        at, jobs = int(short.argmin()), settled
        for group, parent, point in reversed(trail.steps):
            jobs[group, point[at]] += 1
            at = int(parent[at])
        return jobs
