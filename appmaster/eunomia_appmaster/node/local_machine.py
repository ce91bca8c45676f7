"""The slots of this machine, within the limits of this process: GPUs with types and links, else CPU slots.

GPUs come from NVML, filtered by ``CUDA_VISIBLE_DEVICES`` (indices count in NVML's order, that of
``CUDA_DEVICE_ORDER=PCI_BUS_ID``); CPUs by affinity and cgroup quota; memory by cgroup limit.
"""

import contextlib
import itertools
import os
import re
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eunomia.errors import InputError
from eunomia_appmaster.node.slot_types import parse_slot_types

DEFAULT_CPU_SLOTS = 4
MOST_SLOTS = 65_536
"""Largest number of slots that the arbiter accepts for a machine or a job."""
CPU_TYPE = "cpu"
GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSlot:
    """A slot for one worker process: a GPU, or a share of the CPUs.

    Attributes:
        index: 0, 1, 2 ... on the machine.
        gpu_type: "A100"; "cpu" for a share of the CPUs, or the type of a paced slot.
        uuid: the GPU's; empty for a CPU slot.
        island: GPUs of one island have the machine's fastest links between them.
        cpus: number of CPUs that belong to it by default.
        memory_gib: host memory in GiB that belongs to it by default.
        is_paced: whether it is a CPU slot with a type and a speed.
        device: the GPU's file, as ``c MAJOR:MINOR``; empty: none, or not known.
    """

    index: int
    gpu_type: str
    uuid: str
    island: int
    cpus: float
    memory_gib: float
    is_paced: bool = False
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMachine:
    """The part of this machine that this process may use."""

    host: str
    slots: tuple[LocalSlot, ...]
    cpus: float
    memory_gib: float

    def slot(self, index: int) -> LocalSlot | None:
        """Return the slot with an index; None: the machine does not have it now."""
        return next((slot for slot in self.slots if slot.index == index), None)

    @property
    def is_paced(self) -> bool:
        """Whether the slots are shares of the CPUs with types and speeds."""
        return any(slot.is_paced for slot in self.slots)

    def describe(self) -> str:
        """Return the slots in one line of text."""
        memory = f"{_short(self.memory_gib)} GiB"
        if self.is_paced:
            speeds = {slot.gpu_type: slot.cpus for slot in self.slots}
            counts = Counter(slot.gpu_type for slot in self.slots)
            paced = ", ".join(f"{counts[name]}x {name} of {_short(speed, 3)} core" for name, speed in speeds.items())
            return f"local: {self.host}, paced cpu slots: {paced}, {memory}"
        if self.slots[0].gpu_type == CPU_TYPE:
            count, each = len(self.slots), _short(self.slots[0].cpus, 2)
            slots = f"{count} cpu slot{'s' if count > 1 else ''} of {each} CPU{'' if each == '1' else 's'} each"
            return f"local: {self.host}, no GPU found, so {slots}, {memory} in all (--slots N changes it)"
        types = Counter(slot.gpu_type for slot in self.slots)
        gpus = " and ".join(f"{count}x{gpu_type}" for gpu_type, count in types.items())
        islands = len({slot.island for slot in self.slots})
        where = "one island" if islands == 1 else f"{islands} islands"
        return f"local: {self.host}, {gpus} in {where}, {_short(self.cpus)} CPUs, {memory}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """A GPU as NVML reports it."""

    gpu_type: str
    uuid: str
    island: int
    device: str = ""


def detect(
    slots: int | None = None, *, use_gpus: bool = True, slot_types: str = "", root: Path = Path("/")
) -> LocalMachine:
    """Detect this machine's slots.

    Args:
        slots: number of CPU slots if no GPU is found, 4 by default; ignored if there are GPUs.
        use_gpus: False: use CPU slots even if there are GPUs.
        slot_types: paced CPU slots, as ``2x fast:1.0, 2x slow:0.5``, used even if there are GPUs; empty: none.
        root: folder with ``proc`` and ``sys`` (for tests).

    Raises:
        InputError: a number of slots below 1, slot types that this machine cannot provide or that are combined with a
            number of slots, or a ``CUDA_VISIBLE_DEVICES`` that names parts of GPUs (MIG).
    """
    if slots is not None and not 1 <= slots <= MOST_SLOTS:
        raise InputError(f"slots must be from 1 to {MOST_SLOTS}", value=str(slots), place="--slots")
    cpus, memory_gib = usable_cpus(root), usable_memory_gib(root)
    if slot_types:
        if slots is not None:
            raise InputError("slots must be given by number or by type", value="--slots and --slot-types")
        return _paced(slot_types, cpus, memory_gib)
    gpus = visible(find_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")) if use_gpus else ()
    count = len(gpus) or slots or DEFAULT_CPU_SLOTS
    found = gpus or (FoundGpu(gpu_type=CPU_TYPE, uuid="", island=0),) * count
    return LocalMachine(
        host=_host(),
        slots=tuple(
            LocalSlot(
                index=index,
                gpu_type=gpu.gpu_type,
                uuid=gpu.uuid,
                island=gpu.island,
                cpus=cpus / count,
                memory_gib=memory_gib / count,
                device=gpu.device,
            )
            for index, gpu in enumerate(found)
        ),
        cpus=cpus,
        memory_gib=memory_gib,
    )


def _paced(slot_types: str, cpus: float, memory_gib: float) -> LocalMachine:
    types = parse_slot_types(slot_types, cpus)
    each = [one for one in types for _ in range(one.count)]
    slots = [
        LocalSlot(
            index=index,
            gpu_type=one.name,
            uuid="",
            island=0,
            cpus=one.speed,
            memory_gib=memory_gib / len(each),
            is_paced=True,
        )
        for index, one in enumerate(each)
    ]
    return LocalMachine(host=_host(), slots=tuple(slots), cpus=cpus, memory_gib=memory_gib)


def _host() -> str:
    return socket.gethostname().split(".")[0] or "localhost"


# -- GPUs --------------------------------------------------------------------------------------------------------------


def find_gpus() -> tuple[FoundGpu, ...]:
    """Return all GPUs that NVML lists, in its order; empty if there is no driver."""
    import pynvml  # loads the driver's library: imported only to look for GPUs

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            with contextlib.suppress(pynvml.NVMLError):  # lost, or in need of a reset: a missing slot
                handles.append(pynvml.nvmlDeviceGetHandleByIndex(index))
        islands = group(len(handles), [pair for pair in _pairs(handles) if _joined_by_nvlink(pynvml, handles, pair)])
        return tuple(
            FoundGpu(
                gpu_type=short_type(_text(pynvml.nvmlDeviceGetName(handle))),
                uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
                island=island,
                device=_device(pynvml, handle),
            )
            for handle, island in zip(handles, islands, strict=True)
        )
    finally:
        pynvml.nvmlShutdown()


def visible(gpus: Sequence[FoundGpu], variable: str | None) -> tuple[FoundGpu, ...]:
    """Return the GPUs of ``CUDA_VISIBLE_DEVICES``, in its order; as in CUDA, the first unknown entry ends the list."""
    if variable is None:
        return tuple(gpus)
    chosen: list[FoundGpu] = []
    for entry in variable.split(","):
        name = entry.strip()
        if name.startswith("MIG"):
            rule = "CUDA_VISIBLE_DEVICES must name whole GPUs; slots that are parts of one are not detected"
            raise InputError(rule, value=name, place="environment")
        by_name = [gpu for gpu in gpus if name.startswith("GPU-") and gpu.uuid.startswith(name)]
        by_index = [gpus[int(name)]] if name.isdecimal() and int(name) < len(gpus) else []
        if len(by_name or by_index) != 1:
            break
        chosen += by_name or by_index
    return tuple(dict.fromkeys(chosen))


def short_type(name: str) -> str:
    """Shorten a GPU name of NVML: ``NVIDIA A100-SXM4-80GB`` to ``A100``, ``NVIDIA GeForce RTX 3090`` to ``RTX3090``."""
    name = re.sub(r"^(NVIDIA|Tesla|GeForce|Quadro|\s)+", "", name)
    series = re.match(r"(GTX|RTX)\s+(PRO\s+)?([A-Z]*\d+)(?:\s+(Ti|SUPER|Ada))?", name)
    if series:
        return "".join(part.replace(" ", "") for part in series.groups() if part)
    return re.split(r"[\s-]", name)[0] or "gpu"


def group(count: int, linked: Sequence[tuple[int, int]]) -> list[int]:
    """Return the island of each of ``count`` GPUs; pairs in ``linked`` have NVLink. Without pairs, there is one."""
    island = list(range(count)) if linked else [0] * count
    for one, other in linked:
        low, high = sorted((island[one], island[other]))
        island = [low if known == high else known for known in island]
    numbers = {old: new for new, old in enumerate(dict.fromkeys(island))}
    return [numbers[old] for old in island]


def _pairs(handles: Sequence[Any]) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(len(handles)), 2))


def _joined_by_nvlink(nvml: Any, handles: Sequence[Any], pair: tuple[int, int]) -> bool:
    one, other = pair
    try:
        status = nvml.nvmlDeviceGetP2PStatus(handles[one], handles[other], nvml.NVML_P2P_CAPS_INDEX_NVLINK)
    except nvml.NVMLError:  # not supported
        return False
    return bool(status == nvml.NVML_P2P_STATUS_OK)


def _device(nvml: Any, handle: Any) -> str:
    """Return the device file of a GPU, as control groups name it; empty: it is not at the driver's usual path."""
    with contextlib.suppress(nvml.NVMLError, OSError):
        number = os.stat(f"/dev/nvidia{nvml.nvmlDeviceGetMinorNumber(handle)}").st_rdev  # noqa: PTH116 - a device
        return f"c {os.major(number)}:{os.minor(number)}"
    return ""


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


