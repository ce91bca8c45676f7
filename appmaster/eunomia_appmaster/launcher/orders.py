"""orders.sock: the Unix socket in a container's folder over which its worker gets orders and reports progress.

JSON lines, UTF-8. Worker to launcher: ``hello``, ``progress``, ``saved``, ``suspended``, ``announce``, ``misused``; of
a job that changes its size live ``ready``, ``resized``, ``leaving``, ``broken``, ``unfit``, ``store_lost``. Launcher to
worker: ``{"order": "suspend", "deadline_seconds": 30.0}``, ``{"order": "checkpoint"}``, ``{"order": "stop_at", "step":
192}``, ``{"order": "threads", "count": 2}``, ``{"change": {"generation": 3, "members": [...], "timeout_seconds": 600.0,
"lost": [...]}}``.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger()

NAME = "orders.sock"
LINE_BYTES = 65536

Message = dict[str, Any]


def listen(folder: Path, uid: int | None = None) -> socket.socket:
    """Listen on ``folder/orders.sock``, also if its path is longer than a socket's limit of 108 bytes.

    Args:
        folder: the container's folder.
        uid: the only account, besides root, that may connect; None: this process's.
    """
    (folder / NAME).unlink(missing_ok=True)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"/proc/self/fd/{fd}/{NAME}")
        if uid is not None:
            os.chmod(NAME, 0o600, dir_fd=fd)
            os.chown(NAME, uid, -1, dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(fd)
    listener.listen(16)
    return listener


class OrderSocket:
    """Serves one container's socket.

    Args:
        folder: the container's folder.
        heard: called with each message of a worker, a dict with one key.
        joined: called after a worker's hello; returns the orders to send it at once.
        uid: user id of the worker; None: this process's.
    """

    def __init__(
        self,
        folder: Path,
        heard: Callable[[str, Message], None],
        joined: Callable[[], list[Message]],
        *,
        uid: int | None = None,
    ) -> None:
        self._folder = folder
        self._heard = heard
        self._joined = joined
        self._listener = listen(folder, uid)
        self._server: asyncio.Server | None = None
        self._workers: set[asyncio.StreamWriter] = set()

    async def serve(self) -> None:
        """Accept workers from now on, including those that have connected since ``listen``."""
        self._server = await asyncio.start_unix_server(self._talk, sock=self._listener, limit=LINE_BYTES)

    @property
    def connected(self) -> bool:
        """Return whether a worker that sent hello is connected."""
        return bool(self._workers)

    def send(self, order: Message) -> bool:
        """Send an order to the worker; returns False if no worker that has sent hello is connected."""
        line = json.dumps(order).encode() + b"\n"
        for writer in self._workers:
            writer.write(line)
        return self.connected

    def close(self) -> None:
        """Stop listening and remove the socket."""
        for writer in list(self._workers):
            writer.close()
        if self._server is not None:
            self._server.close()
        else:
            self._listener.close()
        (self._folder / NAME).unlink(missing_ok=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._take(line, writer)
        except (OSError, ValueError) as error:  # ValueError: a line over the limit
            log.warning("worker.cut_off", folder=str(self._folder), error=str(error))
        finally:
            self._workers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _take(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            ((kind, content),) = json.loads(line).items()
            if not isinstance(content, dict):
                raise ValueError("content must be an object")
            self._heard(kind, content)
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            log.warning("worker.not_understood", folder=str(self._folder), line=line[:200], error=str(error))
            return
        if kind == "hello":
            self._workers.add(writer)
            for order in self._joined():
                writer.write(json.dumps(order).encode() + b"\n")
