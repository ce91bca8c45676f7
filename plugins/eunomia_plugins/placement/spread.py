"""The plugin ``spread``: place claims on as many machines as possible, so that a failure affects few of their GPUs."""

from typing import ClassVar

import numpy as np

from eunomia import Allocation, Cluster, Contract, Feature, Menus, Offer, Placement, Pool, Snapshot, Stage, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.units import Ints
from eunomia_plugins.placement.planning import Ask, place, prefer, types_of


class Spread:
    """Takes each GPU of a claim from the machine with the fewest of its GPUs; ties go to the most free GPUs."""

    name = "spread"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.PLACEMENT: Contract(needs=frozenset({Feature.GRANTS}))}

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Place claims in order of service; a claim that can keep its GPUs keeps them; pins are ignored."""
        cluster = snapshot.cluster
        return place(snapshot, menus, offer, allocation, lambda pool, ask: _spread(cluster, pool, ask), pins=False)


def _spread(cluster: Cluster, pool: Pool, ask: Ask) -> Ints | None:
    for kind in types_of(pool, ask, len(cluster.gpu_types), cluster.machine_type):
        room = pool.room(kind, ask.cpus, ask.memory_gib)
        if room.sum() < ask.gpus:
            continue
        counts = _level(room, ask.gpus)
        machines = np.flatnonzero(counts)
        return np.concatenate([prefer(pool, ask.near, int(machine), int(counts[machine])) for machine in machines])
    return None


def _level(room: Ints, gpus: int) -> Ints:
    """Return the GPUs to allocate by machine: equally many on each, the remainder where most are left."""
    counts = np.zeros_like(room)
    while gpus > 0:
        left = room - counts
        open_machines = np.flatnonzero(left > 0)
        order = open_machines[np.lexsort((-left[open_machines], counts[open_machines]))]
        chosen = order[:gpus]
        counts[chosen] += 1
        gpus -= chosen.size
    return counts
