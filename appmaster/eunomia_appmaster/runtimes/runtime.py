"""The interface between an app master and a runtime: its calls, and the statuses of containers."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from eunomia.errors import EunomiaError, UnreachableError
from eunomia_appmaster.node.stall_watch import Phase

SUSPENDED = 75  # EX_TEMPFAIL: a worker that left on an order, or paused at its rung


class OfNode:
    """Mixin of a runtime's errors: the node whose runtime raised the error; empty: not known."""

    node = ""


class RefusedError(OfNode, EunomiaError):
    """The runtime refused: wrong token, malformed request, or unknown container. The same call would fail again."""


class LeaseOverError(RefusedError):
    """The epoch is closed, or older than the slot's newest one: the lease has ended."""


class LacksError(RefusedError):
    """The node lacks the program or the working folder; another node may have it."""


class SlotBusyError(OfNode, EunomiaError):
    """Processes of the slot's previous container still exist; the caller should retry."""


class RuntimeAwayError(OfNode, UnreachableError):
    """The runtime did not answer; workers keep running. A start may have succeeded: repeat it with the same ids."""


class StallKind(enum.Enum):
    """What a stalled worker was doing; the numbers are those in launcher.proto."""

    HUNG = 1
    """The worker waited, or ran in an endless loop: the script itself hung."""
    STOPPED = 2
    """One of the worker's processes was stopped by a signal."""
    STORAGE = 3
    """A thread waited for storage or a device that does not respond."""


