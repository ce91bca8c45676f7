"""A launcher's server in this process, called as gRPC calls it, while a witness' worker runs there.

No worker is started for those who attack: their containers end as if their shepherd had died at once.
"""

import asyncio
import contextlib
import copy
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import grpc
from google.protobuf.message import DecodeError, Message

from chaos.fuzz.values import WITNESS
from chaos.fuzz.world import NODE, Answer, HeardContext
from eunomia.errors import InputError
from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.server import ContainerManager
from eunomia_appmaster.launcher.stalls import Stalls
from eunomia_appmaster.launcher.zygote_client import ZygoteClient
from eunomia_appmaster.launcher.zygotes import Zygotes
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2_grpc as rpc
from eunomia_appmaster.protocol.tokens import container_token, node_token
from eunomia_appmaster.service import bounds

MANAGER: Final = "/eunomia.launcher.ContainerManager/"
KINDS: Final[dict[str, type[Message]]] = {
    MANAGER + "StartContainers": pb.StartContainersRequest,
    MANAGER + "StopContainers": pb.StopContainersRequest,
    MANAGER + "OrderContainers": pb.OrderContainersRequest,
    MANAGER + "WatchContainers": pb.WatchContainersRequest,
}
SECRET: Final = b"thirty-two bytes for the signing"
SLOTS: Final = 4
WITNESS_SLOT: Final = 0
ATTACKERS: Final = 8
WAIT_SECONDS: Final = 0.005
"""A call waits at most so long here, whatever it asks for; a minute would be too long for many thousands."""
KEPT_SECONDS: Final = 1.0
"""How long ended containers are remembered here; a launcher keeps them for an hour."""
CORPUS: Final = ("import time; time.sleep(3600)",)


class _Containers(Containers):
    """Containers of which the witness' alone have a process."""

    def _start_plainly(self, container: Container, report_fd: int) -> None:
        if container.status.app == WITNESS:
            super()._start_plainly(container, report_fd)


