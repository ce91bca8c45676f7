"""Checks of this node for an app: whether it has a command's prerequisites, and whether two nodes reach each other."""

import asyncio
from typing import Final

from eunomia_appmaster.launcher.errors import InputError, LacksError
from eunomia_appmaster.launcher.gangs import as_seen_here, check_path, check_program, check_working_folder
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.owners import account_of
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.node_names import check_name

LISTEN_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 2.0
MOST_LISTENING: Final = 64
"""Most ports that listen at the same time for the checks of all apps."""


class NodeChecks:
    """Answers the node checks of apps, without starting a process or changing anything."""

    def __init__(self) -> None:
        self._listening = 0

    async def answer(self, request: pb.CheckNodeRequest, node: Node) -> pb.CheckNodeResponse:
        """Answer one check.

        Raises:
            InputError: the request is malformed, or too many ports listen already.
            EunomiaError: this node may not run workers under the account.
            OSError: no port is free.
        """
        answer = pb.CheckNodeResponse()
        if request.HasField("command"):
            answer.fault = self._lacks(request, node)
        if request.listen:
            answer.port = await self._listen(node)
        if request.connect:
            answer.fault = answer.fault or await _connect(request.connect, node)
        return answer

    def _lacks(self, request: pb.CheckNodeRequest, node: Node) -> str:
        """Return which prerequisite of a command this node lacks, as text; empty: none."""
        check_name(request.app, "an app's name")
        wanted = pb.StartContainersRequest()
        wanted.CopyFrom(request.command)
        wanted.app = request.app
        if not wanted.command:
            raise InputError("a command must not be empty", place=request.app)
        wanted = as_seen_here(wanted, node)
        check_path(wanted.working_folder, "a working folder")
        account = account_of(wanted.login)
        try:
            check_working_folder(wanted, account, node)
            check_program(wanted, account, node)
        except LacksError as error:
            return str(error)
        return ""

    async def _listen(self, node: Node) -> int:
        """Accept connections on a free port for a limited time; returns the port."""
        if self._listening >= MOST_LISTENING:
            raise InputError(f"at most {MOST_LISTENING} checks may listen at once", value=str(self._listening + 1))
        port = await node.system.accept_for(LISTEN_SECONDS)
        self._listening += 1

        def end() -> None:
            self._listening -= 1

        asyncio.get_running_loop().call_later(LISTEN_SECONDS, end)
        return port


async def _connect(target: str, node: Node) -> str:
    """Return why a connection to a target fails, as text; empty: it succeeds."""
    host, _, port = target.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError("an address must be HOST:PORT", value=repr(target[:100]))
    return await node.system.cannot_connect(host.strip("[]"), int(port), CONNECT_SECONDS)
