"""Adopts a decision into the state, live and in a replay. Apart from folding events, nothing else changes the state."""

from collections.abc import Sequence

import numpy as np

from eunomia.contract.decisions import Decision, ProbeOrder, Renewal, Transition, TransitionKind, Waiting
from eunomia.contract.offers import Offer
from eunomia.contract.verdicts import Reason
from eunomia.model.gpu_sets import without
from eunomia.model.leases import GpuState, Lease, LeaseState, Probing
from eunomia.model.workload import JobState
from eunomia.state.revoking import forget_probe, stop_clock, take
from eunomia.state.room import give_room
from eunomia.state.state import OpenOffer, State
from eunomia.units import NEVER, NONE


def adopt(state: State, decision: Decision) -> None:
    """Make the decision the state's target. The arbiter adopts the memos itself, since only plugins can read them."""
    state.standing  # noqa: B018 -- builds the state index before the tables change
    state.round = decision.round
    if decision.closed is not None:
        close_offer(state)
    for renewal in decision.renewals:  # before orders: a probe protects the lease for longer, and keeps its terms
        _renew(state, renewal)
    transitions = decision.transitions
    if transitions:
        _carry_out(state, transitions)
    if state.amounts.tight:
        give_room(state)
    for waiting in decision.waiting:
        _explain(state, waiting)
    for job, time in decision.starts_at:
        if state.job_row(job) != NONE:
            state.starts_at[state.job_row(job)] = time
    for offer in decision.offers:
        _open(state, offer)
    if decision.causes:
        state.stage_wake_at = decision.stage_wake_at
        if decision.closed is None:
            state.causes.clear()
            state.cause_since = NEVER
    state.bump()


def _carry_out(state: State, transitions: Sequence[Transition]) -> None:
    # Leases that lose GPUs come first: their GPUs are then LEAVING, and the leases that get them become successors.
    for order in transitions:
        effect = order.kind.effect
        if not effect.starts and not effect.releases and order.kind is not _RETUNE:
            _let_go(state, state.leases[order.lease], order)
    for order in transitions:
        if order.kind.effect.releases:
            _leave(state, order)
    for order in transitions:
        effect = order.kind.effect
        if effect.starts:
            _start(state, order)
        elif not effect.releases and order.kind is not _RETUNE:
            _resize(state, order)
    for order in transitions:
        if order.kind is _RETUNE:
            _retune(state, order)


def _open(state: State, offer: Offer) -> None:
    """Open an offer to app masters; its GPUs are OFFERED until it closes."""
    rows = sorted(state.app_rows.values()) if offer.apps is None else [int(row) for row in offer.apps]
    state.open = OpenOffer(offer=offer, bids={}, asked={row: state.app_id(row) for row in rows})
    state.last_offer = int(offer.id)
    held = state.holdings.live
    state.standing.space.take(offer.gpus[held.state[offer.gpus] == GpuState.FREE].tolist())
    held.state[offer.gpus[held.state[offer.gpus] != GpuState.DOWN]] = GpuState.OFFERED


_RETUNE = TransitionKind.RETUNE
_STARTING, _ORDERED = JobState.STARTING, LeaseState.ORDERED
_AWAITING_RELEASE = int(Reason.AWAITING_RELEASE)


def close_offer(state: State) -> None:
    """Close the open offer: its GPUs are held or free again."""
    if state.open is None:
        return
    held = state.holdings.live
    gpus = state.open.offer.gpus
    offered = gpus[held.state[gpus] == GpuState.OFFERED]
    free = held.lease[offered] == NONE
    held.state[offered] = np.where(free, GpuState.FREE, GpuState.HELD)
    state.standing.space.give(offered[free].tolist())
    state.open = None


def _leave(state: State, order: Transition) -> None:
    lease = state.leases[order.lease]
    lost = without(lease.gpus, order.gpus)
    job = lease.job
    take(state, lease, lost, state.next_epoch())
    lease.epoch = order.epoch
    if order.epoch > state.last_epoch:
        state.last_epoch = int(order.epoch)
    epoch, fence = state.holdings.cells.epoch, int(order.fence)
    for gpu in order.leaving.tolist():
        epoch[gpu] = fence
    if job != NONE and order.gpus.size:
        confirm_again(state, lease, order)


def _let_go(state: State, lease: Lease, order: Transition) -> None:
    """Make a lease that also gets GPUs give up others first, so that other leases can get them."""
    held = state.holdings.live
    lost = without(lease.gpus, order.gpus)
    held.successor[lost[held.successor[lost] == lease.id]] = NONE
    mine = lost[held.lease[lost] == lease.id]
    held.state[mine] = GpuState.LEAVING
    held.epoch[mine] = order.fence
    if mine.size:
        state.leaving.setdefault(lease.id, set()).update(mine.tolist())


def _start(state: State, order: Transition) -> None:
    app = state.app_rows.get(order.app, NONE)
    job = NONE if order.job is None else state.job_rows.get(order.job, NONE)
    lease = Lease(
        id=int(order.lease),
        epoch=int(order.epoch),
        app=app,
        job=job,
        gpus=order.gpus,
        ends_at=order.ends_at,
        protected_until=order.protected_until,
        granted_at=state.now,
    )
    state.add_lease(lease)
    if lease.id > state.last_lease:
        state.last_lease = lease.id
    if lease.epoch > state.last_epoch:
        state.last_epoch = lease.epoch
    if job != NONE:
        jobs = state.jobs.cells
        jobs.lease[job] = lease.id
        state.turn(job, _STARTING)
        jobs.reason[job] = _AWAITING_RELEASE if order.after.size else 0
    _settle(state, lease, order)


