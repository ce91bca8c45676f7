"""Sensitivity matrices: a job's rate by CPUs and memory, and the resulting demand (Synergy §3.2)."""

from typing import Self

import numpy as np

from eunomia import Menus
from eunomia.model.shapes import builds
from eunomia.units import Bools, Ints, Reals

SAME = 1e-9


@builds
class Matrix:
    """Rates of a job at one size, in iterations per second, by CPUs and GiB for all its GPUs together.

    Rates never decrease with more CPUs or memory.

    They are interpolated linearly between points, and proportional to CPUs below the smallest number of CPUs.
    """

    cpus: Reals
    memory_gib: Reals
    rate: Reals
    """[CPUs, memory] rate of the job in iterations per second."""

    @classmethod
    def of(cls, menus: Menus, job: int, gpus: int, gpu_type: int) -> Self | None:
        """Return a job's matrix at a size and GPU type (-1: any); None if its menu has no CPUs or memory."""
        points, curve = menus.points, int(menus.curve[job])
        if curve < 0:
            return None
        here = slice(int(points.start[curve]), int(points.start[curve + 1]))
        mine = (points.gpus[here] == gpus) & ~np.isnan(points.cpus[here]) & (points.rate[here] > 0.0)
        if gpu_type >= 0:
            mine &= (points.gpu_type[here] == gpu_type) | (points.gpu_type[here] == -1)
        if not mine.any():
            return None
        memory = np.nan_to_num(points.memory_gib[here][mine])
        rows, columns, rate = _grid(points.cpus[here][mine], memory, points.rate[here][mine])
        return cls(cpus=rows, memory_gib=columns, rate=rate)

    def at(self, cpus: float, memory_gib: float) -> float:
        """Return the rate with these CPUs and GiB, interpolated."""
        by_cpus = [float(np.interp(memory_gib, self.memory_gib, row)) for row in self.rate]
        return float(np.interp(cpus, self.cpus, by_cpus)) * min(1.0, cpus / float(self.cpus[0]))

    def with_point(self, cpus: float, memory_gib: float) -> Self:
        """Return the matrix with an additional, interpolated row and column."""
        rows, columns = np.union1d(self.cpus, [cpus]), np.union1d(self.memory_gib, [memory_gib])
        rate = np.array([[self.at(row, column) for column in columns] for row in rows])
        return type(self)(cpus=rows, memory_gib=columns, rate=rate)


def _grid(cpus: Reals, memory: Reals, rate: Reals) -> tuple[Reals, Reals, Reals]:
    """Return the full grid: a missing cell has the rate of the best point with at most its CPUs and memory."""
    rows, columns = np.unique(cpus), np.unique(memory)
    grid = np.zeros((rows.size, columns.size))
    np.maximum.at(grid, (np.searchsorted(rows, cpus), np.searchsorted(columns, memory)), rate)
    return rows, columns, np.maximum.accumulate(np.maximum.accumulate(grid, axis=0), axis=1)


def demand(
    matrix: Matrix, share: tuple[float, float], most: tuple[float, float], saturation: float
) -> tuple[float, float]:
    """Return the smallest CPUs and GiB with a given fraction of the best rate, at least the rate at the share.

    The elementwise minimum of demand and share also reaches the rate at the share, so a job that is lowered to it is no
    slower than with its share.

    Args:
        matrix: the job's matrix at its size.
        share: CPUs and GiB in proportion to the job's GPUs.
        most: maximum CPUs and GiB that the job can have.
        saturation: the fraction of the best rate.
    """
    full = matrix.with_point(*share)
    fits: Bools = (full.cpus[:, None] <= most[0] * (1.0 + SAME)) & (full.memory_gib <= most[1] * (1.0 + SAME))
    floor = full.at(*share)
    target = max(saturation * float(full.rate[fits].max(initial=floor)), floor) * (1.0 - SAME)
    fits &= full.rate >= target
    found = [
        (max(cpus / share[0], memory / share[1]), cpus / share[0] + memory / share[1], cpus, memory)
        for cpus, memory in _amounts(full, np.argwhere(fits))
        if full.at(min(cpus, share[0]), min(memory, share[1])) >= floor * (1.0 - SAME)
    ]
    return min(found)[2:] if found else share


def _amounts(matrix: Matrix, places: Ints) -> list[tuple[float, float]]:
    return [(float(matrix.cpus[row]), float(matrix.memory_gib[column])) for row, column in places.tolist()]
