"""Removes jobs from a workload."""

import dataclasses
from typing import Any

import numpy as np

from eunomia.units import Bools, Ints
from eunomia_testbed.workload.dropped import Dropped
from eunomia_testbed.workload.taking import rows_of
from eunomia_testbed.workload.workload import AppColumns, Workload


def without_jobs(workload: Workload, left_out: Bools, rule: str, values: list[str]) -> Workload:
    """Return a workload without some jobs, which are added to its dropped rows; apps without jobs are removed too.

    Args:
        workload: the workload.
        left_out: [job] whether the job is removed; at least one job must stay.
        rule: the rule that these jobs break, for ``dropped.csv``.
        values: [job] the value that breaks it.
    """
    kept = np.flatnonzero(~left_out)
    apps, app_of = np.unique(workload.jobs.app[kept], return_inverse=True)
    place = {row: number for number, row in enumerate(kept.tolist())}
    app_place = {row: number for number, row in enumerate(apps.tolist())}
    dropped = [
        Dropped(file=workload.name, line=0, rule=rule, value=f"{values[row]}, job {workload.jobs.id[row]}")
        for row in np.flatnonzero(left_out).tolist()
    ]
    exclusive = workload.exclusive_seconds
    return dataclasses.replace(
        workload,
        apps=AppColumns(**_rows(workload.apps, apps)),
        jobs=dataclasses.replace(workload.jobs, **_rows(workload.jobs, kept) | {"app": app_of.astype(np.int64)}),
        regimes={place[row]: life for row, life in workload.regimes.items() if row in place},
        searches={app_place[row]: search for row, search in workload.searches.items() if row in app_place},
        exclusive_seconds=None if exclusive is None else exclusive[kept],
        dropped=(*workload.dropped, *dropped),
    )


def _rows(columns: Any, rows: Ints) -> dict[str, Any]:
    """Return the given rows of all columns; a column that is None stays None."""
    return {field.name: rows_of(getattr(columns, field.name), rows) for field in dataclasses.fields(columns)}
