"""Windows: consecutive parts of a plan's trace, each simulated with the half windows before and after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.evidence.draws import DrawKind, Draws
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.taking import taken

FEWEST_APPS: Final = 200
"""Fewest apps of a window; metrics of smaller windows would not be independent."""
NOT_OF_A_PART: Final = ("makespan_seconds", "slots_in_use_share", "utilization")
"""Metrics over a whole run's time, left out for windows since other apps than the window's affect them."""


@value
class Windows:
    """The windows of a trace, numbered from 1 and as equal in size as possible.

    Attributes:
        count: number of windows.
        source: the name of the trace.
    """

    count: int
    source: str

    @property
    def fewest(self) -> int:
        """Return the least number of windows that gives intervals."""
        return 2

    @property
    def identity(self) -> str:
        """Return, as text, all parameters that determine the windows, apart from the trace."""
        return f"{self.count} windows"

    def workload(self, trace: Workload, number: int) -> Workload:
        """Return a window with the apps of half a window before and after it, if the trace has them.

        The earlier apps load the cluster, and the later apps keep it loaded until the window's last apps have
        finished.
        """
        begin, end = self._counted(trace, number)
        half = (end - begin) // 2
        rows = np.arange(max(0, begin - half), min(len(trace.apps.id), end + half))
        arrivals = trace.apps.arrival_seconds[rows]
        return taken(trace, rows, arrivals - arrivals[0])

    def counted(self, trace: Workload, number: int) -> frozenset[str]:
        """Return the ids of a window's apps that count in its metrics."""
        begin, end = self._counted(trace, number)
        return frozenset(trace.apps.id[begin:end])

    def draws(self, done: int) -> Draws:
        """Return the draws of a run in which every policy has finished this number of windows."""
        return Draws(kind=DrawKind.WINDOWS, count=done, source=self.source)

    def _counted(self, trace: Workload, number: int) -> tuple[int, int]:
        apps = len(trace.apps.id)
        return apps * (number - 1) // self.count, apps * number // self.count


def windows_of(trace: Workload, count: int, *, place: str) -> Windows:
    """Return the windows of a trace.

    Raises:
        InputError: there are fewer than two windows, or a window has fewer than 200 apps.
    """
    apps = len(trace.apps.id)
    if count < 2:
        raise InputError("windows must be at least 2", value=str(count), place=place)
    if apps < count * FEWEST_APPS:
        rule = f"a trace must have at least {count * FEWEST_APPS:,} apps for {count} windows, {FEWEST_APPS} for each"
        raise InputError(rule, value=f"{apps:,}", place=place)
    return Windows(count=count, source=trace.name)


def only_counted(tables: Mapping[str, pl.DataFrame], counted: frozenset[str]) -> dict[str, pl.DataFrame]:
    """Return a window's tables with only the rows of apps that count.

    The queue keeps the rows from the first arrival to the last finish of counted apps, but at most up to the last
    arrival of any app, after which the cluster empties.
    """
    mine = pl.col("app").is_in(list(counted))
    last = tables["jobs"]["arrival_seconds"].max()
    apps = tables["apps"].filter(mine)
    jobs = tables["jobs"].filter(mine)
    begin = jobs["arrival_seconds"].min()
    found = {name: frame.filter(mine) if "app" in frame.columns else frame for name, frame in tables.items()}
    found["waits"] = tables["waits"].filter(pl.col("job").is_in(jobs["job"].implode()))
    within = (pl.col("time_seconds") >= begin) & (pl.col("time_seconds") <= last)
    if apps["finish_seconds"].null_count() == 0:
        within &= pl.col("time_seconds") <= apps["finish_seconds"].max()
    found["queue"] = tables["queue"].filter(within)
    return found | {"apps": apps, "jobs": jobs}
