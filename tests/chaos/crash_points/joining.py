"""A machine that joins with a token, and leaves when the operator removes it: its whole launcher may be stopped.

What a launcher does at its start and its end is done as ``launcher.__main__`` does it. Each replacement, link and
removal of one of its files is a point, before and after.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from chaos.crash_points.gangs import Gang
from chaos.crash_points.network import Network, Process
from chaos.crash_points.workers import QuickEpochs, Workers
from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.launcher.app_masters import AppMasters
from eunomia_appmaster.launcher.errors import RemovedError
from eunomia_appmaster.launcher.joining import KEY, OwnJoin, _signing_request
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.server import ContainerManager
from eunomia_appmaster.launcher.stalls import Stalls
from eunomia_appmaster.launcher.tracker import Tracker
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol import launcher_pb2_grpc as lrpc
from eunomia_appmaster.protocol.join_text import JoinText
from eunomia_appmaster.service import tracker
from eunomia_appmaster.service.guard import Guard
from eunomia_appmaster.service.tokens import bearer

MACHINE = "machine"
"""Kind of process: the whole launcher of the machine that joins."""
SECOND = "box1"
ADDRESS = "127.0.0.1:3"
RESTART_SECONDS = 0.1
STOP_SECONDS = 10.0
PAUSE_SECONDS = 0.05
GONE = "a node must be one of the cluster"
"""What an order about a node that has left is refused with."""
USED = "has used it"
"""What a join is refused with whose token has let a node in."""
_CALLS_BACK: Any = tracker
_OWN_PARTS = re.compile(r"\.[0-9]+\Z")


class JoiningMachine:
    """The second machine of a run, with one life of its launcher after the other.

    Args:
        world: the run.
        machine: its slots.
        gangs: of all nodes.
    """

    def __init__(self, world: Any, machine: Any, gangs: dict[tuple[str, int, int], Gang]) -> None:
        self._world, self._machine, self._gangs = world, machine, gangs
        self.folder: Path = world.folder / SECOND
        self.text = ""
        """The join token."""
        self.removed = False
        """Whether its launcher has ended, since the operator removed the node."""
        self.workers: Workers | None = None
        self._epochs: QuickEpochs | None = None
        self._node: Node | None = None

    def begin(self) -> None:
        """Start its launcher."""
        here = Process(MACHINE, SECOND, self._world.loop, self._world._hit)
        here.at_death.append(self._died)
        self._world._launchers[ADDRESS] = here
        here.thread(self._world.threads, lambda: self._join(here))

    def _join(self, here: Process) -> None:
        """Take the node's folder, and join unless it has a credential."""
        world = self._world
        node = Node(world._settings.state_dir, SECOND, self._machine, folder=self.folder, system=world.system)
        self._node = node
        own = OwnJoin(self.folder, SECOND, world._settings.address, system=world.system)
        try:
            if own.is_joined:
                own.mend()
            else:
                own.join(JoinText.parse(self.text, "token"))
        except InputError as error:
            if USED not in str(error) or not self._is_removed():
                world.faults.append(f"the machine could not join: {error}")
                return
            self._end(here)  # it was stopped between forgetting its credential and its end
            return
        except EunomiaError:  # the arbiter is away: the launcher ends, and is started again
            here.kill()
            return
        world.loop.call_soon(lambda: here.dead or here.begin(self._serve(here, node, own)))

    async def _serve(self, here: Process, node: Node, own: OwnJoin) -> None:
        world = self._world
        if self.workers is None:
            self._epochs = QuickEpochs(world.folder / f"{SECOND}.epochs.json")
            self.workers = Workers(node, world, self._gangs)
            world._workers.append(self.workers)
        assert self._epochs is not None
        workers, self.workers.node, node.epochs = self.workers, node, self._epochs
        world._managers[ADDRESS] = ContainerManager(node, workers, Stalls(workers))
        node.publish(ADDRESS, **own.shown())
        masters = AppMasters(node, workers, world._settings.address)
        try:
            await Tracker(node, workers, masters, own).run()
        except RemovedError:
            left = [container for container in workers if not container.completed]
            for container in left:
                workers.stop(container, STOP_SECONDS, "the launcher was ordered to end")
            await asyncio.gather(*(container.done.wait() for container in left))
            own.forget()
            here.point("launcher: before its end")
            self._end(here)

    def _is_removed(self) -> bool:
        service = self._world._service
        known = None if service is None else service.joined._nodes.get(SECOND)
        return known is not None and bool(known.removed)

    def _end(self, here: Process) -> None:
        self.removed = True
        here.dead = True
        self.let_go()

    def let_go(self) -> None:
        """Give up the lock of the node's folder."""
        if self._node is not None:
            os.close(self._node._lock)
            self._node = None

    def _died(self) -> None:
        self.let_go()
        if self.workers is not None:
            self.workers.restart()
        if not self._world.loop.is_closed():
            self._world.loop.call_later(RESTART_SECONDS, self.begin)

    def end(self, service: Any) -> dict[str, Any]:
        """Return what each run has to end with."""
        known = service.joined._nodes.get(SECOND)
        report = check_folder(self._world._settings.state_dir)
        own = OwnJoin(self.folder, SECOND, self._world._settings.address, system=self._world.system)
        return {
            "nodes": list(service.nodes.layout.nodes),
            "machines": [machine.name for machine in service.view.cluster.machines],
            "left": sorted(service.view.cluster.left),
            "removed": None if known is None else known.removed,
            "tokens": [token.used_by for token in service.join_tokens if token.used_by],
            "has a credential": own.is_joined,
            "credential": None if not own.is_joined else service.tokens.caller(own.metadata()) is not None,
            "check": [str(finding) for finding in report.findings],
        }


