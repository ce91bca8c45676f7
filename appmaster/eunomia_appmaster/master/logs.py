"""Reads a job's event files for its app master: new points of the tuner's metric, and the job's speed."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import structlog

from eunomia.model.shapes import value
from eunomia.units import Locality
from eunomia.words import did_you_mean
from eunomia_appmaster.profiler.log_folder import LogFolder
from eunomia_appmaster.profiler.rates import STEP_SECONDS_TAG, Rate, measure_rates, slowdown_by_locality
from eunomia_appmaster.tuner import Speed

MOST_UNTIMED = 10
"""Number of a tag's points after which the logs count as those of a script that logs no step times."""
MOST_TAGS = 8
"""Most tags that one message names."""
log = structlog.get_logger()


@value
class Point:
    """A logged value of the metric; may be NaN."""

    step: int
    value: float


@value
class NewPoints:
    """The new points that one poll found."""

    points: tuple[Point, ...]
    """New values of the metric, in the order in which they were logged."""
    last_step: int | None
    """The last step logged under any tag; None: nothing new."""
    first_step: int | None
    """The first step of the new points; None: there are none, or they may have been read before."""


class JobLogs:
    """The log folder of one job.

    Args:
        job: id of the job, for messages.
        folder: the job's ``logs/``.
        metric: the tuner's tag; None: the tuner uses none.
        adopted: whether an earlier attempt of the app master has read some of the logs, so that the first poll repeats
            points.
    """

    def __init__(self, job: str, folder: Path, metric: str | None, *, adopted: bool = False) -> None:
        self._job = job
        self._logs = LogFolder(folder)
        self._metric = metric
        self._adopted = adopted

    def poll(self) -> NewPoints:
        """Read the new points; the profiler's findings are logged and do not stop the reading."""
        polled = self._logs.poll()
        for finding in polled.findings:
            log.warning(
                "logs.finding", job=self._job, kind=str(finding.kind), rule=finding.rule, value=finding.value,
                place=finding.place,
            )  # fmt: skip
        steps = [series.step for tag, series in polled.points.items() if tag != STEP_SECONDS_TAG and len(series)]
        steps = steps or [series.step for series in polled.points.values() if len(series)]
        found = polled.points.get(self._metric or "")
        points = () if found is None else tuple(map(_point, found.step.tolist(), found.value.tolist()))
        adopted, self._adopted = self._adopted, False
        return NewPoints(
            points=points,
            last_step=max((int(column.max()) for column in steps), default=None),
            first_step=None if adopted else min((int(column.min()) for column in steps), default=None),
        )

    def tags(self) -> list[str]:
        """Return the tags that the job itself has logged."""
        return sorted(tag for tag in self._logs.tags() if tag != STEP_SECONDS_TAG)

    def last(self, until: int | None = None) -> Point | None:
        """Return the metric's last logged value at a step up to ``until``; None: there is none."""
        if self._metric is None:
            return None
        series = self._logs.series(self._metric)
        rows = np.arange(len(series)) if until is None else np.flatnonzero(series.step <= until)
        if rows.size == 0:
            return None
        return _point(int(series.step[rows[-1]]), float(series.value[rows[-1]]))

    def rates(
        self,
        sizes: Mapping[int, tuple[int, int]],
        *,
        since: float = -math.inf,
        ahead: Mapping[int, float] | None = None,
    ) -> list[Rate]:
        """Return the rates measured so far.

        Args:
            sizes: number of GPUs and locality by incarnation.
            since: Unix seconds; earlier points are ignored.
            ahead: by incarnation, the seconds by which its clock is ahead of the clock of ``since``.
        """
        places = {number: (gpus, Locality(far)) for number, (gpus, far) in sizes.items()}
        return measure_rates(self._logs, places, since=since, ahead=ahead)

    def has_time_stamps_alone(self, incarnation: int) -> bool:
        """Return whether an incarnation has logged enough points for a rate, but no step times."""
        if len(self._logs.as_written(STEP_SECONDS_TAG, writer=incarnation)):
            return False
        return any(len(self._logs.as_written(tag, writer=incarnation)) >= MOST_UNTIMED for tag in self._logs.tags())


def never_logged(metric: str, job: str, tags: Sequence[str], *, ended: bool = True) -> str:
    """Return the error text for a metric that a job never logged, with the tags that it logged instead.

    Args:
        metric: its name in the app file.
        job: a job that has logged.
        tags: the tags that it logged.
        ended: whether the job has ended; if not, it may still log the metric.
    """
    more = f" and {len(tags) - MOST_TAGS} more" if len(tags) > MOST_TAGS else ""
    logged = f"{', '.join(tags[:MOST_TAGS])}{more}" if tags else "nothing"
    never = "was never logged" if ended else "has not been logged so far"
    return f'metric "{metric}" {never} by {job}, which logged {logged}{did_you_mean(metric, tags)}'


def _point(step: int, number: float) -> Point:
    return Point(step=step, value=number)


def speed_of(rates: list[Rate]) -> Speed | None:
    """Return a job's serial time per iteration and its slowdown by locality; None: nothing is measured.

    Without a measurement on one GPU, the serial time follows from the smallest size by linear speedup (Themis eq. 1).
    """
    if not rates:
        return None
    smallest = min(rates, key=lambda rate: (rate.gpus, rate.locality))
    return Speed(
        seconds_per_iteration=smallest.seconds_per_iteration * smallest.gpus,
        slowdown=slowdown_by_locality(rates),
    )
