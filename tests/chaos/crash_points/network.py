"""Processes that can be stopped at a point, and calls between them: gRPC's channels with the network left out."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import grpc

from chaos.crash_points.virtual import Crash, Threads, VirtualEvent, VirtualLoop, VirtualThread

LATENCY_SECONDS = 0.001
HERE: "contextvars.ContextVar[Process | None]" = contextvars.ContextVar("process", default=None)
"""The process whose task runs."""


class Process:
    """One life of a process: what it does ends with it.

    Args:
        kind: arbiter, app_master or launcher.
        name: for people.
        loop: on which its tasks run.
        hit: called with each point that it reaches; raises ``Crash`` where the process is to be stopped.
    """

    def __init__(self, kind: str, name: str, loop: VirtualLoop, hit: "Callable[[Process, str], None]") -> None:
        self.kind = kind
        self.name = name
        self.dead = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self.threads: list[VirtualThread] = []
        self.calls: set[Call] = set()
        """That it answers."""
        self.asking: set[Call] = set()
        """That it made."""
        self.at_death: list[Callable[[], None]] = []
        self._loop = loop
        self._hit = hit

    def check(self) -> None:
        """Raise ``Crash`` once it is dead."""
        if self.dead:
            raise Crash

    def point(self, what: str) -> None:
        """Reach a point at which it may be stopped."""
        self.check()
        self._hit(self, what)

    def begin(self, work: Any) -> "asyncio.Task[Any]":
        """Start a task of this process."""
        context = contextvars.copy_context()
        context.run(HERE.set, self)
        return self._loop.create_task(work, context=context)

    def thread(self, threads: Threads, target: Callable[[], None]) -> None:
        """Start its first thread."""
        VirtualThread(threads, self, target).start()

    def kill(self) -> None:
        """End it as SIGKILL does; what is under way unwinds without any effect."""
        if not self.dead:
            self.dead = True
            self._loop.call_soon(self._clear)

    def _cancel(self) -> None:
        """Cancel its tasks, again while there are some: ``asyncio.wait_for`` may swallow a cancellation."""
        for task in list(self.tasks):
            task.cancel()
        if self.tasks and not self._loop.is_closed():
            self._loop.call_later(LATENCY_SECONDS, self._cancel)

    def _clear(self) -> None:
        self._cancel()
        for thread in list(self.threads):
            thread.waker()()
        for call in list(self.calls):
            call.fail(grpc.StatusCode.UNAVAILABLE, "the connection was lost")
        for call in list(self.asking):
            self._loop.call_later(2 * LATENCY_SECONDS, call.cancel_there)
        for work in self.at_death:
            work()


def task_factory(loop: asyncio.AbstractEventLoop, work: Any, context: Any = None) -> "asyncio.Task[Any]":
    """Make tasks that belong to the process that makes them."""
    task = asyncio.Task(work, loop=loop, context=context)
    process = HERE.get() if context is None else context.get(HERE)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
    task.add_done_callback(_note)
    return task


def _note(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()  # taken, so that asyncio does not log it; a task that waits for this one still gets it


class Failure(grpc.aio.AioRpcError, grpc.Call):  # type: ignore[misc]
    """What a failed call raises, for threads and tasks alike."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details, None)
        self._trailing = trailing

    def trailing_metadata(self) -> Any:
        """See ``grpc.Call``."""
        return self._trailing

    def is_active(self) -> bool:
        """See ``grpc.RpcContext``."""
        return False

    def time_remaining(self) -> float:
        """See ``grpc.RpcContext``."""
        return 0.0

    def cancel(self) -> bool:
        """See ``grpc.RpcContext``."""
        return False

    def add_callback(self, callback: Any) -> bool:
        """See ``grpc.RpcContext``."""
        return False


class _AbortError(Exception):
    pass


class Context:
    """What a servicer sees of a call."""

    def __init__(self, metadata: Any) -> None:
        self._metadata = tuple(metadata or ())
        self.error: Failure | None = None

    def invocation_metadata(self) -> Any:
        """See ``grpc.ServicerContext``."""
        return self._metadata

    def peer(self) -> str:
        """See ``grpc.ServicerContext``."""
        return "ipv4:127.0.0.1:1"

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> None:
        """See ``grpc.ServicerContext``."""
        self.error = Failure(code, details, tuple(trailing_metadata))
        raise _AbortError


