"""Why jobs and apps waited: seconds by reason, and the reason that took the longest."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from eunomia_testbed.report.words import reason_in_words
from eunomia_testbed.results.run_data import RunData

OWN_CHOICE = "paused_by_app"
"""The tuner's own pauses are no waiting: nobody kept the slots from the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Job-seconds that an app waited in all, and the longest reason with the plugin that gave it."""

    seconds: float
    reason: str
    reason_seconds: float
    plugin: str | None

    @property
    def words(self) -> str:
        """Such as ``it was outbid: others gained more from the slots``."""
        return reason_in_words(self.reason)


def app_of_job(run: RunData) -> dict[str, str]:
    """The app of every job; a job that no table knows belongs to the app before the last slash of its name."""
    known = {str(job): str(app) for job, app in run.jobs.select("job", "app").iter_rows()}
    unknown = (str(job) for job in run.waits["job"].unique().sort())
    return {job: job.rpartition("/")[0] or job for job in unknown} | known


def waiting_by_app(run: RunData) -> dict[str, Waiting]:
    """For every app that waited: how long, and mostly why."""
    app_of = app_of_job(run)
    spent: dict[str, dict[tuple[str, str | None], list[float]]] = defaultdict(lambda: defaultdict(list))
    columns = run.waits.select("job", "start_seconds", "end_seconds", "reason", "plugin")
    for job, start, end, reason, plugin in columns.iter_rows():
        if end is not None and reason != OWN_CHOICE:
            spent[app_of[job]][(reason, plugin)].append(end - start)
    return {app: _longest(by_reason) for app, by_reason in sorted(spent.items())}


def _longest(by_reason: dict[tuple[str, str | None], list[float]]) -> Waiting:
    total = {key: math.fsum(spans) for key, spans in by_reason.items()}
    (reason, plugin), seconds = max(total.items(), key=lambda item: (item[1], item[0][0]))
    return Waiting(seconds=math.fsum(total.values()), reason=reason, reason_seconds=seconds, plugin=plugin)
