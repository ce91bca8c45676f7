"""The interface to the operating system: clocks, threads, connections, files, and the end of a process.

Service, launcher and app master use these only through a ``System`` that is passed to them. Every process uses
``MACHINE``; a test passes another one, in which time, threads and network are simulated. Code that waits in an event
loop (``asyncio.sleep``) follows the loop's clock, so a simulated machine needs a simulated loop too.

Exceptions are the shepherds and zygotes of workers (``launcher.shepherd``, ``launcher.zygote``), which run before or
without the packages of this one.
"""

import asyncio
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, Self

import grpc

from eunomia_appmaster.node.kept_files import complete, keep_older
from eunomia_appmaster.protocol.connecting import Address, Options


class Flag(Protocol):
    """A condition that threads wait for; see ``threading.Event``."""

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        ...

    def set(self) -> None:
        """Set the flag, and wake the threads that wait for it."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, or for ``timeout`` seconds; return whether it is set."""
        ...


class Mailbox(Protocol):
    """A queue of items between threads, first in, first out; see ``queue.Queue``."""

    def put(self, item: Any) -> None:
        """Add an item."""
        ...

    def get(self, *, timeout: float | None = None) -> Any:
        """Remove and return the oldest item.

        Raises:
            queue.Empty: none came within ``timeout`` seconds.
        """
        ...

    def empty(self) -> bool:
        """Return whether the mailbox is empty."""
        ...


class ReservedPort(Protocol):
    """A reserved port of this machine, which the system gives to no program that asks for any free port."""

    @property
    def number(self) -> int:
        """The port's number."""
        ...

    def close(self) -> None:
        """Release the port."""
        ...

    def __enter__(self) -> Self:
        """Return this object, as a context manager."""
        ...

    def __exit__(self, *_: object) -> None:
        """Release the port."""
        ...


class System(Protocol):
    """The functions of the operating system that a test replaces; see the module."""

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock."""
        ...

    def unix_time(self) -> float:
        """Return Unix seconds."""
        ...

    def uptime(self) -> float:
        """Return seconds since the machine's start, including sleep; all its processes share this clock."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread for some seconds."""
        ...

    def start_thread(self, work: Callable[[], None], name: str) -> None:
        """Run ``work`` in a daemon thread."""
        ...

    def flag(self) -> Flag:
        """Return a new flag, not set."""
        ...

    def lock(self) -> AbstractContextManager[Any]:
        """Return a new lock."""
        ...

    def mailbox(self) -> Mailbox:
        """Return a new, empty mailbox."""
        ...

    def dial(self, address: Address, options: Options = ()) -> grpc.Channel:
        """Return a blocking gRPC channel; see ``Address.channel``."""
        ...

    def dial_async(self, address: Address, options: Options = ()) -> grpc.aio.Channel:
        """Return an asyncio gRPC channel; see ``Address.aio_channel``."""
        ...

    def reserve_port(self) -> ReservedPort:
        """Reserve a free port on all addresses of this machine, for a process that will listen there.

        Raises:
            OSError: no port is free.
        """
        ...

    async def accept_for(self, seconds: float) -> int:
        """Accept connections on a free port for ``seconds``, and close each at once; returns the port.

        Raises:
            OSError: no port is free.
        """
        ...

    async def cannot_connect(self, host: str, port: int, seconds: float) -> str:
        """Return why a TCP connection fails within ``seconds``; empty: it succeeded, and is closed again."""
        ...

    def replace_file(self, path: Path, text: str, *, older: bool = False) -> None:
        """Replace a file atomically: after a kill at any moment it has its old or its new content.

        Args:
            path: path of the file.
            text: the file's new content.
            older: whether its old content is kept as a backup.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def append_line(self, path: Path, line: str, *, sync: bool = False) -> None:
        """Append a line to a file.

        Args:
            path: path of the file.
            line: the line, without its line end.
            sync: whether to wait until it would survive a power cut.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def exit(self, code: int) -> NoReturn:
        """End the process at once, without cleaning up."""
        ...


class _BoundPort:
    """A socket that is bound with ``SO_REUSEADDR`` and never listens.

    The system gives its port to no program that asks for any port. But a program that binds this port explicitly with
    ``SO_REUSEADDR``, as torch, gRPC and asyncio do, may listen there: Linux allows it while no other socket listens.
    """

    def __init__(self) -> None:
        dual = socket.has_dualstack_ipv6()
        self._socket = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_STREAM)
        try:
            if dual:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._socket.bind(("::" if dual else "", 0))  # without SO_REUSEADDR: a port that is wholly free
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._number = int(self._socket.getsockname()[1])
        except OSError:
            self._socket.close()
            raise

    @property
    def number(self) -> int:
        return self._number

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


class MachineSystem:
    """The real operating system; implements ``System``."""

    def monotonic(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def unix_time(self) -> float:
        """Return ``time.time()``."""
        return time.time()

    def uptime(self) -> float:
        """Return the seconds of ``CLOCK_BOOTTIME``; see clock_gettime(2)."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Call ``time.sleep``."""
        time.sleep(seconds)

    def start_thread(self, work: Callable[[], None], name: str) -> None:
        """Start a daemon thread."""
        threading.Thread(target=work, name=name, daemon=True).start()

    def flag(self) -> Flag:
        """Return a ``threading.Event``."""
        return threading.Event()

    def lock(self) -> AbstractContextManager[Any]:
        """Return a ``threading.Lock``."""
        return threading.Lock()

    def mailbox(self) -> Mailbox:
        """Return a ``queue.Queue``."""
        made: queue.Queue[Any] = queue.Queue()
        return made

    def dial(self, address: Address, options: Options = ()) -> grpc.Channel:
        """Return the result of ``Address.channel``."""
        return address.channel(options)

    def dial_async(self, address: Address, options: Options = ()) -> grpc.aio.Channel:
        """Return the result of ``Address.aio_channel``."""
        return address.aio_channel(options)

    def reserve_port(self) -> ReservedPort:
        """Bind a port that the system chooses, and return it."""
        return _BoundPort()

    async def accept_for(self, seconds: float) -> int:
        """Accept connections at a reserved port, as a worker would."""
        port = self.reserve_port()
        try:
            server = await asyncio.start_server(_hang_up, None, port.number, reuse_address=True)
        except OSError:
            port.close()
            raise

        def end() -> None:
            server.close()
            port.close()

        asyncio.get_running_loop().call_later(seconds, end)
        return port.number

    async def cannot_connect(self, host: str, port: int, seconds: float) -> str:
        """Try a TCP connection, and return why it fails."""
        try:
            async with asyncio.timeout(seconds):
                _, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            return f"no answer from {host}:{port} in {seconds:g} s"
        except OSError as error:
            return f"{host}:{port}: {error.strerror or error}"
        writer.close()
        return ""

    def replace_file(self, path: Path, text: str, *, older: bool = False) -> None:
        """Write a temporary file in the same folder, and rename it into place."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if older:
            keep_older(path)
        temporary.replace(path)
        if older:
            complete(path, text)

    def append_line(self, path: Path, line: str, *, sync: bool = False) -> None:
        """Open the file, write the line and close the file: a killed process loses at most its last line."""
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def exit(self, code: int) -> NoReturn:
        """Call ``os._exit``."""
        os._exit(code)


MACHINE: Final[System] = MachineSystem()
"""The system of every process outside of tests."""
