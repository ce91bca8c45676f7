"""The machines and slots of a journal, from its layout and the records of machines that joined later."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, with the cluster-wide numbers of its slots; None for CPUs or memory (GiB) means unlimited."""

    name: str
    slots: range
    cpus: float | None
    memory_gib: float | None
    left: bool = False
    """Whether the machine has left the cluster; its slots keep their numbers."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """All machines of the cluster.

    ``places`` maps a node and a slot's number on it to the slot's numbers in the cluster (a node that left and joined
    again has new ones), each with the last epoch before its machine joined.
    """

    machines: list[Machine]
    places: dict[tuple[str, int], list[tuple[int, int]]]

    @property
    def slots(self) -> int:
        """The number of slots."""
        return sum(len(machine.slots) for machine in self.machines)

    @property
    def nodes(self) -> list[str]:
        """Names of all nodes that were ever part of the cluster, sorted."""
        return sorted({node for node, _ in self.places})

    def number_of(self, node: str, slot: int, epoch: int) -> int | None:
        """Return the cluster's number of a node's slot at an epoch; None if the journal has no such slot."""
        known = [number for joined, number in self.places.get((node, slot), ()) if joined < epoch]
        return known[-1] if known else None

    def add_places(self, notes: Mapping[str, Any]) -> None:
        """Add the slots of machines that joined after the first node, from their records by machine number.

        Raises:
            ValueError, KeyError, TypeError: a record is malformed.
        """
        start = self.slots
        for number in sorted(int(key) for key in notes):
            note = notes[str(number)]
            if number < len(self.machines):
                continue
            for at, slot in enumerate(note["slots"]):
                self.places.setdefault((str(note["node"]), int(slot)), []).append((int(note["epoch"]), start + at))
            start += len(note["slots"])

    def machine_of(self, slot: int) -> Machine | None:
        """Return the machine of a slot; None if the slot does not exist."""
        return next((machine for machine in self.machines if slot in machine.slots), None)

    def named(self, name: str) -> Machine | None:
        """Return the machine with a name; None if there is none, or it has left."""
        return next((machine for machine in self.machines if machine.name == name and not machine.left), None)

    def join(self, event: dict[str, Any]) -> None:
        """Add the machine of a ``MachineJoined`` event."""
        start = self.slots
        slots = range(start, start + int(event["gpus"]))
        cpus, memory_gib = event.get("cpus"), event.get("memory_gib")
        self.machines.append(Machine(name=str(event["machine"]), slots=slots, cpus=cpus, memory_gib=memory_gib))

    def leave(self, machine: Machine) -> None:
        """Mark a machine as left."""
        self.machines[self.machines.index(machine)] = replace(machine, left=True)

    @classmethod
    def read(cls, layout: Any) -> "Cluster":
        """Build the cluster from a layout's plain values.

        Raises:
            ValueError, KeyError, TypeError: the layout is malformed.
        """
        described, places = layout
        machines, start = [], 0
        for machine in described:
            count = int(machine["gpus"])
            machines.append(
                Machine(
                    name=str(machine["name"]),
                    slots=range(start, start + count),
                    cpus=machine.get("cpus"),
                    memory_gib=machine.get("memory_gib"),
                )
            )
            start += count
        return cls(
            machines=machines,
            places={(str(node), int(slot)): [(-1, number)] for number, (node, slot) in enumerate(places)},
        )
