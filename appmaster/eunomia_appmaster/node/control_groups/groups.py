"""The interface of control groups, and an implementation for machines without them.

The other two implementations are in ``version2.py`` (the unified tree) and ``version1.py`` (a tree for each controller,
and the unified tree beside them where it is mounted). A *controller* is a part of the kernel that limits one resource;
a machine may lack some of them, whose resources are then not limited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

CPU, MEMORY, PIDS, DEVICES = "cpu", "memory", "pids", "devices"
CONTROLLERS = (CPU, MEMORY, PIDS)
"""Controllers that the launcher uses on every machine that has them."""

SHORT_PERIOD_US, LONG_PERIOD_US, LEAST_QUOTA_US, MOST_PERIOD_US = 10_000, 20_000, 1_000, 1_000_000
"""Microseconds. The kernel's default period, 100 ms, lets a step of some milliseconds run at full speed or stand still
for most of the period; the kernel takes quotas from 1 ms and periods to 1 s (kernel documentation,
``scheduler/sched-bwc``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What the processes of one container may use together; None: no limit."""

    cpus: float | None = None
    """Greatest number of CPU seconds a second."""
    memory_bytes: int | None = None
    """Host memory, with the files that they keep in memory."""
    processes: int | None = None
    """Greatest number of processes and threads."""
    closed_devices: tuple[str, ...] = ()
    """Devices that they may not open, as ``c MAJOR:MINOR``."""


def quota(cpus: float) -> tuple[int, int]:
    """Return quota and period in microseconds for a number of CPUs, fractions too.

    The period is 10 ms; it is 20 ms and more where the quota would be below 2 ms.
    """
    period = SHORT_PERIOD_US if cpus * SHORT_PERIOD_US >= 2 * LEAST_QUOTA_US else LONG_PERIOD_US
    if cpus * period < LEAST_QUOTA_US:
        period = min(MOST_PERIOD_US, round(LEAST_QUOTA_US / cpus))
    return max(LEAST_QUOTA_US, int(cpus * period + 1e-6)), period


class ControlGroup(Protocol):
    """The control group of one container.

    A folder that vanishes while the container runs holds no process any more; the calls then answer as for an empty
    group, except for ``limit``, which raises ``OSError``.
    """

    @property
    def kind(self) -> str:
        """Kind of control groups: v2, v1 or none."""
        ...

    @property
    def folders(self) -> Mapping[str, Path]:
        """Folder of the group in each tree; empty for "none"."""
        ...

    @property
    def join_files(self) -> Sequence[str]:
        """Files to which a process writes "0" to become a member, with all that it starts later."""
        ...

    @property
    def gone(self) -> bool:
        """Whether a folder of it was removed by another program."""
        ...

    def limit(self, limits: GroupLimits) -> None:
        """Set limits; a second call replaces those of the first, except for closed devices.

        Raises:
            OSError: the kernel refused one; those before it are set. Memory is set first.
        """
        ...

    def memory_in_use(self) -> int | None:
        """Return the bytes that the kernel cannot take back without a kill; None: it does not count them."""
        ...

    def memory_limit(self) -> int | None:
        """Return the limit on memory in bytes; None: none is set."""
        ...

    def out_of_memory_kills(self) -> int | None:
        """Return how many of its processes the kernel has killed for lack of memory; None: it does not count them."""
        ...

    def processes(self) -> list[int]:
        """Return the pids of its processes."""
        ...

    def is_empty(self) -> bool:
        """Return whether no process is left in it."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to all of its processes; it takes no new ones afterwards."""
        ...

    def remove(self) -> None:
        """Remove its folders, as far as they are empty."""
        ...


class ControlGroups(Protocol):
    """The control groups of one launcher."""

    @property
    def kind(self) -> str:
        """Kind of control groups: v2, v1 or none."""
        ...

    @property
    def controllers(self) -> frozenset[str]:
        """The controllers that it has: some of cpu, memory, pids, devices."""
        ...

    def describe(self) -> str:
        """Return in one line what is enforced, or why nothing is."""
        ...

    def make(self, name: str, limits: GroupLimits) -> ControlGroup:
        """Make a group.

        Raises:
            OSError: the kernel refused it; nothing is left of it.
        """
        ...

    def left(self) -> dict[str, ControlGroup]:
        """Return all groups that exist, by name, those of an earlier launcher too."""
        ...

    def close(self) -> None:
        """Remove the folder in which the groups stand, if it is empty."""
        ...


@dataclass(frozen=True, slots=True)
class NoGroup:
    """A container without a control group: its processes are found by their marks, and only affinity binds them."""

    kind: str = "none"
    folders: Mapping[str, Path] = field(default_factory=dict)
    join_files: Sequence[str] = ()
    gone: bool = False

    def limit(self, limits: GroupLimits) -> None:
        """Do nothing: there is no group to limit."""

    def memory_in_use(self) -> int | None:
        """Return None."""
        return None

    def memory_limit(self) -> int | None:
        """Return None."""
        return None

    def out_of_memory_kills(self) -> int | None:
        """Return None."""
        return None

    def processes(self) -> list[int]:
        """Return no process."""
        return []

    def is_empty(self) -> bool:
        """Return True."""
        return True

    def kill(self) -> None:
        """Do nothing: the container's marks find its processes."""

    def remove(self) -> None:
        """Remove nothing."""


NO_GROUP: Final[ControlGroup] = NoGroup()


@dataclass(frozen=True, slots=True)
class NoGroups:
    """Makes groups without effect, on a machine without control groups that this process may write."""

    why: str
    kind: str = "none"
    controllers: frozenset[str] = frozenset()

    def describe(self) -> str:
        """Return why nothing is enforced."""
        return f"slots are not enforced, no control groups: {self.why}"

    def make(self, name: str, limits: GroupLimits) -> ControlGroup:
        """Return the group that limits nothing."""
        return NO_GROUP

    def left(self) -> dict[str, ControlGroup]:
        """Return no group."""
        return {}

    def close(self) -> None:
        """Remove nothing."""
