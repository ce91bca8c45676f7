"""Times at which leases and their protected parts end, in two heaps; stale entries are dropped when they surface."""

import heapq
import math

from eunomia.model.leases import Lease, LeaseState
from eunomia.state.state import State
from eunomia.units import NEVER, Seconds


def watch_end(state: State, lease: Lease) -> None:
    """Queue the end of a lease and the end of its protected part."""
    overdue = state.standing.overdue
    if overdue and lease.ends_at > state.now:
        overdue.discard(lease.id)
    if math.isfinite(lease.ends_at):
        heapq.heappush(state.ends, (lease.ends_at, lease.id))
    if lease.protected_until > state.now:
        heapq.heappush(state.guards, (lease.protected_until, lease.id))


def next_end(state: State) -> Seconds:
    """Time when the next lease ends; NEVER: no lease ends."""
    ends = state.ends
    while ends and not _ends_then(state, *ends[0]):
        heapq.heappop(ends)
    return Seconds(ends[0][0]) if ends else NEVER


def take_ended(state: State) -> bool:
    """Move leases that have ended to the overdue set; return whether there were any."""
    ended = False
    while state.ends and next_end(state) <= state.now:
        state.standing.overdue.add(heapq.heappop(state.ends)[1])
        ended = True
    return ended


def next_guard(state: State) -> Seconds:
    """Time when the next protected part of a lease ends; NEVER: none ends."""
    guards = state.guards
    while guards and not _guarded_until(state, *guards[0]):
        heapq.heappop(guards)
    return Seconds(guards[0][0]) if guards else NEVER


def take_unguarded(state: State) -> set[int]:
    """Drop the protected parts that have ended; return the numbers of their leases."""
    ended = set()
    while next_guard(state) <= state.now:
        ended.add(heapq.heappop(state.guards)[1])
    return ended


def _ends_then(state: State, ends_at: float, lease: int) -> bool:
    held = state.leases.get(lease)
    return held is not None and held.ends_at == ends_at and held.state is not LeaseState.LEAVING


def _guarded_until(state: State, until: float, lease: int) -> bool:
    held = state.leases.get(lease)
    return held is not None and held.protected_until == until and held.state is not LeaseState.LEAVING
