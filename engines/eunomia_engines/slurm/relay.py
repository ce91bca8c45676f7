"""``python -m eunomia_engines.slurm.relay STATE``: forwards a node's connections to the present head.

A head in a batch job ends, and the next head runs elsewhere. The processes of a node always use the same address, that
of this relay on the node's loopback interface. TLS ends at the head, so the relay cannot read the traffic. The relay
follows the record of the head with the highest number seen, so that no node connects to an old head that seemed lost
and comes back.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from eunomia.errors import EunomiaError
from eunomia.model.shapes import value
from eunomia_appmaster.node.private_files import write_private
from eunomia_engines.head.files import HEAD
from eunomia_engines.pilots.names import private_folder
from eunomia_engines.requests import mark_of
from eunomia_engines.slurm.request import FOLDER, Request
from eunomia_engines.slurm.script import PILOT_ID

LOOK_SECONDS: Final = 1.0
"""Seconds between two reads of the head's record."""
DIAL_SECONDS: Final = 10.0
START_SECONDS: Final = 60.0
"""Seconds within which the relay of a node must listen."""
_BYTES: Final = 65536


@value
class HeadAddress:
    """Address and number of a head; number 0: the head is not in a batch job."""

    host: str
    port: int
    number: int = 0


def read_head(state: Path) -> HeadAddress | None:
    """Return the address and number of the last head; None: there is no readable record of a head."""
    try:
        record = json.loads((state / FOLDER / HEAD).read_text(encoding="utf-8"))
        host, _, port = str(record["address"]).rpartition(":")
        return HeadAddress(host=host.strip("[]"), port=int(port), number=int(record.get("number", 0)))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def port_file(folder: Path, job: str) -> Path:
    """Return the file with the port of the relay of a batch job, in the node's own folder on its local disk."""
    return folder / f"relay-{job}.port"


def relay_address(folder: Path, job: str, *, seconds: float = START_SECONDS) -> str:
    """Wait for the relay of a batch job, and return its address, host:port.

    Raises:
        EunomiaError: the relay does not listen within ``seconds``.
    """
    path, deadline = port_file(folder, job), time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            return f"localhost:{int(path.read_text(encoding='ascii'))}"
        time.sleep(0.1)
    raise EunomiaError(f"a node's relay must listen within {seconds:g} s", value="no port", place=str(path))


class Relay:
    """Forwards the connections of one node to the head.

    Args:
        state: the arbiter's state folder.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._head: HeadAddress | None = None
        self._open = set[asyncio.StreamWriter]()

    async def serve(self, *, port: int = 0) -> asyncio.Server:
        """Listen on the loopback interface; port 0: any free one."""
        self.look()
        return await asyncio.start_server(self._pass_on, "127.0.0.1", port)

    async def follow(self) -> None:
        """Read the head's record once per second until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Read the head's record; if the head has changed, close the connections to the previous head."""
        found = read_head(self._state)
        if found is None or found == self._head or (self._head is not None and found.number < self._head.number):
            return
        self._head = found
        for writer in self._open:
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await self._dial()
        if there is None:
            writer.close()
            return
        from_head, to_head = there
        pair = {writer, to_head}
        self._open |= pair
        try:
            await asyncio.gather(_copy(reader, to_head), _copy(from_head, writer))
        finally:
            self._open -= pair
            for each in pair:
                each.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        head = self._head
        if head is None:
            return None
        try:
            return await asyncio.wait_for(asyncio.open_connection(head.host, head.port), DIAL_SECONDS)
        except (OSError, TimeoutError):
            return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until one side closes, then close the other side."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


async def run(state: Path, file: Path) -> None:
    """Serve until SIGTERM, at the port of this batch job's previous relay if it is free, else at any free port."""
    relay, stopped = Relay(state), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        before = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        before = 0
    try:
        server = await relay.serve(port=before)
    except OSError:
        server = await relay.serve()
    write_private(file, str(server.sockets[0].getsockname()[1]).encode())
    following = asyncio.create_task(relay.follow())
    await stopped.wait()
    following.cancel()
    server.close()


def main() -> None:
    """Run the relay for the node of this batch job."""
    state = Path(sys.argv[1])
    base = private_folder(Request.load(state).node_dir, mark_of(state))
    job = os.environ.get(PILOT_ID) or os.environ.get("SLURM_JOB_ID", "")
    asyncio.run(run(state, port_file(base, job)))


if __name__ == "__main__":
    main()
