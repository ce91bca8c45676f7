"""Planned changes of a simulated cluster: machines that join, drain or leave."""

from collections.abc import Iterable

from eunomia.contract.events import MachineDraining, MachineJoined, MachineKept, MachineLeft
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import value

Change = MachineJoined | MachineLeft | MachineDraining | MachineKept


@value
class MachineChange:
    """A change of the cluster at a time in seconds."""

    time_seconds: float
    event: Change


def with_all(cluster: Cluster, changes: Iterable[MachineChange]) -> Cluster:
    """Return the cluster with all machines that ever join it; their GPUs have the indices that the arbiter assigns."""
    for change in changes:
        if isinstance(change.event, MachineJoined):
            cluster = cluster.grown([change.event.described()], place="a plan of machines")
    return cluster


def slot_changes(cluster: Cluster, changes: Iterable[MachineChange]) -> tuple[tuple[float, int], ...]:
    """Return each time in seconds at which machines join or leave, with the change in the number of GPUs."""
    gpus = {machine.name: machine.gpus for machine in cluster.machines}
    found: list[tuple[float, int]] = []
    for change in changes:
        event = change.event
        if isinstance(event, MachineJoined):
            gpus[event.machine] = event.gpus
            found.append((change.time_seconds, event.gpus))
        elif isinstance(event, MachineLeft):
            found.append((change.time_seconds, -gpus[event.machine]))
    return tuple(found)
