"""Takes GPUs from a lease: GPUs that it holds become LEAVING, GPUs that it was only promised are given up."""

import numpy as np

from eunomia.contract.decisions import Transition, TransitionKind
from eunomia.contract.verdicts import Reason
from eunomia.model.gpu_sets import NO_GPUS
from eunomia.model.leases import Lease, LeaseState
from eunomia.model.workload import JobState
from eunomia.store.state import State
from eunomia.store.writers import halt, leave, move
from eunomia.units import NONE, Ints, LeaseId, Seconds

_ON_GPUS = (int(JobState.RUNNING), int(JobState.STARTING))
_STOPS, _WAITS = JobState.STOPPING, JobState.WAITING
_AWAITING_ROUND = int(Reason.AWAITING_ROUND)


def revoke(state: State, lease: Lease, gpus: Ints, *, kind: TransitionKind, deadline: Seconds) -> Transition | None:
    """Take GPUs from a lease: GPUs that it holds become LEAVING, GPUs that it was only promised are given up at once.

    Returns:
        The order for executors, with a new epoch; None if the lease held none of these GPUs.
    """
    epoch = state.counters.next_epoch()
    mine = shed(state, lease, gpus.tolist(), epoch, epoch)
    if not mine:
        return None
    held = state.holdings.live
    return Transition(
        kind=kind if lease.gpus.size == 0 else TransitionKind.SHRINK,
        lease=LeaseId(lease.id),
        epoch=epoch,
        app=state.app_id(lease.app),
        job=None if lease.job == NONE else state.job_id(lease.job),
        gpus=lease.gpus,
        cpus=held.cpus[lease.gpus],
        memory_gib=held.memory_gib[lease.gpus],
        ends_at=lease.ends_at,
        protected_until=lease.protected_until,
        leaving=np.array(mine, np.int64),
        fence=epoch,
        after=NO_GPUS,
        deadline=deadline,
    )


def shed(state: State, lease: Lease, gpus: list[int], fence: int, epoch: int) -> list[int]:
    """Take GPUs from a lease without an order for executors; return those of the GPUs that the lease held.

    A lease without a GPU leaves, and its job stops; it is dropped if it has none to give back.
    """
    mine = leave(state, lease, gpus, fence)
    lost = set(gpus)
    kept = [gpu for gpu in lease.gpus.tolist() if gpu not in lost]
    lease.gpus, lease.epoch = np.array(kept, np.int64) if kept else NO_GPUS, int(epoch)
    if epoch > state.counters.last_epoch:
        state.counters.last_epoch = int(epoch)
    if kept:
        return mine
    forget_probe(state, lease)
    leave_all(state, lease)
    job, waits = lease.job, not state.owners.leaving.get(lease.id)
    if job != NONE:
        halt(state, job)
        if state.jobs.cells.state[job] in _ON_GPUS:
            move(state, job, _WAITS if waits else _STOPS)
            state.jobs.set(job, reason=_AWAITING_ROUND)
            state.touch(job=job)
    if waits:
        drop_lease(state, lease)
    return mine


def leave_all(state: State, lease: Lease) -> None:
    """Mark a lease as leaving: all its GPUs have to come back."""
    if lease.job == NONE and lease.state is not LeaseState.LEAVING:
        state.owners.divided -= 1
    lease.state = LeaseState.LEAVING
    state.lease_ends.released(lease.id)


def forget_probe(state: State, lease: Lease) -> None:
    """End a measurement, which a newer order about the lease overtakes."""
    if lease.probe is not None:
        lease.probe = None
        state.owners.probing.pop(lease.id, None)


def drop_lease(state: State, lease: Lease) -> None:
    """Drop a lease that has no GPUs left; an ended app is dropped with its last lease."""
    number, job, owners = lease.id, lease.job, state.owners
    del state.leases[number]
    if state.amounts.are_known:
        state.amounts.drop(number)
    if state.owners.probing:
        state.owners.probing.pop(number, None)
    if state.owners.leaving:
        state.owners.leaving.pop(number, None)
    if state.lease_ends.overdue:
        state.lease_ends.released(number)
    if job != NONE:
        if state.jobs.cells.lease[job] == number:
            state.jobs.set(job, lease=NONE)
        return
    shared = owners.shared_by[lease.app]
    shared.discard(number)
    if lease.state is not LeaseState.LEAVING:
        owners.divided -= 1
    if not shared and state.apps.cells.ended[lease.app]:
        drop_app(state, lease.app)


def drop_app(state: State, app: int) -> None:
    """Drop an app that has ended and has given back all its GPUs."""
    state.names.apps.pop(state.apps.cells.id[app], None)
    if state.reports.forecasts:
        state.reports.forecasts.pop(app, None)
    state.owners.jobs_of.pop(app, None)
    state.owners.shared_by.pop(app, None)
    state.apps.drop(app)
