"""The CPUs and memory that orders set for slots, and the cores to which the slots' processes are bound."""

import contextlib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from eunomia_appmaster.launcher.processes import ProcessId

log = structlog.get_logger()

PASSES = 8
"""Most scans for new threads, which a container may start while its threads are bound."""


@dataclass(frozen=True, slots=True)
class CoreSetting:
    """The cores of one slot, and its CPUs and memory (GiB), set by the order of an epoch."""

    epoch: int
    cores: frozenset[int]
    cpus: float
    memory_gib: float


@dataclass(slots=True)
class Cores:
    """The cores that the launcher may use, and the cores of each slot with an order about its CPUs."""

    every: frozenset[int] = field(default_factory=lambda: frozenset(os.sched_getaffinity(0)))
    _slots: dict[int, CoreSetting] = field(default_factory=dict)

    def is_news(self, slot: int, epoch: int, cpus: float, memory_gib: float = 0.0) -> bool:
        """Return whether an order is newer than the slot's last order, or has the same epoch and different amounts."""
        known = self._slots.get(slot)
        if known is None or epoch > known.epoch:
            return True
        return epoch == known.epoch and (cpus, memory_gib) != (known.cpus, known.memory_gib)

    def set(self, slot: int, epoch: int, cpus: float, memory_gib: float = 0.0) -> bool:
        """Choose as many cores for a slot as it has CPUs, rounded up; returns whether the order changes anything."""
        if not self.is_news(slot, epoch, cpus, memory_gib):
            return False
        count = min(len(self.every), max(1, math.ceil(cpus - 1e-6)))
        self._slots[slot] = CoreSetting(epoch, self._chosen(slot, count), cpus, memory_gib)
        return True

    def of(self, slot: int, epoch: int) -> frozenset[int] | None:
        """Return a slot's cores for the lease of an epoch; None: any core, as its last order is of an older lease."""
        known = self._slots.get(slot)
        return known.cores if known is not None and known.epoch >= epoch else None

    def amounts(self, slot: int, epoch: int) -> tuple[float, float] | None:
        """Return a slot's CPUs and memory (GiB) for an epoch's lease; None: its last order is of an older lease."""
        known = self._slots.get(slot)
        return (known.cpus, known.memory_gib) if known is not None and known.epoch >= epoch else None

    def epoch(self, slot: int) -> int:
        """Return the epoch of the last order about a slot; 0: there was none."""
        return self._slots[slot].epoch if slot in self._slots else 0

    def _chosen(self, slot: int, count: int) -> frozenset[int]:
        """Return ``count`` cores, first the slot's present ones, then those that the fewest other slots use."""
        mine = self._slots[slot].cores if slot in self._slots else frozenset[int]()
        others = [core for number, known in self._slots.items() if number != slot for core in known.cores]
        ranked = sorted(self.every, key=lambda core: (core not in mine, others.count(core), core))
        return frozenset(ranked[:count])


def bind(processes: Iterable[ProcessId], cores: frozenset[int]) -> None:
    """Bind all threads of processes to some cores; threads that end meanwhile are skipped."""
    pids = [process.pid for process in processes]
    for _ in range(PASSES):
        if not [thread for pid in pids for thread in _threads(pid) if _moved(thread, cores)]:
            return


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    return []


def _moved(thread: int, cores: frozenset[int]) -> bool:
    """Bind a thread to some cores; returns whether it was bound to others before."""
    try:
        if os.sched_getaffinity(thread) == cores:
            return False
        os.sched_setaffinity(thread, cores)
    except ProcessLookupError:
        return False
    except OSError as error:
        log.warning("thread.not_bound", thread=thread, error=str(error))
        return False
    return True
