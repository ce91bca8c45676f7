"""Control groups of version 2: one hierarchy for all controllers.

A group that enables controllers for the groups below it must not have processes itself. So this process and those that
it started move to a group ``eunomia-service`` next to the containers' groups, as a service manager that delegates a
group requires (systemd: ``Delegate=``, ``DelegateSubgroup=eunomia-service``).
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eunomia_appmaster.node.control_groups import folders as files
from eunomia_appmaster.node.control_groups.groups import (
    CONTROLLERS,
    CPU,
    MEMORY,
    PIDS,
    ControlGroup,
    CpuQuota,
    GroupLimits,
    Throttled,
    quota,
)
from eunomia_appmaster.node.control_groups.mounts import UNIFIED

SERVICE = "eunomia-service"
_SUBTREE = "cgroup.subtree_control"


class NotDelegatedError(OSError):
    """The process may not create groups below its own group."""


@dataclass(frozen=True, slots=True)
class Version2Group:
    """A folder of the unified hierarchy; a limit is set only if its controller is enabled, that is, its file exists."""

    folder: Path
    kind: str = "v2"

    @property
    def folders(self) -> Mapping[str, Path]:
        """The group's folder in the unified hierarchy."""
        return {UNIFIED: self.folder}

    @property
    def join_files(self) -> Sequence[str]:
        """The file ``cgroup.procs`` in the group's folder."""
        return (str(self.folder / files.PROCESSES),)

    @property
    def gone(self) -> bool:
        """Whether the folder is missing."""
        return not self.folder.is_dir()

    def limit(self, limits: GroupLimits) -> None:
        """Set limits on memory without swap, CPUs and processes; out of memory, the kernel kills the whole group."""
        if self.gone:
            raise FileNotFoundError(2, "a control group must exist", str(self.folder))
        if self._has("memory.max"):
            files.write(self.folder / "memory.max", "max" if limits.memory_bytes is None else limits.memory_bytes)
            if self._has("memory.swap.max"):
                files.write(self.folder / "memory.swap.max", "max" if limits.memory_bytes is None else 0)
            files.write(self.folder / "memory.oom.group", 1)
        if self._has("cpu.max"):
            amount = "max 100000" if limits.cpus is None else "{} {}".format(*quota(limits.cpus))
            files.write(self.folder / "cpu.max", amount)
            if limits.cpu_weight is not None:
                files.write(self.folder / "cpu.weight", limits.cpu_weight)
        if self._has("pids.max"):
            files.write(self.folder / "pids.max", "max" if limits.processes is None else limits.processes)

    def _has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def memory_in_use(self) -> int | None:
        """Return the bytes in use, except for cached files, which can be read again."""
        used = files.number(self.folder / "memory.current")
        stat = self.folder / "memory.stat"
        cached = files.counted(stat, "inactive_file", "active_file", "slab_reclaimable")
        return None if used is None else max(0, used - (cached or 0))

    def memory_limit(self) -> int | None:
        """Return the memory limit in bytes (memory.max)."""
        return files.number(self.folder / "memory.max")

    def out_of_memory_kills(self) -> int | None:
        """Return the number of kills for lack of memory (memory.events)."""
        return files.counted(self.folder / "memory.events", "oom_kill")

    def cpu_quota(self) -> CpuQuota | None:
        """Return quota and period of cpu.max."""
        amount, _, period = (files.read(self.folder / "cpu.max") or "").partition(" ")
        if not (amount.isdecimal() and period.isdecimal()):
            return None
        return CpuQuota(amount_seconds=int(amount) / 1e6, period_seconds=int(period) / 1e6)

    def throttled(self) -> Throttled | None:
        """Return the counters of cpu.stat, whose time is in microseconds, converted to seconds."""
        stat = self.folder / "cpu.stat"
        periods, spent = files.counted(stat, "nr_throttled"), files.counted(stat, "throttled_usec")
        return None if periods is None or spent is None else Throttled(periods=periods, seconds=spent / 1e6)

    def stalled_seconds(self) -> float | None:
        """Return the seconds in cpu.pressure."""
        return files.stalled_seconds(self.folder / "cpu.pressure")

    def processes(self) -> list[int]:
        """Return the pids of the group and of groups below it."""
        return files.pids([self.folder])

    def is_empty(self) -> bool:
        """Return whether the group and the groups below it have no processes (cgroup.events)."""
        populated = files.counted(self.folder / "cgroup.events", "populated")
        return not populated

    def kill(self) -> None:
        """Kill by cgroup.kill; kernels before 5.14 lack it, so kill by pid there."""
        if self._has("pids.max"):
            with contextlib.suppress(OSError):
                files.write(self.folder / "pids.max", 0)
        try:
            files.write(self.folder / "cgroup.kill", 1)
        except OSError:
            files.kill_each(self.processes())

    def remove(self) -> None:
        """Remove the group's folder and those below it."""
        files.remove(self.folder)


