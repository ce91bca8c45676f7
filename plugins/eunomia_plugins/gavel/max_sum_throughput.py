"""Maximum total throughput, regardless of its division among jobs (Gavel, §4.1)."""

from collections.abc import Mapping

import numpy as np

from eunomia import Snapshot
from eunomia_plugins.gavel import reference
from eunomia_plugins.gavel.instance import Instance
from eunomia_plugins.gavel.programmes import greatest_sum
from eunomia_plugins.gavel.sharing import Row, SharingOptions, Solved, TimeSharing


class MaxSumThroughputOptions(SharingOptions):
    """Options of ``max_sum_throughput``."""

    performance: bool = True
    """Whether a job's rates on the GPU types are used; if not, it counts as equally fast on all types."""
    relative: bool = False
    """Whether a job's throughput is relative to its best type; if not, it is in iterations per second, as in the paper,
    which favours jobs with short iterations."""


class MaxSumThroughput(TimeSharing[MaxSumThroughputOptions]):
    """Maximises the weighted sum over jobs m of throughput(m, X). No job is guaranteed a share, so jobs can starve."""

    name = "max_sum_throughput"
    options_type = MaxSumThroughputOptions

    def _solve(self, snapshot: Snapshot, instance: Instance, names: list[str], notes: Mapping[str, Row]) -> Solved:
        best = instance.rate.max(axis=1, keepdims=True)
        speed = instance.rate / np.where(best > 0.0, best, 1.0) if self.options.relative else instance.rate
        value = speed * instance.weight[:, None]
        programme = reference.greatest_sum if self.options.solver == "reference" else greatest_sum
        return Solved(programme(instance, value)[0])
