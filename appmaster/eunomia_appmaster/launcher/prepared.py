"""Prepared containers: they reserve their slots, and start once their gang is ordered to start on all its nodes."""

import asyncio
import contextlib

PREPARED_SECONDS = 20.0
"""Seconds after the last request to prepare, after which a container without a start order is given up."""


class Prepared:
    """A prepared container's wait for its start order.

    Args:
        seconds: time until the container is given up.
    """

    def __init__(self, seconds: float = PREPARED_SECONDS) -> None:
        self._seconds = seconds
        self._until = 0.0
        self._decided = asyncio.Event()
        self._goes = False
        self.renew()

    def renew(self) -> None:
        """Restart the wait after another request of the app master, because another node of the gang is not ready."""
        self._until = asyncio.get_running_loop().time() + self._seconds

    def go(self) -> None:
        """Let the container start, unless it was given up."""
        if not self._decided.is_set():
            self._goes = True
            self._decided.set()

    def give_up(self) -> None:
        """Cancel the container's start, unless the start was ordered."""
        self._decided.set()

    async def wait(self) -> bool:
        """Wait for the order to start or to give up, until the deadline; returns whether the container starts."""
        loop = asyncio.get_running_loop()
        while not self._decided.is_set() and (left := self._until - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._decided.wait(), left)
        self._decided.set()
        return self._goes
