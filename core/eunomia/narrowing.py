"""The state that an app's own master would have: what a snapshot shows of one app alone."""

import dataclasses

import numpy as np

from eunomia.leases import Holdings
from eunomia.state import State
from eunomia.units import NONE, UserId


def narrowed(state: State, app: int) -> State:
    """Build the state that the app's own master would have: one user, one app, its jobs and what it holds."""
    own = State(state.cluster, seed=state.seed)
    own.now, own.round, own.version = state.now, state.round, state.version
    own.kinds, own.tuner_kinds = dict(state.kinds), dict(state.tuner_kinds)
    apps, users = state.apps.live, state.users.live
    user = own.users.add(id=users.id[apps.user[app]], weight=users.weight[apps.user[app]])
    own.user_rows[UserId(users.id[apps.user[app]])] = user
    row = own.apps.copy_row(state.apps, app, user=user)
    own.app_ledger.copy_row(state.app_ledger, app)
    own.app_accounts.copy_row(state.app_accounts, app)
    own.app_rows[state.app_id(app)] = row
    if app in state.forecasts:
        own.forecasts[row] = state.forecasts[app]
    moved: dict[int, int] = {}
    mine = np.flatnonzero(state.jobs.live.app[: state.jobs.used] == app)
    for job in mine[np.argsort(state.job_accounts.live.order[mine], kind="stable")].tolist():
        moved[job] = own.jobs.copy_row(state.jobs, job, app=row)
        own.job_ledger.copy_row(state.job_ledger, job)
        own.job_accounts.copy_row(state.job_accounts, job)
        own.job_rows[state.job_id(job)] = moved[job]
        if job in state.measured:
            own.measured[moved[job]] = state.measured[job]
    held, copy = state.holdings.live, own.holdings.live
    for gpu in np.flatnonzero(held.app == app).tolist():
        for field in dataclasses.fields(Holdings):
            getattr(copy, field.name)[gpu] = getattr(held, field.name)[gpu]
        copy.app[gpu] = row
        copy.job[gpu] = moved.get(int(held.job[gpu]), NONE)
        copy.next_app[gpu] = row if held.next_app[gpu] == app else NONE
        copy.next_job[gpu] = moved.get(int(held.next_job[gpu]), NONE)
    # N_avg is the cluster's: one app alone cannot know it, so it is kept as it is.
    own.contention_area = state.contention_area
    own.settle_contention = lambda: None  # type: ignore[method-assign]
    return own
