"""By how much a node's clock is ahead of the arbiter's: measured at heartbeats.

A heartbeat carries the time at which it was sent. It arrives later, by a delay that is not known; so of the last few
measurements the largest is the nearest to the truth, and is too small by the smallest of their delays.
"""

from collections import deque
from typing import Final

WINDOW: Final = 8
"""Heartbeats that are looked at; a clock that was set is seen once they are over."""
SHOWN_SECONDS: Final = 1.0
"""An offset beyond which people read of it."""
STEP_SECONDS: Final = 0.5
"""A change beyond which app masters hear of it; smaller ones are mostly delays."""


class ClockOffset:
    """The offset of one node's clock."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=WINDOW)
        self.given = 0.0
        """Seconds by which the node's clock is ahead, as app masters have it."""

    def hear(self, sent_at: float, now: float) -> None:
        """Take a heartbeat.

        Args:
            sent_at: Unix time in seconds by the node's clock; 0: not given.
            now: by the arbiter's.
        """
        if sent_at:
            self._seen.append(sent_at - now)
            seconds = max(self._seen)
            near = 0.0 if abs(seconds) <= STEP_SECONDS else seconds
            if abs(near - self.given) > STEP_SECONDS:
                self.given = near

    @property
    def seconds(self) -> float | None:
        """Seconds by which the node's clock is ahead; None: not measured."""
        return max(self._seen, default=None)

    @property
    def words(self) -> str:
        """The offset for people; empty: it is small, or not measured."""
        seconds = self.seconds
        if seconds is None or abs(seconds) <= SHOWN_SECONDS:
            return ""
        return f"its clock is {abs(seconds):.1f} s {'ahead of' if seconds > 0.0 else 'behind'} the arbiter's"
