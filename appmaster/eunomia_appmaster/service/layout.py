"""Maps each GPU of the cluster to its node and slot.

The first node is stored in the journal's meta data (``layout``). Each machine that joins later has a note, which is
written with the step that has its ``MachineJoined``: after a crash the journal has both or neither.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, count, groupby
from typing import Any, Final, Self

from eunomia.contract.codec import decode, encode
from eunomia.contract.events import MachineJoined
from eunomia.errors import InputError
from eunomia.journal.files import REMEDY
from eunomia.journal.values import Note
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.shapes import builds, value
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.node_names import NAME

MACHINE_NOTE: Final = "machine"
"""Kind of the notes of machines that joined after the first node, or have left; the key is the machine's number."""


FIRST_RACK: Final = "r1"
"""The rack of a node that does not name one."""


@value
class Place:
    """The position of a GPU: a node, and a slot on it."""

    node: str
    slot: int


@value
class Joined:
    """A machine of a node at the time when it joins the cluster."""

    number: int
    """Number among all machines that have ever joined, from 0."""
    machine: Machine
    node: str
    slots: tuple[int, ...]
    """The node's slot numbers, in the order of the GPU numbers."""

    @property
    def event(self) -> MachineJoined:
        """Return the event by which the machine joins."""
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
        """Return the journal note on this machine, to be written in the same step as its join or leave event.

        Args:
            epoch: the arbiter's last epoch before the machine joins; older leases on its slots are of earlier machines.
            left: whether the machine has left the cluster.
        """
        made = {"machine": encode(self.machine), "node": self.node, "slots": list(self.slots), "epoch": epoch}
        return Note(kind=MACHINE_NOTE, key=str(self.number), value=made | {"left": left})


@value
class Change:
    """The changes of a node's machines when the node registers with other slots than before."""

    left: tuple[int, ...]
    """Numbers of the machines that leave because the type or speed of one of their slots has changed."""
    joined: tuple[Joined, ...]
    """The machines that join, with all present slots that belong to no remaining machine."""


