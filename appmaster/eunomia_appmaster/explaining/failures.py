"""Permanently failed trials and suspended apps, as a line of text and as JSON."""

from typing import Any

from eunomia.units import format_duration
from eunomia_appmaster.protocol import arbiter_pb2 as pb


def failed_in_words(failed: int, trials: int) -> str:
    """Return the number of failed trials as text, such as ``1 of 16 trials failed``."""
    return "its job failed" if trials == 1 else f"{failed} of {trials} trials failed"


def failure_text(app: pb.App) -> str:
    """Return a line with the number of an app's failed trials, the last error and its log's path; empty: none."""
    if not app.failures:
        return f"{failed_in_words(app.failed, _trials(app))}" if app.failed else ""
    last = app.failures[-1]
    which = last.job if app.failed == 1 else f"the last, {last.job}"
    return f"{failed_in_words(app.failed, _trials(app))}: {which}: {last.why or 'no error is known'} (log {last.log})"


def notices_of(app: pb.App, job: str | None = None) -> list[str]:
    """Return notices about files of an app that were lost or replaced after damage, oldest first.

    Args:
        app: the arbiter's message about the app.
        job: a job, for its own notices and those of the whole app; None or the app's name: all notices.
    """
    notices, of_a_job = list(app.standing.notices), f"{app.app}/"
    if job in (None, app.app):
        return notices
    return [notice for notice in notices if not notice.startswith(of_a_job) or notice.startswith(f"{job}: ")]


def suspension_text(app: pb.App) -> str:
    """Return why an app is suspended, when it is retried, and the command that retries it at once, as text."""
    if app.held_back:
        return app.why
    known = app.HasField("tried_again_in_seconds")
    again = f"in {format_duration(app.tried_again_in_seconds)}" if known else "soon"
    return f"{app.why}; its workers train on, and it is tried again {again} (at once: eunomia resume {app.app})"


def stall_texts(app: pb.App) -> list[str]:
    """Return what stalled in an app, one line each: jobs, the app master, and a stall limit that is too short."""
    of_jobs, of_master = app.standing.stalls, app.app_master_stalls
    texts = []
    if of_jobs:
        texts.append(
            app.standing.last_stall if of_jobs == 1 else f"{of_jobs} stalls; the last: {app.standing.last_stall}"
        )
    if of_master:
        often = "" if of_master == 1 else f" {of_master} times, last"
        texts.append(f"its app master stalled{often}: {app.last_app_master_stall}")
    return [*texts, *filter(None, [app.standing.stall_warning])]


def stall_facts(app: pb.App) -> dict[str, Any]:
    """Return what stalled in an app as a JSON object."""
    return {
        "jobs": app.standing.stalls,
        "last": app.standing.last_stall or None,
        "app_master": app.app_master_stalls,
        "app_master_last": app.last_app_master_stall or None,
        "warning": app.standing.stall_warning or None,
    }


def failure_facts(app: pb.App) -> dict[str, Any]:
    """Return an app's failures as a JSON object: the number of failed jobs, and the last failures."""
    rows = [{"job": one.job, "why": one.why, "log": one.log} for one in app.failures]
    return {"failed": app.failed, "failures": rows}


def _trials(app: pb.App) -> int:
    return max(app.trials, app.ended + app.running + app.waiting + app.paused)
