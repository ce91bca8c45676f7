"""The offset of a node's clock from the arbiter's, measured with heartbeats.

A heartbeat carries the time at which it was sent and arrives after an unknown delay. So the largest of the last few
measurements is closest to the true offset: it is too small by the shortest of their delays.
"""

from collections import deque
from typing import Final

WINDOW: Final = 8
"""Number of heartbeats in the window; a change of a clock is noticed once all of them are newer."""
SHOWN_SECONDS: Final = 1.0
"""Smallest offset in seconds that is shown to users."""
STEP_SECONDS: Final = 0.5
"""Smallest change in seconds that is reported to app masters; smaller ones are mostly delays."""


class ClockOffset:
    """The measured offset of one node's clock."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=WINDOW)
        self.given = 0.0
        """Seconds by which the node's clock is ahead, as last reported to app masters."""

    def hear(self, sent_at: float, now: float) -> None:
        """Add the measurement from one heartbeat.

        Args:
            sent_at: Unix time in seconds by the node's clock; 0 if not given.
            now: Unix time in seconds by the arbiter's clock.
        """
        if sent_at:
            self._seen.append(sent_at - now)
            seconds = max(self._seen)
            near = 0.0 if abs(seconds) <= STEP_SECONDS else seconds
            if abs(near - self.given) > STEP_SECONDS:
                self.given = near

    @property
    def seconds(self) -> float | None:
        """The seconds by which the node's clock is ahead; None if not measured."""
        return max(self._seen, default=None)

    @property
    def words(self) -> str:
        """The offset as text for users; empty if it is small or not measured."""
        seconds = self.seconds
        if seconds is None or abs(seconds) <= SHOWN_SECONDS:
            return ""
        return f"its clock is {abs(seconds):.1f} s {'ahead of' if seconds > 0.0 else 'behind'} the arbiter's"
