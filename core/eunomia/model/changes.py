"""The rows changed by each version, so that a plugin can update a cache instead of rebuilding it."""

from collections.abc import Iterable

import numpy as np

from eunomia.model.shapes import Later, builds, lazy
from eunomia.units import Rows

VERSIONS_KEPT = 4096
"""Number of the last versions whose changes are kept."""


@builds
class Changes:
    """Rows changed since a version."""

    jobs: Rows
    apps: Rows
    touched: list[int]
    """Rows of jobs in the order of their changes, with repetitions."""


lazy(Changes, "jobs", "apps")


class ChangeLog:
    """Rows of jobs and apps in the order of their changes; the state appends them and closes a version once a step."""

    __slots__ = ("_marks", "apps", "jobs")

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.apps: list[int] = []
        self._marks: list[tuple[int, int]] = []
        """Lengths of both lists when each version was closed."""

    def close(self) -> None:
        """Close a version, which covers all rows appended since the last one."""
        self._marks.append((len(self.jobs), len(self.apps)))
        if len(self._marks) > 2 * VERSIONS_KEPT:
            jobs, apps = self._marks[-VERSIONS_KEPT - 1]
            self.jobs, self.apps = self.jobs[jobs:], self.apps[apps:]
            self._marks = [(job - jobs, app - apps) for job, app in self._marks[-VERSIONS_KEPT:]]

    def since(self, versions: int) -> Changes | None:
        """Rows changed in this number of last versions and after them; None: more versions than are kept."""
        at = len(self._marks) - versions
        if versions < 0 or at < 0:
            return None
        job, app = self._marks[at - 1] if at else (0, 0)
        jobs, apps = self.jobs[job:], self.apps[app:]
        return Changes(jobs=Later(_rows, jobs), apps=Later(_rows, apps), touched=jobs)  # type: ignore[arg-type]


def _rows(rows: Iterable[int]) -> Rows:
    return np.array(sorted(set(rows)), dtype=np.int32)
