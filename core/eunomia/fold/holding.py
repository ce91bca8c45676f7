"""Pause the jobs of users who have used up their GPU hours of the day."""

import math
from collections.abc import Iterator

from eunomia.contract.events import EventError, UserHeld
from eunomia.contract.verdicts import Reason
from eunomia.fold.folding import Folding
from eunomia.model.leases import LeaseState
from eunomia.model.workload import JobState
from eunomia.units import NONE, UserId

_MAY_RUN = (JobState.WAITING, JobState.STARTING, JobState.RUNNING)


def user_held(fold: Folding, event: UserHeld) -> None:
    """Store the time until which a user's jobs may not run, also for those of the jobs that are already held."""
    if not math.isfinite(event.until):
        raise EventError("a user must be held until a time", value=str(event.until), place=event.user)
    state, until = fold.state, float(event.until)
    state.reports.held[event.user] = until
    for job in (job for app in _apps(fold, event.user) for job in state.owners.jobs_of.get(app, ())):
        if state.jobs.cells.reason[job] == Reason.GPU_HOURS and job in state.waiting_jobs.backing_off:
            fold.pause(job, Reason.GPU_HOURS, until=until)


def keep_held(fold: Folding) -> None:
    """Pause the runnable jobs of held users, and revoke the leases of these users' apps."""
    state = fold.state
    for user, until in list(state.reports.held.items()):
        if until <= state.now:
            del state.reports.held[user]
            continue
        for app in _apps(fold, user):
            for job in sorted(state.owners.jobs_of.get(app, ())):
                if state.jobs.cells.state[job] in _MAY_RUN:
                    fold.pause(job, Reason.GPU_HOURS, until=until)
            for lease in state.app_leases(app):
                if lease.state is not LeaseState.LEAVING:
                    fold.leave(lease, lease.gpus)


def _apps(fold: Folding, user: UserId) -> Iterator[int]:
    """Return the rows of a user's apps that have not ended."""
    apps, row = fold.state.apps.cells, fold.state.names.users.get(user, NONE)
    return (app for app in fold.state.names.apps.values() if apps.user[app] == row and not apps.ended[app])
