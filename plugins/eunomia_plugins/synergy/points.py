"""The points of CPUs and memory among which Synergy-Opt chooses: none slower than the proportional share."""

from typing import NamedTuple

import numpy as np

from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.synergy.matrices import SAME, Matrix
from eunomia_plugins.synergy.programme import OptProgramme


class Points(NamedTuple):
    """Points of equal jobs, for all GPUs of a job."""

    cpus: Reals
    memory_gib: Reals
    value: Reals
    """Rates as multiples of the rate at the proportional share."""

    def of(self, jobs: Ints) -> Reals:
        """Return [job, 2] CPUs and GiB for numbers of jobs by point.

        Columns after the last point repeat the first point.
        """
        point = np.repeat(np.where(np.arange(jobs.size) < self.value.size, np.arange(jobs.size), 0), jobs)
        return np.stack([self.cpus[point], self.memory_gib[point]], axis=1)


def points_of(matrix: Matrix, share: tuple[float, float], most: tuple[float, float]) -> Points:
    """Return the points of a matrix and the proportional share, without points that another point dominates.

    The first point needs no more than the share.

    Args:
        matrix: of the job at its size.
        share: CPUs and GiB in proportion to the job's GPUs; a point is at least as fast.
        most: CPUs and GiB that it can have at all.
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
    """Return the programme of groups of equal jobs; a group with fewer points repeats its first."""
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