@builds
class Layout:
    """The cluster of some nodes, and the node and slot of each GPU.

    Attributes:
        cluster: machines in the order of their joins, sorted by name within one step; a node with slots of several
            types has one machine per type, named ``node-type``.
        places: by GPU number, including machines that have left.
        slots: GPU numbers by node and slot, without machines that have left.
    """

    cluster: Cluster
    places: tuple[Place, ...]
    slots: Mapping[str, Mapping[int, int]]

    @classmethod
    def made(cls, cluster: Cluster, places: Sequence[Place]) -> Self:
        """Build the layout from a cluster and a place for each GPU."""
        slots: dict[str, dict[int, int]] = {}
        for gpu in cluster.present().tolist():
            slots.setdefault(places[gpu].node, {})[places[gpu].slot] = gpu
        return cls(cluster=cluster, places=tuple(places), slots=slots)

    @classmethod
    def of(cls, nodes: Iterable[pb.RegisterNodeRequest]) -> Self:
        """Build the layout from registered nodes.

        Raises:
            InputError: a node has no slots.
        """
        machines: list[Machine] = []
        places: list[Place] = []
        for node in sorted(nodes, key=lambda node: node.node):
            for machine, slots in _machines_of(node, node.slots):
                machines.append(machine)
                places += [Place(node=node.node, slot=slot) for slot in slots]
        return cls.made(Cluster.build(machines, place="launcher"), places)

    def joined(self, node: pb.RegisterNodeRequest) -> tuple[Self, tuple[Joined, ...]]:
        """Return the layout with the machines of one more node, and these machines.

        Raises:
            InputError: the node has no slots, its rack's name is invalid, or a machine of its name exists already.
        """
        if not node.slots:
            raise InputError("a node that joins must have a slot", value="none", place=node.node)
        if node.rack and not NAME.match(node.rack):
            raise InputError("a rack must have a name as a node has", value=f'"{node.rack[:100]}"', place=node.node)
        found = self._numbered(node, _machines_of(node, node.slots))
        return self.with_machines(found), found

    def _numbered(self, node: pb.RegisterNodeRequest, made: Iterable[tuple[Machine, list[int]]]) -> tuple[Joined, ...]:
        first = len(self.cluster.machines)
        ordered = sorted(made, key=lambda pair: pair[0].name)  # as events of one step are folded
        return tuple(
            Joined(number=first + at, machine=machine, node=node.node, slots=tuple(slots))
            for at, (machine, slots) in enumerate(ordered)
        )

    def change(self, node: pb.RegisterNodeRequest) -> Change | None:
        """Return the changes of the machines of a node that registers again.

        Slots that are missing now stay with their machine. A joining machine has a name that no present machine has, so
        that no pending event can refer to it.

        Returns:
            The changes; None if no slot has changed, although some may be missing.
        """
        comes, rows = {slot.index: slot for slot in node.slots}, self.rows_of(node.node)
        node = self._in_its_rack(node, rows)
        left = {row for row in rows for gpu in self.cluster.gpus_on(row) if self._differs(gpu, comes)}
        stays = {self.places[gpu].slot for row in rows if row not in left for gpu in self.cluster.gpus_on(row)}
        taken = {machine.name for at, machine in enumerate(self.cluster.machines) if at not in self.cluster.left}
        made = [
            (dataclasses.replace(machine, name=_free_name(machine, node.node, taken)), slots)
            for machine, slots in _machines_of(node, [slot for slot in node.slots if slot.index not in stays])
        ]
        return Change(left=tuple(sorted(left)), joined=self._numbered(node, made)) if left or made else None

    def _in_its_rack(self, node: pb.RegisterNodeRequest, rows: Sequence[int]) -> pb.RegisterNodeRequest:
        """Return a registration with the rack of the node's machines.

        Raises:
            InputError: the registration names another rack.
        """
        rack = self.cluster.machines[rows[0]].rack if rows else node.rack
        if node.rack not in ("", rack):
            rule = f"a node must keep the rack of its join, {rack} (remove it, and let it join again)"
            raise InputError(rule, value=node.rack[:100], place=f"--rack of {node.node}")
        here = pb.RegisterNodeRequest()
        here.CopyFrom(node)
        here.rack = rack
        return here

    def _differs(self, gpu: int, comes: Mapping[int, pb.Slot]) -> bool:
        """Return whether a node registers a different slot in a GPU's place, or a later machine has that place."""
        place = self.places[gpu]
        if self.gpu(place.node, place.slot) != gpu:
            return True  # a later machine has it: the arbiter ended before this one had left
        slot = comes.get(place.slot)
        if slot is None:
            return False
        machine = self.cluster.machines[int(self.cluster.machine[gpu])]
        speed = (machine.cpus or 0.0) / machine.gpus
        return slot.gpu_type != machine.gpu_type or (slot.paced and not math.isclose(slot.cpus, speed, rel_tol=1e-6))

    def known_part(self, node: pb.RegisterNodeRequest) -> pb.RegisterNodeRequest:
        """Return a registration reduced to the slots that match the cluster's."""
        part = pb.RegisterNodeRequest()
        part.CopyFrom(node)
        comes = {slot.index: slot for slot in node.slots}
        kept = [
            comes[at] for at in comes if (gpu := self.gpu(node.node, at)) is not None and not self._differs(gpu, comes)
        ]
        del part.slots[:]
        part.slots.extend(kept)
        return part

    def with_machines(self, joined: Iterable[Joined]) -> Self:
        """Return the layout with additional machines, whose numbers follow the present ones.

        Raises:
            InputError: a machine with one of the names exists already.
        """
        cluster, places = self.cluster, list(self.places)
        for one in joined:
            cluster = cluster.grown([one.machine], place=one.node)
            places += [Place(node=one.node, slot=slot) for slot in one.slots]
        return self.made(cluster, places)

    def with_notes(self, notes: Mapping[str, Any]) -> Self:
        """Return the layout with the machines that notes describe; the keys of ``notes`` are machine numbers.

        Raises:
            ValueError, KeyError, TypeError, InputError: a note is malformed, or the one before it is missing.
        """
        known = self.cluster
        machines, types, racks, places = [*known.machines], [*known.gpu_types], [*known.racks], [*self.places]
        for key in sorted(notes, key=int):
            number, kept = int(key), notes[key]
            if number < len(known.machines):
                continue  # it is of the first node, and has left
            if number != len(machines):
                rule = "notes of machines must follow each other"
                raise InputError(rule, value=f"machine {len(machines)} is missing")
            machine, slots = decode(kept["machine"]), kept["slots"]
            if len(slots) != machine.gpus:
                value = f"{len(slots)} slots of {machine.gpus}"
                raise InputError("a machine's note must have a slot for each GPU", value=value, place=kept["node"])
            machines.append(machine)
            types += [] if machine.gpu_type in types else [machine.gpu_type]  # as each join grew the cluster
            racks += [] if machine.rack in racks else [machine.rack]
            places += [Place(node=kept["node"], slot=slot) for slot in slots]
        left = [int(key) for key, kept in notes.items() if kept["left"]]
        cluster = Cluster.build(machines, types=tuple(types), racks=tuple(racks), left=left, place="journal")
        return self.made(cluster, places)

    def noted(self, number: int) -> Joined:
        """Return a machine by its number, as at the time when it joined."""
        places = [self.places[gpu] for gpu in self.cluster.gpus_on(number)]
        slots = tuple(place.slot for place in places)
        return Joined(number=number, machine=self.cluster.machines[number], node=places[0].node, slots=slots)

    def without(self, left: Iterable[int]) -> Self:
        """Return the layout without machines of these numbers."""
        known = self.cluster
        cluster = Cluster.build(known.machines, types=known.gpu_types, racks=known.racks, left=left)
        return self.made(cluster, self.places)

    def within(self, cluster: Cluster) -> Self:
        """Return the layout with only the machines of the recovered state's cluster.

        Raises:
            InputError: the slots of one of these machines are not known.
        """
        known = self.cluster.machines[: len(cluster.machines)]
        if known != cluster.machines:
            rule = f"a journal must hold the note of each machine that joined; {REMEDY}"
            raise InputError(rule, value=f"{len(known)} of {len(cluster.machines)} machines are as they joined")
        return self.made(cluster, self.places[: cluster.gpus])

    @property
    def size(self) -> int:
        """The number of slots; a slot that belongs to two machines, of which one is about to leave, counts once."""
        return sum(map(len, self.slots.values()))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, sorted."""
        return tuple(sorted(self.slots))

    def gpus_of(self, node: str) -> list[int]:
        """Return the GPU numbers of a node, ascending."""
        return sorted(self.slots.get(node, {}).values())

    def rows_of(self, node: str) -> list[int]:
        """Return the numbers of a node's machines that have not left."""
        cluster = self.cluster
        firsts = ((row, cluster.gpus_on(row)[0]) for row in range(len(cluster.machines)) if row not in cluster.left)
        return [row for row, gpu in firsts if self.places[gpu].node == node]

    def machines_of(self, node: str) -> list[str]:
        """Return the names of a node's machines in the cluster."""
        return [self.cluster.machines[row].name for row in self.rows_of(node)]

    def gpu(self, node: str, slot: int) -> int | None:
        """Return the cluster's number of a node's slot; None if there is no such slot."""
        return self.slots.get(node, {}).get(slot)

    def node_of(self, gpu: int) -> str:
        """Return the node of a GPU."""
        return self.places[gpu].node

    def missing(self, node: str, present: Collection[int]) -> list[int]:
        """Return the GPU numbers of a node's slots that are not in ``present``."""
        return [gpu for gpu in self.gpus_of(node) if self.places[gpu].slot not in present]

    def by_machine(self, gpus: Iterable[int]) -> dict[str, tuple[int, ...]]:
        """Return GPU numbers by the name of their machine."""
        found: dict[str, tuple[int, ...]] = {}
        for gpu in sorted(gpus):
            name = self.cluster.machines[int(self.cluster.machine[gpu])].name
            found[name] = (*found.get(name, ()), gpu)
        return found

    def encoded(self) -> object:
        """Return the layout in the journal's format."""
        return encode((self.cluster.machines, tuple((place.node, place.slot) for place in self.places)))

    @classmethod
    def decoded(cls, made: object) -> Self:
        """Read the layout from the journal's format.

        Raises:
            InputError: the machines are malformed, or their number of GPUs differs from the number of places.
        """
        machines, places = decode(made)
        cluster = Cluster.build(machines, place="journal")
        if len(places) != cluster.gpus:
            raise InputError(f"a layout must have the places of {cluster.gpus} GPUs", value=f"{len(places)} places")
        return cls.made(cluster, [Place(node=node, slot=slot) for node, slot in places])


