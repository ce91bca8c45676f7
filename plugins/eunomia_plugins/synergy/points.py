"""The points of CPUs and memory among which Synergy-Opt chooses; none is slower than the proportional share."""

from typing import NamedTuple

import numpy as np

from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.synergy.matrices import SAME, Matrix
from eunomia_plugins.synergy.programme import OptProgramme


class Points(NamedTuple):
    """The points of a group of equal jobs, for all GPUs of a job together."""

    cpus: Reals
    memory_gib: Reals
    value: Reals
    """Rate at each point relative to that at the proportional share."""

    def of(self, jobs: Ints) -> Reals:
        """Return the CPUs and GiB of each job, [job, 2], given the number of jobs by point.

        Columns after the last point stand for the first point.
        """
        point = np.repeat(np.where(np.arange(jobs.size) < self.value.size, np.arange(jobs.size), 0), jobs)
        return np.stack([self.cpus[point], self.memory_gib[point]], axis=1)


def points_of(matrix: Matrix, share: tuple[float, float], most: tuple[float, float]) -> Points:
    """Return the Pareto-optimal points of a matrix, including the proportional share.

    The first point needs at most the share.

    Args:
        matrix: the job's matrix at its size.
        share: CPUs and GiB in proportion to the job's GPUs; every point is at least as fast.
        most: maximum CPUs and GiB that the job can have.
    """
    full = matrix.with_point(*share)
    floor = full.at(*share)
    fits: Bools = (full.cpus[:, None] <= most[0] * (1.0 + SAME)) & (full.memory_gib <= most[1] * (1.0 + SAME))
    fits &= full.rate >= floor * (1.0 - SAME)
    row, column = np.nonzero(fits)
    found = np.stack([full.cpus[row], full.memory_gib[column], -full.rate[row, column] / floor])
    no_more = (found[:, :, None] <= found[:, None, :]).all(axis=0)
    less = (found[:, :, None] < found[:, None, :]).any(axis=0)
    found = found[:, ~(no_more & less).any(axis=0)]
    within: Bools = (found[0] <= share[0] * (1.0 + SAME)) & (found[1] <= share[1] * (1.0 + SAME))
    cpus, memory_gib, value = found[:, np.argsort(~within, kind="stable")]
    return Points(cpus, memory_gib, -value)


def instance_of(groups: list[Points], count: Ints, capacity: tuple[float, float]) -> OptProgramme:
    """Return the programme of groups of equal jobs; groups with fewer points are padded with their first point."""
    width = max(group.value.size for group in groups)
    index = [np.where(np.arange(width) < group.value.size, np.arange(width), 0) for group in groups]
    value, cpus, memory_gib = (
        np.array([part[at] for part, at in zip(column, index, strict=True)])
        for column in (
            [group.value for group in groups],
            [group.cpus for group in groups],
            [group.memory_gib for group in groups],
        )
    )
    return OptProgramme.of(value, cpus, memory_gib, count, capacity)
