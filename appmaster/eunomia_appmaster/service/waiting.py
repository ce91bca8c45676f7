"""Helpers for asyncio: wait for a change that an event announces, and for work that must not be abandoned."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def wait_for_change(event: asyncio.Event, seconds: float, done: Callable[[], bool]) -> None:
    """Wait until ``done``, called whenever the event is set, returns True, or until ``seconds`` have passed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not done() and (left := deadline - loop.time()) > 0.0:
        event.clear()
        try:
            async with asyncio.timeout(left):
                await event.wait()
        except TimeoutError:
            return


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Run work and return its result; a cancellation of the caller takes effect only after the work has ended.

    So a lock that the caller holds stays held while the work runs.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the caller is gone: mark the exception as retrieved
        raise
