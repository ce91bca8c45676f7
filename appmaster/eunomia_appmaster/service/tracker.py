"""``ResourceTracker``: the service that launchers call; see launcher.proto."""

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
import structlog

from eunomia.errors import InputError
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2_grpc as rpc
from eunomia_appmaster.service import bounds
from eunomia_appmaster.service.accepted_joins import accept, accept_first
from eunomia_appmaster.service.calling_back import check_reached
from eunomia_appmaster.service.changing import change
from eunomia_appmaster.service.joining import check_belongs, check_versions, join
from eunomia_appmaster.service.layout import Layout
from eunomia_appmaster.service.node_accounts import check_uids
from eunomia_appmaster.service.node_leases import BEATS
from eunomia_appmaster.service.nodes import Node
from eunomia_appmaster.service.rates import Rate, peer_of
from eunomia_appmaster.service.refusals import header_text
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.tokens import Caller, Role
from eunomia_appmaster.service.waiting import to_its_end, wait_for_change

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]


QUIET_SECONDS = 3.0
"""Seconds without an outstanding heartbeat after which a launcher counts as gone."""
ANSWER_SECONDS = 10.0
"""Seconds to wait for a connected launcher's next heartbeat; after that it counts as alive without one."""
LOOK_SECONDS = 0.05


