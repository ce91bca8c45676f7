"""Packed: GPUs as close together as possible, on the best-fitting machines."""

from typing import ClassVar

from eunomia import (
    Allocation,
    Contract,
    Feature,
    Menus,
    Offer,
    Placement,
    Promise,
    Snapshot,
    Stage,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia_plugins.placement.on_free import place_on_free
from eunomia_plugins.placement.packing import packed
from eunomia_plugins.placement.planning import place


class Packed:
    """Uses the fullest machine that fits the gang, else one rack, else any machines, as few as possible."""

    name = "packed"
    api = 1
    contracts: ClassVar[Contracts] = {
        Stage.PLACEMENT: Contract(needs=frozenset({Feature.GRANTS}), promises=frozenset({Promise.HONOURS_PINS}))
    }

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Place claims in order of service; a claim that can stay stays."""
        found = place_on_free(snapshot, offer, allocation)
        if found is not None:
            return found
        cluster = snapshot.cluster
        return place(snapshot, menus, offer, allocation, lambda pool, ask: packed(cluster, pool, ask), pins=True)
