"""Control groups of version 1: one hierarchy per controller, and the unified one if it is mounted as well.

The unified hierarchy has no controllers then, but it can kill a group at once and report whether the group is empty.
Without it, a group is killed by forbidding new processes and sending SIGKILL to each one.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eunomia_appmaster.node.control_groups import folders as files
from eunomia_appmaster.node.control_groups.groups import (
    CONTROLLERS,
    CPU,
    DEVICES,
    MEMORY,
    PIDS,
    ControlGroup,
    CpuQuota,
    GroupLimits,
    Throttled,
    quota,
)
from eunomia_appmaster.node.control_groups.mounts import UNIFIED

_NO_LIMIT = -1
_LARGEST = 1 << 60  # the kernel writes "no limit" as the largest number of pages


@dataclass(frozen=True, slots=True)
class Version1Group:
    """A group that has the same name in several hierarchies."""

    folders: Mapping[str, Path]
    kind: str = "v1"

    @property
    def join_files(self) -> Sequence[str]:
        """Files to join the group; the unified hierarchy's first, since it can kill all processes that have joined."""
        order = sorted(self.folders, key=lambda tree: tree != UNIFIED)
        return tuple(dict.fromkeys(str(self.folders[tree] / files.PROCESSES) for tree in order))

    @property
    def gone(self) -> bool:
        """Whether one of the folders is missing."""
        return not all(folder.is_dir() for folder in self.folders.values())

    def limit(self, limits: GroupLimits) -> None:
        """Set limits on memory, CPUs, processes and devices, in this order."""
        if MEMORY in self.folders:
            self._limit_memory(limits.memory_bytes)
        if CPU in self.folders:
            self._limit_cpus(limits.cpus)
            if limits.cpu_weight is not None:
                _weigh(self.folders[CPU], limits.cpu_weight)
        if PIDS in self.folders:
            most = "max" if limits.processes is None else limits.processes
            files.write(self.folders[PIDS] / "pids.max", most)
        if DEVICES in self.folders:
            for device in limits.closed_devices:
                files.write(self.folders[DEVICES] / "devices.deny", f"{device} rwm")

    def _limit_memory(self, limit: int | None) -> None:
        """Set the limit on memory, and that on memory with swap if counted, which must never be below the first."""
        folder, value = self.folders[MEMORY], _NO_LIMIT if limit is None else limit
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if not (folder / names[1]).exists():
            names.pop()
        before = files.number(folder / names[0])
        if limit is None or (before is not None and limit > before):
            names.reverse()
        for name in names:
            files.write(folder / name, value)

    def _limit_cpus(self, cpus: float | None) -> None:
        folder = self.folders[CPU]
        if cpus is None:
            files.write(folder / "cpu.cfs_quota_us", _NO_LIMIT)
            return
        amount, period = quota(cpus)
        if files.number(folder / "cpu.cfs_period_us") != period:
            files.write(folder / "cpu.cfs_quota_us", _NO_LIMIT)  # the ratio must never exceed the parent's
            files.write(folder / "cpu.cfs_period_us", period)
        files.write(folder / "cpu.cfs_quota_us", amount)

    def memory_in_use(self) -> int | None:
        """Return the bytes in use, except for cached files, which can be read again."""
        if MEMORY not in self.folders:
            return None
        used = files.number(self.folders[MEMORY] / "memory.usage_in_bytes")
        cached = files.counted(self.folders[MEMORY] / "memory.stat", "total_inactive_file", "total_active_file")
        return None if used is None else max(0, used - (cached or 0))

    def memory_limit(self) -> int | None:
        """Return the memory limit in bytes; None: the kernel reports a huge number, so none is set."""
        limit = files.number(self.folders[MEMORY] / "memory.limit_in_bytes") if MEMORY in self.folders else None
        return None if limit is None or limit >= _LARGEST else limit

    def out_of_memory_kills(self) -> int | None:
        """Return the group's counter of kills for lack of memory, which exists since Linux 4.13."""
        return (
            files.counted(self.folders[MEMORY] / "memory.oom_control", "oom_kill") if MEMORY in self.folders else None
        )

    def cpu_quota(self) -> CpuQuota | None:
        """Return cpu.cfs_quota_us in cpu.cfs_period_us; a quota of -1 is none."""
        if CPU not in self.folders:
            return None
        amount = files.number(self.folders[CPU] / "cpu.cfs_quota_us")
        period = files.number(self.folders[CPU] / "cpu.cfs_period_us")
        return CpuQuota(amount_seconds=amount / 1e6, period_seconds=period / 1e6) if amount and period else None

    def throttled(self) -> Throttled | None:
        """Return the counters of cpu.stat, whose time is in nanoseconds, converted to seconds."""
        if CPU not in self.folders:
            return None
        stat = self.folders[CPU] / "cpu.stat"
        periods, spent = files.counted(stat, "nr_throttled"), files.counted(stat, "throttled_time")
        return None if periods is None or spent is None else Throttled(periods=periods, seconds=spent / 1e9)

    def stalled_seconds(self) -> float | None:
        """Return the seconds in cpu.pressure, a file that only the unified hierarchy has."""
        return files.stalled_seconds(self.folders[UNIFIED] / "cpu.pressure") if UNIFIED in self.folders else None

    def processes(self) -> list[int]:
        """Return the pids in all hierarchies, since a process may have left one of them."""
        return files.pids(set(self.folders.values()))

    def is_empty(self) -> bool:
        """Return whether no hierarchy has a process of the group."""
        return not self.processes()

    def kill(self) -> None:
        """Forbid new processes, then kill by the unified hierarchy if there is one, then by pid."""
        if PIDS in self.folders:
            with contextlib.suppress(OSError):
                files.write(self.folders[PIDS] / "pids.max", 0)
        if UNIFIED in self.folders:
            with contextlib.suppress(OSError):  # Linux has cgroup.kill since 5.14
                files.write(self.folders[UNIFIED] / "cgroup.kill", 1)
        files.kill_each(self.processes())

    def remove(self) -> None:
        """Remove the group's folder in each hierarchy."""
        for folder in self.folders.values():
            files.remove(folder)


