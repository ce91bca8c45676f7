"""Results of ended apps and jobs, read from ``trials.csv`` and the logs in an app's folder."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eunomia.model.shapes import value
from eunomia_appmaster.app.trials_file import read_trials_file
from eunomia_appmaster.client import OVER
from eunomia_appmaster.explaining.activity import START, ActivityLog
from eunomia_appmaster.explaining.best_jobs import best_facts, best_job, settings_text
from eunomia_appmaster.protocol import arbiter_pb2 as pb

ENDS = ("finished", "stopped", "failed")
"""States of a job that has ended, in its app's ``trials.csv``."""

MOST_TAGS = 6
"""Most tags whose last values are shown on one line."""


@value
class Logged:
    """The last logged value of a tag."""

    step: int
    value: float


@value
class JobOutcome:
    """The outcome of an ended job."""

    job: str
    state: str
    """State of the ended job: finished, stopped (by its tuner), failed, cancelled or, if its app ended otherwise before
    the job did, unfinished."""
    iterations: int
    starts: int
    """Number of times that it was started; 0: not known."""
    params: Mapping[str, Any]
    metric: str
    """TensorBoard tag of the metric that its app optimises; empty: none."""
    last: float | None
    """The last value of the metric; None: none was logged."""
    best: float | None
    """The best finite value of the metric; None: none was logged."""
    logged: Mapping[str, Logged]
    """Last values by tag, for a job of an app without a metric."""

    def text(self) -> str:
        """Return a line: ``stopped by its tuner at iteration 96   val/accuracy 0.9100, best 0.9300   lr 0.1``."""
        how = "stopped by its tuner" if self.state == "stopped" else self.state
        later = "" if self.state in ENDS else " or later"  # then its app master has not written its end
        parts = [f"{how} at iteration {self.iterations:,}{later}"]
        if self.last is not None:
            best = "" if self.best is None or self.best == self.last else f", best {self.best:.4f}"
            parts.append(f"{self.metric} {self.last:.4f}{best}")
        named = list(self.logged.items())
        parts += [", ".join(f"{tag} {one.value:.4g}" for tag, one in named[:MOST_TAGS])] if named else []
        parts += [f"and {len(named) - MOST_TAGS} more tags"] if len(named) > MOST_TAGS else []
        parts += [settings_text(self.params)] if self.params else []
        return "   ".join(parts)

    def facts(self) -> dict[str, Any]:
        """Return the outcome as a JSON object; numbers that are not finite are null."""
        return {
            "state": self.state,
            "iterations": self.iterations,
            "starts": self.starts or None,
            "params": dict(self.params),
            "metric": self.metric or None,
            "last": _finite(self.last),
            "best": _finite(self.best),
            "logged": {tag: {"step": one.step, "value": _finite(one.value)} for tag, one in self.logged.items()},
        }


def job_outcome(app: pb.App, job: str) -> JobOutcome | None:
    """Return the outcome of an ended job; None: the app's folder cannot be read here, or lacks the job."""
    folder = Path(app.folder)
    row = next((row for row in trial_rows(folder) if row.get("job") == job), None)
    if row is None:
        return None
    metric, state = app.standing.metric, _ended_as(row.get("state") or "unknown", app)
    events = [line for line in ActivityLog(folder, app.app).poll() if line.job == job]
    known = 0 if state in ENDS else max((line.step for line in events), default=0)  # the table is older than its events
    try:
        return JobOutcome(
            job=job,
            state=state,
            iterations=max(int(row["iterations"] or 0), known),
            starts=max(int(row["incarnations"] or 0), sum(line.event == START for line in events)),
            params=json.loads(row["parameters"] or "{}"),
            metric=metric,
            last=_number(row["metric"]),
            best=_number(row["best"]),
            logged={} if metric else _logged(folder / job.rpartition("/")[2] / "logs"),
        )
    except (KeyError, ValueError):
        return None


def trial_ends(app: pb.App) -> dict[str, int]:
    """Return the number of an app's jobs by state; empty: the app's folder cannot be read here."""
    return dict(Counter(_ended_as(row.get("state") or "unknown", app) for row in trial_rows(Path(app.folder))))


def _ended_as(state: str, app: pb.App) -> str:
    """Return the end state of a job from its state in ``trials.csv``: a job that had not ended, ended with its app."""
    if state in ENDS or app.state not in OVER:
        return state
    return "cancelled" if app.state == "cancelled" else "unfinished"


def app_facts(app: pb.App) -> dict[str, Any]:
    """Return an app's results as a JSON object."""
    best = best_job(app.standing)
    return {
        "metric": app.standing.metric or None,
        "best": None if best is None else best_facts(best),
        "jobs": trial_ends(app) or None,
    }


def trial_rows(folder: Path) -> list[dict[str, str]]:
    """Return the rows of ``trials.csv`` in an app's folder; empty: the file cannot be read here."""
    if not folder.is_absolute():  # the arbiter's message has no folder
        return []
    return read_trials_file(folder)


def _number(text: str) -> float | None:
    return float(text) if text else None


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _logged(folder: Path) -> dict[str, Logged]:
    """Return the last value of each tag in a job's logs."""
    from eunomia_appmaster.profiler.log_folder import LogFolder

    logs = LogFolder(folder)
    logs.poll()
    found: dict[str, Logged] = {}
    for tag in logs.tags():
        series = logs.series(tag)
        if series.step.size:
            found[tag] = Logged(step=int(series.step[-1]), value=float(series.value[-1]))
    return found