def _machines_of(node: pb.RegisterNodeRequest, slots: Iterable[pb.Slot]) -> list[tuple[Machine, list[int]]]:
    """Return a machine for each type of slot, with its slots."""
    ordered = sorted(slots, key=lambda slot: (slot.gpu_type, slot.index))
    kinds = [(kind, list(group)) for kind, group in groupby(ordered, key=lambda slot: slot.gpu_type)]
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
        rack=node.rack or FIRST_RACK,
        cpus=(math.fsum(slot.cpus for slot in slots) if slots[0].paced else node.cpus * part) or None,
        memory_gib=node.memory_gib * part or None,
    )


def _island(slots: Sequence[pb.Slot]) -> int | None:
    """Return the number of GPUs per island if all islands have the same size, else None (one island)."""
    sizes = {len(list(group)) for _, group in groupby(slots, key=lambda slot: slot.island)}
    return sizes.pop() if len(sizes) == 1 and len(slots) > 1 else None


def _free_name(machine: Machine, node: str, taken: Collection[str]) -> str:
    """Return a free name for a machine that joins in addition to others of its node, or in place of one."""
    kind = f"{node}-{machine.gpu_type}"
    return next(name for name in chain((machine.name, kind), (f"{kind}-{at}" for at in count(2))) if name not in taken)
