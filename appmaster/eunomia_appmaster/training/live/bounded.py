"""Calls that may never return, made in a thread, so that their caller waits for a limited time."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class NoAnswerError(Exception):
    """A call has not returned in time; its thread may still be blocked in the call."""


class BoundedCalls:
    """Makes calls one after the other in its own thread; after a call that does not return in time, it makes no more.

    torch's client of a store waits without a limit for the answer of a store whose process is stopped.

    Args:
        name: name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._due: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._why = ""
        threading.Thread(target=_run, args=(self._due,), daemon=True, name=name).start()

    def make(self, call: Callable[[], T], seconds: float) -> T:
        """Return what a call returns, or raise what it raises.

        Args:
            call: the call to make.
            seconds: longest time in seconds to wait for the call to return.

        Raises:
            NoAnswerError: the call, or an earlier one, has not returned in time.
        """
        if not self._why:
            answer: Future[T] = Future()
            self._due.put((call, answer))
            try:
                return answer.result(seconds)
            except TimeoutError:
                self._why = f"no answer for {seconds:g} s"
        raise NoAnswerError(self._why)

    def close(self) -> None:
        """End the thread once the calls so far have returned."""
        self._why = self._why or "it is closed"
        self._due.put(None)


def _run(due: "queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]") -> None:
    while (each := due.get()) is not None:
        call, answer = each
        try:
            answer.set_result(call())
        except BaseException as error:  # raised again where it was called
            answer.set_exception(error)
        del each, call, answer  # else the thread keeps the call's result until the next one
