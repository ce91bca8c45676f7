"""Numbers the changes on a node, and lets tasks wait for the next change."""

import asyncio


class News:
    """A counter that grows with every change; several tasks may wait for it.

    Attributes:
        version: number of the last change.
        urgent: number of the last change that the arbiter must get at once (a change of state rather than progress).
    """

    def __init__(self) -> None:
        self.version = 0
        self.urgent = 0
        self._next = asyncio.Event()

    def announce(self, *, urgent: bool = True) -> int:
        """Count a change and wake all waiting tasks; returns the change's number."""
        self.version += 1
        if urgent:
            self.urgent = self.version
        self._next.set()
        self._next = asyncio.Event()
        return self.version

    async def next(self, wait_seconds: float | None = None) -> bool:
        """Wait for the next change; returns False if there was none in time."""
        try:
            await asyncio.wait_for(self._next.wait(), wait_seconds)
        except TimeoutError:
            return False
        return True
