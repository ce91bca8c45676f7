"""Synergy-Opt's first programme (OSDI'22, A.1), solved by Lagrangian prices and repair: choose a point for each job.

Each job gets one of its points of CPUs and memory; the programme maximises the sum of values within the total CPUs and
memory. At any prices of a CPU and a GiB, the best points of all jobs give an upper bound; the smallest of these bounds
certifies the solution. The prices come from the simplex method with three rows, whose columns are choices of points
for all jobs.
"""

from typing import Final, NamedTuple

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals

STEPS: Final = 400
"""Maximum number of simplex iterations."""
SLACK: Final = 1e-9
EXACT: Final = 1e-9
"""Relative gap below which a solution counts as optimal."""


@builds
class OptProgramme:
    """The programme: groups of equal jobs with their points.

    Arrays are [group, point]; groups with fewer points are padded with their first point.
    """

    value: Reals
    need: Reals
    """[2, group, point] needed CPUs and memory as fractions of the capacity."""
    count: Ints
    """[group] number of jobs."""

    @classmethod
    def of(
        cls, value: Reals, cpus: Reals, memory_gib: Reals, count: Ints, capacity: tuple[float, float]
    ) -> "OptProgramme":
        """Build a programme from amounts in CPUs and GiB; the capacity must be positive."""
        return cls(value=value, need=np.stack([cpus / capacity[0], memory_gib / capacity[1]]), count=count)

    def of_points(self, point: Ints) -> Reals:
        """Return total CPUs and memory (as fractions of the capacity) and value, [3], with one point per group."""
        rows = np.arange(point.size)
        parts = [*(column[rows, point] for column in self.need), self.value[rows, point]]
        return np.array([part @ self.count for part in parts])

    def fits(self, point: Ints) -> bool:
        """Return whether all jobs fit if those of each group get the given point."""
        return bool((self.of_points(point)[:2] <= 1.0 + SLACK).all())

    def used(self, jobs: Ints) -> Reals:
        """Return the fractions of CPUs and memory, [2], used by these numbers of jobs by point."""
        parts: Reals = (self.need * jobs).sum(axis=(1, 2))
        return parts

    def worth(self, jobs: Ints) -> float:
        """Return the total value of these numbers of jobs by point."""
        return float((self.value * jobs).sum())


class Priced(NamedTuple):
    """Prices of all CPUs and of all memory, the resulting bound, and fractional numbers of jobs by point."""

    prices: Reals
    bound: float
    jobs: Reals


def priced(instance: OptProgramme, start: Ints) -> Priced:
    """Solve the linear relaxation, in which jobs may be divided among points.

    Args:
        instance: the programme.
        start: a feasible choice of a point for each group.
    """
    table = _Table(instance, start)
    best, bound = np.zeros(2), np.inf
    for _ in range(STEPS):
        price = table.prices()
        if (price[:2] < -SLACK).any():
            table.enter(-1 - int(price[:2].argmin()), np.empty(0, np.int64))
            continue
        price[:2] = np.maximum(price[:2], 0.0)
        score = instance.value - price[0] * instance.need[0] - price[1] * instance.need[1]
        point = score.argmax(axis=1)
        reached = float(score.max(axis=1) @ instance.count)
        if reached + price[:2].sum() < bound:
            best, bound = price[:2], reached + float(price[:2].sum())
        if reached <= price[2] + 1e-12 * (1.0 + abs(reached)):
            break
        table.enter(0, point)
    return Priced(best, bound, table.jobs())


class _Table:
    """A simplex basis of three columns; each is a choice of points for all jobs, or slack of CPUs or memory."""

    def __init__(self, instance: OptProgramme, start: Ints) -> None:
        self._made = instance
        used = instance.of_points(start)
        self._points: list[Ints | None] = [start, None, None]
        self._columns = np.array([[used[0], 1.0, 0.0], [used[1], 0.0, 1.0], [1.0, 0.0, 0.0]])
        self._values = np.array([used[2], 0.0, 0.0])
        self._parts = np.array([1.0, 1.0 - used[0], 1.0 - used[1]])

    def prices(self) -> Reals:
        """Return the prices, [3], of all CPUs, of all memory, and of the row in which weights of choices sum to 1."""
        found: Reals = np.linalg.solve(self._columns.T, self._values)
        return found

    def enter(self, slack: int, point: Ints) -> None:
        """Bring a choice of points, or the slack of CPUs (-1) or memory (-2), into the basis."""
        if slack:
            column, worth, points = np.eye(3)[-1 - slack], 0.0, None
        else:
            used = self._made.of_points(point)
            column, worth, points = np.array([used[0], used[1], 1.0]), float(used[2]), point
        step = np.linalg.solve(self._columns, column)
        ratio = np.where(step > 1e-12, self._parts / np.where(step > 1e-12, step, 1.0), np.inf)
        leaves = int(ratio.argmin())
        part = float(ratio[leaves])
        self._parts = np.maximum(self._parts - part * step, 0.0)
        self._parts[leaves] = part
        self._columns[:, leaves], self._values[leaves], self._points[leaves] = column, worth, points

    def jobs(self) -> Reals:
        """Return the fractional numbers of jobs, [group, point]."""
        found = np.zeros(self._made.value.shape)
        rows = np.arange(self._made.count.size)
        for part, point in zip(self._parts, self._points, strict=True):
            if point is not None:
                found[rows, point] += part * self._made.count
        return found
