"""Maps each GPU of the cluster to its node and slot.

The first machine is a setting of the journal (``layout``). Each machine that joins later has a note, which is written
with the step that has its ``MachineJoined``: after a crash the journal has both or neither.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, Self

from eunomia.contract.codec import decode, encode
from eunomia.contract.events import MachineJoined
from eunomia.errors import InputError
from eunomia.journal.files import CURE
from eunomia.journal.values import Note
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.shapes import builds, value
from eunomia_appmaster.node.local_machine import CPU_TYPE
from eunomia_appmaster.protocol import launcher_pb2 as pb

MACHINE_NOTE: Final = "machine"
"""Kind of the notes of machines that joined after the first one; their key is the machine's number."""


@value
class Place:
    """A slot of a node."""

    node: str
    slot: int


@value
class Joined:
    """A machine of a node, as it joins the cluster."""

    number: int
    """Among all machines that ever joined, from 0."""
    machine: Machine
    node: str
    slots: tuple[int, ...]
    """The node's slots, in the order of their GPU numbers."""

    @property
    def event(self) -> MachineJoined:
        """Return the event with which it joins."""
        one = self.machine
        return MachineJoined(
            machine=one.name,
            gpu_type=one.gpu_type,
            gpus=one.gpus,
            rack=one.rack,
            island=one.island,
            cpus=one.cpus,
            memory_gib=one.memory_gib,
        )

    def note(self, epoch: int, *, left: bool = False) -> Note:
        """Return its note, to be written with the step of its event.

        Args:
            epoch: the arbiter's last one before it joins: what ran on its slots under an older one is not of this
                machine.
            left: whether it has left the cluster.
        """
        made = {"machine": encode(self.machine), "node": self.node, "slots": list(self.slots), "epoch": epoch}
        return Note(kind=MACHINE_NOTE, key=str(self.number), value=made | {"left": left})