class LauncherWorld:
    """A launcher's server with a witness that runs on slot 0; an async context manager.

    Args:
        folder: empty; the launcher's state.
        fault: called with unexpected exceptions.
    """

    def __init__(self, folder: Path, fault: Callable[[str], None]) -> None:
        self._folder = folder
        self._fault = fault
        self.node = Node(folder / "state", NODE, local_machine.detect(SLOTS, use_gpus=False))
        self.node.secret = SECRET
        self.containers = _Containers(self.node, Zygotes(ZygoteClient(self.node.folder, enabled=False)))
        self.attackers = [f"app-{number}" for number in range(ATTACKERS)]
        self.real: list[tuple[str, bytes]] = []
        self._handlers = self._methods()
        self._epoch = 1
        self._count = 0
        self._tidying: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().set_exception_handler(self._task_failed)
        self._tidying = asyncio.create_task(self._tidy())
        await self._enter(WITNESS, (WITNESS_SLOT,))
        self._witness = next(iter(self.containers))
        while self._witness.status.state != pb.RUNNING:
            await self.containers.news.next()
        try:
            for app in self.attackers[:2]:
                await self._enter(app, (1, 2))
                await self._say_more(app)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.containers.stop(self._witness, 0.0, "the end")
        await self._witness.done.wait()
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)

    # --- calls -----------------------------------------------------------------------------------------------------

    async def send(self, method: str, content: bytes, *, patience: float = WAIT_SECONDS) -> Answer:
        """Call as the server would."""
        handler = self._handlers[method]
        try:
            request = handler.request_deserializer(content)
        except DecodeError:
            return Answer("UNREADABLE")  # gRPC's own answer, before a handler
        if getattr(request, "wait_seconds", 0.0) > patience:
            request.wait_seconds = patience
        context = HeardContext(())
        try:
            answer = await handler.unary_unary(request, context)
        except grpc.aio.AbortError:
            return Answer(context.code, words=context.words)
        except Exception as error:
            self._fault(f"{method}: {type(error).__name__}: {error}")
            return Answer("FAULT")
        return Answer("OK", answer.SerializeToString())

    def request(self, message: Message, app: str, rng: random.Random) -> Message:
        """The message with its sender's own name, tokens and lease: so it is not turned away at once."""
        made = copy.deepcopy(message)
        if isinstance(made, pb.StartContainersRequest):
            made.app, made.working_folder, made.run_folder = app, str(self._folder), ""
            self._lease(made, app, rng)
        elif isinstance(made, pb.WatchContainersRequest):
            made.app, made.node_token = app, node_token(SECRET, app, NODE)
        elif isinstance(made, pb.StopContainersRequest | pb.OrderContainersRequest):
            made.app, made.node_token = app, node_token(SECRET, app, NODE)
            known = [container.id for container in self.containers.on_slots() if container.status.app == app]
            made.container_ids[:] = known[: rng.randrange(3)]
        return made

    def _lease(self, request: pb.StartContainersRequest, app: str, rng: random.Random) -> None:
        """Slots of a new lease, with tokens that fit."""
        del request.containers[4:]
        for wanted, slot in zip(request.containers, rng.sample(range(1, SLOTS), SLOTS - 1), strict=False):
            self._epoch += 1
            self._count += 1
            wanted.container_id, wanted.slot, wanted.epoch = f"c{self._count}", slot, self._epoch
            wanted.container_token = container_token(SECRET, app, NODE, slot, self._epoch)
        del request.containers[SLOTS - 1 :]

    def _methods(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {}

        class _Registry:
            def add_generic_rpc_handlers(self, handlers: Any) -> None:
                """Nothing: the other method brings the same."""

            def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
                found.update({f"/{service}/{name}": handler for name, handler in handlers.items()})

        manager = ContainerManager(self.node, self.containers, Stalls(self.containers))
        rpc.add_ContainerManagerServicer_to_server(manager, _Registry())  # type: ignore[arg-type]
        return found

    # --- those who mean well ---------------------------------------------------------------------------------------

    async def _enter(self, app: str, slots: tuple[int, ...]) -> None:
        """Start a gang."""
        self._epoch += 1
        wanted = [
            pb.ContainerRequest(
                container_id=f"{app}-1.r1.{rank}",
                slot=slot,
                rank=rank,
                epoch=self._epoch,
                container_token=container_token(SECRET, app, NODE, slot, self._epoch),
            )
            for rank, slot in enumerate(slots)
        ]
        await self._tell(
            "StartContainers",
            pb.StartContainersRequest(
                app=app,
                job=1,
                incarnation=1,
                containers=wanted,
                command=[sys.executable, "-c", *CORPUS],
                working_folder=str(self._folder),
                env={"COLOUR": "red"},
                wait_seconds=5.0,
            ),
        )

    async def _say_more(self, app: str) -> None:
        """Everything else that an app master asks for."""
        token, ids = node_token(SECRET, app, NODE), [f"{app}-1.r1.0"]
        order = pb.OrderContainersRequest(app=app, node_token=token, container_ids=ids, checkpoint=pb.Checkpoint())
        await self._tell("OrderContainers", order)
        stop_at = pb.StopAt(step=192)
        await self._tell(
            "OrderContainers",
            pb.OrderContainersRequest(app=app, node_token=token, container_ids=ids, stop_at=stop_at),
        )
        await self._tell("WatchContainers", pb.WatchContainersRequest(app=app, node_token=token, since_version=-1))
        stop = pb.StopContainersRequest(
            app=app, node_token=token, container_ids=ids, deadline_seconds=0.0, reason="lease over"
        )
        await self._tell("StopContainers", stop)

    async def _tell(self, name: str, message: Message) -> None:
        content = message.SerializeToString()
        self.real.append((MANAGER + name, content))
        answer = await self.send(MANAGER + name, content, patience=60.0)
        if answer.code != "OK":
            raise RuntimeError(f"{name}: {answer.code} {answer.words}")

    # --- what must hold --------------------------------------------------------------------------------------------

    def witness(self) -> tuple[Any, ...]:
        """The witness' worker as it must stay."""
        container = self._witness
        alive = container.worker is not None and container.worker.alive
        return (
            container.status.state,
            container.status.pid,
            container.status.version,
            container.kill_at,
            container.stop_at,
            alive,
            sorted(path.name for path in container.folder.iterdir()),
        )

    def stuck(self) -> list[str]:
        """Containers of attackers that never end, since no task follows them any more."""
        return [
            container.id
            for container in self.containers
            if not container.completed and container.id != self._witness.id
        ]

    def too_much(self) -> str | None:
        """What of all statuses the arbiter would refuse to hear: then it would hear of this machine no more."""
        try:
            bounds.check(_heartbeat(self.containers))
        except InputError as error:
            return str(error)
        return None

    def _task_failed(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        self._fault(f"{context.get('message')}: {context.get('exception')!r}")

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(KEPT_SECONDS)
            self.containers.forget(KEPT_SECONDS)


def _heartbeat(containers: Containers) -> pb.NodeHeartbeatRequest:
    """What a launcher tells the arbiter of its containers."""
    return pb.NodeHeartbeatRequest(node=NODE, containers=[container.status for container in containers])


def examples(world: LauncherWorld) -> Iterator[tuple[str, Message]]:
    """What those who mean well have sent."""
    for method, content in world.real:
        yield method, KINDS[method].FromString(content)


async def settle(world: LauncherWorld, seconds: float = 10.0) -> None:
    """Wait until every container of attackers has ended, or it is clear that one never will."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while world.stuck():
                await asyncio.sleep(0.02)
