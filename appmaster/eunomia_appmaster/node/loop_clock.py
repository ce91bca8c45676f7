"""A clock for a loop that watches other processes: their silence counts only while the loop itself ran.

A process that was stopped, starved or asleep has heard nothing meanwhile, which says nothing about those that it
watches. So its loop ticks this clock, and after a gap between two ticks all silence begins again.
"""

from collections.abc import Callable
from typing import Final

from eunomia_appmaster.node.system import MACHINE

MOST_GAP_SECONDS: Final = 5.0
"""Longest time between two ticks for which the loop counts as running."""


class LoopClock:
    """Seconds of a machine's clock, with the time since which the loop runs without a gap.

    Args:
        clock: seconds; the machine's uptime, which passes while the machine sleeps, so that a sleep is a gap.
        most_gap: in seconds; a loop that may wait longer than ``MOST_GAP_SECONDS`` between two ticks gives more.
    """

    def __init__(self, clock: Callable[[], float] = MACHINE.uptime, *, most_gap: float = MOST_GAP_SECONDS) -> None:
        self._clock = clock
        self._most_gap = most_gap
        self._ticked_at = self.whole_since = clock()

    def tick(self) -> bool:
        """Note that the loop runs; return whether it had a gap before, after which silence is counted from zero."""
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
        """Return the seconds of silence since ``heard_at``, but only those after the loop's last gap.

        Silence counts up to the loop's last tick: the time after it may be a gap.
        """
        return max(0.0, self._ticked_at - max(heard_at, self.whole_since))
