"""Cluster files: machines with host lists, racks, islands, and the bandwidths between their GPUs."""

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eunomia.errors import InputError, InputErrors
from eunomia.model.cluster import MAX_GPUS, Cluster, Machine
from eunomia.model.shapes import value
from eunomia.platform.layers import is_file, read_text
from eunomia.platform.toml_bounds import LARGE, parse_toml
from eunomia.platform.toml_text import toml_value
from eunomia.units import Locality, parse_memory
from eunomia.words import did_you_mean, shown
from eunomia_testbed.spec.machine_lists import is_machine_list, parse_machine_list

KEYS = ("names", "count", "rack", "gpus", "island", "cpus", "memory")
LEVELS = tuple(level.name.lower() for level in Locality)
MOST_CPUS = 100_000
MOST_MEMORY_GIB = 1e9

_GPUS = re.compile(r"(\d{1,9})x([A-Za-z][\w.-]*)")
_HOSTS = re.compile(r"([^\[\],\s]*)(?:\[([\d,\-]+)\])?([^\[\],\s]*)")
_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]i?B)/s")


@value
class ClusterFile:
    """A cluster, with the bandwidths and left-out machines of its file."""

    cluster: Cluster
    bandwidth_gib: Mapping[Locality, float]
    """GiB per second between two GPUs by locality, for the simulator's slowdown model; empty: not given."""
    left_out: tuple[InputError, ...] = ()
    """An error for each listed machine without GPUs, which the cluster omits: rule, value, file and line."""


def load_cluster(text: str | Path, *, place: str = "--cluster") -> Cluster:
    """Return a cluster from its short form such as ``"4x8 V100"``, a TOML file, or a list of machines (CSV).

    Raises:
        InputError: the text is none of these, or the file is invalid (``InputErrors`` with all its errors).
    """
    return read_cluster(text, place=place).cluster


def read_cluster(text: str | Path, *, place: str = "--cluster") -> ClusterFile:
    """Return a cluster with its bandwidths from its short form, a TOML file, or a list of machines (CSV).

    Raises:
        InputError: see ``load_cluster``.
    """
    path = Path(text)
    if not str(text).endswith(".toml") and not (isinstance(text, Path) or is_file(path)):
        return ClusterFile(cluster=Cluster.parse(str(text), place=place), bandwidth_gib={})
    if not is_file(path):
        raise InputError("a cluster file must exist", value=shown(str(text)), place=place)
    content = read_text(path, "a cluster file", LARGE)
    if path.suffix != ".toml" and is_machine_list(content):
        listed = parse_machine_list(content, place=path.name)
        return ClusterFile(cluster=listed.cluster, bandwidth_gib={}, left_out=listed.left_out)
    return parse_cluster(content, place=path.name)


@functools.lru_cache(maxsize=2)
def parse_cluster(text: str, *, place: str) -> ClusterFile:
    """Return the cluster of a TOML file's text; cached, since the parts of a page parse the same text.

    Raises:
        InputErrors: all errors in the text.
    """
    tree = parse_toml(text, "a cluster file", place=place, bounds=LARGE)
    errors = [
        InputError(
            "a cluster file must hold machines and bandwidth",
            value=f"{shown(key)}{did_you_mean(key, ('machines', 'bandwidth'))}",
            place=place,
        )
        for key in tree
        if key not in ("machines", "bandwidth")
    ]
    bandwidth = _bandwidth(tree.get("bandwidth", {}), place, errors)
    rows = tree.get("machines")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        errors.append(InputError("machines must be a list of tables, at least one", place=f"{place}, machines"))
        raise InputErrors(errors)
    machines: list[Machine] = []
    for number, row in enumerate(rows):
        try:
            machines += _Row(row, f"{place}, machines[{number}]", len(machines)).machines()
        except InputErrors as error:
            errors += error.errors
    if not errors:
        _check_whole(machines, place, errors)
    if errors:
        raise InputErrors(errors)
    return ClusterFile(cluster=Cluster.build(machines, place=place), bandwidth_gib=bandwidth)


def cluster_toml(read: ClusterFile) -> str:
    """Return the cluster as the text of a file that ``parse_cluster`` reads back, with one row per machine."""
    rows = [f"  {toml_value(_written(machine))}," for machine in read.cluster.machines]
    speeds = {level.name.lower(): f"{speed!r}GiB/s" for level, speed in read.bandwidth_gib.items()}
    head = [f"bandwidth = {toml_value(speeds)}"] if speeds else []
    return "\n".join([*head, "machines = [", *rows, "]", ""])


def _written(machine: Machine) -> dict[str, object]:
    row: dict[str, object] = {"names": machine.name, "rack": machine.rack, "gpus": f"{machine.gpus}x{machine.gpu_type}"}
    if machine.island is not None:
        row["island"] = machine.island
    if machine.cpus is not None:
        row["cpus"] = machine.cpus
    if machine.memory_gib is not None:
        row["memory"] = f"{machine.memory_gib!r}GiB"
    return row


def expand_hosts(text: str, *, place: str | None = None) -> list[str]:
    """Return the hosts of a Slurm host list: ``a[01-03,7],b`` is a01, a02, a03, a7, b.

    Raises:
        InputError: the text has another form, a descending range, or more than a million hosts.
    """
    hosts: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        match = _HOSTS.fullmatch(part.strip())
        if match is None or not part.strip():
            raise InputError('names must be a host list such as "a[01-16]"', value=shown(text), place=place)
        before, ranges, after = match.groups()
        numbers = [""] if ranges is None else list(_numbers(ranges, text, place))
        hosts += [f"{before}{number}{after}" for number in numbers]
        if len(hosts) > MAX_GPUS:
            raise InputError(f"names must be at most {MAX_GPUS} hosts", value=shown(text), place=place)
    return hosts