class ResourceTracker(rpc.ResourceTrackerServicer):
    """Applies the reports of launchers, and answers with their present orders."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registering = asyncio.Lock()
        self._reached: dict[str, str] = {}
        """The address at which a test call reached a node, by the name in the node's certificate."""
        self._registrations = Rate("registrations of launchers from one address", 5.0, 50.0)

    async def RegisterNode(  # noqa: N802
        self, request: pb.RegisterNodeRequest, context: Context
    ) -> pb.RegisterNodeResponse:
        """Register a machine with all its containers."""
        service = self._service
        await self._registrations.ask(peer_of(context), asyncio.get_running_loop().time(), context)
        try:
            bounds.check(request)
            check_versions(request)
            service.storage.check(request)
            check_uids(request, self._logins)
            await self._check_own(request.node, context, head=request.head)
            await self._check_reached(request, service.tokens.caller(context.invocation_metadata()))
            async with self._registering:
                await self._check_alone(request, context)
                self._check_gpus(request)
                node = await self._take(request, context)
        except InputError as error:
            log.error("node.refused", node=request.node, why=str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, header_text(str(error)))
        log.info("node.registered", node=node.name, slots=len(request.slots), containers=len(request.containers))
        service.hear_mark(f"the launcher of {node.name}", request.mark)
        await self._service.look()
        return pb.RegisterNodeResponse(
            container_secret=service.tokens.container_secret(node.name),
            heartbeat_seconds=self._heartbeat_seconds,
            registration_id=node.registration_id,
            lease_seconds=node.lease.given(service.nodes.lease_seconds(node)),
            lease_grace_seconds=service.nodes.leases.grace,
            mark=service.marks.present,
            limits=service.settings.job_limits.message(),
        )

    async def ShowStorage(  # noqa: N802
        self, request: pb.ShowStorageRequest, context: Context
    ) -> pb.ShowStorageResponse:
        """Return the file by which nodes prove that they see the apps' folders."""
        try:
            return pb.ShowStorageResponse(file=self._service.storage.show(), logins=sorted(self._logins))
        except OSError as error:
            why = f"the arbiter must write into the folder of apps' folders, but got {error}"
            await context.abort(grpc.StatusCode.UNAVAILABLE, header_text(why))
            raise

    async def NodeHeartbeat(  # noqa: N802
        self, request: pb.NodeHeartbeatRequest, context: Context
    ) -> pb.NodeHeartbeatResponse:
        """Answer with the orders once they differ from those that the launcher has handled, else after the interval."""
        node = await self._known(request, context)
        node.calls += 1
        node.load = request.load
        service = self._service
        service.nodes.hear_lease(node, request.lease_left_seconds, endless=request.lease_endless)
        node.clock_offset.hear(request.sent_at, self._service.system.unix_time())
        if node.hear(request.containers, request.app_masters, request.slot_states, draining=request.draining):
            await service.look()  # which goes over all nodes; without news it would find nothing
        registration = node.registration_id
        node.waiting += 1
        try:
            await wait_for_change(
                node.changed,
                self._heartbeat_seconds,
                lambda: node.response_id != request.response_id or node.registration_id != registration,
            )
        finally:
            node.waiting -= 1
        node.hear((), (), ())
        if node.response_id == request.response_id or not self._service.decides:
            return pb.NodeHeartbeatResponse(
                response_id=node.response_id,
                mark=self._service.marks.present,
                lease_seconds=node.lease.given(self._service.nodes.lease_seconds(node)),
                lease_grace_seconds=self._service.nodes.leases.grace,
            )
        async with self._service.driver.lock:
            return self._service.orders(node)

    async def ReportContainers(  # noqa: N802
        self, request: pb.ReportContainersRequest, context: Context
    ) -> pb.ReportContainersResponse:
        """Apply a launcher's reports of changes at once."""
        node = await self._known(request, context)
        node.calls += 1
        node.hear(request.containers, request.app_masters, request.slot_states, draining=request.draining)
        if request.leaving and not node.lost and not any(state.busy for state in node.slot_states.values()):
            log.info("node.left_in_order", node=node.name)
            node.left = True
        await self._service.look()
        return pb.ReportContainersResponse()

    async def _take(self, request: pb.RegisterNodeRequest, context: Context) -> Node:
        """Apply a registration: the first machine forms the cluster, and an unknown one joins it.

        Raises:
            InputError: the node, or its changed slots, may not join.
        """
        service = self._service

        def belongs() -> bool:
            return not service.tokens.removed(context.invocation_metadata())

        check_belongs(belongs, request.node)
        if service.nodes.layout is None:
            layout = Layout.of([request])
            accept_first(service, request.node)
            service.journal.set_meta(layout=layout.encoded())
            if not request.head:
                service.nodes.leases.begin()
            service.nodes.layout = layout
            return service.nodes.add(request)
        if request.node not in service.nodes.layout.slots:
            if why := service.upkeep.refusal(request.node, request.launcher_id):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
            if not service.decides:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "a node can join once the arbiter decides")
            # A launcher whose call ends meanwhile registers again; the node's join is completed all the same.
            return await to_its_end(join(service, request, belongs))
        if service.nodes.layout.change(request) is not None:
            node = await to_its_end(change(service, request))
        else:
            node = service.nodes.add(request)
        if notes := accept(service, request.node):
            await service.write(*notes)
        return node

    async def _check_alone(self, request: pb.RegisterNodeRequest, context: Context) -> None:
        """Check that no other registered launcher of the node is alive; else end the call with ALREADY_EXISTS."""
        node = self._service.nodes.get(request.node)
        if node is None or not node.registered or request.launcher_id == node.launcher_id:
            return
        if request.home and request.home == node.home:
            return  # one process at a time holds that folder, so the former launcher is gone
        if not await answers(node):
            return
        rule = "a node must have one launcher (end that one, or take another --node)"
        why = f'{rule}, but got a second one while the first answers (node "{request.node}")'
        log.error("node.refused", node=request.node, why=why)
        await context.abort(grpc.StatusCode.ALREADY_EXISTS, why)

    def _check_gpus(self, request: pb.RegisterNodeRequest) -> None:
        """Check that no GPU of a node is a slot of another one, whose processes may still use it.

        Raises:
            InputError: one is; nothing was changed.
        """
        uuids = {slot.uuid for slot in request.slots if slot.uuid}
        for other in self._service.nodes:
            shared = sorted(uuids & other.uuids) if other.name != request.node and not other.left else []
            if shared:
                rule = "a GPU must be a slot of one node (end the other launcher, or remove that node)"
                raise InputError(rule, value=f"{shared[0]}, which {other.name} has", place=request.node)

    async def _check_own(self, node: str, context: Context, *, head: bool = False) -> None:
        """Check that a joined node's credential is not used for another node, or for the arbiter's own machine."""
        caller = self._service.tokens.caller(context.invocation_metadata())
        if caller is not None and caller.role is Role.NODE and (caller.node != node or head):
            whose = "the arbiter's own machine" if head else f'"{node[:100]}"'
            why = f"a node may speak for itself alone, but got {whose} from {caller.node}"
            log.error("node.refused", node=node, why=why)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)

    async def _check_reached(self, request: pb.RegisterNodeRequest, caller: Caller | None) -> None:
        """Test the address of a joined node by a call; on loopback of the arbiter's machine, the address file suffices.

        Raises:
            InputError: the node does not answer at the address.
        """
        service, address = self._service, request.container_manager_address
        own = caller is not None and caller.role is Role.LAUNCHER
        service.joined.serves(request.node, plain=own and not request.certificate_name)
        name = service.joined.certificate_name(request.node)
        if name and self._reached.get(name) != address:
            await check_reached(address, name, service.node_authority.pem(), node=request.node)
            self._reached[name] = address

    @property
    def _logins(self) -> set[str]:
        return {user.login for user in self._service.users.all if user.login}

    @property
    def _heartbeat_seconds(self) -> float:
        settings = self._service.settings
        lease = float(settings.node_lease)
        return min(float(settings.node_heartbeat), float(settings.node_silence) / 4.0, lease / BEATS)

    async def _known(self, request: "pb.NodeHeartbeatRequest | pb.ReportContainersRequest", context: Context) -> Node:
        try:
            bounds.check(request)
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, header_text(str(error)))
        await self._check_own(request.node, context)
        node = self._service.nodes.get(request.node)
        known = node is not None and node.registered and node.registration_id == request.registration_id
        if node is None or not known or (node.unlike and self._service.decides):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "a node must register first")
            raise asyncio.CancelledError
        _log_unkilled(node, request.slot_states)
        return node


def _log_unkilled(node: Node, reported: Iterable[pb.SlotState]) -> None:
    """Log each slot on which, by a new report, a process has not ended since SIGKILL."""
    for state in reported:
        known = node.slot_states.get(state.slot)
        if state.unkilled and (known is None or not known.unkilled):
            log.warning("slot.not_emptied", node=node.name, slot=state.slot, pid=state.unkilled[0].pid)


async def answers(node: Node) -> bool:
    """Return whether the registered launcher is alive: it sends another heartbeat after an answer."""
    loop = asyncio.get_running_loop()
    calls, began = node.calls, loop.time()
    last_seen = began
    node.stir()
    while (now := loop.time()) - began < ANSWER_SECONDS:
        if node.calls > calls:
            return True
        last_seen = now if node.waiting else last_seen
        if now - last_seen > QUIET_SECONDS:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True
