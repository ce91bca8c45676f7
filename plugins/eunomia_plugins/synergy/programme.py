"""Synergy-Opt's first programme (OSDI'22, A.1) by two prices and repair: a point of CPUs and memory for each job.

Each job takes one of its points; the programme maximises the sum of values, with sums of CPUs and memory within the
capacity. At any prices of a CPU and a GiB, the best point of each job gives an upper bound; the least of these
bounds certifies the solution. The prices come from the simplex method on three rows, with choices of points for all
jobs as columns.
"""

from typing import Final, NamedTuple

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals

STEPS: Final = 400
"""Greatest number of columns that are tried."""
SLACK: Final = 1e-9
EXACT: Final = 1e-9
"""Relative gaps below this one count as 0."""


@builds
class OptProgramme:
    """Groups of equal jobs with their points.

    Columns are [group, point], and a group with fewer points repeats its first.
    """

    value: Reals
    need: Reals
    """[CPUs and memory, group, point] as fractions of the capacity."""
    count: Ints
    """[group] number of jobs."""

    @classmethod
    def of(
        cls, value: Reals, cpus: Reals, memory_gib: Reals, count: Ints, capacity: tuple[float, float]
    ) -> "OptProgramme":
        """Return an instance of amounts in CPUs and GiB, with a capacity above 0."""
        return cls(value=value, need=np.stack([cpus / capacity[0], memory_gib / capacity[1]]), count=count)

    def of_points(self, point: Ints) -> Reals:
        """Return [3] the CPUs, the memory and the value of a choice of one point for each group."""
        rows = np.arange(point.size)
        parts = [*(column[rows, point] for column in self.need), self.value[rows, point]]
        return np.array([part @ self.count for part in parts])

    def fits(self, point: Ints) -> bool:
        """Return whether a choice of a point for each group fits."""
        return bool((self.of_points(point)[:2] <= 1.0 + SLACK).all())

    def used(self, jobs: Ints) -> Reals:
        """Return [2] the fractions of CPUs and memory that these numbers of jobs by point use."""
        parts: Reals = (self.need * jobs).sum(axis=(1, 2))
        return parts

    def worth(self, jobs: Ints) -> float:
        """Return the value of these numbers of jobs by point."""
        return float((self.value * jobs).sum())


class Priced(NamedTuple):
    """Prices of all CPUs and all memory, the bound that follows from them, and fractional numbers of jobs by point."""

    prices: Reals
    bound: float
    jobs: Reals


def priced(instance: OptProgramme, start: Ints) -> Priced:
    """Return the optimum of the relaxation, in which jobs may be divided.

    Args:
        instance: the programme.
        start: a point for each group, such that all fit together.
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
    """A basis of three columns; each is a choice of points for all jobs, or slack of CPUs or memory."""

    def __init__(self, instance: OptProgramme, start: Ints) -> None:
        self._made = instance
        used = instance.of_points(start)
        self._points: list[Ints | None] = [start, None, None]
        self._columns = np.array([[used[0], 1.0, 0.0], [used[1], 0.0, 1.0], [1.0, 0.0, 0.0]])
        self._values = np.array([used[2], 0.0, 0.0])
        self._parts = np.array([1.0, 1.0 - used[0], 1.0 - used[1]])

    def prices(self) -> Reals:
        """Return [3] the prices of all CPUs, of all memory, and of the row in which the weights of choices sum to 1."""
        found: Reals = np.linalg.solve(self._columns.T, self._values)
        return found

    def enter(self, slack: int, point: Ints) -> None:
        """Bring a choice into the basis, or the slack of CPUs (-1) or memory (-2)."""
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
        """Return [group, point] numbers of jobs."""
        found = np.zeros(self._made.value.shape)
        rows = np.arange(self._made.count.size)
        for part, point in zip(self._parts, self._points, strict=True):
            if point is not None:
                found[rows, point] += part * self._made.count
        return found
