"""The interface to the operating system for live processes: clocks, threads, connections, files, the end of a process.

Service, launcher and app master reach these only through a ``System`` that is passed to them. Every process uses
``MACHINE``; a test passes one of its own, in which time, threads and network are simulated. Code that waits in an event
loop (``asyncio.sleep``) follows the loop's clock, so a simulated machine needs a simulated loop too.

Left out are the parents and forks of workers (``launcher.shepherd``, ``launcher.zygote``): they run alone in a process
of the operating system, before or without the packages of this one.
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
    """Items that threads pass on, first in, first out; see ``queue.Queue``."""

    def put(self, item: Any) -> None:
        """Add an item."""
        ...

    def get(self, *, timeout: float | None = None) -> Any:
        """Take the oldest item; ``queue.Empty`` if none came within ``timeout`` seconds."""
        ...

    def empty(self) -> bool:
        """Return whether the mailbox is empty."""
        ...


class ReservedPort(Protocol):
    """A port of this machine that no program that asks for any free port gets."""

    @property
    def number(self) -> int:
        """The port."""
        ...

    def close(self) -> None:
        """Give it up."""
        ...

    def __enter__(self) -> Self:
        """Hold it in a context."""
        ...

    def __exit__(self, *_: object) -> None:
        """Give it up."""
        ...


class System(Protocol):
    """The parts of a machine that a test replaces; see the module."""

    def monotonic(self) -> float:
        """Return seconds of a clock that passes evenly and is never set."""
        ...

    def unix_time(self) -> float:
        """Return Unix seconds."""
        ...

    def uptime(self) -> float:
        """Return seconds since the machine's start, sleep included: a clock that all its processes share."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let this thread wait."""
        ...

    def start_thread(self, work: Callable[[], None], name: str) -> None:
        """Run ``work`` in a thread that does not keep the process alive."""
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
        """Return a channel for threads; see ``Address.channel``."""
        ...

    def dial_async(self, address: Address, options: Options = ()) -> grpc.aio.Channel:
        """Return a channel for asyncio; see ``Address.aio_channel``."""
        ...

    def reserve_port(self) -> ReservedPort:
        """Reserve a free port on all addresses of this machine, for a process that will listen there.

        Raises:
            OSError: there is none.
        """
        ...

    async def accept_for(self, seconds: float) -> int:
        """Accept connections on a free port for so many seconds, and hang up; returns the port.

        Raises:
            OSError: there is none.
        """
        ...

    async def cannot_connect(self, host: str, port: int, seconds: float) -> str:
        """Return why no connection is made within so many seconds; empty: it is, and hung up."""
        ...

    def replace_file(self, path: Path, text: str, *, older: bool = False) -> None:
        """Write a file whole: after a kill at any moment it has its old or its new content.

        Args:
            path: of the file.
            text: its new content.
            older: whether its old content is kept beside it.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def append_line(self, path: Path, line: str, *, sync: bool = False) -> None:
        """Append a line to a file.

        Args:
            path: of the file.
            line: without its end.
            sync: wait until it would survive a power cut.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def exit(self, code: int) -> NoReturn:
        """End the process at once, without cleaning up."""
        ...


class _BoundPort:
    """A socket that is bound with ``SO_REUSEADDR`` and never listens.

    The system gives its port to no program that asks for any port. A program that binds this very port with
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
    """The machine itself; see ``System``."""

    def monotonic(self) -> float:
        """See ``time.monotonic``."""
        return time.monotonic()

    def unix_time(self) -> float:
        """See ``time.time``."""
        return time.time()

    def uptime(self) -> float:
        """See ``CLOCK_BOOTTIME`` of clock_gettime(2)."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """See ``time.sleep``."""
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
        """See ``Address.channel``."""
        return address.channel(options)

    def dial_async(self, address: Address, options: Options = ()) -> grpc.aio.Channel:
        """See ``Address.aio_channel``."""
        return address.aio_channel(options)

    def reserve_port(self) -> ReservedPort:
        """Bind a port that the system chooses."""
        return _BoundPort()

    async def accept_for(self, seconds: float) -> int:
        """Listen where a port is reserved, as a worker does."""
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
        """Connect by TCP."""
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
        """Open, write, close: a killed process loses at most its last line."""
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def exit(self, code: int) -> NoReturn:
        """See ``os._exit``."""
        os._exit(code)


MACHINE: Final[System] = MachineSystem()
"""The system of every process outside of tests."""
