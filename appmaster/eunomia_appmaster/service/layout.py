"""Maps each GPU of the cluster to its node and slot."""

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Self

from eunomia.contract.codec import decode, encode
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.shapes import builds, value
from eunomia_appmaster.node.local_machine import CPU_TYPE
from eunomia_appmaster.protocol import launcher_pb2 as pb


@value
class Place:
    """A slot of a node."""

    node: str
    slot: int


@builds
class Layout:
    """The cluster of some nodes, and the place of each of its GPUs.

    Attributes:
        cluster: machines in order of node; a node with slots of several types is several machines ``node-type``.
        places: by GPU number.
    """

    cluster: Cluster
    places: tuple[Place, ...]

    @classmethod
    def of(cls, nodes: Iterable[pb.RegisterNodeRequest]) -> Self:
        """Return the layout of registered nodes.

        Raises:
            InputError: a node without slots.
        """
        machines: list[Machine] = []
        places: list[Place] = []
        for node in sorted(nodes, key=lambda node: node.node):
            slots = sorted(node.slots, key=lambda slot: (slot.gpu_type, slot.index))
            kinds = [(kind, list(group)) for kind, group in groupby(slots, key=lambda slot: slot.gpu_type)]
            for kind, group in kinds:
                machines.append(_machine(node, kind, group, alone=len(kinds) == 1))
                places += [Place(node=node.node, slot=slot.index) for slot in group]
        return cls(cluster=Cluster.build(machines, place="launcher"), places=tuple(places))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, sorted."""
        return tuple(sorted({place.node for place in self.places}))

    def gpus_of(self, node: str) -> list[int]:
        """GPU numbers of a node."""
        return [gpu for gpu, place in enumerate(self.places) if place.node == node]

    def machines_of(self, node: str) -> list[str]:
        """Return the names under which the cluster knows a node."""
        rows = sorted({int(self.cluster.machine[gpu]) for gpu in self.gpus_of(node)})
        return [self.cluster.machines[row].name for row in rows]

    def gpu(self, node: str, slot: int) -> int | None:
        """Return the number of a slot in the cluster."""
        place = Place(node=node, slot=slot)
        return self.places.index(place) if place in self.places else None

    def missing(self, node: str, present: Collection[int]) -> list[int]:
        """GPU numbers of a node whose slots are not among those that are present."""
        return [gpu for gpu in self.gpus_of(node) if self.places[gpu].slot not in present]

    def by_machine(self, gpus: Iterable[int]) -> dict[str, tuple[int, ...]]:
        """GPU numbers by the name of their machine."""
        found: dict[str, tuple[int, ...]] = {}
        for gpu in sorted(gpus):
            name = self.cluster.machines[int(self.cluster.machine[gpu])].name
            found[name] = (*found.get(name, ()), gpu)
        return found

    def encoded(self) -> object:
        """Return the layout as the journal keeps it."""
        return encode((self.cluster.machines, tuple((place.node, place.slot) for place in self.places)))

    @classmethod
    def decoded(cls, made: object) -> Self:
        """Return the layout from the journal."""
        machines, places = decode(made)
        cluster = Cluster.build(machines, place="journal")
        return cls(cluster=cluster, places=tuple(Place(node=node, slot=slot) for node, slot in places))

    def check(self, node: pb.RegisterNodeRequest) -> None:
        """Check a node against the journal's record of it; slots may be missing.

        Raises:
            InputError: the journal does not know the node, or it has other slots.
        """
        here = [
            (place.slot, self.cluster.gpu_types[self.cluster.gpu_type[gpu]])
            for gpu, place in enumerate(self.places)
            if place.node == node.node
        ]
        comes = sorted((slot.index, slot.gpu_type) for slot in node.slots)
        if not here or not set(comes) <= set(here):
            known = _words(sorted(here)) if here else f"no node {node.node}, only {', '.join(self.nodes)}"
            cure = _cure([kind for _, kind in here], node)
            rule = f"a node must come back as the journal knows it ({known}): {cure}, or take another --state-dir"
            raise InputError(rule, value=_words(comes), place=node.node)
        for slot in (slot for slot in node.slots if slot.paced):
            machine = self._machine_of(node.node, slot.index)
            if not math.isclose(slot.cpus, (machine.cpus or 0.0) / machine.gpus, rel_tol=1e-6):
                rule = f"a slot type must keep its speed in the journal ({(machine.cpus or 0.0) / machine.gpus:g})"
                raise InputError(rule, value=f"{slot.gpu_type}:{slot.cpus:g}", place=node.node)

    def _machine_of(self, node: str, slot: int) -> Machine:
        gpu = self.places.index(Place(node=node, slot=slot))
        return self.cluster.machines[int(self.cluster.machine[gpu])]


def _cure(kinds: Sequence[str], node: pb.RegisterNodeRequest) -> str:
    if set(kinds) == {CPU_TYPE}:
        return f"give --slots {len(kinds)} again"
    return "give the same --slot-types again" if any(slot.paced for slot in node.slots) else "bring its GPUs back"


def _machine(node: pb.RegisterNodeRequest, kind: str, slots: Sequence[pb.Slot], *, alone: bool) -> Machine:
    part = len(slots) / len(node.slots)
    return Machine(
        name=node.node if alone else f"{node.node}-{kind}",
        gpu_type=kind,
        gpus=len(slots),
        island=_island(slots),
        cpus=(math.fsum(slot.cpus for slot in slots) if slots[0].paced else node.cpus * part) or None,
        memory_gib=node.memory_gib * part or None,
    )


def _island(slots: Sequence[pb.Slot]) -> int | None:
    """Return the number of GPUs in each island, where all islands are equally long; None: one island."""
    sizes = {len(list(group)) for _, group in groupby(slots, key=lambda slot: slot.island)}
    return sizes.pop() if len(sizes) == 1 and len(slots) > 1 else None


def _words(slots: Sequence[tuple[int, str]]) -> str:
    kinds = [kind for _, kind in slots]
    return ", ".join(f"{kinds.count(kind)}x{kind}" for kind in sorted(set(kinds))) or "no slots"
