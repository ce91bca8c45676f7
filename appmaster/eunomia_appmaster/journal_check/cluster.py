"""The machines and slots of a journal, from its layout and the notes of machines that joined later."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, with the cluster's numbers of its slots; CPUs and memory of None are unlimited."""

    name: str
    slots: range
    cpus: float | None
    memory_gib: float | None
    left: bool = False
    """Whether it is no longer part of the cluster; its slots keep their numbers."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """All machines.

    ``places`` has by node and number on the node the cluster's numbers of a slot: a node that left and joined again has
    another one. Beside each stands the last epoch before its machine joined.
    """

    machines: list[Machine]
    places: dict[tuple[str, int], list[tuple[int, int]]]

    @property
    def slots(self) -> int:
        """Returns the number of slots."""
        return sum(len(machine.slots) for machine in self.machines)

    @property
    def nodes(self) -> list[str]:
        """Returns the names of all nodes that ever were there, sorted."""
        return sorted({node for node, _ in self.places})

    def number_of(self, node: str, slot: int, epoch: int) -> int | None:
        """Return the number that a node's slot had under an epoch; None if the journal knows no such slot."""
        known = [number for joined, number in self.places.get((node, slot), ()) if joined < epoch]
        return known[-1] if known else None

    def add_places(self, notes: Mapping[str, Any]) -> None:
        """Add the places of machines that joined after the first node, from their notes by the machine's number.

        Raises:
            ValueError, KeyError, TypeError: a note is malformed.
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
        """Return the machine of a slot; None if there is no such slot."""
        return next((machine for machine in self.machines if slot in machine.slots), None)

    def named(self, name: str) -> Machine | None:
        """Return the machine of a name; None if there is none, or it has left."""
        return next((machine for machine in self.machines if machine.name == name and not machine.left), None)

    def join(self, event: dict[str, Any]) -> None:
        """Add the machine of a ``MachineJoined``."""
        start = self.slots
        slots = range(start, start + int(event["gpus"]))
        cpus, memory_gib = event.get("cpus"), event.get("memory_gib")
        self.machines.append(Machine(name=str(event["machine"]), slots=slots, cpus=cpus, memory_gib=memory_gib))

    def leave(self, machine: Machine) -> None:
        """Note that a machine has left."""
        self.machines[self.machines.index(machine)] = replace(machine, left=True)

    @classmethod
    def read(cls, layout: Any) -> "Cluster":
        """Return the cluster of a layout's plain values.

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
