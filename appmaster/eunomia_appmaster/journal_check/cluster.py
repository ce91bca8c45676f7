"""The machines and slots of a journal, from its layout."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, with the cluster's numbers of its slots; CPUs and memory of None are unlimited."""

    name: str
    slots: range
    cpus: float | None
    memory_gib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All machines; ``places`` has the cluster's number of a slot by node and number on the node."""

    machines: tuple[Machine, ...]
    places: dict[tuple[str, int], int]

    @property
    def slots(self) -> int:
        """Returns the number of slots."""
        return sum(len(machine.slots) for machine in self.machines)

    def machine_of(self, slot: int) -> Machine | None:
        """Return the machine of a slot; None if there is no such slot."""
        return next((machine for machine in self.machines if slot in machine.slots), None)

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
            machines=tuple(machines),
            places={(str(node), int(slot)): number for number, (node, slot) in enumerate(places)},
        )
