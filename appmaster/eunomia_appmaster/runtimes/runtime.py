"""What an app master asks of a runtime, and what it hears of its containers."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from eunomia.errors import EunomiaError, UnreachableError

SUSPENDED = 75  # EX_TEMPFAIL: a worker that left when told to, or paused at its rung


class RefusedError(EunomiaError):
    """The runtime refused: a wrong token, a malformed request, an unknown container. The same call will not succeed."""


class LeaseOverError(RefusedError):
    """The epoch is closed, or an older one than the slot has seen: the lease is lost."""


class SlotBusyError(EunomiaError):
    """The slot's last process group has not gone yet: try again."""


class RuntimeAwayError(UnreachableError):
    """The runtime did not answer; workers run on. A start may or may not have happened: repeat it with the same ids."""


class ContainerState(enum.Enum):
    """Life of a container, in this order; STOPPING may be left out."""

    NEW = 1
    STARTING = 2
    RUNNING = 3
    STOPPING = 4
    COMPLETED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One worker to start.

    Attributes:
        container_id: letters, digits, dots, underscores, dashes; unique on the node for ever. A new incarnation on a
            lease that goes on takes a new id with the same slot, epoch and token.
        slot: index on its node.
        epoch: of the lease.
        token: the lease's container token.
        rank: in the gang.
    """

    container_id: str
    slot: int
    epoch: int
    token: str
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSpec:
    """The workers of one incarnation on one node, started together.

    Attributes:
        job: number within the app.
        incarnation: from 1.
        containers: in LOCAL_RANK order.
        command: argv, no shell.
        working_folder: absolute.
        env: beside PATH, HOME, LANG and VIRTUAL_ENV of the launcher.
        run_folder: absolute, in the app's own; None: ``<state>/apps/<app>/<job>``.
        world_size: workers on all nodes; None: those given here.
        master_address: of rank 0's node.
        master_port: None: a free one of this node.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a worker ended: a code, or a signal, or nobody knows (its shepherd was killed), which counts as failed."""

    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    """What is known of one container; None where nothing was heard yet."""

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
    hello: bool
    forked: bool
    killed: bool
    stop_reason: str
    diagnostics: str
    version: int

    @property
    def completed(self) -> bool:
        """Whether no process of it is left."""
        return self.state is ContainerState.COMPLETED

    @property
    def finished(self) -> bool:
        """Whether the worker did all its work."""
        return self.exit is not None and self.exit.code == 0

    @property
    def suspended(self) -> bool:
        """Whether it left when told to: exit 75, or any end within its grace after an order to stop."""
        told = bool(self.stop_reason) and not self.killed and self.exit not in (None, Exit())
        return self.completed and not self.finished and (self.exit == Exit(code=SUSPENDED) or told)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPosition:
    """Up to where a watcher has heard; opaque."""

    launcher_id: str = ""
    version: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """News of an app's containers, and where to go on from."""

    statuses: tuple[ContainerStatus, ...]
    position: WatchPosition


class Runtime(Protocol):
    """Starts, stops, orders and watches one app's containers on one node. Thread-safe.

    All calls raise ``RefusedError`` where the runtime refuses and ``RuntimeAwayError`` where it does not answer.
    """

    def start(self, gang: GangSpec, *, wait_seconds: float = 0.0) -> tuple[ContainerStatus, ...]:
        """Start all of a gang's containers here, or none; repeating a call is harmless.

        Raises:
            LeaseOverError: a lease is lost.
            SlotBusyError: a slot did not get free within ``wait_seconds``.
        """
        ...

    def stop(
        self, container_ids: Sequence[str], *, deadline_seconds: float, reason: str
    ) -> tuple[ContainerStatus, ...]:
        """Order to suspend, and kill what is left at the deadline (0: at once); of several the earliest counts."""
        ...

    def order_checkpoint(self, container_ids: Sequence[str]) -> tuple[str, ...]:
        """Order to save and go on; returns the ids whose worker heard it."""
        ...

    def order_stop_at(self, container_ids: Sequence[str], step: int | None) -> tuple[str, ...]:
        """Set or move (None: remove) the step at which workers pause; later ones hear it when they connect."""
        ...

    def watch(self, since: WatchPosition, *, wait_seconds: float) -> Watch:
        """Wait for news after ``since`` (a fresh position: everything); empty if there is none in time."""
        ...

    def close(self) -> None:
        """Close the connection; containers run on."""
        ...
