"""The offer of a round: which GPUs may be touched, and which jobs may be granted something."""

import numpy as np

from eunomia.leases import GpuState
from eunomia.offers import Offer
from eunomia.state import State
from eunomia.units import NONE, Bools, Ints, OfferId, Rows, Scope, Seconds
from eunomia.workload import JobState


def make_offer(state: State, scope: Scope, lease: Seconds) -> Offer:
    """All that may be touched now, to everyone."""
    mask = _free(state) if scope is Scope.FREE else _unprotected(state)
    gpus = np.flatnonzero(mask).astype(np.int64)
    candidates = _candidates(state, mask)
    waiting = state.waiting()
    up = state.holdings.live.state != GpuState.DOWN
    return Offer(
        id=OfferId(state.last_offer + 1),
        scope=scope,
        made_at=state.now,
        gpus=gpus,
        candidates=candidates,
        free_gpus=int(gpus.size),
        contended=bool(state.jobs.live.most[waiting].sum() > (mask & (state.holdings.live.lease == NONE)).sum()),
        lease=lease,
        capacity=np.bincount(
            state.cluster.gpu_type[up[: state.cluster.gpus]], minlength=len(state.cluster.gpu_types)
        ).astype(np.int64),
        contention=state.app_ledger.live.contention[: max(1, state.apps.used)].copy(),
        named=_named(state, mask),
    )


def _free(state: State) -> Bools:
    held = state.holdings.live
    ended = (held.state == GpuState.HELD) & (held.ends_at <= state.now) & (held.protected_until <= state.now)
    mask: Bools = ((held.state == GpuState.FREE) | ended) & (held.successor == NONE)
    return mask


def _unprotected(state: State) -> Bools:
    held = state.holdings.live
    mask: Bools = (held.state != GpuState.DOWN) & (held.protected_until <= state.now)
    for gpu in np.flatnonzero(held.successor != NONE).tolist():
        mask[gpu] &= state.leases[int(held.successor[gpu])].protected_until <= state.now
    return mask


def _candidates(state: State, mask: Bools) -> Rows:
    """Jobs that wait, and jobs that hold nothing but GPUs on offer; by arrival."""
    used = state.jobs.used
    states = state.jobs.live.state[:used]
    chosen = states == JobState.WAITING
    held = state.holdings.live
    runs = (states == JobState.RUNNING) | (states == JobState.STARTING)
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
    rows = np.flatnonzero(chosen)
    return rows[np.argsort(state.job_accounts.live.order[rows], kind="stable")].astype(np.int32)


def _named(state: State, mask: Bools) -> Ints:
    held = state.holdings.live
    return np.unique(state.cluster.machine[(held.app >= 0) & ~mask]).astype(np.int64)
