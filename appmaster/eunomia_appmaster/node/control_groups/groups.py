"""The interface of control groups, and an implementation for machines without them.

The other two implementations are in ``version2.py`` (the unified hierarchy) and ``version1.py`` (one hierarchy per
controller, and the unified one if it is mounted as well). A *controller* is a part of the kernel that limits one
resource; if a machine lacks one, its resource is not limited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

CPU, MEMORY, PIDS, DEVICES = "cpu", "memory", "pids", "devices"
CONTROLLERS = (CPU, MEMORY, PIDS)
"""Controllers that the launcher uses on every machine that has them."""

SHORT_PERIOD_US, LONG_PERIOD_US, LEAST_QUOTA_US, MOST_PERIOD_US = 10_000, 20_000, 1_000, 1_000_000
"""CPU periods and quota bounds in microseconds. With the kernel's default period, 100 ms, a step of some milliseconds
either runs at full speed or pauses for most of a period; the kernel accepts quotas from 1 ms and periods up to 1 s
(kernel documentation, ``scheduler/sched-bwc``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Limits on all processes of one container together; None: no limit."""

    cpus: float | None = None
    """Largest number of CPU-seconds per second."""
    memory_bytes: int | None = None
    """Host memory in bytes, including cached files of its processes."""
    processes: int | None = None
    """Largest number of processes and threads."""
    closed_devices: tuple[str, ...] = ()
    """Devices that its processes may not open, as ``c MAJOR:MINOR``."""
    cpu_weight: int | None = None
    """CPU weight for a contended core; 100 is the weight of a process without a group. None: unchanged."""

    @property
    def weighs_more(self) -> bool:
        """Whether the group has a greater weight than a process without a group."""
        return self.cpu_weight is not None and self.cpu_weight > USUAL_WEIGHT


USUAL_WEIGHT: Final = 100
BESIDE_PACED_WEIGHT: Final = 10
"""CPU weight of an app master's group beside paced slots: even dozens that start at once reduce no slot's quota."""
PACED_WEIGHT: Final = 800
"""CPU weight of a paced slot's group, and of all groups of its launcher together. A core's other processes, such as
starting app masters, then do not reduce a slot's quota; they get the CPU time that the quotas leave."""


def quota(cpus: float) -> tuple[int, int]:
    """Return CPU quota and period in microseconds for a number of CPUs, which may be fractional.

    The period is 10 ms; it is 20 ms or more if the quota would be below 2 ms.
    """
    period = SHORT_PERIOD_US if cpus * SHORT_PERIOD_US >= 2 * LEAST_QUOTA_US else LONG_PERIOD_US
    if cpus * period < LEAST_QUOTA_US:
        period = min(MOST_PERIOD_US, round(LEAST_QUOTA_US / cpus))
    return max(LEAST_QUOTA_US, int(cpus * period + 1e-6)), period


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuQuota:
    """A limit on CPU time: ``amount_seconds`` CPU-seconds in each period of ``period_seconds``."""

    amount_seconds: float
    period_seconds: float

    @property
    def cpus(self) -> float:
        """The quota in CPU-seconds per second."""
        return self.amount_seconds / self.period_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """How often and for how long a CPU quota has throttled the processes of a group, since the group was created.

    Kernels that throttle each task separately (Linux 6.18) count only a part of the seconds.
    """

    periods: int
    """Periods in which the quota was used up while a process was ready to run."""
    seconds: float
    """Seconds from the use of the quota to the end of each such period, summed over CPUs."""


class ControlGroup(Protocol):
    """The control group of one container.

    If its folder disappears while the container runs, it has no more processes; the methods then return what they do
    for an empty group, except ``limit``, which raises ``OSError``.
    """

    @property
    def kind(self) -> str:
        """Kind of control groups: v2, v1 or none."""
        ...

    @property
    def folders(self) -> Mapping[str, Path]:
        """The group's folder in each hierarchy; empty for kind "none"."""
        ...

    @property
    def join_files(self) -> Sequence[str]:
        """Files to which a process writes "0" to join the group, with all processes that it starts later."""
        ...

    @property
    def gone(self) -> bool:
        """Whether another program has removed one of its folders."""
        ...

    def limit(self, limits: GroupLimits) -> None:
        """Set limits, which replace those of earlier calls, except for closed devices.

        Raises:
            OSError: the kernel refused one; those before it are set. Memory is set first.
        """
        ...

    def memory_in_use(self) -> int | None:
        """Return the bytes in use that the kernel cannot reclaim without a kill; None: they are not counted."""
        ...

    def memory_limit(self) -> int | None:
        """Return the limit on memory in bytes; None: none is set."""
        ...

    def out_of_memory_kills(self) -> int | None:
        """Return how many of the group's processes the kernel has killed for lack of memory; None: not counted."""
        ...

    def cpu_quota(self) -> CpuQuota | None:
        """Return the limit on CPU time; None: none is set, or it is not known."""
        ...

    def throttled(self) -> Throttled | None:
        """Return how often and how long the group's CPU quota has throttled it; None: it is not counted."""
        ...

    def stalled_seconds(self) -> float | None:
        """Return the seconds in which processes of the group were ready but none ran; None: they are not counted.

        The kernel updates the count every two seconds.
        """
        ...

    def processes(self) -> list[int]:
        """Return the pids of the group's processes."""
        ...

    def is_empty(self) -> bool:
        """Return whether the group has no processes."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to all of the group's processes; afterwards no process can join."""
        ...

    def remove(self) -> None:
        """Remove the group's folders, except those that are not empty."""
        ...


class ControlGroups(Protocol):
    """The control groups of one launcher; a protocol with an implementation per kind."""

    @property
    def kind(self) -> str:
        """Kind of control groups: v2, v1 or none."""
        ...

    @property
    def controllers(self) -> frozenset[str]:
        """The available controllers: some of cpu, memory, pids, devices."""
        ...

    def describe(self) -> str:
        """Return in one line what is enforced, or why nothing is."""
        ...

    def make(self, name: str, limits: GroupLimits) -> ControlGroup:
        """Create a group and set its limits.

        Raises:
            OSError: the kernel refused it; nothing remains of the group.
        """
        ...

    def left(self) -> dict[str, ControlGroup]:
        """Return all existing groups by name, including those of earlier launchers."""
        ...

    def close(self) -> None:
        """Remove the folder that contains the groups, if it is empty."""
        ...


@dataclass(frozen=True, slots=True)
class NoGroup:
    """A container without a control group: its processes are found by their marks, and limited by CPU affinity."""

    kind: str = "none"
    folders: Mapping[str, Path] = field(default_factory=dict)
    join_files: Sequence[str] = ()
    gone: bool = False

    def limit(self, limits: GroupLimits) -> None:
        """Do nothing: there is no group whose limits could be set."""

    def memory_in_use(self) -> int | None:
        """Return None, since nothing is counted."""
        return None

    def memory_limit(self) -> int | None:
        """Return None, since there is no limit."""
        return None

    def out_of_memory_kills(self) -> int | None:
        """Return None, since nothing is counted."""
        return None

    def cpu_quota(self) -> CpuQuota | None:
        """Return None, since there is no limit."""
        return None

    def throttled(self) -> Throttled | None:
        """Return None, since nothing is counted."""
        return None

    def stalled_seconds(self) -> float | None:
        """Return None, since nothing is counted."""
        return None

    def processes(self) -> list[int]:
        """Return an empty list."""
        return []

    def is_empty(self) -> bool:
        """Return True, since no process is a member."""
        return True

    def kill(self) -> None:
        """Do nothing: the container's processes are killed by their marks."""

    def remove(self) -> None:
        """Do nothing: there are no folders."""


NO_GROUP: Final[ControlGroup] = NoGroup()


@dataclass(frozen=True, slots=True)
class NoGroups:
    """Makes groups without effect, on a machine without control groups that this process may write to."""

    why: str
    kind: str = "none"
    controllers: frozenset[str] = frozenset()

    def describe(self) -> str:
        """Return why nothing is enforced."""
        return f"slots are not enforced, no control groups: {self.why}"

    def make(self, name: str, limits: GroupLimits) -> ControlGroup:
        """Return a group without limits."""
        return NO_GROUP

    def left(self) -> dict[str, ControlGroup]:
        """Return an empty mapping."""
        return {}

    def close(self) -> None:
        """Do nothing: there is no folder."""