class Version2Groups:
    """The groups of one launcher, in a folder of its own.

    Args:
        own: this process's group, which gets subgroups; its processes move to ``eunomia-service``.
        name: name of the launcher's folder.

    Raises:
        OSError: this process may not create groups below it.
    """

    kind = "v2"

    def __init__(self, own: Path, name: str) -> None:
        base = _divided(own)
        has = (files.read(base / "cgroup.controllers") or "").split()
        self._passed_on = tuple(one for one in (CPU, MEMORY, PIDS) if one in has)
        self.controllers = frozenset(self._passed_on)
        self._base, self._home = base, base / name
        self._prepare()

    def _prepare(self) -> None:
        self._home.mkdir(exist_ok=True)
        for folder in (self._base, self._home):
            passed_on = (files.read(folder / _SUBTREE) or "").split()
            missing = [one for one in self._passed_on if one not in passed_on]
            if missing:
                files.write(folder / _SUBTREE, " ".join(f"+{one}" for one in missing))

    def describe(self) -> str:
        """Return one line with the available and the missing controllers."""
        missing = [one for one in CONTROLLERS if one not in self.controllers]
        without = f"; without {', '.join(missing)}, not delegated" if missing else ""
        return f"each container has a control group, v2 ({', '.join(self._passed_on) or 'kill alone'}{without})"

    def make(self, name: str, limits: GroupLimits) -> ControlGroup:
        """Create the group's folder, and set the limits."""
        self._prepare()
        group = Version2Group(self._home / name)
        group.folder.mkdir(exist_ok=True)
        try:
            if limits.cpu_weight is not None and limits.weighs_more and CPU in self.controllers:
                files.write(self._home / "cpu.weight", limits.cpu_weight)
            group.limit(limits)
        except OSError:
            group.remove()
            raise
        return group

    def left(self) -> dict[str, ControlGroup]:
        """Return the groups in the launcher's folder, by name."""
        return {folder.name: Version2Group(folder) for folder in files.inside(self._home)}

    def close(self) -> None:
        """Remove the launcher's folder."""
        with contextlib.suppress(OSError):
            self._home.rmdir()


def _divided(own: Path) -> Path:
    """Move this process and its children out of their group, and return the group below which groups can be created.

    Raises:
        NotDelegatedError: the group has processes that this one did not start.
    """
    if own.name == SERVICE:
        return own.parent
    if not (own / "cgroup.events").exists():  # the top of the tree, which may hold processes
        return own
    members = files.pids_of(own)
    if strangers := set(members) - _started_here(members):
        rule = "a control group that is divided must hold Eunomia's processes alone (systemd: Delegate=yes)"
        raise NotDelegatedError(1, f"{rule}, but also holds process {min(strangers)}", str(own))
    service = own / SERVICE
    service.mkdir(exist_ok=True)
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            files.write(service / files.PROCESSES, pid)
    return own


def _started_here(pids: Sequence[int]) -> set[int]:
    """Return those processes of a list that are this one or its descendants."""
    parents = {pid: _parent(pid) for pid in pids}
    known = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in known and pid not in known}:
        known |= more
    return known | {pid for pid, parent in parents.items() if parent is None}  # one that has ended


def _parent(pid: int) -> int | None:
    text = files.read(Path(f"/proc/{pid}/stat"))
    return None if text is None else int(text[text.rindex(")") + 2 :].split()[1])
