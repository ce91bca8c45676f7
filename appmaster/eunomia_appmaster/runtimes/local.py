"""The runtime of one node: a client of its launcher's ``ContainerManager`` over gRPC."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.node.kept_files import read_kept
from eunomia_appmaster.node.stall_watch import Phase
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2_grpc as rpc
from eunomia_appmaster.protocol.connecting import Address, host_of
from eunomia_appmaster.protocol.trailing import BUSY_KEY, LACKS_KEY
from eunomia_appmaster.runtimes.runtime import (
    Announcement,
    Away,
    ContainerState,
    ContainerStatus,
    Entered,
    Exit,
    GangSpec,
    LacksError,
    LeaseOverError,
    LiveReport,
    LiveSpec,
    OfNode,
    Prepared,
    RefusedError,
    RuntimeAwayError,
    SlotBusyError,
    StallKind,
    Watch,
    WatchPosition,
)

_Answer = TypeVar("_Answer")
_Failure = TypeVar("_Failure", bound=OfNode)
CALL_SECONDS = 10.0
"""Seconds after which a call is given up, in addition to the wait that it requests."""
_ERRORS = {grpc.StatusCode.FAILED_PRECONDITION: LeaseOverError}
_AWAY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})


@value
class Owner:
    """The owner of containers: an app, and the attempt of its app master that makes the calls.

    Attributes:
        app: name of the app.
        login: the account under which the containers run; empty: the launcher's own.
        attempt: number of the app master's attempt, from 1; 0: not known.
    """

    app: str
    login: str = ""
    attempt: int = 0


class LauncherRuntime:
    """The runtime of one node; calls its launcher.

    Args:
        owner: the owner of the containers.
        node: name of the launcher's node.
        access: returns the launcher's present address, and the app's token on the node. It is called before each call,
            since a restarted launcher may have another address. It raises ``InputError`` if no address is known.
        patience_seconds: seconds for which a call is repeated while the launcher does not answer.
        call_seconds: longest seconds of one call, in addition to the wait that it requests.
        fails_fast: whether calls fail at once while the launcher is away, until a watch has reached it again.
        system: threads and connections of the machine.
    """

    def __init__(
        self,
        owner: Owner,
        node: str,
        access: Callable[[], tuple[Address, str]],
        *,
        patience_seconds: float = 10.0,
        call_seconds: float = CALL_SECONDS,
        fails_fast: bool = False,
        system: System = MACHINE,
    ) -> None:
        self._system = system
        self._app, self._login, self._attempt = owner.app, owner.login, owner.attempt
        self._node = node
        self._access = access
        self._patience_seconds = patience_seconds
        self._call_seconds = call_seconds
        self._fails_fast = fails_fast
        self._away: Away | None = None
        self._lock = system.lock()
        self._address: Address | None = None
        self._channel: grpc.Channel | None = None

    def start(self, gang: GangSpec, *, wait_seconds: float = 0.0) -> tuple[ContainerStatus, ...]:
        """Start all of a gang's containers, or none."""
        return self._start(gang, wait_seconds, prepare=False).statuses

    def prepare(self, gang: GangSpec, *, wait_seconds: float = 0.0) -> Prepared:
        """Reserve the slots of all of a gang's containers, or none, without starting a process."""
        return self._start(gang, wait_seconds, prepare=True)

    def go(self, container_ids: Sequence[str]) -> tuple[ContainerStatus, ...]:
        """Start prepared containers."""

        def call(stub: rpc.ContainerManagerStub, token: str, limit: float) -> pb.GoContainersResponse:
            request = pb.GoContainersRequest(
                app=self._app, node_token=token, container_ids=container_ids, attempt=self._attempt
            )
            return stub.GoContainers(request, timeout=limit)

        return self._statuses(self._call(call).containers)

    def _start(self, gang: GangSpec, wait_seconds: float, *, prepare: bool) -> Prepared:
        request = pb.StartContainersRequest(
            prepare=prepare,
            group_rank=gang.group_rank,
            app=self._app,
            attempt=self._attempt,
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
            login=self._login,
            app_folder=str(gang.app_folder or ""),
            live=None if gang.live is None else _live_start(gang.live),
        )
        answer = self._call(lambda stub, _, limit: stub.StartContainers(request, timeout=limit), wait_seconds)
        return Prepared(statuses=self._statuses(answer.containers), master_port=answer.master_port or None)

    def stop(
        self, container_ids: Sequence[str], *, deadline_seconds: float, reason: str
    ) -> tuple[ContainerStatus, ...]:
        """Order workers to suspend, and kill the remaining ones at the deadline."""

        def call(stub: rpc.ContainerManagerStub, token: str, limit: float) -> pb.StopContainersResponse:
            request = pb.StopContainersRequest(
                app=self._app,
                attempt=self._attempt,
                node_token=token,
                container_ids=container_ids,
                deadline_seconds=deadline_seconds,
                reason=reason,
            )
            return stub.StopContainers(request, timeout=limit)

        return self._statuses(self._call(call).containers)

    def end_stalled(self, container_ids: Sequence[str], *, silent_seconds: float, reason: str) -> bool:
        """End the workers of a stalled gang, unless one has shown progress within ``silent_seconds``."""

        def call(stub: rpc.ContainerManagerStub, token: str, limit: float) -> pb.EndStalledResponse:
            request = pb.EndStalledRequest(
                app=self._app,
                attempt=self._attempt,
                node_token=token,
                container_ids=container_ids,
                silent_seconds=silent_seconds,
                reason=reason,
            )
            return stub.EndStalled(request, timeout=limit)

        return self._call(call).silent

    def order_checkpoint(self, container_ids: Sequence[str]) -> tuple[str, ...]:
        """Order workers to save a checkpoint and continue."""
        return self._order(container_ids, checkpoint=pb.Checkpoint())

    def order_stop_at(self, container_ids: Sequence[str], step: int | None) -> tuple[str, ...]:
        """Set, move or remove the step at which workers pause."""
        return self._order(container_ids, stop_at=pb.StopAt(step=step))

    def order_change(
        self,
        container_ids: Sequence[str],
        generation: int,
        members: Sequence[str],
        *,
        timeout_seconds: float,
        lost: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Order workers that are members of a generation to enter it, and the others to leave."""
        change = pb.Change(generation=generation, members=members, timeout_seconds=timeout_seconds, lost=lost)
        return self._order(container_ids, change=change)

    def watch(self, since: WatchPosition, *, wait_seconds: float) -> Watch:
        """Wait for changes of the app's containers."""

        def call(stub: rpc.ContainerManagerStub, token: str, limit: float) -> pb.WatchContainersResponse:
            request = pb.WatchContainersRequest(
                app=self._app,
                attempt=self._attempt,
                node_token=token,
                launcher_id=since.launcher_id,
                since_version=since.version,
                wait_seconds=wait_seconds,
            )
            return stub.WatchContainers(request, timeout=limit)

        answer = self._call(call, wait_seconds, is_watch=True)
        position = WatchPosition(launcher_id=answer.launcher_id, version=answer.version)
        return Watch(statuses=self._statuses(answer.containers), position=position)

    def lacks(self, gang: GangSpec) -> str:
        """Return which prerequisite of a gang's command the node lacks, as text; empty: none."""
        wanted = pb.StartContainersRequest(
            command=gang.command,
            working_folder=str(gang.working_folder),
            env=dict(gang.env),
            app_folder=str(gang.app_folder or ""),
            login=self._login,
        )
        return self._check(command=wanted).fault

    def listen(self) -> int:
        """Open a port on the node that accepts connections for a limited time; returns the port's number."""
        return self._check(listen=True).port

    def connects(self, target: str) -> str:
        """Return why the node cannot connect to ``host:port``, as text; empty: it can."""
        return self._check(connect=target).fault

    def _check(self, **what: Any) -> pb.CheckNodeResponse:
        def call(stub: rpc.ContainerManagerStub, token: str, limit: float) -> pb.CheckNodeResponse:
            return stub.CheckNode(pb.CheckNodeRequest(app=self._app, node_token=token, **what), timeout=limit)

        return self._call(call)

    def host(self) -> str:
        """Return the host in the launcher's address."""
        try:
            return host_of(self._access()[0].target).strip("[]")
        except InputError as error:
            raise self._named(RuntimeAwayError(error.rule, value=error.value, place=error.place)) from None

    @property
    def away(self) -> Away | None:
        """Return since when the launcher has not answered; None: it answered the last call, or was not called yet."""
        return self._away

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None

    def _order(self, container_ids: Sequence[str], **order: Any) -> tuple[str, ...]:
        def call(stub: rpc.ContainerManagerStub, token: str, limit: float) -> pb.OrderContainersResponse:
            request = pb.OrderContainersRequest(
                app=self._app, node_token=token, container_ids=container_ids, attempt=self._attempt, **order
            )
            return stub.OrderContainers(request, timeout=limit)

        return tuple(self._call(call).delivered)

    def _statuses(self, messages: Iterable[pb.ContainerStatus]) -> tuple[ContainerStatus, ...]:
        return tuple(status_of(message, self._node) for message in messages)

    def _call(
        self,
        call: Callable[[rpc.ContainerManagerStub, str, float], _Answer],
        wait_seconds: float = 0.0,
        *,
        is_watch: bool = False,
    ) -> _Answer:
        """Repeat a call until the launcher answers or ``patience_seconds`` are over; every call is idempotent."""
        patience = self._system.monotonic() + self._patience_seconds
        if self._fails_fast and self._away is not None and not is_watch:
            rule = f"the launcher of {self._node} must answer"
            value = f"no answer for {self._system.uptime() - self._away.since:.0f} s"
            raise self._named(RuntimeAwayError(rule, value=value))
        while True:
            try:
                answer = call(*self._stub(), wait_seconds + self._call_seconds)
            except (grpc.RpcError, OSError, InputError) as error:
                failure = self._named(_failure(error))
                if not isinstance(failure, RuntimeAwayError):
                    self._away = None
                    raise failure from None
                if self._system.monotonic() > patience:
                    if self._away is None and not isinstance(error, InputError):  # else nothing was called
                        self._away = Away(since=self._system.uptime(), why=str(failure))
                    raise failure from None
            else:
                self._away = None
                return answer
            self._system.sleep(0.1)

    def _named(self, failure: _Failure) -> _Failure:
        failure.node = self._node
        return failure

    def _stub(self) -> tuple[rpc.ContainerManagerStub, str]:
        address, token = self._access()
        with self._lock:
            if self._channel is None or address != self._address:
                if self._channel is not None:
                    self._channel.close()
                options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
                self._channel = self._system.dial(address, options)
                self._address = address
            return rpc.ContainerManagerStub(self._channel), token


class LocalRuntime(LauncherRuntime):
    """The runtime of the machine on which this process runs; calls its launcher.

    Args:
        app: owner of the containers.
        node_token: the app's token on this node (``EUNOMIA_NODE_TOKEN_FILE``).
        launcher_file: file in which the launcher publishes its address (``EUNOMIA_LAUNCHER_FILE``).
        node: name of the node.
        login: the account under which the containers run; empty: the launcher's own.
        attempt: number of the app master's attempt, from 1; 0: not known.
        patience_seconds: seconds for which a call is repeated while the launcher does not answer.
        system: threads and connections of the machine.
    """

    def __init__(
        self,
        app: str,
        node_token: str,
        launcher_file: Path,
        *,
        node: str = "",
        login: str = "",
        attempt: int = 0,
        patience_seconds: float = 10.0,
        system: System = MACHINE,
    ) -> None:
        super().__init__(
            Owner(app=app, login=login, attempt=attempt),
            node,
            lambda: (_address_in(launcher_file), node_token),
            patience_seconds=patience_seconds,
            system=system,
        )


def status_of(status: pb.ContainerStatus, node: str = "") -> ContainerStatus:
    """Convert a node's message about a container to a status."""

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
        node=node,
        live=_live(status.live) if status.HasField("live") else None,
        misuse=status.misuse,
    )


