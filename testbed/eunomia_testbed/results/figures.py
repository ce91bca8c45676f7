"""Computes the figures of ``summary.csv`` that columns declare, from a run's tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import polars as pl

from eunomia_testbed.results import counting
from eunomia_testbed.results.columns import Aggregate, ColumnSpec, Figure, declared
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.tables import TABLES

Number = int | float | None

_QUANTILES: Final[Mapping[Aggregate, float]] = {"median": 0.5, "p95": 0.95, "p99": 0.99}


def figures_of(run: RunData) -> dict[str, Number]:
    """Return the declared figures of one policy and seed by name; those of plugins' columns come last.

    If the run has no apps, the figures of ``apps`` are computed from its jobs.
    """
    until = counting.number(counting.apps_or_jobs(run)["finish_seconds"].max())
    return {
        figure.name: _figure(run, table, column, figure.aggregate, until) for table, column, _, figure in all_of(run)
    }


def all_of(run: RunData | None = None) -> Iterator[tuple[str, str, ColumnSpec, Figure]]:
    """Yield table, column, declaration and figure of every declared figure; those of a run's plugins come last."""
    yield from _built_in()
    for table, columns in (run.added if run is not None else {}).items():
        for name, spec in columns.items():
            yield from ((table, name, spec, each) for each in spec.summary)


@functools.cache
def _built_in() -> tuple[tuple[str, str, ColumnSpec, Figure], ...]:
    return tuple(
        (table, name, spec, figure)
        for table, row in TABLES.items()
        for name, spec in declared(row).items()
        for figure in spec.summary
    )


def _figure(run: RunData, table: str, name: str, aggregate: Aggregate, until: float | None) -> Number:
    if aggregate == "time_mean":
        return counting.time_mean(run.table(table), name, until)
    frame = counting.apps_or_jobs(run) if table == "apps" else run.table(table)
    return _ONE_NUMBER[aggregate](frame[name]) if name in frame.columns else None


def _quantile(at: float) -> Callable[[pl.Series], Number]:
    return lambda column: counting.number(column.quantile(at, "linear"))


def _whole_or_real(
    of_whole: Callable[[pl.Series], Number], of_real: Callable[[pl.Series], Number]
) -> Callable[[pl.Series], Number]:
    return lambda column: of_whole(column) if column.dtype.is_integer() else of_real(column)


_ONE_NUMBER: Final[Mapping[Aggregate, Callable[[pl.Series], Number]]] = {
    "mean": counting.mean,
    "sum": _whole_or_real(counting.total, counting.exact_sum),
    "max": _whole_or_real(counting.most, lambda column: counting.number(column.max())),
    "min": lambda column: counting.number(column.min()),
    **{aggregate: _quantile(at) for aggregate, at in _QUANTILES.items()},
}
