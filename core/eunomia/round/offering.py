"""Builds the offer of a round: the GPUs that it may reassign, and the jobs that may get them."""

import functools
import itertools

import numpy as np

from eunomia.contract.offers import Offer
from eunomia.model.leases import GpuState
from eunomia.model.shapes import Deferred
from eunomia.model.workload import JobState
from eunomia.store.state import State
from eunomia.units import NONE, Bools, Ints, OfferId, Rows, Scope, Seconds

_FREE, _HELD, _DOWN = int(GpuState.FREE), int(GpuState.HELD), int(GpuState.DOWN)
_WAITING, _RUNNING, _STARTING = int(JobState.WAITING), int(JobState.RUNNING), int(JobState.STARTING)
"""As plain numbers: a column is compared with these much faster than with enum members."""
OLDEST = 8
"""Number of the oldest leases that are tried first; they are the least likely to be still protected."""


def make_offer(state: State, scope: Scope, lease: Seconds, *, retune: bool = False) -> Offer:
    """Offer every GPU that the round may reassign to all apps; the fields are computed when a stage reads them."""
    only_free = scope is Scope.FREE and not state.lease_ends.overdue
    reach = _Reach(state, scope, only_free)
    free = state.free_gpus.free
    return Offer(
        id=OfferId(state.counters.last_offer + 1),
        scope=scope,
        made_at=state.now,
        gpus=Deferred(lambda: reach.mask.nonzero()[0]),  # type: ignore[arg-type]
        candidates=Deferred(reach.candidates),  # type: ignore[arg-type]
        free_gpus=sum(free) if only_free else Deferred(lambda: int(reach.mask.sum())),  # type: ignore[arg-type]
        contended=state.waiting_jobs.asked > min(free),
        retune=retune,
        whole=True,
        lease=lease,
        capacity=state.capacity.in_service,
        contention=Deferred(lambda: state.app_ledger.contention[: max(1, state.apps.used)].copy()),  # type: ignore[arg-type]
        named=Deferred(reach.named),  # type: ignore[arg-type]
    )


def anything(state: State, offer: Offer) -> bool:
    """Return whether the offer has any GPU; the oldest leases are tried first."""
    if offer.whole and any(state.free_gpus.free):
        return True
    if offer.whole and offer.scope is Scope.ALL:
        held, now = state.holdings.cells, state.now
        for lease in itertools.islice(state.leases.values(), OLDEST):
            for gpu in lease.gpus[:1].tolist():
                if held.successor[gpu] == NONE and held.state[gpu] != _DOWN and held.protected_until[gpu] <= now:
                    return True
    return offer.gpus.size > 0


def reached(state: State, offer: Offer, gpus: Ints) -> Bools:
    """Return for each of these GPUs whether it is on the offer; on a whole offer only these GPUs are checked.

    Args:
        state: as it was when the offer was made.
        offer: of this round.
        gpus: GPU numbers of the cluster.
    """
    if not offer.whole:
        offered = set(offer.gpus.tolist())
        return np.array([gpu in offered for gpu in gpus.tolist()], dtype=bool)
    return _may_change(state, offer.scope, gpus)


def _may_change(state: State, scope: Scope, gpus: Ints | slice) -> Bools:
    """Return for each of these GPUs whether a round may reassign it."""
    held, now = state.holdings.live, state.now
    states, successors = held.state[gpus], held.successor[gpus]
    may: Bools = held.protected_until[gpus] <= now
    if scope is Scope.FREE:
        may &= (states == _HELD) & (held.ends_at[gpus] <= now) & (successors == NONE)
        may |= states == _FREE
        return may
    for at in (successors != NONE).nonzero()[0]:
        may[at] &= state.leases[successors.item(at)].protected_until <= now
    may &= states != _DOWN
    return may


class _Reach:
    """The GPUs and jobs that a round may change, computed on first use."""

    def __init__(self, state: State, scope: Scope, only_free: bool) -> None:
        self.state, self.scope, self.only_free = state, scope, only_free

    @functools.cached_property
    def mask(self) -> Bools:
        """Of each GPU of the cluster, whether it is on offer."""
        return _may_change(self.state, self.scope, slice(None))

    def candidates(self) -> Rows:
        if self.only_free:
            return self.state.by_arrival(np.fromiter(self.state.waiting_jobs.rows, np.int64))
        return _candidates(self.state, self.mask)

    def named(self) -> Ints:
        held, cluster = self.state.holdings.live, self.state.cluster
        found = np.zeros(len(cluster.machines), dtype=bool)
        found[cluster.machine[(held.app >= 0) & ~self.mask]] = True
        return found.nonzero()[0]


def _candidates(state: State, mask: Bools) -> Rows:
    """Jobs that wait, and jobs whose GPUs are all on offer; by arrival."""
    used = state.jobs.used
    states = state.jobs.live.state[:used]
    chosen = states == _WAITING
    held = state.holdings.live
    runs = (states == _RUNNING) | (states == _STARTING)
    beyond = np.zeros(used, dtype=bool)
    inside = np.zeros(used, dtype=bool)
    on = held.job >= 0
    beyond[held.job[on & ~mask]] = True
    inside[held.job[on & mask]] = True
    for gpu in np.flatnonzero(held.successor != NONE).tolist():
        job = state.leases[int(held.successor[gpu])].job
        if job != NONE:
            (inside if mask[gpu] else beyond)[job] = True
    chosen |= runs & inside & ~beyond
    return state.by_arrival(np.flatnonzero(chosen))