def _live_start(live: LiveSpec) -> pb.LiveStart:
    return pb.LiveStart(generation=live.generation, members=live.members, store=live.store, reachable=live.reachable)


def _live(said: pb.LiveStatus) -> LiveReport:
    entered = said.resized
    return LiveReport(
        ordered=said.ordered,
        ready=said.ready if said.HasField("ready") else None,
        entered=Entered(
            generation=entered.generation,
            size=entered.size,
            step=entered.step,
            join_seconds=entered.join_seconds,
            pause_seconds=entered.pause_seconds,
            at=entered.at,
            at_least=entered.at_least,
        )
        if said.HasField("resized")
        else None,
        leaving=said.leaving if said.HasField("leaving") else None,
        broken=said.broken if said.HasField("broken") else None,
        unfit=said.unfit,
        store=said.store,
        store_lost=said.store_lost,
    )


def _announcement(one: pb.Announcement) -> Announcement:
    step = one.step if one.HasField("step") else None
    return Announcement(number=one.number, step=step, at=one.at, regime=json.loads(one.regime_json))


def _phase(number: int) -> Phase:
    """Convert a phase's number; a number from a later version is the unknown phase."""
    return Phase(number) if number in (*Phase,) else Phase.UNKNOWN


def _exit(how: pb.Exit) -> Exit:
    return Exit(code=how.code if how.HasField("code") else None, signal=how.signal if how.HasField("signal") else None)


def _address_in(launcher_file: Path) -> Address:
    """Return the address that a launcher published.

    Raises:
        InputError: there is no address now; the launcher rewrites a damaged file.
    """
    kept = read_kept(launcher_file, remedy="the launcher writes it again").content
    if kept is None or not isinstance(kept.get("address"), str):
        raise InputError("a launcher must run on this machine", value="none", place=str(launcher_file))
    name, authority = str(kept.get("certificate_name", "")), str(kept.get("authority", "")).encode()
    return Address(target=kept["address"], authority=authority, name=name)


def _failure(error: Exception) -> RefusedError | SlotBusyError | RuntimeAwayError:
    if not isinstance(error, grpc.Call):
        return RuntimeAwayError("a launcher must run on this machine", value=str(error))
    code, details = error.code(), error.details() or ""
    keys = {key for key, _ in error.trailing_metadata() or ()}
    if BUSY_KEY in keys:
        return SlotBusyError(details)
    if LACKS_KEY in keys:
        return LacksError(details)
    if code in _AWAY:
        return RuntimeAwayError("the launcher must answer", value=f"{code.name}: {details}")
    return _ERRORS.get(code, RefusedError)(details)
