"""Errors for mistyped names of apps and jobs: the existing names, and the likely one."""

from collections.abc import Sequence

from eunomia.errors import InputError
from eunomia.words import closest, did_you_mean

MOST_NAMED = 6
"""Greatest number of names in a message; of more names, the first ones and the last."""


def no_such_app(name: str, apps: Sequence[str], *, place: str | None = None) -> InputError:
    """Returns the error for an unknown app.

    Args:
        name: as typed.
        apps: the existing ones.
        place: a run's folder; None: the arbiter.
    """
    there = f"there are: {_some(apps, 'apps')}" if apps else "there are none (eunomia submit FILE brings one)"
    return InputError(f'no app is named "{name}"; {there}{did_you_mean(name, apps)}', place=place)


def no_such_job(name: str, jobs: Sequence[str], apps: Sequence[str], *, place: str | None = None) -> InputError:
    """Returns the error for an unknown job.

    Args:
        name: as typed: ``app/number`` or an app.
        jobs: of the app that the name begins with; empty: there is no such app, or it has no jobs.
        apps: the existing ones.
        place: a run's folder; None: the arbiter.
    """
    app, _, number = name.partition("/")
    value = f'"{name}": no such job'
    if app in apps:
        rule = f"a job must be {_one_of(jobs, 'jobs')}" if jobs else f"a job must be there, and {app} has none"
        return InputError(rule, value=value, place=place)
    close = closest(app, apps)
    if close is not None:
        value += f'; did you mean "{close}/{number}"?' if number else f'; did you mean "{close}"?'
    rule = f"a job must be of an app that is {'there: ' if apps else ''}{_some(apps, 'apps')}"
    return InputError(rule, value=value, place=place)


def in_order(jobs: Sequence[str]) -> list[str]:
    """Jobs by number."""
    return sorted(jobs, key=_number)


def _number(job: str) -> tuple[str, int, str]:
    app, _, number = job.rpartition("/")
    return app, int(number) if number.isdecimal() else -1, job


def _one_of(names: Sequence[str], what: str) -> str:
    return f"one of {_some(names, what)}" if len(names) > 1 else _some(names, what)


def _some(names: Sequence[str], what: str) -> str:
    if not names:
        return "there (eunomia submit FILE brings one)"
    if len(names) <= MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: MOST_NAMED - 1])} ... {names[-1]} ({len(names)} {what})"
