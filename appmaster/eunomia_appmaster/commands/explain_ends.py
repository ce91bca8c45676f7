"""The part of ``eunomia explain`` about ended apps and jobs."""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from eunomia_appmaster.client import OVER
from eunomia_appmaster.explaining.best_jobs import best_job, best_line
from eunomia_appmaster.explaining.job_events import CANCELLED
from eunomia_appmaster.explaining.outcomes import ENDS, JobOutcome, app_facts, job_outcome, trial_ends
from eunomia_appmaster.protocol import arbiter_pb2 as pb

ENDED_JOB = ("finished", "failed", CANCELLED)


def ends(found: Sequence[pb.Explanation], apps: Mapping[str, pb.App], name: str) -> list[pb.Explanation]:
    """Return the end of a run's app or job, as explanations; empty: it has not ended, or ``found`` contains its end.

    Args:
        found: explanations of why the jobs of that name waited in the run.
        apps: the run's apps, by name.
        name: name of an app or a job.
    """
    app = apps.get(name)
    if app is not None and app.state in OVER:
        return [pb.Explanation(job=app.app, app=app.app, user=app.user, state=app.state, text=app.why)]
    app = apps.get(name.rpartition("/")[0])
    one = next((one for one in found if one.job == name), None)
    if app is None or one is None:
        return []
    ended = job_outcome(app, name)
    if ended is None or ended.state not in (*ENDS, CANCELLED):
        return []
    state = ended.state if ended.state in ENDED_JOB else "finished"
    failed = any(one.state == "failed" for one in found)  # then its end is among them
    return [] if failed else [pb.Explanation(job=name, app=app.app, user=app.user, state=state)]


def state_text(said: pb.Explanation, app: pb.App | None) -> str:
    """Return a job's state for a headline in upper case, or ``STOPPED by its tuner`` for such a trial."""
    stopped = app is not None and said.state == "finished" and said.job != said.app
    ended = job_outcome(app, said.job) if stopped and app is not None else None
    return "STOPPED by its tuner" if ended is not None and ended.state == "stopped" else said.state.upper()


def outcome_lines(said: pb.Explanation, app: pb.App) -> list[str]:
    """Return the results of an ended app or job as lines; empty for one that has not ended."""
    if said.job == said.app and said.state in OVER:
        return [*_of_app(app), *_cancelled(said, app)]
    if said.state not in ENDED_JOB:
        return []
    ended = job_outcome(app, said.job)
    return [*([] if ended is None else _of_job(ended)), *_cancelled(said, app)]


def times(count: int) -> str:
    """Return a number of starts as text: ``once``, ``3 times``."""
    return "once" if count == 1 else f"{count} times"


def _of_job(ended: JobOutcome) -> list[str]:
    started = [_line("Started", times(ended.starts))] if ended.starts else []
    return [_line("Outcome", ended.text()), *started]


def outcome_facts(said: pb.Explanation, app: pb.App) -> dict[str, Any] | None:
    """Return the results of an ended app or job as a JSON object; None: it has not ended, or no results are known."""
    found, at = _results(said, app), _cancelled_at(said, app)
    return found if at is None else (found or {"state": CANCELLED}) | {"cancelled_at_unix_seconds": at}


def _results(said: pb.Explanation, app: pb.App) -> dict[str, Any] | None:
    if said.job == said.app and said.state in OVER:
        single = _single(app)
        return app_facts(app) | ({} if single is None else {"job": single.facts()})
    ended = job_outcome(app, said.job) if said.state in ENDED_JOB else None
    return None if ended is None else ended.facts()


def _of_app(app: pb.App) -> list[str]:
    single = _single(app)
    if single is not None:
        return _of_job(single)
    out, best = [], best_job(app.standing)
    if best is not None:
        out.append(_line("Best", best_line(best, app.standing.metric, Path(app.folder))))
    elif app.standing.metric:
        out.append(_line("Best", f"no trial has logged a finite {app.standing.metric}"))
    ends = trial_ends(app)
    if ends:
        parts = ", ".join(f"{count} {state}" for state, count in sorted(ends.items()))
        out.append(_line("Trials", f"{sum(ends.values())} of {max(app.trials, sum(ends.values()))}: {parts}"))
    return out


def _cancelled(said: pb.Explanation, app: pb.App) -> list[str]:
    """Return a line with the time at which an app or job was cancelled; empty: it was not, or that is not known."""
    at = _cancelled_at(said, app)
    return [] if at is None else [_line("Cancelled", f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}")]


def _cancelled_at(said: pb.Explanation, app: pb.App) -> float | None:
    """Return the Unix time at which an app or job was cancelled; None: it was not, or that is not known."""
    return app.ended_at_unix if said.state == CANCELLED and app.HasField("ended_at_unix") else None


def _single(app: pb.App) -> JobOutcome | None:
    """Return the outcome of an app's only job, if the app has no metric; else None."""
    if app.trials > 1 or app.standing.metric:
        return None
    ended = job_outcome(app, f"{app.app}/1")
    return None if ended is None else dataclasses.replace(ended, job=app.app)


def _line(word: str, text: str) -> str:
    return f"{word:<11}{text}"
