"""What was touched, version by version, so that a plugin may bring a cache up to date instead of building it anew."""

from collections.abc import Iterable

import numpy as np

from eunomia.model.shapes import Later, builds, lazy
from eunomia.units import Rows

VERSIONS_KEPT = 4096
"""Versions for which it can be said what was touched."""


@builds
class Changes:
    """Rows touched since a version."""

    jobs: Rows
    apps: Rows
    touched: list[int]
    """Rows of jobs one by one as they were touched, some of them several times."""


lazy(Changes, "jobs", "apps")


class ChangeLog:
    """Rows of jobs and apps as they were touched, which whoever touches them adds; a version is closed once a step."""

    __slots__ = ("_marks", "apps", "jobs")

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.apps: list[int] = []
        self._marks: list[tuple[int, int]] = []
        """How long both lists were when each version was closed."""

    def close(self) -> None:
        """What was touched since the last one belongs to this version."""
        self._marks.append((len(self.jobs), len(self.apps)))
        if len(self._marks) > 2 * VERSIONS_KEPT:
            jobs, apps = self._marks[-VERSIONS_KEPT - 1]
            self.jobs, self.apps = self.jobs[jobs:], self.apps[apps:]
            self._marks = [(job - jobs, app - apps) for job, app in self._marks[-VERSIONS_KEPT:]]

    def since(self, versions: int) -> Changes | None:
        """What was touched in the last so many versions and after them; None: that is too long ago."""
        at = len(self._marks) - versions
        if versions < 0 or at < 0:
            return None
        job, app = self._marks[at - 1] if at else (0, 0)
        jobs, apps = self.jobs[job:], self.apps[app:]
        return Changes(jobs=Later(_rows, jobs), apps=Later(_rows, apps), touched=jobs)  # type: ignore[arg-type]


def _rows(rows: Iterable[int]) -> Rows:
    return np.array(sorted(set(rows)), dtype=np.int32)
