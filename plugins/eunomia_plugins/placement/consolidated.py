"""The plugin ``consolidated``: gangs that are slow across machines wait for the fewest possible machines (Tiresias)."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from eunomia import (
    Allocation,
    Contract,
    Duration,
    Feature,
    Locality,
    Menus,
    Offer,
    Placement,
    PluginOptions,
    Pool,
    Seconds,
    Share,
    Snapshot,
    Stage,
    hookimpl,
)
from eunomia.units import NONE, Ints
from eunomia_plugins.placement.packing import packed
from eunomia_plugins.placement.planning import Ask, place


class ConsolidatedOptions(PluginOptions):
    """Options of ``consolidated``."""

    needs: Literal["all", "slowed"] = "all"
    """Which gangs wait: all, or those whose measured speed across machines is below ``tolerated``."""
    tolerated: Share = 0.9
    """With ``slowed``: minimum speed of a job across machines, as a fraction of its speed on one machine."""
    above: Annotated[int, Field(ge=1)] = 1
    """Gangs of at most this many GPUs never wait."""
    patience: Duration = Seconds(3600.0)
    """A job that has not run for this time accepts any placement; in Tiresias it waits without limit."""


class Consolidated:
    """Like ``packed``, but a gang that needs locality waits until it fits on the fewest possible machines.

    Tiresias (NSDI'19, §3.3) detects such jobs by the skew of their tensors, which users do not declare; here all gangs
    wait, or those with low measured rates across machines. It cannot be combined with an allocation that pins GPUs to
    machines, since a pinned gang cannot wait for a better placement.
    """

    name = "consolidated"
    api = 1
    options_type = ConsolidatedOptions

    def __init__(self, options: ConsolidatedOptions) -> None:
        self.options = options
        self.contracts = {
            Stage.PLACEMENT: Contract(
                needs=frozenset({Feature.GRANTS} | ({Feature.RATES} if options.needs == "slowed" else set()))
            )
        }

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Place claims in order of service; a claim that can keep its GPUs keeps them."""
        cluster = snapshot.cluster
        largest = _largest_machines(snapshot)

        def rule(pool: Pool, ask: Ask) -> Ints | None:
            gpus = packed(cluster, pool, ask)
            if gpus is None or not self._waits(snapshot, menus, ask):
                return gpus
            kind = int(cluster.gpu_type[gpus[0]])
            return gpus if np.unique(cluster.machine[gpus]).size <= _fewest(largest[kind], gpus.size) else None

        return place(snapshot, menus, offer, allocation, rule, pins=False)

    def _waits(self, snapshot: Snapshot, menus: Menus, ask: Ask) -> bool:
        """Return whether a claim waits instead of running on more machines than necessary."""
        if ask.job == NONE or ask.gpus <= self.options.above:
            return False
        ran = float(snapshot.ledger.jobs.last_ran[ask.job])
        since = float(snapshot.jobs.arrived[ask.job]) if np.isnan(ran) else ran
        if snapshot.now - since >= self.options.patience:
            return False
        return self.options.needs == "all" or self._slowed(menus, ask)

    def _slowed(self, menus: Menus, ask: Ask) -> bool:
        near = menus.rate(ask.job, ask.gpus)
        far = min(menus.rate(ask.job, ask.gpus, Locality.RACK), menus.rate(ask.job, ask.gpus, Locality.CLUSTER))
        return far < self.options.tolerated * near


def _largest_machines(snapshot: Snapshot) -> list[Ints]:
    """Return, for each GPU type, the cumulative GPUs of its machines, largest machine first."""
    cluster = snapshot.cluster
    sizes = np.diff(cluster.machine_start)
    of = [np.sort(sizes[cluster.machine_type == kind])[::-1] for kind in range(len(cluster.gpu_types))]
    return [np.cumsum(each).astype(np.int64) for each in of]


def _fewest(largest: Ints, gpus: int) -> int:
    """Return the minimum number of machines for a gang in an empty cluster."""
    return int(np.searchsorted(largest, gpus)) + 1