# -- CPUs and memory ---------------------------------------------------------------------------------------------------


def usable_cpus(root: Path = Path("/")) -> float:
    """Return the CPUs by affinity, limited by the tightest cgroup quota above this process."""
    quotas = [_quota(folder) for folder in _cgroups(root, "cpu")]
    return min([float(len(os.sched_getaffinity(0))), *(quota for quota in quotas if quota is not None)])


def usable_memory_gib(root: Path = Path("/")) -> float:
    """Return the memory of the machine, limited by the tightest cgroup limit above this process."""
    text = (root / "proc/meminfo").read_text()
    found = re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE)
    if found is None:
        raise InputError("MemTotal must stand in /proc/meminfo")
    limits = [_memory_limit(folder) for folder in _cgroups(root, "memory")]
    return min([int(found[1]) * 1024, *(limit for limit in limits if limit is not None)]) / GIB


def _cgroups(root: Path, controller: str) -> list[Path]:
    """Return the folders of this process's cgroup and its ancestors, of version 2 and of version 1's ``controller``."""
    folders: list[Path] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            base = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controller
        else:
            continue
        own = base / path.lstrip("/")
        folders += [folder for folder in (own, *own.parents) if folder == base or base in folder.parents]
    return folders


def _quota(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")  # version 2: "50000 100000" or "max 100000"
    if not quota:
        quota, period = _read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip()
    if not quota.isdecimal() or not period.isdecimal():  # "max", "-1", nothing
        return None
    return int(quota) / int(period)


def _memory_limit(folder: Path) -> int | None:
    text = (_read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")).strip()
    return int(text) if text.isdecimal() else None  # version 1's "no limit" is larger than any machine


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _short(number: float, digits: int = 1) -> str:
    return f"{number:.{digits}f}".rstrip("0").rstrip(".")
