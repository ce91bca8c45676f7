"""Errors for mistyped names of apps and jobs, with the existing names and the most similar one."""

from collections.abc import Sequence

from eunomia.errors import InputError
from eunomia.words import closest, did_you_mean

MOST_NAMED = 6
"""Most names in a message; if there are more, the message has the first ones and the last one."""


def no_such_app(name: str, apps: Sequence[str], *, place: str | None = None) -> InputError:
    """Return the error for an unknown app.

    Args:
        name: the name as typed.
        apps: names of the existing apps.
        place: where apps were searched: a run's folder; None: the arbiter.
    """
    there = f"there are: {_some(apps, 'apps')}" if apps else "there are none (eunomia submit FILE brings one)"
    return InputError(f'no app is named "{name}"; {there}{did_you_mean(name, apps)}', place=place)


def no_such_job(name: str, jobs: Sequence[str], apps: Sequence[str], *, place: str | None = None) -> InputError:
    """Return the error for an unknown job.

    Args:
        name: the name as typed: ``app/number`` or an app.
        jobs: the jobs of the app in the name; empty: there is no such app, or it has no jobs.
        apps: names of the existing apps.
        place: where jobs were searched: a run's folder; None: the arbiter.
    """
    app, _, number = name.partition("/")
    if app in apps:
        there = f"{app} has: {_some(jobs, 'jobs')}" if jobs else f"{app} has none"
        return InputError(f'no job is named "{name}"; {there}', place=place)
    if not number or not apps:
        return no_such_app(app, apps, place=place)
    close = closest(app, apps)
    meant = "" if close is None else f'; did you mean "{close}/{number}"?'
    return InputError(f'no job is named "{name}"; there are the apps: {_some(apps, "apps")}{meant}', place=place)


def in_order(jobs: Sequence[str]) -> list[str]:
    """Return jobs sorted by their number."""
    return sorted(jobs, key=_number)


def _number(job: str) -> tuple[str, int, str]:
    app, _, number = job.rpartition("/")
    return app, int(number) if number.isdecimal() else -1, job


def _some(names: Sequence[str], what: str) -> str:
    if len(names) <= MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: MOST_NAMED - 1])} ... {names[-1]} ({len(names)} {what})"
