"""The service ``ContainerManager``: the calls of app masters to this node, with tokens checked."""

import asyncio
from typing import Any, NoReturn

import grpc

from eunomia.errors import EunomiaError
from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.errors import (
    ClosedEpochError,
    InputError,
    LacksError,
    LeaseEndedError,
    NoRoomError,
    NotOwnError,
    NotRegisteredError,
    OldAttemptError,
    SlotBusyError,
    UnknownContainerError,
    not_written,
)
from eunomia_appmaster.launcher.gangs import MAX_WAIT_SECONDS, start_gang
from eunomia_appmaster.launcher.listening import ListenAddress, not_bound
from eunomia_appmaster.launcher.live_words import order_of
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.node_checks import NodeChecks
from eunomia_appmaster.launcher.refusal_log import RefusalLog
from eunomia_appmaster.launcher.stalls import Stalls
from eunomia_appmaster.node.connections import Connections
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2_grpc as rpc
from eunomia_appmaster.protocol.tokens import WrongTokenError, check_node_token
from eunomia_appmaster.protocol.trailing import BUSY_KEY, LACKS_KEY

_refusals = RefusalLog()

CODES: dict[type[EunomiaError], grpc.StatusCode] = {
    InputError: grpc.StatusCode.INVALID_ARGUMENT,
    WrongTokenError: grpc.StatusCode.PERMISSION_DENIED,
    NotOwnError: grpc.StatusCode.PERMISSION_DENIED,
    ClosedEpochError: grpc.StatusCode.FAILED_PRECONDITION,
    OldAttemptError: grpc.StatusCode.FAILED_PRECONDITION,
    NotRegisteredError: grpc.StatusCode.UNAVAILABLE,
    LeaseEndedError: grpc.StatusCode.UNAVAILABLE,
    NoRoomError: grpc.StatusCode.UNAVAILABLE,
    SlotBusyError: grpc.StatusCode.UNAVAILABLE,
    UnknownContainerError: grpc.StatusCode.NOT_FOUND,
}
MOST_CALLS = 5000
"""Most calls of all app masters that may wait at the same time."""
MOST_SECONDS = 1e9
MOST_LETTERS = 500
"""Maximum characters of a text in a report: the arbiter rejects a machine's whole report if a text is longer."""
OwnContainers = pb.GoContainersRequest | pb.StopContainersRequest | pb.EndStalledRequest | pb.OrderContainersRequest
Context = grpc.aio.ServicerContext[Any, Any]


