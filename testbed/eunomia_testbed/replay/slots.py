"""The slots of a replay: those of this machine that ``--slots`` names, or those of an arbiter that runs."""

import os
import re
from collections import Counter
from collections.abc import Mapping, MutableMapping
from typing import Final, Protocol

from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.words import shown
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.local_machine import CPU_TYPE, LocalMachine, LocalSlot
from eunomia_testbed.live_runs.this_machine import cluster_text
from eunomia_testbed.spec.cluster_file import ClusterFile, cluster_toml, parse_cluster

PLACE: Final = "--slots"
RULE: Final = 'slots must look like "4x cpu:0.35", "2x fast:0.5, 2x slow:0.25", "4x cpu", "gpus" or "gpu:0, gpu:1"'
_COUNTED: Final = re.compile(r"(\d{1,5})\s*x\s*([A-Za-z][A-Za-z0-9._-]*)(?:\s*:\s*(\d*\.?\d+))?", re.ASCII)
_GPU: Final = re.compile(r"gpu\s*:\s*(\d{1,4})", re.ASCII)


class ReplaySlots(Protocol):
    """The slots on which a replay runs its jobs."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the number of slots of each type."""

    @property
    def size(self) -> int:
        """Return the number of all slots."""

    @property
    def cluster_text(self) -> str:
        """Return the slots as the text of a cluster file."""

    @property
    def cluster(self) -> Cluster:
        """Return the slots as the arbiter's cluster."""

    @property
    def gpus_here(self) -> tuple[LocalSlot, ...]:
        """Return those slots that are GPUs of this machine."""

    @property
    def speeds(self) -> Mapping[str, float]:
        """Return the pace of each slot type as a fraction of a core; 0: unpaced, or not known."""

    def choose(self, env: MutableMapping[str, str]) -> None:
        """Make only these slots visible in an environment for a run's processes."""

    def kinds(self) -> str:
        """Return the kind of the slots as text for reports."""

    def describe(self) -> str:
        """Return the slots in one line of text."""


@builds
class GivenSlots:
    """The slots of an arbiter that runs.

    Attributes:
        address: the arbiter's address.
        cluster: its machines, without those that left.
    """

    address: str
    cluster: Cluster

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the number of slots of each type."""
        found: Counter[str] = Counter()
        for machine in self.cluster.machines:
            found[machine.gpu_type] += machine.gpus
        return found

    @property
    def size(self) -> int:
        """Return the number of all slots."""
        return self.cluster.gpus

    @property
    def cluster_text(self) -> str:
        """Return the slots as the text of a cluster file."""
        return cluster_toml(ClusterFile(cluster=self.cluster, bandwidth_gib={}))

    @property
    def gpus_here(self) -> tuple[LocalSlot, ...]:
        """Return none: the arbiter's launchers know their GPUs."""
        return ()

    @property
    def speeds(self) -> Mapping[str, float]:
        """Return 0 for each slot type: an arbiter does not know the pace of its slots."""
        return dict.fromkeys(self.counts, 0.0)

    def choose(self, env: MutableMapping[str, str]) -> None:
        """Change nothing: the arbiter's launchers have chosen their slots."""

    def kinds(self) -> str:
        """Return the kind of the slots as text for reports."""
        return f"slots of the arbiter at {self.address}"

    def describe(self) -> str:
        """Return the slots in one line of text."""
        types = ", ".join(f"{count}x {name}" for name, count in self.counts.items())
        machines = len(self.cluster.machines)
        return f"arbiter at {self.address}: {types} on {machines} machine{'s' * (machines != 1)}"


