"""Synergy-Opt's first programme (OSDI'22, A.1): a point of CPUs and memory for each job, by two prices and repair.

Each job takes one of its points; the sum of values is to be greatest, with sums of CPUs and memory at most those there
are. At any prices of a CPU and a GiB, the best point of each job gives an upper bound; the least of these bounds
certifies the answer. The prices come from the simplex method on three rows, whose columns are choices of all jobs.
"""

from typing import Final, NamedTuple

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals

STEPS: Final = 400
"""Most columns that are tried."""
SLACK: Final = 1e-9
EXACT: Final = 1e-9
"""A gap below this is 0."""


@builds
class OptProgramme:
    """Groups of equal jobs with their points; columns are [group, point], a group with fewer repeats its first."""

    value: Reals
    need: Reals
    """[CPUs and memory, group, point] as parts of what there is."""
    count: Ints
    """[group] jobs."""

    @classmethod
    def of(
        cls, value: Reals, cpus: Reals, memory_gib: Reals, count: Ints, capacity: tuple[float, float]
    ) -> "OptProgramme":
        """Return an instance of amounts in CPUs and GiB, with a capacity above 0."""
        return cls(value=value, need=np.stack([cpus / capacity[0], memory_gib / capacity[1]]), count=count)

    def of_points(self, point: Ints) -> Reals:
        """[3] what a choice of a point for each group uses of CPUs, of memory, and its value."""
        rows = np.arange(point.size)
        parts = [*(column[rows, point] for column in self.need), self.value[rows, point]]
        return np.array([part @ self.count for part in parts])

    def fits(self, point: Ints) -> bool:
        """Return whether a choice of a point for each group fits."""
        return bool((self.of_points(point)[:2] <= 1.0 + SLACK).all())

    def used(self, jobs: Ints) -> Reals:
        """[2] the parts of CPUs and memory that numbers of jobs by point use."""
        parts: Reals = (self.need * jobs).sum(axis=(1, 2))
        return parts

    def worth(self, jobs: Ints) -> float:
        """The value of numbers of jobs by point."""
        return float((self.value * jobs).sum())


class Priced(NamedTuple):
    """Prices of all CPUs and all memory, the bound that follows from them, and jobs by point, not whole numbers."""

    prices: Reals
    bound: float
    jobs: Reals


def priced(instance: OptProgramme, start: Ints) -> Priced:
    """Return the optimum of the relaxation in which jobs may be divided.

    Args:
        instance: what is to be solved.
        start: a point for each group; all fit together.
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
    """A basis of three columns: choices of all jobs, or CPUs or memory left over."""

    def __init__(self, instance: OptProgramme, start: Ints) -> None:
        self._made = instance
        used = instance.of_points(start)
        self._points: list[Ints | None] = [start, None, None]
        self._columns = np.array([[used[0], 1.0, 0.0], [used[1], 0.0, 1.0], [1.0, 0.0, 0.0]])
        self._values = np.array([used[2], 0.0, 0.0])
        self._parts = np.array([1.0, 1.0 - used[0], 1.0 - used[1]])

    def prices(self) -> Reals:
        """[3] of all CPUs, of all memory, and of the row by which the parts of the choices sum to 1."""
        found: Reals = np.linalg.solve(self._columns.T, self._values)
        return found

    def enter(self, slack: int, point: Ints) -> None:
        """Let a choice enter, or what is left over of CPUs (-1) or memory (-2)."""
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
        """[group, point] jobs."""
        found = np.zeros(self._made.value.shape)
        rows = np.arange(self._made.count.size)
        for part, point in zip(self._parts, self._points, strict=True):
            if point is not None:
                found[rows, point] += part * self._made.count
        return found
