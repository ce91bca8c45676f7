"""Checks that trials logged the metric of their search; if none did, lists the tags that they logged instead."""

from pathlib import Path

from eunomia_appmaster.explaining.best_jobs import best_job
from eunomia_appmaster.explaining.failures import failure_text
from eunomia_appmaster.explaining.outcomes import trial_rows
from eunomia_appmaster.protocol import arbiter_pb2 as pb

MOST_TRIALS_READ = 4
"""Most trials whose logs are read: the last ones that have logged."""


def metric_not_logged(app: pb.App) -> str:
    """Return a warning that no trial logged the app's metric, once a trial has logged other tags.

    Empty: the metric was logged, the app names none, no trial has logged anything, the app's folder cannot be read
    here, or the app's failures already report it.
    """
    metric = app.standing.metric
    if not metric or best_job(app.standing) is not None or "was never logged by" in f"{app.why} {failure_text(app)}":
        return ""
    rows = trial_rows(Path(app.folder))
    if any(row.get("metric") for row in rows):
        return ""  # the metric was logged, although perhaps never finite
    begun = [row["job"] for row in rows if row.get("job") and row.get("incarnations") not in ("", "0", None)]
    logged = {job: tags for job in reversed(begun[-MOST_TRIALS_READ:]) if (tags := _tags(Path(app.folder), job))}
    if not logged or any(metric in tags for tags in logged.values()):
        return ""
    from eunomia_appmaster.master.logs import never_logged

    job, tags = next(iter(logged.items()))
    return never_logged(metric, job, tags, ended=app.HasField("jct_seconds"))


def _tags(folder: Path, job: str) -> list[str]:
    from eunomia_appmaster.master.logs import JobLogs

    logs = JobLogs(job, folder / job.rpartition("/")[2] / "logs", None)
    logs.poll()
    return logs.tags()
