"""A clock for a loop that watches other processes: their silence counts only while the loop itself runs.

A watcher that was stopped, starved or asleep received nothing meanwhile, which is no fault of the processes that it
watches. So the watcher's loop ticks this clock, and after a gap between two ticks all silence is counted from zero.
"""

from collections.abc import Callable
from typing import Final

from eunomia_appmaster.node.system import MACHINE

MOST_GAP_SECONDS: Final = 5.0
"""Longest time in seconds between two ticks for which the loop counts as running."""


class LoopClock:
    """A clock in seconds that records since when its loop has run without a gap.

    Args:
        clock: returns seconds; the machine's uptime includes sleep, so that a sleep is a gap.
        most_gap: in seconds; larger for a loop that may wait longer than ``MOST_GAP_SECONDS`` between two ticks.
    """

    def __init__(self, clock: Callable[[], float] = MACHINE.uptime, *, most_gap: float = MOST_GAP_SECONDS) -> None:
        self._clock = clock
        self._most_gap = most_gap
        self._ticked_at = self.whole_since = clock()

    def tick(self) -> bool:
        """Record that the loop runs; returns whether it had a gap, after which silence is counted from zero."""
        now = self._clock()
        gap = now - self._ticked_at > self._most_gap
        if gap:
            self.whole_since = now
        self._ticked_at = now
        return gap

    def now(self) -> float:
        """Return the clock's seconds."""
        return self._clock()

    def silence(self, heard_at: float) -> float:
        """Return the seconds since ``heard_at``, counted only after the loop's last gap.

        They count up to the loop's last tick, since the time after it may be a gap.
        """
        return max(0.0, self._ticked_at - max(heard_at, self.whole_since))