@builds
class LocalSlots:
    """Slots of this machine.

    A paced CPU slot without a type name has a type with its pace, such as ``cpu-0.35``: the type ``cpu`` is that of
    unpaced slots, and rates measured at one pace hold at no other.
    """

    text: str
    """The slots as given."""
    machine: LocalMachine
    slot_types: str = ""
    """Paced slots as the value of ``eunomia serve --slot-types``; empty: none."""
    count: int | None = None
    """Number of unpaced CPU slots; None: there are none."""
    gpus: str | None = None
    """Value of ``CUDA_VISIBLE_DEVICES`` with only the chosen GPUs; None: the variable is not changed."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the number of slots of each type."""
        return Counter(slot.gpu_type for slot in self.machine.slots)

    @property
    def size(self) -> int:
        """Return the number of all slots."""
        return len(self.machine.slots)

    @property
    def cluster_text(self) -> str:
        """Return the slots as the text of a cluster file."""
        return cluster_text(self.machine)

    @property
    def cluster(self) -> Cluster:
        """Return the slots as the arbiter's cluster."""
        return parse_cluster(self.cluster_text, place=PLACE).cluster

    @property
    def gpus_here(self) -> tuple[LocalSlot, ...]:
        """Return the slots that are GPUs."""
        return tuple(slot for slot in self.machine.slots if slot.uuid)

    @property
    def speeds(self) -> Mapping[str, float]:
        """Return the pace of each slot type as a fraction of a core; 0: unpaced."""
        return {slot.gpu_type: slot.cpus if slot.is_paced else 0.0 for slot in self.machine.slots}

    def choose(self, env: MutableMapping[str, str]) -> None:
        """Make only the chosen GPUs visible in an environment for a run's processes."""
        if self.gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = self.gpus

    def kinds(self) -> str:
        """Return the kind of the slots as text for reports."""
        if self.machine.is_paced:
            return "paced CPU slots"
        return "CPU slots without a pace" if self.machine.slots[0].gpu_type == CPU_TYPE else "GPUs"

    def describe(self) -> str:
        """Return the slots in one line of text."""
        return self.machine.describe()


def slots_of(text: str, *, paced: bool = True) -> LocalSlots:
    """Parse ``--slots``, and check that this machine has them.

    Args:
        text: the slots; empty: those that ``eunomia serve`` would use.
        paced: whether CPU slots may have a pace; False: paces in the text are ignored.

    Raises:
        InputError: the text is malformed, or the machine does not have such slots.
    """
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not parts:
        return LocalSlots(text=text, machine=local_machine.detect())
    if parts == ["gpus"] or all(_GPU.fullmatch(part) for part in parts):
        return _of_gpus(text, parts)
    counted = [_COUNTED.fullmatch(part) for part in parts]
    if None in counted:
        wrong = next(part for part, match in zip(parts, counted, strict=True) if match is None)
        raise InputError(RULE, value=shown(wrong), place=PLACE)
    found = [match for match in counted if match is not None]
    if not paced or (len(found) == 1 and found[0][3] is None):
        return _unpaced(text, sum(int(match[1]) for match in found))
    return _paced(text, [_paced_part(match) for match in found])


def _paced_part(match: re.Match[str]) -> str:
    """Return a part in the format of ``--slot-types``; slots named cpu get a type with their pace."""
    count, name, speed = match.groups()
    if speed is None:
        raise InputError("slots of several types must each have a pace", value=shown(match[0]), place=PLACE)
    name = f"{CPU_TYPE}-{float(speed):g}" if name.lower() == CPU_TYPE else name
    return f"{count}x {name}:{speed}"


def _paced(text: str, parts: list[str]) -> LocalSlots:
    slot_types = ", ".join(parts)
    try:
        machine = local_machine.detect(slot_types=slot_types)
    except InputError as error:
        raise InputError(error.rule, value=error.value, place=PLACE) from None
    return LocalSlots(text=text, machine=machine, slot_types=slot_types)


def _unpaced(text: str, count: int) -> LocalSlots:
    try:
        machine = local_machine.detect(count, use_gpus=False)
    except InputError as error:
        raise InputError(error.rule, value=error.value, place=PLACE) from None
    return LocalSlots(text=text, machine=machine, count=count)


def _of_gpus(text: str, parts: list[str]) -> LocalSlots:
    there = local_machine.visible(local_machine.find_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    indices = [int(match[1]) for part in parts if (match := _GPU.fullmatch(part))] or list(range(len(there)))
    missing = [index for index in indices if index >= len(there)]
    if missing or not there:
        has = f"{len(there)} GPU{'s' * (len(there) != 1)}"
        value = f"gpu:{missing[0]}, but there are {has}" if missing and there else "none"
        raise InputError("slots must exist on this machine", value=value, place=PLACE)
    gpus = ",".join(there[index].uuid for index in dict.fromkeys(indices))
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    try:
        return LocalSlots(text=text, machine=local_machine.detect(), gpus=gpus)
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
