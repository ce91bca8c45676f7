"""The runtime of one machine: the launcher's ``ContainerManager`` over gRPC."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc

from eunomia.errors import InputError
from eunomia_appmaster.node.kept_files import read_kept
from eunomia_appmaster.node.stall_watch import Phase
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2_grpc as rpc
from eunomia_appmaster.protocol.connecting import Address
from eunomia_appmaster.runtimes.runtime import (
    Announcement,
    ContainerState,
    ContainerStatus,
    Exit,
    GangSpec,
    LeaseOverError,
    RefusedError,
    RuntimeAwayError,
    SlotBusyError,
    StallKind,
    Watch,
    WatchPosition,
)

_Answer = TypeVar("_Answer")
_BUSY_KEY = "eunomia-slot-busy"
_CALL_SECONDS = 10.0
_ERRORS = {grpc.StatusCode.FAILED_PRECONDITION: LeaseOverError}
_AWAY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})


class LocalRuntime:
    """Talks to this machine's launcher.

    Args:
        app: the owner of the containers.
        node_token: the app's token on this node (``EUNOMIA_NODE_TOKEN_FILE``).
        launcher_file: where the launcher publishes its address (``EUNOMIA_LAUNCHER_FILE``); read again when it does not
            answer, since a restarted launcher may have another address.
        patience_seconds: how long a call is repeated while the launcher is away.
        system: threads and connections of the machine.
    """

    def __init__(
        self,
        app: str,
        node_token: str,
        launcher_file: Path,
        *,
        patience_seconds: float = 10.0,
        system: System = MACHINE,
    ) -> None:
        self._system = system
        self._app = app
        self._node_token = node_token
        self._launcher_file = launcher_file
        self._patience_seconds = patience_seconds
        self._lock = system.lock()
        self._address = ""
        self._channel: grpc.Channel | None = None

    def start(self, gang: GangSpec, *, wait_seconds: float = 0.0) -> tuple[ContainerStatus, ...]:
        """Start all of a gang's containers, or none."""
        request = pb.StartContainersRequest(
            app=self._app,
            job=gang.job,
            incarnation=gang.incarnation,
            containers=[
                pb.ContainerRequest(
                    container_id=spec.container_id,
                    slot=spec.slot,
                    epoch=spec.epoch,
                    container_token=spec.token,
                    rank=spec.rank,
                )
                for spec in gang.containers
            ],
            command=gang.command,
            working_folder=str(gang.working_folder),
            env=dict(gang.env),
            run_folder=str(gang.run_folder or ""),
            world_size=gang.world_size or 0,
            master_address=gang.master_address,
            master_port=gang.master_port or 0,
            wait_seconds=wait_seconds,
        )
        answer = self._call(lambda stub, limit: stub.StartContainers(request, timeout=limit), wait_seconds)
        return tuple(map(status_of, answer.containers))

    def stop(
        self, container_ids: Sequence[str], *, deadline_seconds: float, reason: str
    ) -> tuple[ContainerStatus, ...]:
        """Order workers to suspend, and kill the remaining ones at the deadline."""
        request = pb.StopContainersRequest(
            app=self._app,
            node_token=self._node_token,
            container_ids=container_ids,
            deadline_seconds=deadline_seconds,
            reason=reason,
        )
        answer = self._call(lambda stub, limit: stub.StopContainers(request, timeout=limit))
        return tuple(map(status_of, answer.containers))

    def end_stalled(self, container_ids: Sequence[str], *, silent_seconds: float, reason: str) -> bool:
        """End the workers of a gang that has stalled, unless one has shown life within these seconds."""
        request = pb.EndStalledRequest(
            app=self._app,
            node_token=self._node_token,
            container_ids=container_ids,
            silent_seconds=silent_seconds,
            reason=reason,
        )
        return self._call(lambda stub, limit: stub.EndStalled(request, timeout=limit)).silent

    def order_checkpoint(self, container_ids: Sequence[str]) -> tuple[str, ...]:
        """Order workers to save a checkpoint and continue."""
        return self._order(container_ids, checkpoint=pb.Checkpoint())

    def order_stop_at(self, container_ids: Sequence[str], step: int | None) -> tuple[str, ...]:
        """Set, move or remove the step at which workers pause."""
        return self._order(container_ids, stop_at=pb.StopAt(step=step))

    def watch(self, since: WatchPosition, *, wait_seconds: float) -> Watch:
        """Wait for changes of the app's containers."""
        request = pb.WatchContainersRequest(
            app=self._app,
            node_token=self._node_token,
            launcher_id=since.launcher_id,
            since_version=since.version,
            wait_seconds=wait_seconds,
        )
        answer = self._call(lambda stub, limit: stub.WatchContainers(request, timeout=limit), wait_seconds)
        position = WatchPosition(launcher_id=answer.launcher_id, version=answer.version)
        return Watch(statuses=tuple(map(status_of, answer.containers)), position=position)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None

    def _order(self, container_ids: Sequence[str], **order: Any) -> tuple[str, ...]:
        request = pb.OrderContainersRequest(
            app=self._app, node_token=self._node_token, container_ids=container_ids, **order
        )
        answer = self._call(lambda stub, limit: stub.OrderContainers(request, timeout=limit))
        return tuple(answer.delivered)

    def _call(self, call: Callable[[rpc.ContainerManagerStub, float], _Answer], wait_seconds: float = 0.0) -> _Answer:
        """Call until the launcher answers or the time is over; every call may be repeated."""
        patience = self._system.monotonic() + self._patience_seconds
        while True:
            try:
                return call(self._stub(), wait_seconds + _CALL_SECONDS)
            except (grpc.RpcError, OSError, InputError) as error:
                failure = _failure(error)
                if not isinstance(failure, RuntimeAwayError) or self._system.monotonic() > patience:
                    raise failure from None
            self._system.sleep(0.1)

    def _stub(self) -> rpc.ContainerManagerStub:
        address = _address_in(self._launcher_file)
        with self._lock:
            if self._channel is None or address != self._address:
                if self._channel is not None:
                    self._channel.close()
                options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
                self._channel = self._system.dial(Address(target=address), options)
                self._address = address
            return rpc.ContainerManagerStub(self._channel)


