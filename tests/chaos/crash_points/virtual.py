"""Virtual time: an event loop whose clock jumps to the next timer, and threads of which one runs at a time."""

import asyncio
import queue
import selectors
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from eunomia.errors import EunomiaError

LEAST_SECONDS = 1e-9
EPOCH_SECONDS = 1_800_000_000.0
"""Unix time at which virtual time begins."""


class Crash(BaseException):
    """The process was stopped here; nothing may catch it."""


class _Selector(selectors.SelectSelector):
    """Waits by moving the clock; there is no input from outside."""

    seconds = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise EunomiaError("a task or a timer must be left to run", place="virtual time")
        self.seconds += max(LEAST_SECONDS, timeout)  # else a wait shorter than time's last digit would never end
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; what is handed to executors is done at once."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual.seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """Call at once, in this thread: time does not pass meanwhile."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


class Owner(Protocol):
    """A process with threads."""

    threads: "list[VirtualThread]"

    def check(self) -> None:
        """Raise ``Crash`` once it is dead."""
        ...


class Threads:
    """The threads of all simulated processes: of them and the event loop, one runs at a time.

    Args:
        loop: has the virtual time.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.back = _baton()
        self._current: VirtualThread | None = None
        self.failures: list[str] = []
        """Exceptions that ended a thread."""

    def here(self) -> "VirtualThread":
        """The thread that runs now."""
        if self._current is None:
            raise EunomiaError("only a thread may wait", place="virtual time")
        return self._current

    @property
    def owner(self) -> "Owner | None":
        """The process whose thread runs now; None: the loop runs."""
        return None if self._current is None else self._current.owner

    def switch(self, thread: "VirtualThread") -> None:
        """Let a thread run until it waits or ends."""
        before, self._current = self._current, thread
        thread.go.release()
        self.back.acquire()
        self._current = before


class VirtualThread:
    """A thread that runs only while all others and the loop wait.

    Args:
        threads: all of them.
        owner: its process.
        work: what it does.
    """

    def __init__(
        self,
        threads: Threads,
        owner: "Owner",
        work: Callable[[], None],
    ) -> None:
        self.owner = owner
        self.go = _baton()
        self.finished = False
        self._threads = threads
        self._work = work
        self._ticket = 0
        owner.threads.append(self)

    def start(self) -> None:
        """Begin as soon as the others wait."""
        threading.Thread(target=self._run, daemon=True).start()
        self._threads.loop.call_soon(self.waker())

    def pause(self, seconds: float | None) -> None:
        """Wait until woken, or until the time is over."""
        self.owner.check()
        wake = self.waker()
        if seconds is not None:
            self._threads.loop.call_later(max(0.0, seconds), wake)
        self._threads.back.release()
        self.go.acquire()
        self.owner.check()

    def waker(self) -> Callable[[], None]:
        """Returns a function that ends the present wait, if it still lasts then."""
        ticket = self._ticket

        def wake() -> None:
            if self._ticket == ticket and not self.finished:
                self._ticket += 1
                self._threads.switch(self)

        return wake

    def _run(self) -> None:
        self.go.acquire()
        try:
            self.owner.check()
            self._work()
        except Crash:
            pass
        except BaseException as error:
            self._threads.failures.append(repr(error))
        finally:
            self.finished = True
            self._threads.back.release()


class VirtualEvent:
    """See ``threading.Event``."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._flag = False
        self._waiting: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        """See ``threading.Event``."""
        return self._flag

    def set(self) -> None:
        """See ``threading.Event``."""
        self._flag = True
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            self._threads.loop.call_soon(wake)

    def wait(self, timeout: float | None = None) -> bool:
        """See ``threading.Event``."""
        here = self._threads.here()
        if not self._flag:
            self._waiting.append(here.waker())
            here.pause(timeout)
        return self._flag


class VirtualQueue:
    """See ``queue.Queue``."""

    def __init__(self, threads: Threads) -> None:
        self._items: deque[Any] = deque()
        self._there = VirtualEvent(threads)

    def put(self, item: Any) -> None:
        """See ``queue.Queue``."""
        self._items.append(item)
        self._there.set()

    def get(self, *, timeout: float | None = None) -> Any:
        """See ``queue.Queue``."""
        if not self._items:
            self._there = VirtualEvent(self._there._threads)
            self._there.wait(timeout)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def empty(self) -> bool:
        """See ``queue.Queue``."""
        return not self._items


def _baton() -> Any:
    """A lock that is held until another thread releases it."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class NoLock:
    """A lock that is always free: only one thread runs."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass
