"""Leases by which nodes hold their slots: each answer to a launcher renews its node's lease.

For the node, a lease starts when it sends its call; for the arbiter, when it answers, which is later. So once a lease
and a margin end for the arbiter, a silent node's work has ended and may start elsewhere. A launcher reports with each
call how much of its lease is left, since answers that it did not get may have granted a longer one.

If the arbiter's own node is the only one, it holds its slots without an end: nothing can start elsewhere, and remaining
processes on it end before its slots are used again.
"""

import math
from typing import Final

from eunomia.journal.journal import Journal
from eunomia.units import Seconds
from eunomia_appmaster.node.system import MACHINE, System

META: Final = "node_lease"
"""Key in the journal: the longest lease, in seconds, that a node may hold from an earlier arbiter process."""
MOST_MARGIN_SECONDS: Final = 5.0
MARGIN: Final = 0.2
"""Margin after a lease's end, as a fraction of an ordinary lease, at most ``MOST_MARGIN_SECONDS``: a node ends its
processes shortly after the end of its lease."""
GRACE: Final = 0.2
"""Fraction of a lease at its end in which workers save and exit, at most the grace of the profile's rounds. A launcher
or arbiter that is stopped for 60 s must not end the work of a lease of 90 s."""
QUIET_SECONDS: Final = 15.0
"""Seconds of silence after which ``nodes`` shows what will happen to a node."""
BEATS: Final = 6
"""Minimum number of heartbeats per lease."""


class HeldLease:
    """The arbiter's record of one node's lease.

    Args:
        ends_at: latest uptime in seconds at which the lease ends; infinite if never.
        system: has the machine's clock.
    """

    def __init__(self, ends_at: float = 0.0, *, system: System = MACHINE) -> None:
        self._system = system
        self.ends_at = ends_at
        self.seconds = 0.0
        """Length of the last granted lease in seconds; 0: without an end, or none was granted."""

    @property
    def left_seconds(self) -> float:
        """Seconds until the lease ends; infinite if it never ends, 0 if it has ended."""
        return max(0.0, self.ends_at - self._system.uptime())

    def heard(self, left_seconds: float, *, endless: bool) -> None:
        """Set the remaining time to the launcher's report, since no earlier answer can still arrive."""
        self.ends_at = math.inf if endless else self._system.uptime() + max(0.0, left_seconds)

    def given(self, seconds: float) -> float:
        """Record that an answer grants a lease of ``seconds`` (0: without an end) now; returns ``seconds``."""
        self.seconds = seconds
        self.ends_at = max(self.ends_at, self._system.uptime() + seconds if seconds > 0.0 else math.inf)
        return seconds


class NodeLeases:
    """The lengths of leases, which depend on whether this process is about to end.

    Args:
        journal: stores the longest lease that a node may hold.
        seconds: length of an ordinary lease.
        stop_seconds: length of a lease granted before an orderly end of this process.
    """

    def __init__(self, journal: Journal, seconds: Seconds, stop_seconds: Seconds) -> None:
        self._journal = journal
        self._seconds, self._stop_seconds = float(seconds), max(float(stop_seconds), float(seconds))
        self.most_grace = math.inf
        """The grace of the profile's rounds, in seconds."""
        self.stops = False
        """Whether leases now have the greater length for an orderly end."""
        kept = journal.meta.get(META)
        self._kept = float(kept) if isinstance(kept, int | float) else 0.0
        self.longest = max(float(seconds), self._kept)
        """The longest lease that a node may hold, in seconds."""

    @property
    def were_given(self) -> bool:
        """Whether nodes may hold leases of an earlier arbiter process."""
        return self._kept > 0.0

    def begin(self) -> None:
        """Journal the longest lease before the first one is granted; call it under the driver's lock, if any."""
        if self._kept != self.longest:
            self._journal.set_meta(**{META: self.longest})
            self._kept = self.longest

    @property
    def seconds(self) -> float:
        """Length in seconds of the leases that are granted now."""
        return self._stop_seconds if self.stops else self._seconds

    @property
    def margin(self) -> float:
        """Seconds from the end of a lease until its jobs may start elsewhere."""
        return min(MOST_MARGIN_SECONDS, MARGIN * self._seconds)

    @property
    def ordinary_wait(self) -> float:
        """Length of an ordinary lease plus its margin, in seconds."""
        return self._seconds + self.margin

    @property
    def grace(self) -> float:
        """Seconds before the end of a lease in which workers save and exit, at most the profile's grace."""
        return min(self.most_grace, GRACE * self._seconds)

    def lengthen(self) -> None:
        """Grant longer leases from now on, after journaling that."""
        self.longest = max(self.longest, self._stop_seconds)
        self.begin()
        self.stops = True

    def all_renewed(self) -> None:
        """Record that no node holds a lease of an earlier process."""
        if not self.stops and self.longest > self._seconds:
            self.longest = self._seconds
            self.begin()


def lease_words(silent_seconds: float, lease: HeldLease) -> str:
    """Return text on what will happen to a silent node that counts as up; empty if it is not silent or has no lease."""
    if silent_seconds < QUIET_SECONDS or math.isinf(lease.ends_at):
        return ""
    silent = f"silent for {silent_seconds:.0f} s"
    if lease.left_seconds <= 0.0:
        return f"{silent}; its lease has ended"
    return f"{silent}; its lease ends in {lease.left_seconds:.0f} s, and its jobs start elsewhere then"
