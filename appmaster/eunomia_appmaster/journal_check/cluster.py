"""The machines and slots of a journal, from its layout."""

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
    """All machines; ``places`` has the cluster's number of a slot by node and number on the node."""

    machines: list[Machine]
    places: dict[tuple[str, int], int]

    @property
    def slots(self) -> int:
        """Returns the number of slots."""
        return sum(len(machine.slots) for machine in self.machines)

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
            places={(str(node), int(slot)): number for number, (node, slot) in enumerate(places)},
        )