def _numbers(ranges: str, text: str, place: str | None) -> Iterator[str]:
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError('names must be a host list such as "a[01-16]"', value=shown(text), place=place)
        low, high = int(first), int(last or first)
        if high < low or high - low >= MAX_GPUS:
            rule = f"a range of names must run upwards, over at most {MAX_GPUS}"
            raise InputError(rule, value=shown(part), place=place)
        for number in range(low, high + 1):
            yield f"{number:0{len(first)}d}"


class _Row:
    """Parses one row of ``machines``; all errors are collected and raised together."""

    def __init__(self, row: Mapping[str, Any], place: str, already: int) -> None:
        self.row, self.place, self.already = row, place, already
        self.errors: list[InputError] = []

    def machines(self) -> list[Machine]:
        for key in self.row:
            if key not in KEYS:
                self.wrong(
                    f"a row of machines must hold {', '.join(KEYS)}", key, f"{shown(key)}{did_you_mean(key, KEYS)}"
                )
        names = self.names()
        gpus, kind = self.gpus()
        island = self.number("island", least=1, most=gpus, whole=True)
        cpus = self.number("cpus", least=0.001, most=MOST_CPUS, whole=False)
        memory = self.memory()
        rack = self.row.get("rack", "r1")
        if not isinstance(rack, str) or not rack:
            self.wrong("rack must be a name", "rack", shown(rack))
        if len(names) * gpus > MAX_GPUS:
            self.wrong(f"a cluster must have at most {MAX_GPUS} GPUs", "gpus", str(len(names) * gpus))
        if self.errors:
            raise InputErrors(self.errors)
        return [
            Machine(
                name=name,
                gpu_type=kind,
                gpus=gpus,
                rack=rack,
                island=None if island is None else int(island),
                cpus=cpus,
                memory_gib=memory,
            )
            for name in names
        ]

    def wrong(self, rule: str, key: str, got: str | None) -> None:
        self.errors.append(InputError(rule, value=got, place=f"{self.place}.{key}"))

    def names(self) -> list[str]:
        if ("names" in self.row) == ("count" in self.row):
            self.wrong("a row of machines must have either names or count", "names", None)
            return []
        if "count" in self.row:
            count = self.number("count", least=1, most=MAX_GPUS, whole=True)
            return [f"m{self.already + number:02d}" for number in range(1, int(count or 0) + 1)]
        names = self.row["names"]
        if not isinstance(names, str):
            self.wrong('names must be a host list such as "a[01-16]"', "names", shown(names))
            return []
        try:
            return expand_hosts(names, place=f"{self.place}.names")
        except InputError as error:
            self.errors.append(error)
            return []

    def gpus(self) -> tuple[int, str]:
        given = self.row.get("gpus")
        match = _GPUS.fullmatch(given.strip()) if isinstance(given, str) else None
        if match is None or int(match[1]) < 1:
            self.wrong('gpus must be written like "8xV100"', "gpus", None if given is None else shown(given))
            return 1, ""
        if int(match[1]) > 1024:
            self.wrong("a machine must have at most 1024 GPUs", "gpus", shown(given))
            return 1, ""
        return int(match[1]), match[2]

    def number(self, key: str, *, least: float, most: float, whole: bool) -> float | None:
        given = self.row.get(key)
        if given is None:
            return None
        kind = "a whole number" if whole else "a number"
        number = isinstance(given, int if whole else int | float) and not isinstance(given, bool)
        if not number or not least <= given <= most:
            self.wrong(f"{key} must be {kind} between {least:g} and {most:g}", key, shown(given))
            return None
        return float(given)

    def memory(self) -> float | None:
        if "memory" not in self.row:
            return None
        place = f"{self.place}.memory"
        try:
            memory = parse_memory(self.row["memory"], name="memory", place=place)
        except InputError as error:
            self.errors.append(error)
            return None
        if memory > MOST_MEMORY_GIB:
            self.wrong(f"memory must be at most {MOST_MEMORY_GIB:g} GiB", "memory", shown(self.row["memory"]))
        return memory


def _check_whole(machines: list[Machine], place: str, errors: list[InputError]) -> None:
    seen: set[str] = set()
    for machine in machines:
        if machine.name in seen:
            value = f'"{machine.name}" twice'
            errors.append(InputError("machine names must be unique", value=value, place=f"{place}, machines"))
        seen.add(machine.name)
    total = sum(machine.gpus for machine in machines)
    if total > MAX_GPUS:
        errors.append(InputError(f"a cluster must have at most {MAX_GPUS} GPUs", value=str(total), place=place))


def _bandwidth(given: object, place: str, errors: list[InputError]) -> dict[Locality, float]:
    where = f"{place}, bandwidth"
    if not isinstance(given, Mapping):
        errors.append(InputError("bandwidth must be a table", value=shown(given), place=where))
        return {}
    read: dict[Locality, float] = {}
    for level, text in given.items():
        if level not in LEVELS:
            value = f"{shown(level)}{did_you_mean(level, LEVELS)}"
            errors.append(InputError(f"bandwidth must be of {', '.join(LEVELS)}", value=value, place=where))
            continue
        match = _BANDWIDTH.fullmatch(text) if isinstance(text, str) else None
        if match is None or float(match[1]) <= 0.0:
            rule = f'{level} must be a bandwidth such as "12GB/s"'
            errors.append(InputError(rule, value=shown(text), place=f"{where}.{level}"))
            continue
        read[Locality[level.upper()]] = parse_memory(f"{match[1]}{match[2]}", name=level, place=where)
    return read
