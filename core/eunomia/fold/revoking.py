"""Revoke GPUs of a lease: GPUs that it holds become LEAVING, and promises of other GPUs are withdrawn."""

from eunomia.contract.decisions import Transition, TransitionKind
from eunomia.contract.verdicts import Reason
from eunomia.model.gpu_sets import without
from eunomia.model.leases import Lease
from eunomia.model.workload import JobState
from eunomia.store.state import State
from eunomia.store.writers import drop_lease, forget_probe, leave, move
from eunomia.units import NONE, LeaseId, Seconds

_ON_GPUS = (int(JobState.RUNNING), int(JobState.STARTING))
_STOPS, _WAITS = JobState.STOPPING, JobState.WAITING
_AWAITING_ROUND = int(Reason.AWAITING_ROUND)


def revoke(
    state: State, lease: Lease, gpus: list[int], *, kind: TransitionKind, deadline: Seconds
) -> Transition | None:
    """Revoke GPUs of a lease: GPUs that it holds become LEAVING, and promises of other GPUs end at once.

    Returns:
        The order for executors, with a new epoch; None if the lease held none of these GPUs.
    """
    epoch = state.counters.next_epoch()
    mine = revoke_without_order(state, lease, gpus, epoch, epoch)
    if not mine:
        return None
    held = state.holdings.live
    return Transition(
        kind=kind if not lease.gpus else TransitionKind.SHRINK,
        lease=LeaseId(lease.id),
        epoch=epoch,
        app=state.app_id(lease.app),
        job=None if lease.job == NONE else state.job_id(lease.job),
        gpus=lease.gpus.copy(),  # type: ignore[arg-type]
        cpus=held.cpus[lease.gpus],
        memory_gib=held.memory_gib[lease.gpus],
        ends_at=lease.ends_at,
        protected_until=lease.protected_until,
        leaving=mine,  # type: ignore[arg-type]
        fence=epoch,
        after=[],  # type: ignore[arg-type]
        deadline=deadline,
    )


def revoke_without_order(state: State, lease: Lease, gpus: list[int], fence: int, epoch: int) -> list[int]:
    """Revoke GPUs of a lease without an order for executors; return those of the GPUs that the lease held.

    The job of a lease without GPUs left stops; the lease is leaving, or dropped if it has no GPUs to release.
    """
    kept = without(lease.gpus, gpus) if lease.gpus != gpus else []
    mine = leave(state, lease, gpus, fence, whole=not kept)
    lease.gpus, lease.epoch = kept, int(epoch)
    if epoch > state.counters.last_epoch:
        state.counters.last_epoch = int(epoch)
    if kept:
        if lease.job == NONE:
            state.amounts.refresh(lease)  # an app's lease may now hold all its remaining GPUs
        return mine
    if lease.probe is not None:
        forget_probe(state, lease)
    job, waits = lease.job, lease.id not in state.owners.leaving
    if job != NONE and state.jobs.cells.state[job] in _ON_GPUS:
        move(state, job, _WAITS if waits else _STOPS, reason=_AWAITING_ROUND)
        state.changes.rows.append(job)
    if waits:
        drop_lease(state, lease)
    return mine
