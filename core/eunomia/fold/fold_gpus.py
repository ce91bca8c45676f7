"""Fold events about GPUs into the state: starts, releases, returns, retunes and divisions."""

import math

import numpy as np

from eunomia.contract import events as kinds
from eunomia.contract.events import EventError
from eunomia.fold.adopt import reissue
from eunomia.fold.folding import Folding, await_round
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.model.workload import JobState
from eunomia.store.state import State
from eunomia.store.writers import close_app, divide, drop_job, drop_lease, leave, move, release, run
from eunomia.units import NONE, Seconds

_ACTIVE, _ORDERED, _LEAVING = LeaseState.ACTIVE, LeaseState.ORDERED, LeaseState.LEAVING
_RUNNING, _STARTED = JobState.RUNNING, kinds.Started
_ON_GPUS = (int(JobState.RUNNING), int(JobState.STARTING), int(JobState.STOPPING))


def released(fold: Folding, event: kinds.Released) -> None:
    """Free released GPUs, except those that already have a newer order or another holder."""
    state, lease = fold.state, fold.state.leases.get(event.lease)
    if lease is None:
        return  # late: the lease is gone
    at = event.at if event.at < state.now else state.now  # NaN: the event carries no time
    gpus = _all_back(state, lease, event)
    if gpus:
        _end(fold, lease, gpus, at)
        return
    held = state.holdings.live
    for gpu in event.gpus:
        known = 0 <= gpu < state.cluster.gpus
        if not known or held.lease[gpu] != event.lease or event.epoch < held.epoch[gpu]:
            continue  # a late acknowledgement: the GPU has another holder, or a newer order
        come_back(fold, gpu, at)


def single_job_ended(fold: Folding, event: kinds.SingleJobEnded) -> bool:
    """End an app with its only job; return False, changing nothing, if the parts must be applied one by one."""
    state, lease, owners = fold.state, fold.state.leases.get(event.lease), fold.state.owners
    if lease is None or lease.job == NONE or not event.gpus:
        return False
    job, app, gpus, held = lease.job, lease.app, sorted(event.gpus), state.holdings.cells
    if state.jobs.cells.id[job] != event.job or state.apps.cells.id[app] != event.app or owners.jobs_of[app] != {job}:
        return False
    if state.apps.cells.ended[app] or app in owners.shared_by or lease.id in owners.leaving or gpus != lease.gpus:
        return False
    for gpu in gpus:
        if held.lease[gpu] != lease.id or held.epoch[gpu] > event.epoch:
            return False  # late
    release(state, lease, gpus, state.now)
    drop_job(state, job)
    drop_lease(state, lease)
    close_app(state, app, "finished")
    return True


def _all_back(state: State, lease: Lease, event: kinds.Released) -> list[int]:
    """Return the released GPUs if the lease has no others, whether or not the release was ordered; else []."""
    held, gpus, leaving = state.holdings.cells, sorted(event.gpus), state.owners.leaving.get(lease.id)
    if lease.state is _LEAVING:
        theirs = leaving == set(gpus) and (lease.job != NONE or {held.job[gpu] for gpu in gpus} == {NONE})
    else:
        theirs = lease.job != NONE and not leaving and gpus == lease.gpus
    if not theirs:
        return []
    for gpu in gpus:
        if held.lease[gpu] != lease.id or held.epoch[gpu] > event.epoch:
            return []  # late: one of the GPUs has a newer order or another holder
    return gpus


def _end(fold: Folding, lease: Lease, gpus: list[int], at: Seconds) -> None:
    """End a lease and free all its GPUs at once."""
    state, job = fold.state, lease.job
    state.changes.rows += (~lease.app,) if job == NONE else (job, ~lease.app)
    lease.gpus = []
    release(state, lease, gpus, at)
    if job != NONE and state.jobs.cells.state[job] in _ON_GPUS and not fold.ends(state.jobs.cells.id[job]):
        await_round(state, job, stopped=True, at=at)
    drop_lease(state, lease)


def come_back(fold: Folding, gpu: int, at: Seconds) -> None:
    """Pass a GPU from its holder to its successor, or free it."""
    state, held = fold.state, fold.state.holdings.cells
    lease, job = state.leases[held.lease[gpu]], held.job[gpu]
    if gpu in lease.gpus and held.state[gpu] != GpuState.LEAVING:
        # The GPU was released without an order, and the rest of a gang cannot run without it.
        leave(state, lease, [gpu], held.epoch[gpu], whole=lease.gpus == [gpu])
        lease.gpus = [one for one in lease.gpus if one != gpu]
        if lease.job != NONE and lease.gpus:
            fold.leave(lease, lease.gpus)
        elif lease.job != NONE and state.jobs.cells.state[lease.job] in (JobState.RUNNING, JobState.STARTING):
            move(state, lease.job, JobState.STOPPING)
    if job != NONE and lease.job == NONE:
        fold.undivide(job)
        if state.jobs.live.state[job] == JobState.RUNNING:
            await_round(state, job, stopped=True)  # until its app's tuner assigns it GPUs again
    state.touch(job=lease.job, app=lease.app)
    release(state, lease, [gpu], at)
    if not lease.gpus and not state.owners.leaving.get(lease.id):
        stopped = lease.job
        drop_lease(state, lease)
        if stopped != NONE and state.jobs.cells.state[stopped] == JobState.STOPPING:
            await_round(state, stopped, stopped=True, at=at)


