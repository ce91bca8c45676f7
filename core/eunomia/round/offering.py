"""The GPUs that a round may reassign, and the jobs that may get them."""

import itertools

import numpy as np

from eunomia.contract.offers import Offer
from eunomia.model.leases import GpuState
from eunomia.model.workload import JobState
from eunomia.store.state import State
from eunomia.units import NONE, Bools, Ints, Rows, Scope

_FREE, _HELD, _DOWN = int(GpuState.FREE), int(GpuState.HELD), int(GpuState.DOWN)
_WAITING, _RUNNING, _STARTING = int(JobState.WAITING), int(JobState.RUNNING), int(JobState.STARTING)
"""Job states as plain numbers, with which columns are compared much faster than with enum members."""
OLDEST = 8
"""How many leases are checked first, from the oldest on, which are least likely to still be protected."""


def anything(state: State, offer: Offer) -> bool:
    """Return whether the offer contains any GPU; the oldest leases are tried first."""
    if offer.whole and any(state.free_gpus.free):
        return True
    if offer.whole and offer.scope is Scope.ALL:
        held, now = state.holdings.cells, state.now
        for lease in itertools.islice(state.leases.values(), OLDEST):
            for gpu in lease.gpus[:1]:
                may = held.successor[gpu] == NONE and held.state[gpu] != _DOWN and held.protected_until[gpu] <= now
                if may and gpu not in state.capacity.draining:
                    return True
    return offer.gpus.size > 0


def reached(state: State, offer: Offer, gpus: list[int]) -> list[int]:
    """Return those of the given GPUs that are on the offer; the state must be that in which the offer was made."""
    if not offer.whole:
        offered = set(offer.gpus.tolist())
        return [gpu for gpu in gpus if gpu in offered]
    if offer.scope is Scope.ALL and not state.owners.leaving:
        held, now = state.holdings.cells, state.now  # no GPU has a successor, since none is leaving
        return [gpu for gpu in gpus if held.state[gpu] != _DOWN and held.protected_until[gpu] <= now]
    return [*itertools.compress(gpus, may_change(state, offer.scope, np.array(gpus)))]


def may_change(state: State, scope: Scope, gpus: Ints | slice) -> Bools:
    """Return whether a round may reassign each of these GPUs."""
    held, now = state.holdings.live, state.now
    states, successors = held.state[gpus], held.successor[gpus]
    may: Bools = held.protected_until[gpus] <= now
    if state.capacity.draining:
        may &= ~np.isin(np.arange(state.cluster.gpus)[gpus], list(state.capacity.draining))
    if scope is Scope.FREE:
        may &= (states == _HELD) & (held.ends_at[gpus] <= now) & (successors == NONE)
        may |= states == _FREE
        return may
    for at in (successors != NONE).nonzero()[0]:
        may[at] &= state.leases[successors.item(at)].protected_until <= now
    may &= states != _DOWN
    return may


def named(state: State, scope: Scope) -> Ints:
    """Return the numbers of the machines on which apps hold GPUs that are not on offer, ascending."""
    cluster, mask = state.cluster, may_change(state, scope, slice(None))
    found = np.zeros(len(cluster.machines), dtype=bool)
    found[cluster.machine[(state.holdings.live.app >= 0) & ~mask]] = True
    return found.nonzero()[0]


def candidates(state: State, scope: Scope, only_free: bool) -> Rows:
    """Return the rows of waiting jobs and, unless ``only_free``, of jobs whose GPUs are all on offer, by arrival."""
    if only_free:
        return state.by_arrival(np.fromiter(state.waiting_jobs.rows, np.int64))
    used, mask = state.jobs.used, may_change(state, scope, slice(None))
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
