"""Reads a trace's list of machines (CSV with a header) as a cluster.

Supported are Philly's ``cluster_machine_list`` (``machineId, number of GPUs, single GPU mem``) and its corrected copy,
openb's node lists (``sn,cpu_milli,memory_mib,gpu,model``), and any list with such column names.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from eunomia.errors import InputError, InputErrors
from eunomia.model.cluster import MAX_GPUS, Cluster, Machine
from eunomia.model.shapes import value
from eunomia.words import shown

NAMES: Final = ("machineid", "machine", "sn", "node", "name", "host")
GPUS: Final = ("number of gpus", "#gpu", "gpus", "gpu", "num_gpus")
TYPES: Final = ("gpu_type", "model", "type")
GPU_MEMORY: Final = ("single gpu mem", "gpu mem", "gpu_memory")
CPUS: Final[Mapping[str, float]] = {"cpu_milli": 0.001, "cpus": 1.0, "cpu": 1.0}
MEMORY: Final[Mapping[str, float]] = {"memory_mib": 1 / 1024, "memory_gib": 1.0}
RACKS: Final = ("rack",)
NO_TYPE: Final = "GPU"
"""GPU type of machines for which the list names no type."""
MOST_MACHINE: Final = 1024


@value
class MachineList:
    """A cluster read from a list of machines."""

    cluster: Cluster
    left_out: tuple[InputError, ...] = ()
    """An error for each machine without GPUs, which the cluster omits: rule, value, file and line."""


def is_machine_list(text: str) -> bool:
    """Return whether the header of a text is that of a list of machines."""
    header = _header(text)
    return _index(header, NAMES) is not None and _index(header, GPUS) is not None


def parse_machine_list(text: str, *, place: str) -> MachineList:
    """Return the cluster of a list of machines; machines without GPUs are left out.

    Args:
        text: the text of the file.
        place: the file's name, for messages.

    Raises:
        InputError: the header is invalid, or (``InputErrors``) rows are; all are reported with their lines.
    """
    header = _header(text)
    names, gpus = _index(header, NAMES), _index(header, GPUS)
    if names is None or gpus is None:
        rule = "a list of machines must have columns for names and GPUs, such as machineId, number of GPUs"
        raise InputError(rule, value=shown(text.split("\n", 1)[0].strip()), place=f"{place}, line 1")
    machines: list[Machine] = []
    errors: list[InputError] = []
    left_out: list[InputError] = []
    seen: dict[str, int] = {}
    for line, fields in _rows(text, len(header), place, errors):
        row = _Row(header, fields, f"{place}, line {line}")
        name = fields[names]
        if name in seen:
            errors.append(
                InputError(
                    "machine names must be unique", value=f"{shown(name)}, as in line {seen[name]}", place=row.place
                )
            )
            continue
        seen[name] = line
        try:
            machine = row.machine(name, fields[gpus])
        except InputError as error:
            errors.append(error)
            continue
        if machine is None:
            left_out.append(
                InputError("a machine must have at least 1 GPU", value=f"0 ({shown(name)})", place=row.place)
            )
        else:
            machines.append(machine)
    if not errors and not machines:
        errors.append(InputError("a list of machines must hold at least one with GPUs", value="none", place=place))
    if sum(machine.gpus for machine in machines) > MAX_GPUS:
        errors.append(InputError(f"a cluster must have at most {MAX_GPUS} GPUs", value="more", place=place))
    if errors:
        raise InputErrors(errors)
    return MachineList(cluster=Cluster.build(machines, place=place), left_out=tuple(left_out))


def _header(text: str) -> list[str]:
    return [name.strip().lower() for name in text.removeprefix("\ufeff").split("\n", 1)[0].split(",")]


def _index(header: Sequence[str], known: Iterable[str]) -> int | None:
    return next((header.index(name) for name in known if name in header), None)


def _rows(text: str, width: int, place: str, errors: list[InputError]) -> Iterator[tuple[int, list[str]]]:
    for line, content in enumerate(text.split("\n")[1:], 2):
        if not content.strip():
            continue
        fields = [field.strip() for field in next(csv.reader([content]))]
        if len(fields) == width:
            yield line, fields
        else:
            where = f"{place}, line {line}"
            errors.append(InputError(f"a row must have {width} fields", value=str(len(fields)), place=where))


class _Row:
    def __init__(self, header: Sequence[str], fields: Sequence[str], place: str) -> None:
        self.header, self.fields, self.place = header, fields, place

    def machine(self, name: str, gpus: str) -> Machine | None:
        """Return the machine of the row; None: it has no GPUs."""
        if not name:
            raise InputError("a machine must have a name", value="nothing", place=self.place)
        count = self.number("GPUs of a machine", gpus, most=MOST_MACHINE)
        if count != math.floor(count):
            raise InputError("GPUs of a machine must be a whole number", value=shown(gpus), place=self.place)
        if count == 0.0:
            return None
        return Machine(
            name=name,
            gpu_type=self.gpu_type(),
            gpus=int(count),
            rack=self.field(RACKS) or "r1",
            cpus=self.scaled(CPUS),
            memory_gib=self.scaled(MEMORY),
        )

    def gpu_type(self) -> str:
        """Return the listed GPU type; if the list has only GPU memory, a name such as ``GPU-24GB``."""
        listed_type, memory = self.field(TYPES), self.field(GPU_MEMORY)
        if listed_type and listed_type.lower() != "nan":
            return listed_type
        return f"{NO_TYPE}-{memory}" if memory else NO_TYPE

    def scaled(self, columns: Mapping[str, float]) -> float | None:
        for name, scale in columns.items():
            if name in self.header:
                return self.number(name, self.fields[self.header.index(name)], most=1e12) * scale
        return None

    def field(self, names: Iterable[str]) -> str | None:
        index = _index(self.header, names)
        return None if index is None else self.fields[index]

    def number(self, name: str, text: str, *, most: float) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0.0 <= number <= most:
            rule = f"{name} must be a number from 0 to {most:g}"
            raise InputError(rule, value=shown(text), place=self.place)
        return number
