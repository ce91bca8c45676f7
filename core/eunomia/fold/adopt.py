"""Apply a decision to the state, live or in a replay. Only this module and the folding of events change the state."""

from collections.abc import Sequence

import numpy as np

from eunomia.contract.decisions import Decision, ProbeOrder, Renewal, Transition, TransitionKind
from eunomia.contract.offers import Offer
from eunomia.fold.revoking import revoke_without_order
from eunomia.model.changes import VERSIONS_KEPT
from eunomia.model.gpu_sets import without
from eunomia.model.leases import GpuState, Lease, LeaseState, Probing
from eunomia.model.workload import JobState
from eunomia.store.state import STAGE_NUMBER, OpenOffer, State
from eunomia.store.writers import forget_probe, grant, grant_any, leave, mark, move, set_ranges, set_verdict
from eunomia.units import NEVER, NONE, Version


def adopt(state: State, decision: Decision) -> None:
    """Apply a decision to the state, except its memos: the arbiter stores these, as reading one needs its plugin."""
    counters = state.counters
    counters.round = decision.round
    if decision.closed is not None:
        close_offer(state)
    for renewal in decision.renewals:  # before orders: a probe protects the lease for longer, and keeps its terms
        _renew(state, renewal)
    others = [order for order in decision.transitions if order.kind is not _START]
    if others:
        _carry_out(state, decision.transitions, others)
    else:
        for order in decision.transitions:
            grant(state, order)
    if state.amounts.tight:
        state.amounts.give_room(state.leases)
    for waiting in decision.waiting:
        if waiting.job in state.names.jobs:
            reason = 0 if waiting.reason is None else int(waiting.reason)
            stage = -1 if waiting.stage is None else STAGE_NUMBER[waiting.stage]
            set_verdict(state, state.names.jobs[waiting.job], (reason, stage, waiting.plugin))
    for name, time in decision.starts_at:
        if state.job_row(name) != NONE:
            state.reports.starts_at[state.job_row(name)] = time
    for offer in decision.offers:
        _open(state, offer)
    if decision.causes:
        counters.stage_wake_at = decision.stage_wake_at
        if decision.closed is None:
            counters.causes, counters.cause_since = frozenset(), NEVER
    counters.version = Version(counters.version + 1)
    if counters.version % VERSIONS_KEPT == 0:
        state.changes.forget()


def _carry_out(state: State, orders: Sequence[Transition], others: Sequence[Transition]) -> None:
    """Apply the orders of a round that also changes existing leases: first releases, then grants, then retunes."""
    _take_gpus(state, others)
    for order in orders:
        if order.kind is _START:
            grant(state, order)
        elif not order.kind.effect.releases and order.kind is not _RETUNE:
            _resize(state, order)
    for order in others:
        if order.kind is _RETUNE:
            _retune(state, order)


def _take_gpus(state: State, transitions: Sequence[Transition]) -> None:
    """Mark revoked GPUs as LEAVING, before the leases that get them become their successors."""
    for order in transitions:
        kind, lease = order.kind, state.leases[order.lease]
        if kind is _RETUNE:
            continue
        lost = without(lease.gpus, order.listed["gpus"]) if order.listed["gpus"] else lease.gpus
        if not kind.effect.releases:
            leave(state, lease, lost, order.fence)
            continue
        revoke_without_order(state, lease, lost, order.fence, order.epoch)
        if lease.job != NONE and order.listed["gpus"]:
            reissue(state, lease, order)


def _open(state: State, offer: Offer) -> None:
    """Open an offer to app masters; its GPUs are in state OFFERED until it closes."""
    rows = sorted(state.names.apps.values()) if offer.apps is None else [int(row) for row in offer.apps]
    state.open = OpenOffer(offer=offer, bids={}, asked={row: state.app_id(row) for row in rows})
    state.counters.last_offer = int(offer.id)
    states = state.holdings.live.state[offer.gpus]
    mark(state, offer.gpus[(states == GpuState.FREE) | (states == GpuState.HELD)].tolist(), GpuState.OFFERED)


_START, _RETUNE = TransitionKind.START, TransitionKind.RETUNE


def close_offer(state: State) -> None:
    """Close the open offer, so that its GPUs are held or free again."""
    if state.open is None:
        return
    held, gpus = state.holdings.live, state.open.offer.gpus
    offered = gpus[held.state[gpus] == GpuState.OFFERED]
    free = held.lease[offered] == NONE
    mark(state, offered[free].tolist(), GpuState.FREE)
    mark(state, offered[~free].tolist(), GpuState.HELD)
    state.open = None


def _resize(state: State, order: Transition) -> None:
    lease = state.leases[order.lease]
    probe = None if order.probe is None else _probing(state, lease, order.probe)
    lease.gpus = [*order.listed["gpus"]]
    reissue(state, lease, order, probe)


def _probing(state: State, lease: Lease, order: ProbeOrder) -> Probing:
    """Return the probing state of a lease: its GPUs before the measurement, and those on which its job is measured."""
    held = state.holdings.live
    return Probing(
        gpus=order.gpus,
        cpus=order.cpus,
        memory_gib=order.memory_gib,
        iterations=order.iterations,
        until=order.until,
        home=np.array(lease.gpus, np.int64),
        home_cpus=held.cpus[lease.gpus],
        home_memory_gib=held.memory_gib[lease.gpus],
        protected_until=lease.protected_until,
    )


def reissue(state: State, lease: Lease, order: Transition, probe: Probing | None = None, *, runs: bool = False) -> None:
    """Set a lease to PENDING with an order's epoch and terms; ``runs``: its job need not stop for this order."""
    if lease.probe is not None:
        forget_probe(state, lease)
    if probe is not None:
        lease.probe, state.owners.probing[lease.id] = probe, probe.until
    lease.epoch, lease.state = int(order.epoch), LeaseState.PENDING
    state.counters.last_epoch = max(state.counters.last_epoch, lease.epoch)
    lease.ends_at, lease.protected_until = order.ends_at, order.protected_until
    job, jobs = lease.job, state.jobs.cells
    if job != NONE and (runs or order.kind.effect.keeps_running):
        now_is = jobs.state[job]
        state.waiting_jobs.moved(job, now_is, now_is, jobs.most[job], len(lease.home))
    elif job != NONE:
        # The job stops on its old GPUs before it starts on the new ones, unless it keeps running until these are ready.
        move(state, job, JobState.STARTING)
    grant_any(state, order, lease)


def _retune(state: State, order: Transition) -> None:
    """Set the target CPUs and memory of a lease's GPUs; neither its GPUs nor its terms change."""
    lease = state.leases[order.lease]
    state.counters.last_epoch = max(state.counters.last_epoch, int(order.epoch))
    state.holdings.set(order.gpus, cpus=order.cpus, memory_gib=order.memory_gib)
    state.amounts.uneven = True
    set_ranges(state, order)
    state.amounts.retune(lease)
    state.touch(job=lease.job, app=lease.app)


def _renew(state: State, renewal: Renewal) -> None:
    lease = state.leases[renewal.lease]
    lease.ends_at, lease.protected_until = renewal.ends_at, renewal.protected_until
    holder = state.holdings.cells.lease
    mine = [gpu for gpu in lease.gpus if holder[gpu] == lease.id]
    state.holdings.set(mine, ends_at=lease.ends_at, protected_until=lease.protected_until)
    state.lease_ends.granted(lease, state.now)
    state.touch(job=lease.job, app=lease.app)
