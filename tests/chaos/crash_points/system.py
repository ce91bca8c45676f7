"""The simulated machine that the real service, launcher and app masters get: virtual time, threads and network."""

import contextlib
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import structlog

from chaos.crash_points.network import Network, Process
from chaos.crash_points.virtual import EPOCH_SECONDS, Crash, NoLock, Threads, VirtualEvent, VirtualQueue, VirtualThread
from eunomia_appmaster.node.system import MACHINE, ReservedPort
from eunomia_appmaster.protocol.connecting import Address, Options

UPTIME_SECONDS = 1000.0
"""Uptime of the machine at which virtual time begins."""


class _NoPort(contextlib.nullcontext[Any]):
    number = 1

    def close(self) -> None:
        pass


class VirtualSystem:
    """See ``eunomia_appmaster.node.system.System``.

    Args:
        threads: of all processes.
        network: carries their calls.
        exited: called with the exit code of a process that ends itself.
    """

    def __init__(self, threads: Threads, network: Network, exited: Callable[[int], None]) -> None:
        self._threads = threads
        self._network = network
        self._exited = exited

    def monotonic(self) -> float:
        """Returns virtual seconds."""
        return self._threads.loop.time()

    def unix_time(self) -> float:
        """Returns Unix seconds."""
        return EPOCH_SECONDS + self._threads.loop.time()

    def uptime(self) -> float:
        """Returns seconds since the machine's start."""
        return UPTIME_SECONDS + self._threads.loop.time()

    def sleep(self, seconds: float) -> None:
        """Let other threads run."""
        self._threads.here().pause(seconds)

    def start_thread(self, work: Callable[[], None], name: str) -> None:
        """Start a thread of the process whose thread runs now."""
        VirtualThread(self._threads, self._threads.here().owner, work).start()

    def flag(self) -> VirtualEvent:
        """Returns a flag."""
        return VirtualEvent(self._threads)

    def lock(self) -> NoLock:
        """Returns a lock that is always free."""
        return NoLock()

    def mailbox(self) -> VirtualQueue:
        """Returns a mailbox."""
        return VirtualQueue(self._threads)

    def dial(self, address: Address, options: Options = ()) -> Any:
        """Returns a channel for threads."""
        return self._network.channel(address.target)

    def dial_async(self, address: Address, options: Options = ()) -> Any:
        """Returns a channel for tasks."""
        return self._network.aio_channel(address.target)

    def reserve_port(self) -> ReservedPort:
        """Returns a port; the simulated workers use none."""
        return _NoPort()

    async def accept_for(self, seconds: float) -> int:
        """Returns a port; all nodes reach each other."""
        return 1

    async def cannot_connect(self, host: str, port: int, seconds: float) -> str:
        """Returns that it can."""
        return ""

    def replace_file(self, path: Path, text: str, *, older: bool = False) -> None:
        """Write a file, with a point before and after the write."""
        with self._points(path):
            MACHINE.replace_file(path, text, older=older)

    def append_line(self, path: Path, line: str, *, sync: bool = False) -> None:
        """Append a line, with a point before and after the write."""
        with self._points(path):
            MACHINE.append_line(path, line, sync=sync)

    def exit(self, code: int) -> NoReturn:
        """End the process whose task runs now."""
        self._exited(code)
        raise Crash

    @contextlib.contextmanager
    def _points(self, path: Path) -> Iterator[None]:
        here = self._threads.owner
        if isinstance(here, Process):
            here.point(f"{path.name}: before the write")
        yield
        if isinstance(here, Process):
            here.point(f"{path.name}: after the write")


@contextlib.contextmanager
def repeatable(log: list[dict[str, Any]], seconds: Callable[[], float]) -> Iterator[None]:
    """Seed the random pauses, and collect log entries with virtual times in ``log``, until the context ends.

    Args:
        log: gets the entries.
        seconds: returns the virtual time.
    """

    def keep(_: object, method: str, event: Any) -> Any:
        if event.get("exc_info"):
            event["exception"] = traceback.format_exc()
        log.append({"t": round(seconds(), 4), "level": method} | dict(event))
        raise structlog.DropEvent

    state, logs = random.getstate(), structlog.get_config()
    random.seed(1)
    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        random.setstate(state)
        structlog.configure(**logs)