class ContainerState(enum.Enum):
    """The states of a container, which it passes in this order; STOPPING may be skipped."""

    NEW = 1
    STARTING = 2
    RUNNING = 3
    STOPPING = 4
    COMPLETED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One worker to start.

    Attributes:
        container_id: letters, digits, dots, underscores, dashes; unique on the node forever. A new incarnation under
            the same lease needs a new id, with the same slot, epoch and token.
        slot: index of the slot on its node.
        epoch: epoch of the lease.
        token: the lease's container token.
        rank: rank of the worker in the gang.
    """

    container_id: str
    slot: int
    epoch: int
    token: str
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSpec:
    """The generation in which workers of a job that changes its size live begin.

    Attributes:
        generation: number of the generation; 0: the first one of the incarnation.
        members: ids of all containers of the generation, by rank.
        store: host and port of the incarnation's store; empty: the node of rank 0 starts it.
        reachable: whether workers on other nodes may have to reach the store.
    """

    generation: int
    members: tuple[str, ...]
    store: str = ""
    reachable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSpec:
    """The workers of one incarnation on one node, started together.

    Attributes:
        job: number of the job within the app.
        incarnation: number of the incarnation, from 1.
        containers: the workers, in LOCAL_RANK order.
        command: argument list, run without a shell.
        working_folder: absolute path.
        env: variables in addition to PATH, HOME, LANG and VIRTUAL_ENV of the launcher.
        run_folder: absolute path inside the app's folder; None: ``<state>/apps/<app>/<job>``.
        world_size: number of workers on all nodes; None: the number of ``containers``.
        master_address: host of rank 0's node.
        master_port: port of the gang on rank 0's node; None: a port that this node reserves if it has rank 0.
        group_rank: number of this node among the gang's nodes; ranks are in order of these numbers.
        app_folder: path of the app's folder on this machine; a node replaces it by its own path in all of the above.
        live: generation to begin in, if the job changes its size live; else None.
    """

    job: int
    incarnation: int
    containers: tuple[ContainerSpec, ...]
    command: tuple[str, ...]
    working_folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    run_folder: Path | None = None
    world_size: int | None = None
    master_address: str = "127.0.0.1"
    master_port: int | None = None
    group_rank: int = 0
    app_folder: Path | None = None
    live: LiveSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The end of a worker: a code, a signal, or neither if unknown (its shepherd was lost, or its start failed)."""

    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A training regime that a worker announced."""

    number: int
    """Number of the announcement, counted from 1 in each container."""
    step: int | None
    """Number of optimizer steps in the worker's last report; None: it reported none."""
    at: float
    """Time of the announcement in Unix seconds."""
    regime: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """A generation that has made its first step, as its rank 0 reported it."""

    generation: int
    size: int
    step: int
    """Number of optimizer steps done at the change."""
    join_seconds: float
    """Seconds from the order to the step boundary at which the members changed."""
    pause_seconds: float
    """Seconds from the end of the last step before the boundary to the start of the first step after it."""
    at: float
    """Time of the report in Unix seconds."""
    at_least: bool = False
    """Whether the pause may have been longer, since the end of the last whole step is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReport:
    """The last reports of a worker of a job that changes its size live; None for values that it has not reported."""

    ordered: int = 0
    """The newest generation whose order the launcher has passed on to the worker; 0: none."""
    ready: int | None = None
    """The generation that the worker is ready, and waits, to join."""
    entered: Entered | None = None
    leaving: int | None = None
    """The generation before which the worker leaves."""
    broken: int | None = None
    """The generation that has lost another worker, so that this worker waits for the next generation."""
    unfit: str = ""
    """Why the worker cannot join, or why its job cannot change live; empty: it can."""
    store: str = ""
    """Host and port of the incarnation's store."""
    store_lost: bool = False
    """Whether that store has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    """The last known status of one container; None for values that were not reported yet."""

    container_id: str
    job: int
    incarnation: int
    slot: int
    epoch: int
    rank: int
    state: ContainerState
    pid: int | None
    exit: Exit | None
    started_at: float | None
    ended_at: float | None
    step: int | None
    seconds_per_step: float | None
    saved_step: int | None
    suspended_step: int | None
    announced: Mapping[str, Any]
    """The values of the worker's last announcement; empty: there was none."""
    hello: bool
    forked: bool
    killed: bool
    stop_reason: str
    diagnostics: str
    version: int
    announcements: tuple[Announcement, ...] = ()
    """The last announcements of the worker, oldest first."""
    out_of_memory: bool = False
    """Whether the worker was killed while the kernel killed processes for lack of memory."""
    phase: Phase = Phase.UNKNOWN
    """Phase of the worker, as its helper and the launcher report it."""
    pulses: int = 0
    """Number of signs of life of the worker's helper so far."""
    stall: StallKind | None = None
    """What the worker was doing when it was ended as stalled; None: it was not."""
    node: str = ""
    """The node that the container runs on."""
    live: LiveReport | None = None
    """The worker's reports on live changes; None: its job does not change live."""
    misuse: str = ""
    """The error in its use of the training helper that has ended the worker, which no restart cures; empty: none."""

    @property
    def completed(self) -> bool:
        """Return whether all processes of the container have ended."""
        return self.state is ContainerState.COMPLETED

    @property
    def never_began(self) -> bool:
        """Return whether it ended without a process (stopped before its start, or given up): no work is lost."""
        return self.completed and self.pid is None and self.exit == Exit(code=SUSPENDED)

    @property
    def finished(self) -> bool:
        """Whether the worker completed its work."""
        return self.exit is not None and self.exit.code == 0

    @property
    def suspended(self) -> bool:
        """Return whether the worker exited with 75, or after an order with any end but 0 within the grace period."""
        obeyed = bool(self.stop_reason) and not self.killed and self.exit not in (None, Exit())
        return self.completed and not self.finished and (self.exit == Exit(code=SUSPENDED) or obeyed)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPosition:
    """The last change that a watcher has received; opaque to the watcher."""

    launcher_id: str = ""
    version: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Statuses of changed containers, and the position from which the next ``watch`` call continues."""

    statuses: tuple[ContainerStatus, ...]
    position: WatchPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The prepared containers of a gang on one node.

    Attributes:
        statuses: statuses of the containers.
        master_port: port that the node of rank 0 reserved for the gang; None: that node no longer knows the port.
    """

    statuses: tuple[ContainerStatus, ...]
    master_port: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """Since when, and why, a runtime does not answer."""

    since: float
    """Uptime in seconds of the first unanswered call."""
    why: str