def _resize(state: State, order: Transition) -> None:
    lease = state.leases[order.lease]
    probe = None if order.probe is None else _probing(state, lease, order.probe)
    lease.gpus = order.gpus
    confirm_again(state, lease, order, probe)


def _probing(state: State, lease: Lease, order: ProbeOrder) -> Probing:
    """Return the lease's GPUs before the measurement, and the GPUs on which its job is measured."""
    held = state.holdings.live
    return Probing(
        gpus=order.gpus,
        cpus=order.cpus,
        memory_gib=order.memory_gib,
        iterations=order.iterations,
        until=order.until,
        home=lease.gpus,
        home_cpus=held.cpus[lease.gpus],
        home_memory_gib=held.memory_gib[lease.gpus],
        protected_until=lease.protected_until,
    )


def confirm_again(state: State, lease: Lease, order: Transition, probe: Probing | None = None) -> None:
    """Make executors confirm a lease again under the order's epoch: its job starts again, or changes its size."""
    forget_probe(state, lease)
    if probe is not None:
        lease.probe, state.probing[lease.id] = probe, probe.until
    lease.epoch = int(order.epoch)
    state.last_epoch = max(state.last_epoch, lease.epoch)
    lease.ends_at, lease.protected_until = order.ends_at, order.protected_until
    lease.state = LeaseState.PENDING
    if lease.job != NONE:
        state.sized(lease.job)
    if lease.job != NONE and not order.kind.effect.keeps_running:
        # The job stops on its old GPUs before it starts on the new ones, unless it keeps running until these are ready.
        stop_clock(state, lease.job)
        state.turn(lease.job, JobState.STARTING)
    _settle(state, lease, order)


def _settle(state: State, lease: Lease, order: Transition) -> None:
    """Make a lease the holder of those of its GPUs that are free, and the successor on the others."""
    held, gpus = state.holdings.cells, order.gpus.tolist()
    holder = held.lease
    free = [gpu for gpu in gpus if holder[gpu] == NONE]
    all_free = free == gpus
    if free:
        state.standing.space.take(free)
        state.occupy(free, lease)
    for gpu in () if all_free else gpus:
        if held.lease[gpu] != lease.id or held.state[gpu] == GpuState.LEAVING:
            held.successor[gpu] = lease.id
            held.next_app[gpu], held.next_job[gpu] = lease.app, lease.job
        else:
            held.epoch[gpu] = lease.epoch
            held.ends_at[gpu], held.protected_until[gpu] = lease.ends_at, lease.protected_until
    held_cpus, held_memory = held.cpus, held.memory_gib
    for gpu, cpus, memory_gib in zip(gpus, order.cpus.tolist(), order.memory_gib.tolist(), strict=True):
        held_cpus[gpu], held_memory[gpu] = cpus, memory_gib
    if state.machine_shares.are_known and not state.standing.uneven:
        every, all_memory = state.machine_shares.by_gpu
        even = np.array_equal(order.cpus, every[order.gpus])
        even &= np.array_equal(order.memory_gib, all_memory[order.gpus])
        state.standing.uneven = not even
    if state.amounts.are_known:
        _set_ranges(state, order)
        state.amounts.overtake(lease)
    if all_free and not state.amounts.are_known:
        lease.state = _ORDERED
    else:
        state.amounts.refresh(lease)
    state.lease_ends.granted(lease, state.now)
    state.touch(job=lease.job, app=lease.app)


def _set_ranges(state: State, order: Transition) -> None:
    """Keep the range of a lease's CPUs and memory, an equal part by GPU."""
    held, gpus = state.holdings.live, order.gpus
    for bounds, least, most in (
        (order.cpus_range, held.least_cpus, held.most_cpus),
        (order.memory_range, held.least_memory_gib, held.most_memory_gib),
    ):
        if bounds is not None:
            least[gpus], most[gpus] = bounds[0] / gpus.size, bounds[1] / gpus.size


def _retune(state: State, order: Transition) -> None:
    """Set the CPUs and memory that a lease is to have on its GPUs; neither its GPUs nor its terms change."""
    lease, held = state.leases[order.lease], state.holdings.live
    state.last_epoch = max(state.last_epoch, int(order.epoch))
    held.cpus[order.gpus], held.memory_gib[order.gpus] = order.cpus, order.memory_gib
    state.standing.uneven = True
    _set_ranges(state, order)
    state.amounts.retune(lease)
    state.touch(job=lease.job, app=lease.app)


def _renew(state: State, renewal: Renewal) -> None:
    lease = state.leases[renewal.lease]
    lease.ends_at, lease.protected_until = renewal.ends_at, renewal.protected_until
    held = state.holdings.live
    mine = lease.gpus[held.lease[lease.gpus] == lease.id]
    held.ends_at[mine], held.protected_until[mine] = renewal.ends_at, renewal.protected_until
    state.lease_ends.granted(lease, state.now)
    state.touch(job=lease.job, app=lease.app)


def _explain(state: State, waiting: Waiting) -> None:
    row = state.job_row(waiting.job)
    if row != NONE:
        state.verdict(row, waiting)