class ContainerManager(rpc.ContainerManagerServicer):
    """Serves app masters by the rules in launcher.proto."""

    def __init__(
        self, node: Node, containers: Containers, stalls: Stalls, connections: Connections | None = None
    ) -> None:
        self._node = node
        self._containers = containers
        self._stalls = stalls
        self._connections = connections
        self._checks = NodeChecks()

    async def StartContainers(  # noqa: N802
        self, request: pb.StartContainersRequest, context: Context
    ) -> pb.StartContainersResponse:
        """Start the containers of one incarnation: all or none."""
        try:
            started = await start_gang(request, self._node, self._containers)
            self._vouch(context)
        except OSError as error:
            await _refuse(context, not_written("a start must be written down first", error))
        except EunomiaError as error:
            await _refuse(context, error)
        ports = [known.port for status in started if (known := self._containers.get(status.container_id))]
        master_port = request.master_port or next((port.number for port in ports if port is not None), 0)
        return pb.StartContainersResponse(containers=started, master_port=master_port)

    async def GoContainers(  # noqa: N802
        self, request: pb.GoContainersRequest, context: Context
    ) -> pb.GoContainersResponse:
        """Start containers that were prepared before."""
        try:
            chosen = self._own(request, context)
        except EunomiaError as error:
            await _refuse(context, error)
        for container in chosen:
            if container.prepared is not None:
                container.prepared.go()
        return pb.GoContainersResponse(containers=[container.status for container in chosen])

    async def StopContainers(  # noqa: N802
        self, request: pb.StopContainersRequest, context: Context
    ) -> pb.StopContainersResponse:
        """Order containers to suspend, and kill them at the deadline."""
        try:
            chosen = self._own(request, context)
            if not request.deadline_seconds <= MOST_SECONDS:  # NaN is not, either
                rule = f"a deadline must be at most {MOST_SECONDS:g} s"
                raise InputError(rule, value=str(request.deadline_seconds))
        except EunomiaError as error:
            await _refuse(context, error)
        for container in chosen:
            reason = request.reason[:MOST_LETTERS]
            self._containers.stop(container, max(0.0, request.deadline_seconds), reason)
        return pb.StopContainersResponse(containers=[container.status for container in chosen])

    async def EndStalled(  # noqa: N802
        self, request: pb.EndStalledRequest, context: Context
    ) -> pb.EndStalledResponse:
        """End the workers of a stalled gang, unless one of them has shown life meanwhile."""
        try:
            chosen = self._own(request, context)
            if not 0.0 < request.silent_seconds <= MOST_SECONDS:
                rule = f"silent_seconds must be above 0, at most {MOST_SECONDS:g}"
                raise InputError(rule, value=str(request.silent_seconds))
        except EunomiaError as error:
            await _refuse(context, error)
        silent = await self._stalls.end(chosen, request.silent_seconds, request.reason[:MOST_LETTERS])
        return pb.EndStalledResponse(silent=silent, containers=[container.status for container in chosen])

    async def OrderContainers(  # noqa: N802
        self, request: pb.OrderContainersRequest, context: Context
    ) -> pb.OrderContainersResponse:
        """Send a ``checkpoint``, ``stop_at`` or ``change`` order to workers that are connected."""
        try:
            chosen = self._own(request, context)
            if request.WhichOneof("order") is None:
                raise InputError("an order must be checkpoint, stop_at or change", value="none")
            order = order_of(request)
        except EunomiaError as error:
            await _refuse(context, error)
        delivered = [container.id for container in chosen if self._containers.order(container, order)]
        return pb.OrderContainersResponse(delivered=delivered)

    async def WatchContainers(  # noqa: N802
        self, request: pb.WatchContainersRequest, context: Context
    ) -> pb.WatchContainersResponse:
        """Return the changed statuses of an app's containers; if there are none, wait for a change."""
        try:
            check_node_token(request.node_token, self._node.secret, request.app, self._node.name)
        except EunomiaError as error:
            await _refuse(context, error)
        self._vouch(context)
        self._node.attempts.saw(request.app, request.attempt)  # an earlier attempt may still watch
        since = request.since_version if request.launcher_id == self._node.launcher_id else -1
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(request.wait_seconds, 0.0), MAX_WAIT_SECONDS)
        while not (changed := self._changed(request.app, since)) and (left := deadline - loop.time()) > 0:
            await self._containers.news.next(left)
        return pb.WatchContainersResponse(
            containers=changed, version=self._containers.news.version, launcher_id=self._node.launcher_id
        )

    async def CheckNode(  # noqa: N802
        self, request: pb.CheckNodeRequest, context: Context
    ) -> pb.CheckNodeResponse:
        """Check whether this node has a command's prerequisites, or can connect to another node."""
        try:
            check_node_token(request.node_token, self._node.secret, request.app, self._node.name)
            self._vouch(context)
            return await self._checks.answer(request, self._node)
        except OSError as error:
            await _refuse(context, not_written("a port must be free", error))
        except EunomiaError as error:
            await _refuse(context, error)

    def _changed(self, app: str, since: int) -> list[pb.ContainerStatus]:
        mine = (container.status for container in self._containers.on_slots() if container.status.app == app)
        return [status for status in mine if status.version > since]

    def _vouch(self, context: Context) -> None:
        """Mark a connection as trusted, since a call with a valid token came on it."""
        if self._connections is not None:
            self._connections.vouch(context.peer())

    def _own(self, request: OwnContainers, context: Context) -> list[Container]:
        app, ids = request.app, request.container_ids
        check_node_token(request.node_token, self._node.secret, app, self._node.name)
        self._vouch(context)
        self._node.attempts.check(app, request.attempt)
        found = {known.id: known for known in self._containers.on_slots() if known.status.app == app}
        if missing := [container_id for container_id in ids if container_id not in found]:
            raise UnknownContainerError(f"a container must be one of app {app} on {self._node.name}", value=missing[0])
        return [found[container_id] for container_id in ids]


async def _refuse(context: Context, error: EunomiaError) -> NoReturn:
    _refusals.log(error)
    code = next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), grpc.StatusCode.INTERNAL)
    keys = {SlotBusyError: BUSY_KEY, LacksError: LACKS_KEY}
    trailing = tuple((key, "1") for kind, key in keys.items() if isinstance(error, kind))
    await context.abort(code, str(error), trailing)


async def serve(
    node: Node, containers: Containers, stalls: Stalls, listening: ListenAddress, connections: Connections
) -> grpc.aio.Server:
    """Start the service, with TLS if the node has joined, and publish its address; the previous port is tried first.

    Raises:
        InputError: no address to listen on is free.
    """
    for address in listening.addresses(node.last_address):
        most = ("grpc.max_allowed_incoming_connections", connections.most)
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0), most], maximum_concurrent_rpcs=MOST_CALLS)
        rpc.add_ContainerManagerServicer_to_server(ContainerManager(node, containers, stalls, connections), server)
        try:
            if listening.joined is None:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, listening.joined.credentials())
        except RuntimeError:  # another process has it
            bound = 0
        if bound:
            await server.start()
            connections.port = bound
            certificate = {} if listening.joined is None else listening.joined.shown()
            node.publish(f"{listening.announced}:{bound}", **certificate)
            return server
    raise not_bound(listening)
