"""Takes GPUs from a lease: GPUs that it holds become LEAVING, GPUs that it was only promised are given up."""

import math

import numpy as np

from eunomia.contract.decisions import Transition, TransitionKind
from eunomia.contract.verdicts import Reason
from eunomia.model.gpu_sets import NO_GPUS, without
from eunomia.model.leases import GpuState, Lease
from eunomia.model.workload import JobState
from eunomia.state.state import State
from eunomia.units import NONE, Epoch, Ints, LeaseId, Seconds

_LEAVING = int(GpuState.LEAVING)
_ON_GPUS = (int(JobState.RUNNING), int(JobState.STARTING))
_STOPS, _WAITS = JobState.STOPPING, JobState.WAITING
_AWAITING_ROUND = int(Reason.AWAITING_ROUND)


def revoke(state: State, lease: Lease, gpus: Ints, *, kind: TransitionKind, deadline: Seconds) -> Transition | None:
    """Take GPUs from a lease: GPUs that it holds become LEAVING, GPUs that it was only promised are given up at once.

    Returns:
        The order for executors, with a new epoch; None if the lease held none of these GPUs.
    """
    epoch = state.next_epoch()
    mine = take(state, lease, gpus, epoch)
    if mine.size == 0:
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
        leaving=mine,
        fence=epoch,
        after=NO_GPUS,
        deadline=deadline,
    )


def take(state: State, lease: Lease, gpus: Ints, epoch: Epoch) -> Ints:
    """Take GPUs from a lease without an order for executors; return those of the GPUs that the lease held."""
    numbers = gpus.tolist()
    holder = state.holdings.cells.lease
    those = [gpu for gpu in numbers if holder[gpu] == lease.id]
    mine = gpus if len(those) == len(numbers) else np.array(those, dtype=np.int64)
    _mark(state, lease, numbers, those, epoch)
    lease.gpus = without(lease.gpus, gpus)
    lease.epoch = epoch
    if those:
        state.leaving.setdefault(lease.id, set()).update(those)
    if lease.gpus.size == 0:
        forget_probe(state, lease)
        state.leave(lease)
    _stop_job(state, lease)
    if lease.gpus.size == 0 and not state.leaving.get(lease.id):
        state.drop_lease(lease.id)
    return mine


def forget_probe(state: State, lease: Lease) -> None:
    """End a measurement, which a newer order about the lease overtakes."""
    if lease.probe is not None:
        lease.probe = None
        state.probing.pop(lease.id, None)


def _mark(state: State, lease: Lease, gpus: list[int], mine: list[int], epoch: int) -> None:
    """Mark GPUs that a lease holds as LEAVING, and remove the lease as successor of the others."""
    held = state.holdings.cells
    for gpu in mine:
        held.state[gpu], held.epoch[gpu] = _LEAVING, epoch
    for gpu in gpus:
        if held.successor[gpu] == lease.id:
            held.successor[gpu] = NONE


def stop_clock(state: State, job: int, at: float | None = None) -> None:
    """Store the progress that a job made until now, or until ``at``; the job makes none from then on."""
    jobs = state.jobs.cells
    since = jobs.since[job]
    if since != since:
        return  # the job does not run
    done = jobs.done[job] + max(0.0, (state.now if at is None else at) - since) * jobs.rate[job]
    iterations = jobs.iterations[job]
    jobs.done[job] = iterations if done > iterations else done  # NaN: not known
    jobs.since[job] = math.nan


def _stop_job(state: State, lease: Lease) -> None:
    """Stop the job of a lease that lost all its GPUs; a job without a GPU to give back waits again."""
    if lease.job == NONE or lease.gpus.size:
        return
    stop_clock(state, lease.job)
    if state.jobs.cells.state[lease.job] in _ON_GPUS:
        state.turn(lease.job, _STOPS if state.leaving.get(lease.id) else _WAITS)
        state.jobs.cells.reason[lease.job] = _AWAITING_ROUND
        state.touch(job=lease.job)
