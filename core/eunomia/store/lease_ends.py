"""When leases and their protected parts end: two heaps, whose stale entries are dropped when they surface."""

import heapq
import math
from collections.abc import Mapping
from typing import Self

from eunomia.model.leases import Lease, LeaseState
from eunomia.units import NEVER, Seconds


class LeaseEnds:
    """The ends of leases to come, and the leases that have ended and were not renewed.

    Args:
        leases: all leases by number; the index reads them to know which entries are stale.

    Attributes:
        ends: heap of the times at which leases end, each with its lease; empty: no lease ends.
        guards: heap of the times at which protected parts end, each with its lease.
        overdue: leases that have ended and have not been renewed.
    """

    __slots__ = ("_leases", "ends", "guards", "overdue")

    def __init__(self, leases: Mapping[int, Lease]) -> None:
        self._leases = leases
        self.ends: list[tuple[float, int]] = []
        self.guards: list[tuple[float, int]] = []
        self.overdue: set[int] = set()

    def granted(self, lease: Lease, now: Seconds) -> None:
        """Note the terms of a lease that is granted or renewed, or gets other terms."""
        if self.overdue and lease.ends_at > now:
            self.overdue.discard(lease.id)
        if math.isfinite(lease.ends_at):
            heapq.heappush(self.ends, (lease.ends_at, lease.id))
        if lease.protected_until > now:
            heapq.heappush(self.guards, (lease.protected_until, lease.id))

    def released(self, lease: int) -> None:
        """Forget a lease that gives back its GPUs."""
        self.overdue.discard(lease)

    def next_end(self) -> Seconds:
        """Time when the next lease ends; NEVER: no lease ends."""
        ends = self.ends
        while ends and not self._ends_then(*ends[0]):
            heapq.heappop(ends)
        return Seconds(ends[0][0]) if ends else NEVER

    def next_guard(self) -> Seconds:
        """Time when the next protected part of a lease ends; NEVER: none ends."""
        guards = self.guards
        while guards and not self._guarded_until(*guards[0]):
            heapq.heappop(guards)
        return Seconds(guards[0][0]) if guards else NEVER

    def take_ended(self, now: Seconds) -> bool:
        """Count the leases that have ended by now as overdue; return whether there were any."""
        ended = False
        while self.ends and self.next_end() <= now:
            self.overdue.add(heapq.heappop(self.ends)[1])
            ended = True
        return ended

    def take_unguarded(self, now: Seconds) -> set[int]:
        """Drop the protected parts that have ended by now; return the numbers of their leases."""
        ended = set()
        while self.next_guard() <= now:
            ended.add(heapq.heappop(self.guards)[1])
        return ended

    def rebuild(self, now: Seconds) -> Self:
        """The same index made from the leases."""
        made = type(self)(self._leases)
        for lease in self._leases.values():
            if lease.state is not LeaseState.LEAVING:
                made.granted(lease, now)
        made.take_ended(now)
        return made

    def same(self, other: Self, now: Seconds) -> bool:
        """Return whether both hold the same entries; stale ones are left out, and protected parts that have ended."""
        return self._content(now) == other._content(now)

    def _content(self, now: Seconds) -> tuple[set[tuple[float, int]], set[tuple[float, int]], set[int]]:
        ends = {entry for entry in self.ends if self._ends_then(*entry) and entry[1] not in self.overdue}
        guards = {entry for entry in self.guards if self._guarded_until(*entry) and entry[0] > now}
        return ends, guards, self.overdue

    def _ends_then(self, ends_at: float, lease: int) -> bool:
        held = self._leases.get(lease)
        return held is not None and held.ends_at == ends_at and held.state is not LeaseState.LEAVING

    def _guarded_until(self, until: float, lease: int) -> bool:
        held = self._leases.get(lease)
        return held is not None and held.protected_until == until and held.state is not LeaseState.LEAVING
