"""The interface to the operating system for live processes: clocks, threads, connections, files, the end of a process.

Service, launcher and app master reach these only through a ``System`` that is passed to them. Every process uses
``MACHINE``; a test passes one of its own, in which time, threads and network are simulated. Code that waits in an event
loop (``asyncio.sleep``) follows the loop's clock, so a simulated machine needs a simulated loop too.

Left out are the parents and forks of workers (``launcher.shepherd``, ``launcher.zygote``): they run alone in a process
of the operating system, before or without the packages of this one.
"""

import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

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

    def free_port(self) -> int:
        """Return a port of loopback on which no program listens now."""
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

    def free_port(self) -> int:
        """Return a port that the system chooses."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

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
