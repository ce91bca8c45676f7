"""Waiting for a change that an event announces, for a time."""

import asyncio
from collections.abc import Callable


async def wait_for_change(event: asyncio.Event, seconds: float, done: Callable[[], bool]) -> None:
    """Wait until ``done`` returns True, called whenever the event is set, or until the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not done() and (left := deadline - loop.time()) > 0.0:
        event.clear()
        try:
            async with asyncio.timeout(left):
                await event.wait()
        except TimeoutError:
            return
