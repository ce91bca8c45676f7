"""The packing rule: choose GPUs as close together as possible, on the best-fitting machines."""

from typing import Protocol

import numpy as np

from eunomia import Cluster, Pool
from eunomia.units import Ints
from eunomia_plugins.placement.planning import Ask, prefer, types_of


class HasFree(Protocol):
    """An object with the number of GPUs left on each machine."""

    @property
    def free(self) -> Ints:
        """Return the number of GPUs left, [machine]."""
        ...


def packed(cluster: Cluster, pool: Pool, ask: Ask) -> Ints | None:
    """Return GPUs on one machine that fits the claim, else within one rack, else anywhere; None: too few GPUs."""
    for kind in types_of(pool, ask, len(cluster.gpu_types), cluster.machine_type):
        room = pool.room(kind, ask.cpus, ask.memory_gib)
        if ask.near.size:
            counts = from_home(cluster, room, ask.near, ask.gpus)
        else:
            counts = _one_machine(pool, room, ask.gpus) or fewest_machines(cluster, pool, room, ask.gpus)
        if counts:
            return np.concatenate([prefer(pool, ask.near, machine, count) for machine, count in counts])
    return None


def _one_machine(pool: Pool, room: Ints, gpus: int) -> list[tuple[int, int]]:
    """Return the machine with the fewest GPUs left that fits the claim; empty if none does."""
    fits = np.flatnonzero(room >= gpus)
    return [(int(fits[pool.free[fits].argmin()]), gpus)] if fits.size else []


def from_home(cluster: Cluster, room: Ints, near: Ints, gpus: int) -> list[tuple[int, int]]:
    """Allocate on the claim's machines first, then in their racks, then anywhere; within these, most room first."""
    machines = len(cluster.machines)
    home = np.bincount(cluster.machine[near], minlength=machines)
    racks = np.bincount(cluster.machine_rack[cluster.machine[near]], minlength=len(cluster.racks))
    order = np.lexsort((-room, -racks[cluster.machine_rack], -home))
    return _fill(order, room, gpus)


def fewest_machines(cluster: Cluster, pool: HasFree, room: Ints, gpus: int) -> list[tuple[int, int]]:
    """Return the fewest machines of a rack, else of the cluster; the last machine in a rack is the best-fitting one."""
    by_rack = np.bincount(cluster.machine_rack, weights=room, minlength=len(cluster.racks)).astype(np.int64)
    plans = [_fewest(np.flatnonzero(cluster.machine_rack == rack), pool, room, gpus) for rack in _racks(by_rack, gpus)]
    if plans:
        return min(plans, key=len)
    if by_rack.sum() < gpus:
        return []
    order = np.lexsort((-by_rack[cluster.machine_rack], -room))
    return _fill(order, room, gpus)


def _racks(by_rack: Ints, gpus: int) -> list[int]:
    """Return the racks that fit the claim, fullest first."""
    fits = np.flatnonzero(by_rack >= gpus)
    return [int(rack) for rack in fits[np.argsort(by_rack[fits], kind="stable")]]


def _fewest(machines: Ints, pool: HasFree, room: Ints, gpus: int) -> list[tuple[int, int]]:
    """Allocate on the machines with most room; the remainder goes to the best-fitting machine."""
    order = machines[np.argsort(-room[machines], kind="stable")]
    counts = _fill(order, room, gpus)
    last = counts[-1][1]
    others = order[len(counts) - 1 :]
    fits = others[room[others] >= last]
    return [*counts[:-1], (int(fits[pool.free[fits].argmin()]), last)]


def _fill(order: Ints, room: Ints, gpus: int) -> list[tuple[int, int]]:
    """Allocate GPUs machine by machine in order; return an empty list if there are too few."""
    total = np.cumsum(room[order])
    if total.size == 0 or total[-1] < gpus:
        return []
    counts: list[tuple[int, int]] = []
    for machine in order[: int(np.searchsorted(total, gpus)) + 1].tolist():
        take = min(gpus, int(room[machine]))
        gpus -= take
        if take:
            counts.append((machine, take))
    return counts
