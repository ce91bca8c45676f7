"""The scalars logged by the trials of a live run: thinned rows for the tables, and each app's metric in full."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_appmaster.profiler import LogFolder
from eunomia_testbed.live_runs.live_log import LiveLog
from eunomia_testbed.live_runs.logged import (
    finite,
    first_steps,
    overlaps,
    read_logs,
    search_of,
    tag_of_steps,
)
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.report.thin import thin
from eunomia_testbed.results import tables as t

MOST_ROWS: Final = 400_000
"""Limit on rows over all trials, divided equally among trials, and then among each trial's tags."""
MOST_POINTS, LEAST_POINTS, MOST_TAGS = 500, 16, 100
"""Upper and lower limit on the points of a series, and limit on the tags of a trial; the app's metric comes first."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Metric:
    """The values of an app's metric that a trial logged: step (n) int64 ascending, value (n) float64."""

    step: Ints
    value: Reals


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Thinned:
    """Thinned points (step, Unix time, value) of one tag of a trial."""

    app: str
    job: str
    tag: str
    is_metric: bool
    points: Sequence[tuple[int, float, float | None]]


class Scalars:
    """The logged scalars of every trial; each event file is read once.

    Args:
        record: record of the run, already read to its end.
    """

    def __init__(self, record: LiveRecord) -> None:
        self.repeated: dict[str, int] = {}
        """By job, the number of iterations that occur twice in the job's event files; jobs that do not log each
        iteration are left out."""
        self.first_steps: dict[tuple[str, int], float] = {}
        """Unix time of the end of the first step, by job and incarnation, for jobs that log each iteration."""
        self._series: list[_Thinned] = []
        self._metrics: dict[str, _Metric] = {}
        trials = {app: record.trials(app) for app in record.apps}
        self._by_trial = MOST_ROWS // max(1, sum(map(len, trials.values())))
        begun = {(line.job, line.incarnation): line.step for line in record.lines if line.event == "start"}
        for app, mine in trials.items():
            metric = search_of(record.app_dir(app)).metric
            for trial in mine:
                logs = read_logs(record.app_dir(app) / trial.job.rpartition("/")[2])
                self._take_steps(trial.job, logs, begun)
                self._take(app, trial.job, metric, logs)

    def metric_at(self, job: str, step: int) -> float | None:
        """Return a trial's last logged value of the app's metric up to a step; None: there is no such value."""
        found = self._metrics.get(job)
        at = -1 if found is None else int(np.searchsorted(found.step, step, side="right")) - 1
        return None if found is None or at < 0 else finite(str(found.value[at]))

    def rows(self, live: LiveLog) -> Iterator[t.MetricRow]:
        """Yield a row for each kept point; ``live`` is the log of the same run."""
        for each in self._series:
            for step, at, value in each.points:
                yield t.MetricRow(
                    job=live.name(each.job),
                    app=each.app,
                    step=step,
                    time_seconds=live.since(at),
                    slot_seconds=live.slot_seconds(each.app, at) if each.is_metric else None,
                    tag=each.tag,
                    value=value,
                )

    def _take_steps(self, job: str, logs: LogFolder, begun: Mapping[tuple[str, int], int]) -> None:
        tag = tag_of_steps(logs)
        if tag is None:
            return
        self.repeated[job] = sum(each.twice for each in overlaps(logs, tag))
        for incarnation, step, at in first_steps(logs, tag):
            if step <= begun.get((job, incarnation), -1) + 1:
                self.first_steps[job, incarnation] = at

    def _take(self, app: str, job: str, metric: str, logs: LogFolder) -> None:
        tags = sorted(logs.tags(), key=lambda tag: (tag != metric, tag))[:MOST_TAGS]
        most = max(LEAST_POINTS, min(MOST_POINTS, self._by_trial // max(1, len(tags))))
        for tag in tags:
            series = logs.series(tag)
            if tag == metric and len(series):
                self._metrics[job] = _Metric(step=series.step, value=series.value)
            values = [finite(str(value)) for value in series.value.tolist()]
            points = list(zip(series.step.tolist(), series.wall_time.tolist(), values, strict=True))
            thinned = thin(points, at_most=most, value=2)
            self._series.append(_Thinned(app=app, job=job, tag=tag, is_metric=tag == metric, points=thinned))
