"""Maximum total throughput, regardless of its division among jobs (Gavel, §4.1)."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from eunomia import Allocation, Cluster, Menus, Offer, Snapshot, Stage, Triggers, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.contract.memos import Memo
from eunomia_plugins.gavel import reference
from eunomia_plugins.gavel.instance import Instance
from eunomia_plugins.gavel.programmes import greatest_sum
from eunomia_plugins.gavel.sharing import (
    EVENTS,
    GIVES_TIME,
    Row,
    Shares,
    SharingOptions,
    Solved,
    share_time,
    triggers_on,
)


class MaxSumThroughputOptions(SharingOptions):
    """Options of ``max_sum_throughput``."""

    performance: bool = True
    """Whether a job's rates on the GPU types count; else it counts as equally fast on all types."""
    relative: bool = False
    """Whether a job's throughput is measured relative to its best type; else in iterations per second, as in the
    paper, so that jobs with short iterations are preferred."""


class MaxSumThroughput:
    """Maximise the weighted sum over jobs of throughput(m, X). No job is guaranteed a share: jobs can starve."""

    name = "max_sum_throughput"
    api = 1
    options_type = MaxSumThroughputOptions
    contracts: ClassVar[Contracts] = GIVES_TIME
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.ALLOCATION: Shares}

    def __init__(self, options: MaxSumThroughputOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_triggers(self, cluster: Cluster) -> Triggers:
        """Ask for a round at every arrival, whenever GPUs become free, and where speeds count whenever leases end."""
        return triggers_on(cluster) if self.options.performance else EVENTS

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        """Share time among all jobs, running ones too."""
        return share_time(self.name, self.options, snapshot, menus, offer, self._solve)

    def _solve(self, instance: Instance, names: list[str], notes: Mapping[str, Row]) -> Solved:
        best = instance.rate.max(axis=1, keepdims=True)
        speed = instance.rate / np.where(best > 0.0, best, 1.0) if self.options.relative else instance.rate
        value = speed * instance.weight[:, None]
        programme = reference.greatest_sum if self.options.solver == "reference" else greatest_sum
        return Solved(programme(instance, value)[0])