def _weigh(folder: Path, weight: int) -> None:
    """Set a group's weight; the kernel's default is 1024 here."""
    files.write(folder / "cpu.shares", weight * 1024 // 100)


class Version1Groups:
    """The groups of one launcher, in a folder of its own below this process's groups.

    Args:
        own: this process's folder by hierarchy.
        name: name of the launcher's folder.
    """

    kind = "v1"

    def __init__(self, own: Mapping[str, Path], name: str) -> None:
        wanted = (*CONTROLLERS, DEVICES, UNIFIED)
        self._homes = {tree: own[tree] / name for tree in wanted if tree in own}
        self.controllers = frozenset(self._homes) - {UNIFIED}

    def describe(self) -> str:
        """Return one line with the controllers, how a group is killed, and the missing controllers."""
        trees = ", ".join(tree for tree in (*CONTROLLERS, DEVICES) if tree in self.controllers)
        kill = "killed by the unified tree" if UNIFIED in self._homes else "killed process by process"
        missing = ", ".join(tree for tree in CONTROLLERS if tree not in self.controllers)
        without = f"; without {missing}, not mounted" if missing else ""
        return f"each container has a control group, v1 ({trees}; {kill}{without})"

    def make(self, name: str, limits: GroupLimits) -> ControlGroup:
        """Create the group's folder in each hierarchy, and set the limits."""
        group = Version1Group({tree: home / name for tree, home in self._homes.items()})
        try:
            for folder in group.folders.values():
                folder.parent.mkdir(exist_ok=True)
                folder.mkdir(exist_ok=True)
            if limits.cpu_weight is not None and limits.weighs_more and CPU in self._homes:
                _weigh(self._homes[CPU], limits.cpu_weight)
            group.limit(limits)
        except OSError:
            group.remove()
            raise
        return group

    def left(self) -> dict[str, ControlGroup]:
        """Return the groups in any hierarchy; a partly removed group may be in some only."""
        found: dict[str, dict[str, Path]] = {}
        for tree, home in self._homes.items():
            for folder in files.inside(home):
                found.setdefault(folder.name, {})[tree] = folder
        return {name: Version1Group(folders) for name, folders in sorted(found.items())}

    def close(self) -> None:
        """Remove the launcher's folder in each hierarchy."""
        for home in self._homes.values():
            with contextlib.suppress(OSError):
                home.rmdir()