@builds
class Layout:
    """The cluster of some nodes, and the place of each of its GPUs.

    Attributes:
        cluster: machines in the order in which they joined, those of one step by name; a node with slots of several
            types is several machines ``node-type``.
        places: by GPU number, also of machines that have left.
        slots: GPU numbers by node and slot, of the machines that have not left.
    """

    cluster: Cluster
    places: tuple[Place, ...]
    slots: Mapping[str, Mapping[int, int]]

    @classmethod
    def made(cls, cluster: Cluster, places: Sequence[Place]) -> Self:
        """Return the layout of a cluster with a place for each GPU."""
        slots: dict[str, dict[int, int]] = {}
        for gpu in cluster.present().tolist():
            slots.setdefault(places[gpu].node, {})[places[gpu].slot] = gpu
        return cls(cluster=cluster, places=tuple(places), slots=slots)

    @classmethod
    def of(cls, nodes: Iterable[pb.RegisterNodeRequest]) -> Self:
        """Return the layout of registered nodes.

        Raises:
            InputError: a node without slots.
        """
        machines: list[Machine] = []
        places: list[Place] = []
        for node in sorted(nodes, key=lambda node: node.node):
            for machine, slots in _machines_of(node):
                machines.append(machine)
                places += [Place(node=node.node, slot=slot) for slot in slots]
        return cls.made(Cluster.build(machines, place="launcher"), places)

    def joined(self, node: pb.RegisterNodeRequest) -> tuple[Self, tuple[Joined, ...]]:
        """Return the layout with the machines of one more node, and these machines.

        Raises:
            InputError: a node without slots, or a machine of its name is there.
        """
        if not node.slots:
            raise InputError("a node that joins must have a slot", value="none", place=node.node)
        first = len(self.cluster.machines)
        made = sorted(_machines_of(node), key=lambda pair: pair[0].name)  # as events of one step are folded
        found = tuple(
            Joined(number=first + at, machine=machine, node=node.node, slots=tuple(slots))
            for at, (machine, slots) in enumerate(made)
        )
        return self._with(found), found

    def _with(self, joined: Iterable[Joined]) -> Self:
        cluster, places = self.cluster, list(self.places)
        for one in joined:
            cluster = cluster.grown([one.machine], place=one.node)
            places += [Place(node=one.node, slot=slot) for slot in one.slots]
        return self.made(cluster, places)

    def with_notes(self, notes: Mapping[str, Any]) -> Self:
        """Return the layout with the machines of these notes, by key.

        Raises:
            ValueError, KeyError, TypeError, InputError: a note is malformed, or the one before it is missing.
        """
        layout, left = self, set[int]()
        for key in sorted(notes, key=int):
            number, kept = int(key), notes[key]
            if kept["left"]:
                left.add(number)
            if number < len(self.cluster.machines):
                continue  # it is of the first node, and has left
            if number != len(layout.cluster.machines):
                raise InputError(
                    "notes of machines must follow each other",
                    value=f"machine {len(layout.cluster.machines)} is missing",
                )
            one = Joined(number=number, machine=decode(kept["machine"]), node=kept["node"], slots=tuple(kept["slots"]))
            if len(one.slots) != one.machine.gpus:
                value = f"{len(one.slots)} slots of {one.machine.gpus}"
                raise InputError("a machine's note must have a slot for each GPU", value=value, place=one.node)
            # Two machines of one name are there if the first has left: as the journal's steps say it.
            cluster = Cluster.build(
                [*layout.cluster.machines, one.machine],
                types=layout.cluster.gpu_types,
                racks=layout.cluster.racks,
                left=left | {at for at, had in enumerate(layout.cluster.machines) if had.name == one.machine.name},
            )
            layout = self.made(cluster, [*layout.places, *(Place(node=one.node, slot=slot) for slot in one.slots)])
        return layout.without(left)

    def noted(self, number: int) -> Joined:
        """Return a machine by its number, as it joined."""
        places = [self.places[gpu] for gpu in self.cluster.gpus_on(number)]
        slots = tuple(place.slot for place in places)
        return Joined(number=number, machine=self.cluster.machines[number], node=places[0].node, slots=slots)

    def without(self, left: Iterable[int]) -> Self:
        """Return the layout after machines of these numbers have left."""
        known = self.cluster
        cluster = Cluster.build(known.machines, types=known.gpu_types, racks=known.racks, left=left)
        return self.made(cluster, self.places)

    def within(self, cluster: Cluster) -> Self:
        """Return the layout of the machines that the recovered state has.

        Raises:
            InputError: the place of one of them is not known.
        """
        known = self.cluster.machines[: len(cluster.machines)]
        if known != cluster.machines:
            rule = f"a journal must hold the note of each machine that joined; {CURE}"
            raise InputError(rule, value=f"{len(known)} of {len(cluster.machines)} machines are as they joined")
        return self.made(cluster, self.places[: cluster.gpus])

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, sorted."""
        return tuple(sorted(self.slots))

    def gpus_of(self, node: str) -> list[int]:
        """GPU numbers of a node, ascending."""
        return sorted(self.slots.get(node, {}).values())

    def machines_of(self, node: str) -> list[str]:
        """Return the names under which the cluster knows a node."""
        rows = sorted({int(self.cluster.machine[gpu]) for gpu in self.gpus_of(node)})
        return [self.cluster.machines[row].name for row in rows]

    def gpu(self, node: str, slot: int) -> int | None:
        """Return the number of a slot in the cluster."""
        return self.slots.get(node, {}).get(slot)

    def node_of(self, gpu: int) -> str:
        """Return the node of a GPU."""
        return self.places[gpu].node

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
        return cls.made(cluster, [Place(node=node, slot=slot) for node, slot in places])

    def check(self, node: pb.RegisterNodeRequest) -> None:
        """Check a node against the journal's record of it; slots may be missing.

        Raises:
            InputError: the journal does not know the node, or it has other slots.
        """
        here = [
            (self.places[gpu].slot, self.cluster.gpu_types[self.cluster.gpu_type[gpu]])
            for gpu in self.gpus_of(node.node)
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
        gpu = self.slots[node][slot]
        return self.cluster.machines[int(self.cluster.machine[gpu])]


def _cure(kinds: Sequence[str], node: pb.RegisterNodeRequest) -> str:
    if set(kinds) == {CPU_TYPE}:
        return f"give --slots {len(kinds)} again"
    return "give the same --slot-types again" if any(slot.paced for slot in node.slots) else "bring its GPUs back"


def _machines_of(node: pb.RegisterNodeRequest) -> list[tuple[Machine, list[int]]]:
    """Return the machines of a node, one for each type of its slots, with their slots."""
    slots = sorted(node.slots, key=lambda slot: (slot.gpu_type, slot.index))
    kinds = [(kind, list(group)) for kind, group in groupby(slots, key=lambda slot: slot.gpu_type)]
    return [
        (_machine(node, kind, group, alone=len(kinds) == 1), [slot.index for slot in group]) for kind, group in kinds
    ]


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
