"""The snapshot for an app's own master, which contains only its app and jobs."""

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
from eunomia.units import NONE, Ints, Rows

C = TypeVar("C")
T = TypeVar("T")


def narrowed(seen: Snapshot, app: int) -> Snapshot:
    """Return a snapshot of a single app: the app as row 0, its jobs by arrival, and the GPUs that it holds."""
    jobs, row, reports, ledger = np.flatnonzero(seen.jobs.app == app), np.array([app]), seen.reports, seen.ledger
    order = seen.jobs.arrived if seen.arrivals is None else seen.arrivals
    jobs = jobs[np.argsort(order[jobs], kind="stable")]
    moved = {job: own for own, job in enumerate(jobs.tolist())}
    table = _taken(seen.jobs, jobs, app=0)
    return Snapshot(
        now=seen.now,
        round=seen.round,
        version=seen.version,
        causes=seen.causes,
        cluster=seen.cluster,
        users=_taken(seen.users, seen.apps.user[row]),
        apps=_taken(seen.apps, row, user=0),
        jobs=table,
        active=np.flatnonzero(table.state != int(JobState.PAUSED)).astype(np.int32),
        active_apps=np.zeros(1, dtype=np.int32),
        holdings=_holdings(seen.holdings, app, moved),
        reports=Reported(
            forecasts=_moved(reports.forecasts, {app: 0}),
            measured=_moved(reports.measured, moved),
            measured_at_others=_moved(reports.measured_at_others, moved),
            coming_regimes=_moved(reports.coming_regimes, moved),
            profiles=reports.profiles,
        ),
        ledger=Ledger(
            jobs=_taken(ledger.jobs, jobs), apps=_taken(ledger.apps, row), adaptations=_moved(ledger.adaptations, moved)
        ),
        memos=Memos({}),
        kinds=seen.kinds,
        source=SnapshotSource(seed=seen.source.seed),
        needs=seen.needs,
    )


def _moved(by_job: Mapping[int, T], moved: dict[int, int]) -> dict[int, T]:
    """Return the values of the app's jobs, keyed by their rows in the narrowed snapshot."""
    return {own: by_job[job] for job, own in moved.items() if job in by_job}


def _taken(table: C, rows: Ints | Rows, **instead: int) -> C:
    """Return a table with copies of some rows; columns named in ``instead`` have the given value."""
    columns = {name: getattr(table, name)[rows] for name in table.__slots__}  # type: ignore[attr-defined]
    for name, row in instead.items():
        columns[name][:] = row
    return _sealed(type(table), columns)


def _holdings(held: Holdings, app: int, moved: dict[int, int]) -> Holdings:
    """Return the holdings with GPUs that the app does not hold shown as free."""
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
    """Return the holdings for an app without GPUs, in which all GPUs are free."""
    columns = {one.name: np.full(gpus, one.metadata["fill"], one.metadata["dtype"]) for one in fields(Holdings)}
    return _sealed(Holdings, columns)


def _sealed(kind: type[C], columns: dict[str, Any]) -> C:
    """Return a table of read-only columns."""
    for column in columns.values():
        column.flags.writeable = False
    return kind(**columns)
