"""Prepared containers: they hold their slots, and start once their gang is ordered to go on all its nodes."""

import asyncio
import contextlib

PREPARED_SECONDS = 20.0
"""Seconds from the last request to prepare after which a container is given up without the order to go."""


class Prepared:
    """The wait of one container for the order to go.

    Args:
        seconds: until it is given up.
    """

    def __init__(self, seconds: float = PREPARED_SECONDS) -> None:
        self._seconds = seconds
        self._until = 0.0
        self._decided = asyncio.Event()
        self._goes = False
        self.renew()

    def renew(self) -> None:
        """Begin the wait again: its app master has asked once more, while another node is not ready."""
        self._until = asyncio.get_running_loop().time() + self._seconds

    def go(self) -> None:
        """Let it start, unless it was given up."""
        if not self._decided.is_set():
            self._goes = True
            self._decided.set()

    def give_up(self) -> None:
        """Let it never start, unless it was ordered to go."""
        self._decided.set()

    async def wait(self) -> bool:
        """Wait for the order to go or to give up, until the deadline; return whether the container starts."""
        loop = asyncio.get_running_loop()
        while not self._decided.is_set() and (left := self._until - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._decided.wait(), left)
        self._decided.set()
        return self._goes
