"""The cluster: racks, machines, islands and GPUs as columns with one row per GPU, and its short textual form."""

import re
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import reads, value
from eunomia.units import NONE, Ints, Locality, Reals, Rows, parse_memory

MAX_GPUS = 1_000_000
Strings = tuple[str, ...]


@value
class Machine:
    """One machine of a cluster, as a user describes it."""

    name: str
    gpu_type: str
    gpus: int
    rack: str = "r1"
    island: int | None = None
    """Number of GPUs per island, a group of GPUs with the fastest links; None: all GPUs of the machine."""
    cpus: float | None = None
    """Number of CPUs; None: unknown, so policies that need CPUs cannot be used."""
    memory_gib: float | None = None


@reads
class Cluster:
    """The GPUs of a cluster by machine; ``machine``, ``island``, ``rack`` and ``gpu_type`` have an entry per GPU."""

    machine: Rows
    island: Rows
    rack: Rows
    gpu_type: Rows
    machine_start: Ints
    """[machine + 1] first GPU of each machine: machine m has GPUs machine_start[m] to machine_start[m+1] - 1."""
    machine_rack: Rows
    machine_type: Rows
    machine_cpus: Reals
    """[machine] number of CPUs; NaN: unknown; 0: the machine has left."""
    machine_memory_gib: Reals
    gpus: int
    """Total number of GPUs, including those of machines that left."""
    capacity: Ints
    """[GPU type] number of GPUs without those of machines that left; read only."""
    has_islands: bool
    """Whether any machine has more than one island."""
    machines: tuple[Machine, ...]
    gpu_types: tuple[str, ...]
    racks: tuple[str, ...]
    left: frozenset[int]
    """Numbers of machines that left the cluster; the numbers of their GPUs are not reused."""

    @classmethod
    def build(
        cls,
        machines: Sequence[Machine],
        *,
        types: Strings = (),
        racks: Strings = (),
        left: Iterable[int] = (),
        place: str | None = None,
    ) -> Self:
        """Build a cluster from machines; GPU types and racks that are given keep their indices.

        ``left`` contains the numbers of machines that have left.

        Raises:
            InputError: there is no machine, a name occurs twice, or a machine has no GPUs.
        """
        left = frozenset(left)
        _check([machine for number, machine in enumerate(machines) if number not in left], place)
        types += tuple(sorted({machine.gpu_type for machine in machines} - {*types}))
        racks += tuple(sorted({machine.rack for machine in machines} - {*racks}))
        counts = np.array([machine.gpus for machine in machines], dtype=np.int64)
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        of_gpu = np.repeat(np.arange(len(machines), dtype=np.int32), counts)
        rack = np.array([racks.index(machine.rack) for machine in machines], dtype=np.int32)
        kind = np.array([types.index(machine.gpu_type) for machine in machines], dtype=np.int32)
        gone = np.isin(np.arange(len(machines)), [*left])
        present = kind[of_gpu[~gone[of_gpu]]]
        island, capacity = _islands(machines), np.bincount(present, minlength=len(types)).astype(np.int64)
        capacity.flags.writeable = False
        return cls(
            machine=of_gpu,
            island=island,
            rack=rack[of_gpu],
            gpu_type=kind[of_gpu],
            machine_start=start,
            machine_rack=rack,
            machine_type=kind,
            machine_cpus=np.array([m.cpus for m in machines], float) * ~gone,  # NaN stays
            machine_memory_gib=np.array([m.memory_gib for m in machines], float) * ~gone,
            gpus=of_gpu.size,
            capacity=capacity,
            has_islands=island.item(-1) + 1 != len(machines),
            machines=tuple(machines),
            gpu_types=types,
            racks=racks,
            left=left,
        )

    def grown(self, machines: Sequence[Machine], *, place: str | None = None) -> Self:
        """Return the cluster with more machines, numbered after all earlier ones, also those that have left.

        Raises:
            InputError: as for ``build``, or a new machine has the name of a present one.
        """
        return self._with((*self.machines, *machines), self.left, place)

    def without(self, machines: Iterable[int]) -> Self:
        """Return the cluster after the machines with these numbers have left.

        Raises:
            InputError: no machine would remain.
        """
        return self._with(self.machines, self.left.union(machines), None)

    def _with(self, machines: Sequence[Machine], left: Iterable[int], place: str | None) -> Self:
        return self.build(machines, types=self.gpu_types, racks=self.racks, left=left, place=place)

    def number_of(self, machine: str) -> int:
        """Return the number of the machine with a name, or -1 if there is none or it has left."""
        return next((at for at, one in enumerate(self.machines) if one.name == machine and at not in self.left), NONE)

    def present(self) -> Ints:
        """Return the numbers of the GPUs of all machines that have not left, ascending."""
        return np.flatnonzero(~np.isin(self.machine, [*self.left]))

    def gpus_on(self, machine: int) -> range:
        """Return the numbers of a machine's GPUs."""
        return range(int(self.machine_start[machine]), int(self.machine_start[machine + 1]))

    @classmethod
    def parse(cls, text: str, *, place: str = "--cluster") -> Self:
        """Parse the short form, such as ``"4x8 V100"`` or ``"4x8 V100 24cpu 500GB, 2x4 P100"``.

        Raises:
            InputError: a part does not have that form.
        """
        machines: list[Machine] = []
        for part in text.split(","):
            machines += _machines(part.strip(), len(machines), place)
        return cls.build(machines, place=place)

    def locality(self, gpus: Ints) -> Locality:
        """Return the locality of a set of GPUs, which is how far apart they are; a single GPU has locality ISLAND."""
        if gpus.size <= 1:
            return Locality.ISLAND
        if not _alike(self.machine[gpus]):
            return Locality.RACK if _alike(self.rack[gpus]) else Locality.CLUSTER
        return Locality.ISLAND if _alike(self.island[gpus]) else Locality.MACHINE

    def gpu_name(self, gpu: int) -> str:
        """Return the name of a GPU as shown to users, such as ``a01/3``."""
        machine = int(self.machine[gpu])
        return f"{self.machines[machine].name}/{gpu - int(self.machine_start[machine])}"


