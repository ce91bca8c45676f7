"""Makes a workload of apps drawn from another workload; apps keep jobs, user, search and regimes, but not arrivals."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_testbed.workload.workload import AppColumns, Workload


def taken(workload: Workload, apps: Ints, arrival_seconds: Reals) -> Workload:
    """Return the workload of the given apps, in which an app may occur several times.

    Jobs keep their delay after their app's arrival. The second copy of an app is named ``NAME~2``.

    Args:
        workload: the workload to draw from.
        apps: [drawn app] the app's row in ``workload``, in order of arrival.
        arrival_seconds: [drawn app] the new arrival, ascending.
    """
    names = _names(workload.apps.id, apps)
    starts, jobs_by_app = _jobs_by_app(workload)
    counts = np.diff(starts)[apps]
    job_rows = np.concatenate([jobs_by_app[starts[app] : starts[app + 1]] for app in apps.tolist()])
    new_app = np.repeat(np.arange(apps.size, dtype=np.int64), counts)
    delay = workload.jobs.arrival_seconds[job_rows] - workload.apps.arrival_seconds[apps][new_app]
    arrivals = arrival_seconds[new_app] + delay
    order = np.argsort(arrivals, kind="stable")
    job_rows, new_app, arrivals = job_rows[order], new_app[order], arrivals[order]
    ids = [
        f"{names[app]}/{workload.jobs.id[row].rpartition('/')[2]}"
        for app, row in zip(new_app.tolist(), job_rows.tolist(), strict=True)
    ]
    columns = {
        field.name: rows_of(getattr(workload.jobs, field.name), job_rows)
        for field in dataclasses.fields(workload.jobs)
        if field.name not in ("id", "app", "arrival_seconds")
    }
    jobs = dataclasses.replace(workload.jobs, id=ids, app=new_app, arrival_seconds=arrivals, **columns)
    return dataclasses.replace(
        workload,
        apps=AppColumns(
            id=names, user=workload.apps.user[apps], weight=workload.apps.weight[apps], arrival_seconds=arrival_seconds
        ),
        jobs=jobs,
        regimes={at: workload.regimes[row] for at, row in enumerate(job_rows.tolist()) if row in workload.regimes},
        searches={at: workload.searches[row] for at, row in enumerate(apps.tolist()) if row in workload.searches},
        exclusive_seconds=None if workload.exclusive_seconds is None else workload.exclusive_seconds[job_rows],
    )


def _names(ids: Sequence[str], apps: Ints) -> list[str]:
    """Return distinct names for drawn apps; from its second copy on, an app's name gets a number."""
    known, drawn, names = set(ids), Counter[str](), []
    for app in apps.tolist():
        name = ids[app]
        drawn[name] += 1
        shown = name if drawn[name] == 1 else f"{name}~{drawn[name]}"
        while drawn[name] > 1 and shown in known:
            shown += "~"
        names.append(shown)
    return names


def original_of(app: str) -> str:
    """Return the original app of a copy that ``taken`` named; ``app`` must not be a name in the trace itself."""
    return app.rstrip("~").rpartition("~")[0]


def _jobs_by_app(workload: Workload) -> tuple[Ints, Ints]:
    """Return the start of each app's rows, and the job rows ordered by app."""
    order = np.argsort(workload.jobs.app, kind="stable").astype(np.int64)
    counts = np.bincount(workload.jobs.app, minlength=len(workload.apps.id))
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), order


def rows_of(column: Any, rows: Ints) -> Any:
    """Return the given rows of a workload's column; None if the column is None."""
    if column is None:
        return None
    if isinstance(column, np.ndarray):
        return column[rows]
    return [column[row] for row in rows.tolist()]
