"""The worker's end of its container's socket: receives orders, and sends progress and acknowledgements.

All calls but ``flush`` are non-blocking, and none uses a thread, so that a poll at a step boundary takes microseconds
and a forked worker stays single-threaded. A broken socket never stops the training: the client reconnects at most once
a second and then repeats the last message of each kind.
"""

import contextlib
import json
import os
import select
import socket
import time
from pathlib import Path
from typing import Any

RECONNECT_SECONDS = 1.0
FLUSH_SECONDS = 1.0
_NAME = "orders.sock"


class OrderClient:
    """A client that exchanges JSON lines with the launcher over ``<container folder>/orders.sock``."""

    def __init__(self, container_dir: Path, rank: int) -> None:
        self._container_dir = container_dir
        self._hello = {"pid": os.getpid(), "rank": rank}
        self._socket: socket.socket | None = None
        self._next_try = 0.0
        self._incoming = b""
        self._outgoing = b""
        self._said: dict[str, Any] = {}
        self._connect()

    def poll(self) -> list[dict[str, Any]]:
        """Return the orders received since the last call, oldest first."""
        if self._socket is None and not self._reconnect():
            return []
        self._write()
        self._read()
        *lines, self._incoming = self._incoming.split(b"\n")
        return [order for line in lines if (order := _parse(line)) is not None]

    def say(self, kind: str, content: dict[str, Any]) -> None:
        """Send ``{kind: content}``; while the socket is broken, only the last message of each kind is kept."""
        self._said[kind] = content
        if self._socket is not None:
            self._outgoing += _line(kind, content)
            self._write()

    def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Wait until all messages have been passed to the socket, up to a time limit."""
        deadline = time.monotonic() + seconds
        while self._socket is not None and self._outgoing and (left := deadline - time.monotonic()) > 0:
            select.select([], [self._socket], [], left)
            self._write()

    def _reconnect(self) -> bool:
        return time.monotonic() >= self._next_try and self._connect()

    def _connect(self) -> bool:
        self._next_try = time.monotonic() + RECONNECT_SECONDS
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            self._connect_in_folder(connection)
        except OSError:
            connection.close()
            return False
        self._socket = connection
        self._incoming = b""
        self._outgoing = _line("hello", self._hello) + b"".join(_line(*said) for said in self._said.items())
        self._write()
        return True

    def _connect_in_folder(self, connection: socket.socket) -> None:
        # A socket's address holds 108 bytes only, a container folder's path may be longer.
        folder = os.open(self._container_dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{_NAME}")
        finally:
            os.close(folder)

    def _read(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._break()
                return
            self._incoming += data

    def _write(self) -> None:
        while self._socket is not None and self._outgoing:
            try:
                sent = self._socket.send(self._outgoing)
            except BlockingIOError:
                return
            except OSError:
                # Orders that the launcher sent before it closed the socket are still to be read.
                self._outgoing = b""
                self._read()
                return
            self._outgoing = self._outgoing[sent:]

    def _break(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def _line(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({kind: content}).encode() + b"\n"


def _parse(line: bytes) -> dict[str, Any] | None:
    # A line that is not an order is ignored, so that the training continues.
    with contextlib.suppress(ValueError):
        order = json.loads(line)
        if isinstance(order, dict):
            return order
    return None