class Call:
    """One call from its sending to its answer; see ``grpc.Future``."""

    def __init__(
        self, network: "Network", target: str, method: str, request: Any, metadata: Any, timeout: float | None
    ) -> None:
        self._target = target
        self.method = method
        self._network = network
        self._request = request
        self._metadata = metadata
        self._sender = network.sender()
        self._answer: Any = None
        self._error: Failure | None = None
        self._done = False
        self._callbacks: list[Callable[[Any], None]] = []
        self._task: asyncio.Task[Any] | None = None
        self._server: Process | None = None
        if self._sender is not None:
            self._sender.point(f"{method}: before it is sent")
            self._sender.asking.add(self)
        network.loop.call_later(LATENCY_SECONDS, self._arrive)
        if timeout is not None:
            network.loop.call_later(timeout, self._late)
        if self._sender is not None:
            self._sender.point(f"{method}: after it is sent")

    # --- at the caller's -------------------------------------------------------------------------------------------

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """See ``grpc.Future``."""
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def result(self) -> Any:
        """See ``grpc.Future``; a thread waits."""
        if not self._done:
            event = VirtualEvent(self._network.threads)
            self.add_done_callback(lambda _: event.set())
            event.wait()
        return self._outcome()

    async def wait(self) -> Any:
        """Wait in a task."""
        if not self._done:
            over = asyncio.Event()
            self.add_done_callback(lambda _: over.set())
            await over.wait()
        return self._outcome()

    def _outcome(self) -> Any:
        if self._sender is not None:
            self._sender.point(f"{self.method}: answered")
        if self._error is not None:
            raise self._error
        return self._answer

    def cancelled(self) -> bool:
        """See ``grpc.Future``."""
        return False

    def exception(self) -> Failure | None:
        """See ``grpc.Future``."""
        return self._error

    def fail(self, code: grpc.StatusCode, details: str) -> None:
        """End with an error, unless it is over."""
        self._end(None, Failure(code, details))

    def _late(self) -> None:
        self.fail(grpc.StatusCode.DEADLINE_EXCEEDED, "it took too long")
        self.cancel_there()

    def _end(self, answer: Any, error: Failure | None) -> None:
        if self._done:
            return
        self._done, self._answer, self._error = True, answer, error
        if self._sender is not None:
            self._sender.asking.discard(self)
        if self._server is not None:
            self._server.calls.discard(self)
        if self._sender is None or not self._sender.dead:
            for callback in self._callbacks:
                callback(self)

    # --- at the server's -------------------------------------------------------------------------------------------

    def cancel_there(self) -> None:
        """The caller is gone: end what works on it."""
        if self._task is not None:
            self._task.cancel()

    def _arrive(self) -> None:
        found = self._network.servicer(self._target, self.method)
        if found is None:
            self.fail(grpc.StatusCode.UNAVAILABLE, "no process answers")
            return
        handler, self._server = found
        if self._server is None:
            self._task = self._network.loop.create_task(self._serve(handler))
            return
        try:
            self._server.point(f"{self.method}: received")
        except Crash:
            self.fail(grpc.StatusCode.UNAVAILABLE, "the connection was lost")
            return
        self._server.calls.add(self)
        self._task = self._server.begin(self._serve(handler))

    async def _serve(self, handler: Callable[..., Any]) -> None:
        context, server = Context(self._metadata), self._server
        answer, error = None, None
        try:
            if (refused := self._network.refuse(self.method, self._metadata)) is not None:
                await context.abort(*refused)
            answer = await handler(self._request, context)
        except _AbortError:
            error = context.error
        except asyncio.CancelledError:
            error = Failure(grpc.StatusCode.CANCELLED, "it was cancelled")
        except Exception as fault:
            self._network.faults.append(f"{self.method}: {fault!r}")
            error = Failure(grpc.StatusCode.UNKNOWN, repr(fault))
        if server is not None:
            self._network.audit(self.method, answer)
            server.point(f"{self.method}: before the answer")
        sent = None if answer is None else type(answer).FromString(answer.SerializeToString())
        self._network.loop.call_later(LATENCY_SECONDS, self._end, sent, error)
        if server is not None:
            server.calls.discard(self)
            server.point(f"{self.method}: after the answer")


class Network:
    """Where calls go.

    Args:
        loop: on which everything happens.
        threads: of app masters.
        servicer: returns, for an address and the name of a method, what answers a call now and its process (None: one
            that is never stopped); None: no process answers.
        audit: called with each answer of the arbiter before it leaves.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        threads: Threads,
        servicer: Callable[[str, str], tuple[Callable[..., Any], Process | None] | None],
        audit: Callable[[str, Any], None],
    ) -> None:
        self.loop = loop
        self.threads = threads
        self.servicer = servicer
        self.audit = audit
        self.refuse: Callable[[str, Any], tuple[grpc.StatusCode, str] | None] = lambda method, metadata: None
        """Returns why a call of a method with such metadata is refused; None: it is not."""
        self.faults: list[str] = []

    def sender(self) -> Process | None:
        """The process that calls."""
        owner = self.threads.owner
        return owner if isinstance(owner, Process) else HERE.get()

    def channel(self, target: str) -> "_Channel":
        """Returns a channel for threads."""
        return _Channel(self, target, _Blocking)

    def aio_channel(self, target: str) -> "_Channel":
        """Returns a channel for tasks."""
        return _Channel(self, target, _Awaited)


class _Channel:
    def __init__(self, network: Network, target: str, kind: Any) -> None:
        self._network = network
        self._target = target
        self._kind = kind

    def unary_unary(self, path: str, **_: Any) -> Any:
        return self._kind(self._network, self._target, path.rpartition("/")[2])

    def close(self, *_: Any) -> Any:
        return _nothing() if self._kind is _Awaited else None


async def _nothing() -> None:
    pass


class _Blocking:
    def __init__(self, network: Network, target: str, method: str) -> None:
        self._network = network
        self._target = target
        self._method = method

    def future(self, request: Any, *, metadata: Any = None, timeout: float | None = None) -> Call:
        copy = type(request).FromString(request.SerializeToString())
        return Call(self._network, self._target, self._method, copy, metadata, timeout)

    def __call__(self, request: Any, *, metadata: Any = None, timeout: float | None = None) -> Any:
        return self.future(request, metadata=metadata, timeout=timeout).result()


class _Awaited(_Blocking):
    async def __call__(self, request: Any, *, metadata: Any = None, timeout: float | None = None) -> Any:
        return await self.future(request, metadata=metadata, timeout=timeout).wait()
