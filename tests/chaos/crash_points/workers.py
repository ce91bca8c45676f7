"""The launcher's containers in virtual time: simulated gangs and stores stand in for their processes."""

import asyncio
import contextvars
from pathlib import Path
from typing import Any

from chaos.crash_points.gangs import SUSPENDED, Gang
from chaos.crash_points.live_gang import LiveGang
from chaos.crash_points.network import HERE
from eunomia_appmaster.launcher.container import NO_SLOT, Container
from eunomia_appmaster.launcher.containers import ContainerCommand, Containers
from eunomia_appmaster.launcher.errors import SlotBusyError
from eunomia_appmaster.launcher.node import Epochs, Node
from eunomia_appmaster.launcher.zygote_client import ZygoteClient
from eunomia_appmaster.launcher.zygotes import Zygotes
from eunomia_appmaster.protocol import launcher_pb2 as pb


def is_store(container: Container) -> bool:
    """Return whether a container is a job's store."""
    return container.id.startswith("store:")


def _key(container: Container) -> tuple[str, int, int]:
    return container.status.app, container.status.job, container.status.incarnation


class QuickEpochs(Epochs):
    """Fencing tokens without a file: this machine is never stopped."""

    def _save(self) -> None:
        pass


class Workers(Containers):
    """The launcher's containers, whose processes are stood in for.

    Args:
        node: whose they are.
        world: starts app masters and watches what is started.
        gangs: of all nodes, by app, job and incarnation.
    """

    def __init__(self, node: Node, world: Any, gangs: dict[tuple[str, int, int], Gang]) -> None:
        super().__init__(node, Zygotes(ZygoteClient(node.folder, enabled=False, preload=())))
        self._world = world
        self._gangs = gangs

    def launch(self, container: Container, command: ContainerCommand) -> None:
        """Start the stand-in; nothing is written."""
        status = container.status
        if status.slot != NO_SLOT and self.holder(status.slot) is not None:
            raise SlotBusyError(f"slot {status.slot} must be free before a start", value="another worker")
        container.save = lambda: None  # type: ignore[method-assign]
        self._all[container.id] = container
        self._changed(container, pb.NEW)
        if is_store(container):
            self._changed(container, pb.RUNNING)
            return
        if status.slot == NO_SLOT:
            self._spawn_task(self._master(container, command))
            return
        gang = self._gang(container, command)
        if isinstance(gang, LiveGang):
            self._begin(container, gang)
            self._changed(container, pb.RUNNING)
            self._spawn_task(gang.live(self, container))
            return
        if container.prepared is None:
            self._begin(container, gang)
        self._spawn_task(self._worker(container, gang))

    def restart(self) -> None:
        """Do as another launcher: processes run on, and what was prepared is given up."""
        self.node.launcher_id = f"launcher at {self._world.loop.time()}"
        for container in self:
            container.give_up()

    def _spawn_task(self, life: Any) -> "asyncio.Task[None]":
        """Let a worker live on when the launcher that serves the call is stopped."""
        context = contextvars.copy_context()
        context.run(HERE.set, None)
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(life, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _begin(self, container: Container, gang: Gang) -> None:
        self._world.auditor.started(container.status, self._world.gpu(self.node.name, container.status.slot))
        container.status.pid = 1
        container.status.started_at = self._world.system.unix_time()
        gang.ranks.append((self, container))
        if len(gang.ranks) == gang.size:
            gang.whole.set()

    async def _master(self, container: Container, command: ContainerCommand) -> None:
        process = self._world.start_master(container.status.app, command.env, container.folder)
        codes: list[int | None] = []
        ended = asyncio.Event()
        process.at_end += [codes.append, lambda _: ended.set()]
        container.status.pid = 1
        self._changed(container, pb.RUNNING)
        await ended.wait()
        self._completed(container, codes[0])

    async def _worker(self, container: Container, gang: Gang) -> None:
        if container.prepared is not None:
            if not await container.may_start():
                self._completed(container, SUSPENDED)
                return
            self._begin(container, gang)
        if container.status.rank == 0:

            def tell(kind: str, content: dict[str, Any]) -> None:
                for owner, rank in gang.ranks:
                    rank.heard(kind, content)
                    if kind == "progress":
                        rank.status.version = owner.news.announce(urgent=False)
                    else:
                        owner._changed(rank, pb.RUNNING, unless=pb.STOPPING)

            code = await gang.run(tell)
            for owner, rank in gang.ranks:
                owner._completed(rank, code)

    def _completed(self, container: Container, code: int | None) -> None:
        status = container.status
        if container.completed:
            return
        status.exit.SetInParent()
        if code is None:
            status.exit.signal = 9
        else:
            status.exit.code = code
        status.ended_at = self._world.system.unix_time()
        container.done.set()
        if container.killer is not None and container.killer is not asyncio.current_task():
            container.killer.cancel()
        self._changed(container, pb.COMPLETED)

    def _gang(self, container: Container, command: ContainerCommand) -> Gang:
        key = _key(container)
        if key not in self._gangs:
            kind = LiveGang if "EUNOMIA_ELASTIC" in command.env else Gang
            self._gangs[key] = kind(Path(command.env["EUNOMIA_RUN_DIR"]), command.env)
        return self._gangs[key]

    def _of(self, container: Container) -> Gang:
        return self._gangs[_key(container)]

    def lose(self, container: Container) -> None:
        """Kill a store, or one worker of a gang that changes live."""
        gang = self._gangs.get(_key(container))
        if is_store(container) and isinstance(gang, LiveGang):
            gang.store_lives = False
        self._completed(container, None)

    def order(self, container: Container, order: dict[str, Any]) -> bool:
        """Hand an order to the stand-in."""
        if container.keeps(order):
            self._changed(container)
        if order.get("order") == "stop_at":
            self._of(container).stop_at = order.get("step")
        return True

    def _order_suspension(self, container: Container, deadline_seconds: float) -> None:
        if container.status.slot == NO_SLOT:
            self._world.stop_master(container.status.app)
        elif isinstance(gang := self._of(container), LiveGang):
            gang.suspends.add(container.id)
        else:
            gang.suspended.set()

    async def _clear(self, container: Container, *, overdue: bool = False) -> int:
        if container.completed:
            return 0
        container.status.killed |= overdue
        if is_store(container) or isinstance(self._gangs.get(_key(container)), LiveGang):
            self.lose(container)
        elif container.status.slot == NO_SLOT:
            self._world.kill_master(container.status.app)
        else:
            gang = self._of(container)
            if container.prepared is not None and (self, container) not in gang.ranks:
                return 0  # it never began, and its own task ends it
            for owner, rank in gang.ranks:  # ranks of a gang whose mate is gone hang, and are killed too
                rank.status.killed |= overdue
                owner._completed(rank, None)
            gang.killed = True
        await asyncio.sleep(0)
        return 1