def status_of(status: pb.ContainerStatus) -> ContainerStatus:
    """Return a message as a value."""

    def given(name: str) -> Any:
        return getattr(status, name) if status.HasField(name) else None  # type: ignore[arg-type]

    progress = status.progress
    how = status.exit
    return ContainerStatus(
        container_id=status.container_id,
        job=status.job,
        incarnation=status.incarnation,
        slot=status.slot,
        epoch=status.epoch,
        rank=status.rank,
        state=ContainerState(status.state),
        pid=status.pid or None,
        exit=_exit(how) if status.HasField("exit") else None,
        started_at=given("started_at"),
        ended_at=given("ended_at"),
        step=progress.step if status.HasField("progress") else None,
        seconds_per_step=progress.seconds_per_step if progress.HasField("seconds_per_step") else None,
        saved_step=given("saved_step"),
        suspended_step=given("suspended_step"),
        announced=json.loads(status.announce_json or "{}"),
        hello=status.hello,
        forked=status.forked,
        killed=status.killed,
        stop_reason=status.stop_reason,
        diagnostics=status.diagnostics,
        version=status.version,
        announcements=tuple(map(_announcement, status.announcements)),
        out_of_memory=status.out_of_memory,
        phase=_phase(status.phase),
        pulses=status.pulses,
        stall=None if status.stall == pb.NO_STALL else StallKind(status.stall),
    )


def _announcement(one: pb.Announcement) -> Announcement:
    step = one.step if one.HasField("step") else None
    return Announcement(number=one.number, step=step, at=one.at, regime=json.loads(one.regime_json))


def _phase(number: int) -> Phase:
    """Return a phase; one that a later version adds is unknown."""
    return Phase(number) if number in (*Phase,) else Phase.UNKNOWN


def _exit(how: pb.Exit) -> Exit:
    return Exit(code=how.code if how.HasField("code") else None, signal=how.signal if how.HasField("signal") else None)


def _address_in(launcher_file: Path) -> str:
    """Return the address that a launcher published.

    Raises:
        InputError: there is none; the launcher writes a damaged file again.
    """
    kept = read_kept(launcher_file, cure="the launcher writes it again").content
    if kept is None or not isinstance(kept.get("address"), str):
        raise InputError("a launcher must run on this machine", value="none", place=str(launcher_file))
    return str(kept["address"])


def _failure(error: Exception) -> Exception:
    if not isinstance(error, grpc.Call):
        return RuntimeAwayError("a launcher must run on this machine", value=str(error))
    code, details = error.code(), error.details() or ""
    if any(key == _BUSY_KEY for key, _ in error.trailing_metadata() or ()):
        return SlotBusyError(details)
    if code in _AWAY:
        return RuntimeAwayError("the launcher must answer", value=f"{code.name}: {details}")
    return _ERRORS.get(code, RefusedError)(details)
