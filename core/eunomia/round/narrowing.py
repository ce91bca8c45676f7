"""The snapshot that an app's own master sees: its own app and jobs only."""

import functools
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from eunomia.contract.memos import Memos
from eunomia.contract.snapshot import Reported, Snapshot, SnapshotSource
from eunomia.model.leases import Holdings
from eunomia.model.ledger import Ledger
from eunomia.model.workload import JobState
from eunomia.store.state import State
from eunomia.units import NONE, Ints, Rows

C = TypeVar("C")
T = TypeVar("T")


def narrowed(state: State, seen: Snapshot, app: int) -> Snapshot:
    """Narrow a snapshot to one app as row 0 of the only user, its jobs by arrival, and the GPUs that it holds."""
    mine = np.array(sorted(state.owners.jobs_of.get(app, ())), dtype=np.int64)
    jobs, row = state.by_arrival(mine), np.array([app])
    moved = {job: own for own, job in enumerate(jobs.tolist())}
    table = _taken(state.jobs.shown, jobs, app=0)
    return Snapshot(
        now=state.now,
        round=state.counters.round,
        version=state.counters.version,
        causes=seen.causes,
        cluster=state.cluster,
        users=_taken(state.users.shown, state.apps.live.user[row]),
        apps=_taken(state.apps.shown, row, user=0),
        jobs=table,
        active=np.flatnonzero(table.state != int(JobState.PAUSED)).astype(np.int32),
        active_apps=np.zeros(1, dtype=np.int32),
        holdings=_holdings(state, app, moved),
        reports=Reported(
            forecasts=_moved(state.reports.forecasts, {app: 0}),
            measured=_moved(state.reports.measured, moved),
            measured_at_others=_moved(state.reports.measured_at_others, moved),
            coming_regimes=_moved(state.reports.coming_regimes, moved),
            profiles=state.reports.profiles,
        ),
        ledger=Ledger(
            jobs=_taken(state.job_ledger, jobs),
            apps=_taken(state.app_ledger, row),
            adaptations=_moved(state.reports.adaptations, moved),
        ),
        memos=Memos({}),
        kinds=tuple(state.names.kinds),
        source=SnapshotSource(seed=state.counters.seed),
        needs=seen.needs,
    )


def _moved(by_job: Mapping[int, T], moved: dict[int, int]) -> dict[int, T]:
    """Return the values of the app's jobs, keyed by their rows in the app's own snapshot."""
    return {own: by_job[job] for job, own in moved.items() if job in by_job}


def _taken(table: C, rows: Ints | Rows, **instead: int) -> C:
    """Copy columns of some rows of a table; the columns named in ``instead`` hold the given value."""
    columns = {name: getattr(table, name)[rows] for name in table.__slots__}  # type: ignore[attr-defined]
    for name, row in instead.items():
        columns[name][:] = row
    return _sealed(type(table), columns)


def _holdings(state: State, app: int, moved: dict[int, int]) -> Holdings:
    """One row per GPU; GPUs that the app does not hold are shown as free."""
    held = state.holdings.live
    mine, free = np.flatnonzero(held.app == app), _all_free(held.app.size)
    if not mine.size:
        return free
    columns = {one.name: getattr(free, one.name).copy() for one in fields(Holdings)}
    for name, column in columns.items():
        column[mine] = getattr(held, name)[mine]
    columns["app"][mine] = 0
    columns["next_app"][mine] = np.where(held.next_app[mine] == app, 0, NONE)
    for name in ("job", "next_job"):
        columns[name][mine] = [moved.get(job, NONE) for job in getattr(held, name)[mine].tolist()]
    return _sealed(Holdings, columns)


@functools.lru_cache(maxsize=8)
def _all_free(gpus: int) -> Holdings:
    """Return the holdings that an app without GPUs sees."""
    columns = {one.name: np.full(gpus, one.metadata["fill"], one.metadata["dtype"]) for one in fields(Holdings)}
    return _sealed(Holdings, columns)


def _sealed(kind: type[C], columns: dict[str, Any]) -> C:
    """Make a table of columns that can only be read."""
    for column in columns.values():
        column.flags.writeable = False
    return kind(**columns)
