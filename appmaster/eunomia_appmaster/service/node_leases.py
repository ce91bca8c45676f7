"""The leases by which nodes hold their slots: each answer to a launcher renews its own.

The node counts from the sending of its call, the arbiter from its answer, which is later. So what ran on a silent node
has ended once the lease and a margin are over here, and starts elsewhere only then. A launcher says with each call how
much of its lease is left: answers that it has not got may have been longer.

The arbiter's own node holds its slots without an end as long as it is the only one: nothing can start elsewhere, and
what is left on it ends before its slots are used again.
"""

import math
from typing import Final

from eunomia.journal.journal import Journal
from eunomia.units import Seconds
from eunomia_appmaster.node.system import MACHINE, System

META: Final = "node_lease"
"""In the journal: the longest lease, in seconds, that a node may hold by an answer of an earlier process."""
MOST_MARGIN_SECONDS: Final = 5.0
MARGIN: Final = 0.2
"""Part of a lease by which the arbiter waits longer, at most ``MOST_MARGIN_SECONDS``: a node ends its processes a
moment after its lease has ended."""
GRACE: Final = 0.2
"""Part of a lease at its end in which workers save and leave, at most the grace of the profile's rounds. A launcher or
arbiter that is stopped for 60 s must not end the work of a lease of 90 s."""
QUIET_SECONDS: Final = 15.0
"""Silence from which on `nodes` says what becomes of a node."""
BEATS: Final = 6
"""Heartbeats in a lease, at least."""


class HeldLease:
    """The lease of one node, as the arbiter knows it.

    Args:
        ends_at: uptime at which it ends at the latest, infinite: never.
        system: has the clock.
    """

    def __init__(self, ends_at: float = 0.0, *, system: System = MACHINE) -> None:
        self._system = system
        self.ends_at = ends_at
        self.seconds = 0.0
        """Length of the lease that was given last; 0: without an end, or none."""

    @property
    def left_seconds(self) -> float:
        """Seconds until its end, infinite without one, 0 after it."""
        return max(0.0, self.ends_at - self._system.uptime())

    def heard(self, left_seconds: float, *, endless: bool) -> None:
        """Apply what its launcher says is left; earlier answers that it has not got by now it will never get."""
        self.ends_at = math.inf if endless else self._system.uptime() + max(0.0, left_seconds)

    def given(self, seconds: float) -> float:
        """Note that an answer which gives the lease goes out now; returns its seconds, 0: without an end."""
        self.seconds = seconds
        self.ends_at = max(self.ends_at, self._system.uptime() + seconds if seconds > 0.0 else math.inf)
        return seconds


class NodeLeases:
    """The lengths of leases.

    Args:
        journal: keeps the longest that may be held.
        seconds: of an ordinary lease.
        stop_seconds: of one that is given before this process ends in order.
    """

    def __init__(self, journal: Journal, seconds: Seconds, stop_seconds: Seconds) -> None:
        self._journal = journal
        self._seconds, self._stop_seconds = float(seconds), max(float(stop_seconds), float(seconds))
        self.most_grace = math.inf
        """The grace of the profile's rounds, in seconds."""
        self.stops = False
        """Whether the longer leases of an orderly end are given."""
        kept = journal.meta.get(META)
        self._kept = float(kept) if isinstance(kept, int | float) else 0.0
        self.longest = max(float(seconds), self._kept)
        """The longest that a node may hold, in seconds."""

    @property
    def were_given(self) -> bool:
        """Whether nodes may hold leases of an earlier process."""
        return self._kept > 0.0

    def begin(self) -> None:
        """Let the journal have the longest, before the first is given; under the driver's lock, where there is one."""
        if self._kept != self.longest:
            self._journal.set_meta(**{META: self.longest})
            self._kept = self.longest

    @property
    def seconds(self) -> float:
        """Length of the leases that are given now."""
        return self._stop_seconds if self.stops else self._seconds

    @property
    def margin(self) -> float:
        """Seconds from the end of a lease to the moment from which its jobs may start elsewhere."""
        return min(MOST_MARGIN_SECONDS, MARGIN * self._seconds)

    @property
    def ordinary_wait(self) -> float:
        """Seconds of an ordinary lease with its margin."""
        return self._seconds + self.margin

    @property
    def grace(self) -> float:
        """Seconds that workers have to leave before a lease ends, at most those of the profile."""
        return min(self.most_grace, GRACE * self._seconds)

    def lengthen(self) -> None:
        """Give longer leases from now on, once the journal has that."""
        self.longest = max(self.longest, self._stop_seconds)
        self.begin()
        self.stops = True

    def all_renewed(self) -> None:
        """Note that no node holds a lease of an earlier process."""
        if not self.stops and self.longest > self._seconds:
            self.longest = self._seconds
            self.begin()


def lease_words(silent_seconds: float, lease: HeldLease) -> str:
    """Return what becomes of a node that is silent though it counts as up; empty: it is not silent, or has no lease."""
    if silent_seconds < QUIET_SECONDS or math.isinf(lease.ends_at):
        return ""
    silent = f"silent for {silent_seconds:.0f} s"
    if lease.left_seconds <= 0.0:
        return f"{silent}; its lease has ended"
    return f"{silent}; its lease ends in {lease.left_seconds:.0f} s, and its jobs start elsewhere then"
