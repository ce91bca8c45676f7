"""The scalars that the trials of a live run logged: thinned rows for the tables, and each app's metric in full."""

import dataclasses
from collections.abc import Iterator
from typing import Final

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_appmaster.profiler import LogFolder, Series
from eunomia_testbed.demo.live_log import LiveLog
from eunomia_testbed.demo.logged import finite, overlaps, read_logs, search_of, tag_of_steps
from eunomia_testbed.demo.record import LiveRecord
from eunomia_testbed.report.thin import thin
from eunomia_testbed.results import tables as t

MOST_ROWS: Final = 400_000
"""Rows for all trials together; each trial, and each of its tags, has an equal part."""
MOST_POINTS, LEAST_POINTS, MOST_TAGS = 500, 16, 100
"""Limits on the points of a series, and on the tags of a trial, of which its app's metric is the first."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Metric:
    """The values of an app's metric that a trial logged: step (n) int64 ascending, value (n) float64."""

    step: Ints
    value: Reals


class Scalars:
    """Reads the event files of every trial once.

    Args:
        record: record of the run, already read to its end.
        live: the log of the same run.
    """

    def __init__(self, record: LiveRecord, live: LiveLog) -> None:
        self.rows: list[t.MetricRow] = []
        self.repeated: dict[str, int] = {}
        """By job, the iterations that its event files hold twice; jobs that do not log each iteration are left out."""
        self._live = live
        self._metrics: dict[str, _Metric] = {}
        self._by_trial = MOST_ROWS // max(1, sum(map(len, live.trials.values())))
        for app, trials in live.trials.items():
            metric = search_of(record.app_dir(app)).metric
            for trial in trials:
                logs = read_logs(record.app_dir(app) / trial.job.rpartition("/")[2])
                tag = tag_of_steps(logs)
                if tag is not None:
                    self.repeated[trial.job] = sum(each.twice for each in overlaps(logs, tag))
                self._take(app, trial.job, metric, logs)

    def metric_at(self, job: str, step: int) -> float | None:
        """Return the last value of the app's metric that a trial logged up to a step; None: it logged none."""
        found = self._metrics.get(job)
        at = -1 if found is None else int(np.searchsorted(found.step, step, side="right")) - 1
        return None if found is None or at < 0 else finite(str(found.value[at]))

    def _take(self, app: str, job: str, metric: str, logs: LogFolder) -> None:
        tags = sorted(logs.tags(), key=lambda tag: (tag != metric, tag))[:MOST_TAGS]
        most = max(LEAST_POINTS, min(MOST_POINTS, self._by_trial // max(1, len(tags))))
        for tag in tags:
            series = logs.series(tag)
            if tag == metric and len(series):
                self._metrics[job] = _Metric(step=series.step, value=series.value)
            self.rows += self._thinned(app, job, tag, series, most=most, is_metric=tag == metric)

    def _thinned(
        self, app: str, job: str, tag: str, series: Series, *, most: int, is_metric: bool
    ) -> Iterator[t.MetricRow]:
        values = [finite(str(value)) for value in series.value.tolist()]
        points = list(zip(series.step.tolist(), series.wall_time.tolist(), values, strict=True))
        for step, at, value in thin(points, at_most=most, value=2):
            yield t.MetricRow(
                job=self._live.name(job),
                app=app,
                step=step,
                time_seconds=self._live.since(at),
                slot_seconds=self._live.slot_seconds(app, at) if is_metric else None,
                tag=tag,
                value=value,
            )