def returned(fold: Folding, event: kinds.GpusReturned) -> None:
    """Revoke the GPUs that an app returns; the app holds them until executors confirm that they are idle."""
    state, held, least = fold.state, fold.state.holdings.live, fold.state.jobs.cells.least
    app, named = fold.app(event.app), set(event.gpus)
    if any(not 0 <= gpu < state.cluster.gpus or held.app[gpu] != app for gpu in named):
        raise EventError("an app must return GPUs that it holds", value=str(event.gpus), place=event.app)
    for lease in state.app_leases(app):
        mine = [gpu for gpu in lease.gpus if gpu in named]
        goes_on = lease.job == NONE or (lease.probe is None and len(lease.gpus) - len(mine) >= least[lease.job])
        order = fold.leave(lease, mine if goes_on else lease.gpus) if mine else None
        if order is not None and goes_on and lease.job != NONE:
            reissue(state, lease, order, runs=True)  # its job continues on the other GPUs, without those returned


def started(fold: Folding, event: kinds.Started | kinds.Resized) -> None:
    """Activate a lease whose start or resize is acknowledged; acknowledgements of older orders are ignored."""
    lease = fold.state.leases.get(event.lease)
    if lease is not None and lease.id in fold.state.amounts.tight:
        # CPUs and memory released at this instant are available to the lease that starts now.
        fold.state.amounts.give_room(fold.state.leases)
    if lease is None or lease.epoch != event.epoch or lease.state is not _ORDERED:
        return  # late: there is a newer order
    lease.state = _ACTIVE
    if fold.state.amounts.are_known:
        fold.state.amounts.begun(lease)
    if lease.job != NONE:
        state, gpus, new = fold.state, lease.gpus if lease.probe is None else lease.running, event.__class__ is _STARTED
        run(state, lease.job, len(gpus), event.at if event.at < state.now else state.now, starts=new)
        state.changes.rows += (lease.job, ~lease.app)


def retuned(fold: Folding, event: kinds.Retuned) -> None:
    """Record the CPUs and memory that executors have set; confirmations of older orders are ignored."""
    lease = fold.state.leases.get(event.lease)
    if lease is not None:
        fold.state.amounts.confirm(lease, event.epoch)
        fold.state.touch(job=lease.job, app=lease.app)


def divided(fold: Folding, event: kinds.JobsDivided) -> None:
    """Record which of an app's jobs run on which of its GPUs."""
    state, held = fold.state, fold.state.holdings.live
    app, jobs = fold.app(event.app), [fold.job(job) for job in event.jobs]
    _check_division(fold, app, jobs, event)
    table = state.jobs.live
    shared = [lease.id for lease in state.app_leases(app) if lease.job == NONE]
    mine = np.flatnonzero(np.isin(held.lease, shared))
    before = set(held.job[mine][held.job[mine] >= 0].tolist())
    for gpu in mine.tolist():
        divide(state, gpu, NONE)
    for job, gpus in zip(jobs, event.gpus, strict=True):
        for gpu in gpus:
            divide(state, gpu, job)
        if table.state[job] != JobState.RUNNING or table.gpus[job] != len(gpus):
            _run(state, job, len(gpus))
    for job in before - set(jobs):
        state.jobs.set(job, gpus=0)
        if table.state[job] == JobState.RUNNING:
            await_round(state, job)
    state.touch(app=app)


def _run(state: State, job: int, gpus: int) -> None:
    """Mark a job as running on a number of its app's GPUs from now on."""
    cells = state.jobs.cells
    since = state.now if math.isnan(cells.since[job]) else cells.since[job]
    starts = cells.state[job] != _RUNNING  # a running job is resized without a restart
    at = state.now if starts else cells.verdict_at[job]
    state.jobs.set(job, since=since, gpus=gpus, reason=0, verdict_at=at, starts=cells.starts[job] + starts)
    move(state, job, JobState.RUNNING)
    state.touch(job=job)


def _check_division(fold: Folding, app: int, jobs: list[int], event: kinds.JobsDivided) -> None:
    state, held, table = fold.state, fold.state.holdings.live, fold.state.jobs.live
    named = [gpu for gpus in event.gpus for gpu in gpus]
    if len(event.jobs) != len(event.gpus) or len(set(named)) != len(named) or len(set(jobs)) != len(jobs):
        raise EventError("a division must name each job and each GPU once", value=str(event.gpus), place=event.app)
    for job, gpus in zip(jobs, event.gpus, strict=True):
        if table.app[job] != app:
            raise EventError("a division must name the app's own jobs", value=state.job_id(job), place=event.app)
        if not table.least[job] <= len(gpus) <= table.most[job]:
            rule = f"a job must run on {table.least[job]} to {table.most[job]} GPUs"
            raise EventError(rule, value=str(len(gpus)), place=state.job_id(job))
        for gpu in gpus:
            lease = state.leases.get(int(held.lease[gpu])) if 0 <= gpu < state.cluster.gpus else None
            if lease is None or lease.app != app or lease.job != NONE:
                raise EventError("a division must stay within the app's leases", value=f"GPU {gpu}", place=event.app)
