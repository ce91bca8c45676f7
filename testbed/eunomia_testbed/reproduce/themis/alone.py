"""Runs a cell: all apps together, or each app alone on the empty cluster, for a lower bound of its ρ."""

import dataclasses
from collections.abc import Sequence
from itertools import chain

import numpy as np

from eunomia.units import Ints
from eunomia_testbed.reproduce.themis.cells import ALONE, Cell, Figures, make_workload, simulated
from eunomia_testbed.workload import AppColumns, JobColumns, UserColumns, Workload


def run_cell(cell: Cell) -> Figures:
    """Simulate a cell and return its results."""
    return alone(cell) if cell.policy == ALONE else simulated(cell, make_workload(cell))


def alone(cell: Cell) -> Figures:
    """Run each app of a cell alone, including its starts, and return the joint results."""
    workload = make_workload(cell)
    found = [simulated(cell, only_app(workload, app)) for app in range(len(workload.apps.id))]
    return joined(found)


def only_app(workload: Workload, app: int) -> Workload:
    """Return a workload with only one of the apps, which arrives at time 0."""
    rows = np.flatnonzero(workload.jobs.app == app)
    columns = {
        field.name: _picked(getattr(workload.jobs, field.name), rows) for field in dataclasses.fields(JobColumns)
    }
    columns["app"], columns["arrival_seconds"] = np.zeros(rows.size, dtype=np.int64), np.zeros(rows.size)
    name = [workload.apps.id[app]]
    return dataclasses.replace(
        workload,
        users=UserColumns(id=name, weight=np.ones(1)),
        apps=AppColumns(id=name, user=np.zeros(1, dtype=np.int64), weight=np.ones(1), arrival_seconds=np.zeros(1)),
        jobs=JobColumns(**columns),  # type: ignore[arg-type]
        searches={0: workload.searches[app]} if app in workload.searches else {},
    )


def _picked(column: object, rows: Ints) -> object:
    """Return the given rows of a column; a missing column stays missing."""
    if isinstance(column, np.ndarray):
        return column[rows]
    return [column[row] for row in rows.tolist()] if isinstance(column, Sequence) else column


def joined(parts: Sequence[Figures]) -> Figures:
    """Join the results of several runs, in order of apps."""

    def summed(name: str) -> float:
        return float(sum(getattr(one, name) for one in parts))

    columns = {
        field.name: tuple(chain.from_iterable(getattr(one, field.name) for one in parts))
        for field in dataclasses.fields(Figures)
        if isinstance(getattr(parts[0], field.name), tuple)
    }
    sums = {field.name: summed(field.name) for field in dataclasses.fields(Figures) if field.name not in columns}
    return Figures(**columns, **sums)  # type: ignore[arg-type]