def _alike(numbers: Ints | Rows) -> bool:
    """Return whether all these numbers are equal."""
    return bool((numbers == numbers[0]).all())


_PART = re.compile(
    r"(?:(?P<machines>\d+)x)?(?P<gpus>\d+)\s+(?P<type>[A-Za-z][\w.-]*)"
    r"(?:\s+(?P<cpus>\d+(?:\.\d+)?)cpu)?(?:\s+(?P<memory>\d+(?:\.\d+)?\s*[kKMGT]?i?B))?"
)


def _machines(part: str, already: int, place: str) -> list[Machine]:
    match = _PART.fullmatch(part)
    rule = 'a cluster must be written like "4x8 V100" or "4x8 V100 24cpu 500GB, 2x4 P100"'
    if match is None:
        raise InputError(rule, value=f'"{part}"', place=place)
    count, gpus = int(match["machines"] or 1), int(match["gpus"])
    if count * gpus > MAX_GPUS:
        raise InputError(f"a cluster must have at most {MAX_GPUS} GPUs", value=f'"{part}"', place=place)
    if count < 1:
        raise InputError("a cluster must have at least one machine", value=f'"{part}"', place=place)
    memory = parse_memory(match["memory"], name="memory", place=place) if match["memory"] else None
    cpus = float(match["cpus"]) if match["cpus"] else None
    return [
        Machine(name=f"m{already + number:02d}", gpu_type=match["type"], gpus=gpus, cpus=cpus, memory_gib=memory)
        for number in range(1, count + 1)
    ]


def _check(machines: Sequence[Machine], place: str | None) -> None:
    if not machines:
        raise InputError("a cluster must have at least one machine", value="none", place=place)
    seen: set[str] = set()
    for machine in machines:
        if machine.gpus < 1:
            raise InputError("gpus must be at least 1", value=str(machine.gpus), place=f"{place}, {machine.name}")
        if machine.name in seen:
            raise InputError("machine names must be unique", value=f'"{machine.name}" twice', place=place)
        if machine.island is not None and machine.island < 1:
            raise InputError("island must be at least 1", value=str(machine.island), place=f"{place}, {machine.name}")
        seen.add(machine.name)


def _islands(machines: Sequence[Machine]) -> Rows:
    numbers, first = [], 0
    for machine in machines:
        size = machine.island or machine.gpus
        local = np.arange(machine.gpus) // size
        numbers.append(first + local)
        first += int(local[-1]) + 1
    return np.concatenate(numbers).astype(np.int32)