class Operator:
    """Makes the token, and later removes the node; repeats what was not answered.

    Args:
        network: to the arbiter.
        address: of the arbiter.
    """

    def __init__(self, network: Network, address: str) -> None:
        channel: Any = network.aio_channel(address)
        self._client = rpc.ClientProtocolStub(channel)
        self._admission = lrpc.NodeAdmissionStub(channel)

    async def token(self) -> str:
        """Return the text of a join token."""
        made = await self._ask(lambda: self._client.MakeJoinToken(pb.MakeJoinTokenRequest(), timeout=30.0))
        return str(made.text)

    async def remove(self, node: str) -> None:
        """Drain a node and remove it once it is empty."""
        await self._ask(lambda: self._client.DrainNode(pb.DrainNodeRequest(node=node, why="maintenance"), timeout=30.0))
        await asyncio.sleep(0.2)
        await self._ask(lambda: self._client.RemoveNode(pb.RemoveNodeRequest(node=node), timeout=30.0))

    async def refusal(self, machine: JoiningMachine) -> str:
        """Return why a machine cannot join again with the token that it has used; empty: it can."""
        asked = lpb.JoinNodeRequest(node=SECOND, signing_request=_signing_request(machine.folder / KEY))
        metadata = (("authorization", f"Bearer {machine.text}"),)
        while True:
            try:
                await self._admission.JoinNode(asked, metadata=metadata, timeout=30.0)
                return ""
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    return error.details() or error.code().name
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ask(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                return await call()
            except grpc.aio.AioRpcError as error:
                if GONE in (error.details() or ""):  # the former order was carried out
                    return None
            await asyncio.sleep(PAUSE_SECONDS)


def refusal(service: Any, method: str, metadata: Any) -> tuple[grpc.StatusCode, str] | None:
    """Return what the arbiter's guard says of a call with the credential of a node; None: it may go on."""
    if service is None or not bearer(metadata).startswith("node:"):
        return None
    room = "NodeAdmission" if method == "RenewNode" else "ResourceTracker"
    refused = Guard(service.tokens).refusal(f"/eunomia.launcher.{room}/{method}", metadata)
    return None if refused is None else (refused[0], refused[1])


@contextlib.contextmanager
def patched(network: Network, answers: Callable[[str], bool]) -> Iterator[None]:
    """Let each change of a file's name be a point of the process that makes it, and the arbiter call back in the run.

    Args:
        network: knows which process runs.
        answers: returns whether a launcher answers at an address.
    """

    async def check_reached(address: str, name: str, authority: bytes, *, node: str) -> None:
        if not answers(address):
            raise InputError("the arbiter must reach a node at the address that it announces", value=address)

    def pointed(real: Any, verb: str, which: int) -> Any:
        def call(*names: Any, **more: Any) -> Any:
            here, file = network.sender(), _OWN_PARTS.sub("", Path(names[which]).name)
            if here is not None:
                here.point(f"{file}: before it is {verb}")
            real(*names, **more)
            if here is not None:
                here.point(f"{file}: after it is {verb}")

        return call

    before = os.replace, os.unlink, os.link, _CALLS_BACK.check_reached
    os.replace, os.unlink = pointed(before[0], "replaced", 1), pointed(before[1], "removed", 0)
    os.link = pointed(before[2], "linked", 1)
    _CALLS_BACK.check_reached = check_reached
    try:
        yield
    finally:
        os.replace, os.unlink, os.link, _CALLS_BACK.check_reached = before
