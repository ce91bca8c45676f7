"""The end of an app's only job folded in one go: its GPUs, its lease, the job and the app leave together.

It comes to what ``fold_gpus.released``, ``fold_work.job_finished`` and ``fold_work.app_finished`` come to one after the
other, without what they write of a job and an app whose rows are given back in the same moment.
"""

from eunomia.columns import drop_row
from eunomia.events import AppFinished, Event, JobFinished, Released
from eunomia.leases import Lease, LeaseState
from eunomia.state import State
from eunomia.units import NONE, Cause

_LEAVING = LeaseState.LEAVING
_FREED, _LEFT = Cause.FREED, Cause.LEFT


def ends_whole(state: State, released: Released, finished: Event, over: Event) -> bool:
    """Fold three events that follow each other, if they say that an app's only job gave back all and was all.

    Returns:
        False, where it is not so: nothing was changed.
    """
    if type(finished) is not JobFinished or type(over) is not AppFinished:
        return False
    lease = state.leases.get(released.lease)
    if lease is None or not _is_alone(state, lease, finished, over) or not _has_left(state, lease, released):
        return False
    state.standing.space.give(released.gpus)
    state.holdings.clear(released.gpus)
    state.cause(_FREED)
    _forget(state, lease, over)
    return True


def _is_alone(state: State, lease: Lease, finished: JobFinished, over: AppFinished) -> bool:
    """Say whether the lease is the only one of the job and the app that end, and the job the app's only one."""
    job, app = lease.job, lease.app
    return (
        job != NONE
        and state.jobs.cells.id[job] == finished.job
        and state.apps.cells.id[app] == over.app
        and state.app_accounts.cells.leases[app] == 1
        and len(state.standing.jobs_of[app]) == 1
    )


def _has_left(state: State, lease: Lease, released: Released) -> bool:
    """Say whether all that the lease has comes back, and nothing of it was ordered otherwise or is promised."""
    number, job, epoch, gpus, held = lease.id, lease.job, released.epoch, released.gpus, state.holdings.cells
    if not gpus or lease.state is _LEAVING or number in state.leaving or lease.gpus.tolist() != sorted(gpus):
        return False
    holder, runs, successor, epochs = held.lease, held.job, held.successor, held.epoch
    for gpu in gpus:
        if holder[gpu] != number or runs[gpu] != job or successor[gpu] != NONE or epochs[gpu] > epoch:
            return False
    return True


def _forget(state: State, lease: Lease, over: AppFinished) -> None:
    """A lease, its job and their app are here no more."""
    job, app, standing = lease.job, lease.app, state.standing
    lease.gpus = lease.gpus[:0]
    del state.leases[lease.id]
    standing.overdue.discard(lease.id)
    state.forget_job(job)
    del state.job_rows[state.jobs.cells.id[job]]
    for beside in (standing.backing_off, state.measured, state.starts_at):
        if beside:
            beside.pop(job, None)
    drop_row(state.tables_of_jobs, job)
    if state.open is not None:
        state.open.bids.pop(app, None)
    state.outcomes[over.app] = "failed" if over.failed else "finished"
    standing.present -= 1
    state.app_rows.pop(over.app, None)
    if state.forecasts:
        state.forecasts.pop(app, None)
    del standing.jobs_of[app], standing.leases_of[app]
    drop_row(state.tables_of_apps, app)
    state.books.unshow()
    state.touch(job=job, app=app)
    state.cause(_LEFT)
