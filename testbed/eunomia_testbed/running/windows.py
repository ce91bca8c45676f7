"""Consecutive parts of a plan's trace, each simulated with the apps of half a part before and after it."""

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
"""The fewest apps of a part whose figures are counted: parts of fewer depend on each other."""
NOT_OF_A_PART: Final = ("makespan_seconds", "slots_in_use_share", "utilization")
"""Figures over the time of a whole run, which would take in the apps that are not counted."""


@value
class Windows:
    """The parts of a trace, numbered from 1, of as many apps each as divides the trace evenly.

    Attributes:
        count: number of parts.
        source: the name of the trace.
    """

    count: int
    source: str

    @property
    def fewest(self) -> int:
        """Return the least number of parts that shows chance."""
        return 2

    @property
    def identity(self) -> str:
        """Return what the parts depend on, apart from the trace."""
        return f"{self.count} windows"

    def workload(self, trace: Workload, number: int) -> Workload:
        """Return a part with the apps of half a part before and after it, as far as the trace has them.

        Those before load the cluster, and those after keep it loaded until the last apps of the part have finished.
        """
        begin, end = self._counted(trace, number)
        half = (end - begin) // 2
        rows = np.arange(max(0, begin - half), min(len(trace.apps.id), end + half))
        arrivals = trace.apps.arrival_seconds[rows]
        return taken(trace, rows, arrivals - arrivals[0])

    def counted(self, trace: Workload, number: int) -> frozenset[str]:
        """Return the ids of the apps of a part whose figures are counted."""
        begin, end = self._counted(trace, number)
        return frozenset(trace.apps.id[begin:end])

    def draws(self, done: int) -> Draws:
        """Return the draws of a run that has finished this number of parts under every policy."""
        return Draws(kind=DrawKind.WINDOWS, count=done, source=self.source)

    def _counted(self, trace: Workload, number: int) -> tuple[int, int]:
        apps = len(trace.apps.id)
        return apps * (number - 1) // self.count, apps * number // self.count


def windows_of(trace: Workload, count: int, *, place: str) -> Windows:
    """Return the parts of a trace.

    Raises:
        InputError: fewer than two parts, or a part of fewer than 200 apps.
    """
    apps = len(trace.apps.id)
    if count < 2:
        raise InputError("windows must be at least 2", value=str(count), place=place)
    if apps < count * FEWEST_APPS:
        rule = f"a trace must have at least {count * FEWEST_APPS:,} apps for {count} windows, {FEWEST_APPS} for each"
        raise InputError(rule, value=f"{apps:,}", place=place)
    return Windows(count=count, source=trace.name)


def only_counted(tables: Mapping[str, pl.DataFrame], counted: frozenset[str]) -> dict[str, pl.DataFrame]:
    """Return the tables of a part with the rows of counted apps.

    Of the queue, the rows from the first arrival of a counted app until the last finish of one, and at most until the
    last arrival of all, after which the cluster empties.
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