class Runtime(Protocol):
    """Starts, stops, orders and watches one app's containers on one node. Thread-safe.

    All calls raise ``RefusedError`` if the runtime refuses and ``RuntimeAwayError`` if it does not answer.
    """

    def start(self, gang: GangSpec, *, wait_seconds: float = 0.0) -> tuple[ContainerStatus, ...]:
        """Start all of a gang's containers on this node, or none. Idempotent.

        Raises:
            LeaseOverError: a lease has ended.
            SlotBusyError: a slot was not free within ``wait_seconds``.
            LacksError: the node lacks the program or the working folder.
        """
        ...

    def prepare(self, gang: GangSpec, *, wait_seconds: float = 0.0) -> Prepared:
        """Reserve the slots of all of a gang's containers on this node, or none; ``go`` starts processes. Idempotent.

        Prepared containers are given up if ``go`` is not called in time; a repeated call restarts that time. Raises the
        errors of ``start``.
        """
        ...

    def go(self, container_ids: Sequence[str]) -> tuple[ContainerStatus, ...]:
        """Start prepared containers; those that have started or were given up are unchanged. Idempotent."""
        ...

    def stop(
        self, container_ids: Sequence[str], *, deadline_seconds: float, reason: str
    ) -> tuple[ContainerStatus, ...]:
        """Order workers to suspend and kill the rest at the deadline (0: at once); the earliest deadline counts."""
        ...

    def end_stalled(self, container_ids: Sequence[str], *, silent_seconds: float, reason: str) -> bool:
        """End the workers of a stalled gang, after recording their stacks.

        Returns False, and ends none, if a worker has shown progress within ``silent_seconds``, or the runtime has not
        watched for that long.
        """
        ...

    def order_checkpoint(self, container_ids: Sequence[str]) -> tuple[str, ...]:
        """Order workers to save a checkpoint and continue; returns the ids of the workers that got the order."""
        ...

    def order_stop_at(self, container_ids: Sequence[str], step: int | None) -> tuple[str, ...]:
        """Set or move (None: remove) the step at which workers pause; a worker that connects later gets it then."""
        ...

    def order_change(
        self,
        container_ids: Sequence[str],
        generation: int,
        members: Sequence[str],
        *,
        timeout_seconds: float,
        lost: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Order workers that are members of a generation to enter it, and the others to leave.

        An older generation than the last one is ignored; a worker that connects later gets the last order then.

        Args:
            container_ids: ids of the workers on this node.
            generation: number of the generation, from 1.
            members: ids of all containers of the generation, by rank.
            timeout_seconds: seconds for which a worker waits for the others.
            lost: ids of former members that are gone, though connections to them may be open.
        """
        ...

    def watch(self, since: WatchPosition, *, wait_seconds: float) -> Watch:
        """Return the statuses changed after ``since`` (a new position: all); waits up to ``wait_seconds`` for one."""
        ...

    def lacks(self, gang: GangSpec) -> str:
        """Return which prerequisite of a gang's command the node lacks, as text; empty: none."""
        ...

    def listen(self) -> int:
        """Open a port on the node that accepts connections for a limited time; returns the port's number."""
        ...

    def connects(self, target: str) -> str:
        """Return why the node cannot connect to ``host:port``, as text; empty: it can."""
        ...

    def host(self) -> str:
        """Return the host under which other nodes reach this one."""
        ...

    @property
    def away(self) -> "Away | None":
        """Return since when the runtime has not answered; None: it answered the last call, or was not called yet."""
        ...

    def close(self) -> None:
        """Close the connection; containers keep running."""
        ...
