"""The launcher's client of the arbiter's ``ResourceTracker``: registers, sends heartbeats, carries out orders.

One heartbeat is always outstanding. While the arbiter is away, containers keep running and deadlines apply. A restarted
arbiter does not know the registration, so the node registers again with all its containers.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import grpc
import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.launcher.access import ArbiterAccess
from eunomia_appmaster.launcher.app_masters import AppMasters
from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.errors import RemovedError, SupersededError
from eunomia_appmaster.launcher.live_leaving import all_leave, has_not_joined, leaves_live, wait_for_change
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.storage import read_back
from eunomia_appmaster.node.accounts import uid_of
from eunomia_appmaster.node.beats import HANGS, LAST_HANG
from eunomia_appmaster.node.boot import boot_id
from eunomia_appmaster.node.job_limits import JobLimits
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2_grpc as rpc
from eunomia_appmaster.protocol.versions import PROTOCOL, PYTHON, VERSION

log = structlog.get_logger()

_AGAIN = frozenset(
    {
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.NOT_FOUND,
    }
)
_REFUSED = frozenset({grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.INVALID_ARGUMENT})
_REMOVED = grpc.StatusCode.PERMISSION_DENIED
_SUPERSEDED = grpc.StatusCode.ABORTED
_CALL_SECONDS = 10.0  # for calls that are answered at once
_LEAVE_SECONDS = 3.0
_SAY_AGAIN_SECONDS = 60.0
_REGISTER_SECONDS = 30.0  # the arbiter may look first whether another launcher of this node answers


class Tracker:
    """Reports to the arbiter and carries out its orders.

    Args:
        node: this machine.
        containers: the workers.
        app_masters: the app masters.
        access: access to the arbiter.
        limit_disks: called with the users' disk limits in each answer.
        rack: rack of the node; empty: unchanged at the arbiter.
        max_pause_seconds: longest pause between two attempts to reach the arbiter; pauses begin at 0.1 seconds and
            double.
    """

    def __init__(
        self,
        node: Node,
        containers: Containers,
        app_masters: AppMasters,
        access: ArbiterAccess,
        *,
        limit_disks: Callable[[Sequence[pb.DiskLimit]], None] = lambda _: None,
        rack: str = "",
        max_pause_seconds: float = 2.0,
    ) -> None:
        self._node = node
        self._containers = containers
        self._app_masters = app_masters
        self._access = access
        self._limit_disks = limit_disks
        self._rack = rack
        self._max_pause_seconds = max_pause_seconds
        self._channel = node.system.dial_async(
            access.address,
            [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)],
        )
        self._arbiter = rpc.ResourceTrackerStub(self._channel)
        self._heartbeat_seconds = 5.0
        self._registration_id = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._other_slots = asyncio.Event()
        self._leaves = False
        self._said_away: tuple[str, str | None] = ("", None)
        self._said_away_at = 0.0
        self._leaving_live: set[str] = set()
        """Ids of containers whose app masters must order the workers to leave their gangs."""
        self._without_master: set[str] = set()
        """Apps whose app masters here were stopped."""
        self._acknowledged: dict[str, int] = {}  # versions, by container id and "master <app>"

    async def run(self) -> None:
        """Register, then send heartbeats and reports until cancelled; start over if the arbiter does not know the node.

        Raises:
            InputError: the arbiter refused this launcher's first registration.
            RemovedError: the operator has removed the node.
            SupersededError: another machine has joined with this one's token, so that this one never was a node.
        """
        try:
            while True:
                await self._register()
                beats = asyncio.create_task(self._beat())
                reports = asyncio.create_task(self._report())
                await self._first_end(beats, reports, asyncio.create_task(self._changed_slots()))
        finally:
            await self._channel.close(None)

    async def leave(self) -> None:
        """Report to the arbiter that this launcher ends now, with no container left on its slots."""
        self._leaves = True
        request = self._news()
        request.leaving = True
        try:
            await self._arbiter.ReportContainers(request, timeout=_LEAVE_SECONDS, metadata=self._access.metadata())
        except grpc.aio.AioRpcError as error:
            log.info("arbiter.away", code=error.code().name, error=error.details())

    def lose(self, slot: int, why: str) -> None:
        """Remove a slot, which the arbiter learns by a new registration, and kill the containers on it."""
        self._node.lose(slot)
        holder = self._containers.holder(slot)
        if holder is not None:
            self._containers.stop(holder, 0.0, why)
        self._other_slots.set()

    def _away(self, error: grpc.aio.AioRpcError) -> None:
        """Log that the arbiter does not accept a registration: once per reason, and again after a minute."""
        what, now = (error.code().name, error.details()), self._node.system.uptime()
        if what != self._said_away or now - self._said_away_at >= _SAY_AGAIN_SECONDS:
            self._said_away, self._said_away_at = what, now
            log.info("arbiter.away", code=what[0], error=what[1])

    async def _changed_slots(self) -> None:
        """Wait until a slot is lost, so that the node must register again."""
        await self._other_slots.wait()
        self._other_slots.clear()

    async def _first_end(self, *tasks: "asyncio.Task[None]") -> None:
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(end, Exception):
                    log.error("launcher.fault", exc_info=end)

    async def _register(self) -> None:
        if self._leaves:  # the arbiter requests it, since the node is lost now
            await asyncio.Event().wait()
        pause = 0.1
        while True:
            version, sent_at = self._versions(), self._node.system.uptime()
            request = self._registration()
            try:
                await self._compare_storage(request)
                answer = await self._arbiter.RegisterNode(
                    request, timeout=_REGISTER_SECONDS, metadata=self._access.metadata()
                )
                break
            except grpc.aio.AioRpcError as error:
                if error.code() is _REMOVED:
                    raise RemovedError(error.details() or "a node must not have been removed") from None
                if error.code() is _SUPERSEDED:
                    raise SupersededError(error.details() or "a join token must be valid") from None
                if error.code() in _REFUSED and not self._registration_id:
                    raise InputError(error.details() or error.code().name) from None
                self._away(error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._max_pause_seconds)
        self._node.lease.renew(sent_at, answer.lease_seconds, answer.lease_grace_seconds)
        self._node.secret = answer.container_secret
        self._node.mark = answer.mark
        if answer.HasField("limits"):
            self._node.limits = JobLimits.of(answer.limits)
        self._heartbeat_seconds = answer.heartbeat_seconds or 5.0
        self._registration_id = answer.registration_id
        self._said_away = ("", None)
        self._acknowledged = version
        self._app_masters.registered.set()
        log.info("node.registered", node=self._node.name, slots=len(request.slots))

    async def _compare_storage(self, request: pb.RegisterNodeRequest) -> None:
        """Read the arbiter's file in the folder of apps, and set its hash in a registration."""
        asked = pb.ShowStorageRequest(node=self._node.name)
        shown = await self._arbiter.ShowStorage(asked, timeout=_CALL_SECONDS, metadata=self._access.metadata())
        request.apps_folder = str(self._node.apps)
        for login in shown.logins:
            request.uids[login] = uid_of(login)
        request.storage_hash, request.storage_fault = await read_back(self._node.apps, shown.file)

    def _registration(self) -> pb.RegisterNodeRequest:
        """Return the message that registers the node with its whole state."""
        machine, containers = self._node.machine, self._containers
        slots = [
            pb.Slot(
                index=slot.index,
                gpu_type=slot.gpu_type,
                uuid=slot.uuid,
                island=slot.island,
                cpus=slot.cpus,
                memory_gib=slot.memory_gib,
                paced=slot.is_paced,
            )
            for slot in machine.slots
        ]
        return pb.RegisterNodeRequest(
            node=self._node.name,
            head=self._node.is_head,
            host=machine.host,
            container_manager_address=self._node.last_address or "",
            slots=slots,
            cpus=machine.cpus,
            memory_gib=machine.memory_gib,
            containers=[container.status for container in containers.on_slots()],
            app_masters=[master.status for master in self._app_masters],
            slot_states=containers.slot_states(),
            launcher_id=self._node.launcher_id,
            home=self._node.home,
            mark=self._node.mark,
            draining=self._app_masters.draining,
            version=VERSION,
            python=PYTHON,
            protocol=PROTOCOL,
            boot_id=boot_id(),
            lease_left_seconds=0.0 if self._node.lease.is_endless else self._node.lease.left_seconds,
            lease_endless=self._node.lease.is_endless,
            load=os.getloadavg()[0],
            hangs=int(os.environ.get(HANGS, "0")),
            last_hang=os.environ.get(LAST_HANG, ""),
            rack=self._rack,
            certificate_name=self._node.certificate_name,
        )

    async def _beat(self) -> None:
        """Keep one heartbeat outstanding; returns when the node must register again."""
        response_id, pause = 0, 0.1
        while True:
            news, lease, sent_at = self._news(), self._node.lease, self._node.system.uptime()
            request = pb.NodeHeartbeatRequest(
                node=self._node.name,
                registration_id=self._registration_id,
                response_id=0 if lease.is_old else response_id,  # 0: it is answered at once
                lease_left_seconds=0.0 if lease.is_endless else lease.left_seconds,
                lease_endless=lease.is_endless,
                containers=news.containers,
                app_masters=news.app_masters,
                slot_states=news.slot_states,
                draining=news.draining,
                load=os.getloadavg()[0],
                sent_at=self._node.system.unix_time(),
            )
            timeout = self._heartbeat_seconds + _CALL_SECONDS
            try:
                answer = await self._arbiter.NodeHeartbeat(request, timeout=timeout, metadata=self._access.metadata())
            except grpc.aio.AioRpcError as error:
                if error.code() in _AGAIN:
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, self._max_pause_seconds)
                continue
            lease.renew(sent_at, answer.lease_seconds, answer.lease_grace_seconds)
            self._acknowledge(news)
            self._node.mark = answer.mark
            if answer.response_id != response_id:  # one with orders
                self._limit_disks(answer.disk_limits)
            if self._obey(answer):
                response_id, pause = answer.response_id, 0.1
            else:  # the arbiter repeats orders that are not acknowledged
                await asyncio.sleep(pause)
                pause = min(2 * pause, self._max_pause_seconds)

    async def _report(self) -> None:
        """Report changes of state at once; returns when the node must register again."""
        sent, pause = 0, 0.1
        while True:
            while (urgent := self._containers.news.urgent) <= sent:
                await self._containers.news.next()
            news = self._news()
            if not news.containers and not news.app_masters:
                sent = urgent
                continue
            try:
                await self._arbiter.ReportContainers(news, timeout=_CALL_SECONDS, metadata=self._access.metadata())
            except grpc.aio.AioRpcError as error:
                if error.code() in _AGAIN:
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, self._max_pause_seconds)
                continue
            self._acknowledge(news)
            sent, pause = urgent, 0.1

    def _news(self) -> pb.ReportContainersRequest:
        """Return the reports that the arbiter has not acknowledged yet."""
        seen = self._acknowledged
        statuses = (container.status for container in self._containers.on_slots())
        masters = (master.status for master in self._app_masters)
        return pb.ReportContainersRequest(
            node=self._node.name,
            registration_id=self._registration_id,
            containers=[known for known in statuses if known.version > seen.get(known.container_id, -1)],
            app_masters=[known for known in masters if known.version > seen.get(_key(known), -1)],
            slot_states=self._containers.slot_states(),
            draining=self._app_masters.draining,
        )

    def _acknowledge(self, news: pb.ReportContainersRequest) -> None:
        for status in news.containers:
            self._acknowledged[status.container_id] = max(
                status.version, self._acknowledged.get(status.container_id, 0)
            )
        for master in news.app_masters:
            self._acknowledged[_key(master)] = max(master.version, self._acknowledged.get(_key(master), 0))
        self._app_masters.forget(lambda ended: self._acknowledged.get(_key(ended), -1) >= ended.version)
        known = self._versions()
        self._acknowledged = {key: version for key, version in self._acknowledged.items() if key in known}

    def _versions(self) -> dict[str, int]:
        versions = {known.id: known.status.version for known in self._containers.on_slots()}
        return versions | {_key(master.status): master.status.version for master in self._app_masters}

    def _obey(self, answer: pb.NodeHeartbeatResponse) -> bool:
        """Carry out all orders; return False if a write to disk failed, so that the arbiter repeats them."""
        obeyed = True
        for fence in answer.fences:
            self._fence(fence)
        for revocation in answer.revocations:
            self._revoke(revocation)
        for tune in answer.tunes:
            self._containers.tune(tune.slot, tune.epoch, tune.cpus, tune.memory_gib)
        for stop in answer.stop_app_masters:
            self._app_masters.stop(stop)
            self._without_master.add(stop.app)
            self._suspend_leaving(stop.app)
        for stalled in answer.stalled_app_masters:
            self._spawn(self._app_masters.end_stalled(stalled))
        for order in answer.start_app_masters:
            self._node.attempts.saw(order.app, order.attempt)
            self._without_master.discard(order.app)
            try:
                self._app_masters.start(order)
            except (EunomiaError, OSError) as error:
                log.error("app_master.refused", app=order.app, error=str(error))
                obeyed &= not isinstance(error, OSError)
        return obeyed

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out a slow order in a task of its own; the order may be repeated meanwhile without effect."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fence(self, fence: pb.Fence) -> None:
        self._node.epochs.close(fence.slot, fence.epoch)
        holder = self._containers.holder(fence.slot)
        if holder is not None and holder.status.epoch <= fence.epoch:
            self._containers.stop(holder, 0.0, "its slot was fenced off")

    def _revoke(self, revocation: pb.Revocation) -> None:
        """End a lease; containers of the same incarnation on other slots are ordered to suspend as well."""
        self._node.epochs.close(revocation.slot, revocation.epoch)
        holder = self._containers.holder(revocation.slot)
        if holder is None or holder.status.epoch > revocation.epoch:
            return
        seconds, reason = max(0.0, revocation.deadline_seconds), f"the lease of slot {revocation.slot} ended"
        if revocation.leave_warning_to_app_master:
            self._containers.kill_at(holder, seconds)
            return
        if has_not_joined(holder):
            self._containers.stop(holder, seconds, reason)
            self._suspend_leaving(holder.status.app)
            return
        if seconds > 0.0 and leaves_live(holder):
            self._containers.kill_at(holder, seconds)
            if holder.id not in self._leaving_live:
                self._leaving_live.add(holder.id)
                self._spawn(wait_for_change(holder, seconds, lambda: self._suspend_gang(holder, reason)))
            self._suspend_leaving(holder.status.app)
            return
        self._containers.stop(holder, seconds, reason)
        self._suspend_gang(holder, reason)

    def _suspend_leaving(self, app: str) -> None:
        """Order suspension of those live gangs of an app, after a stop of its app master, whose workers all must leave.

        While the app master runs, a worker may have to stay until a newcomer elsewhere has the worker's state.
        """
        for holder in self._containers.on_slots() if app in self._without_master else ():
            if holder.status.app == app and all_leave(self._mates(holder), self._leaving_live):
                self._suspend_gang(holder, "the leases of all its workers ended")

    def _suspend_gang(self, holder: Container, reason: str) -> None:
        """Order all containers of a container's incarnation here to suspend before it is killed."""
        seconds = holder.seconds_left or 0.0
        for mate in self._mates(holder):
            self._containers.suspend(mate, seconds, reason)

    def _mates(self, holder: Container) -> list[Container]:
        """Return all containers of a container's incarnation on slots of this machine."""
        lease = (holder.status.app, holder.status.job, holder.status.incarnation)
        mates = self._containers.on_slots()
        return [mate for mate in mates if (mate.status.app, mate.status.job, mate.status.incarnation) == lease]


def _key(master: pb.AppMasterStatus) -> str:
    return f"master {master.app}"
