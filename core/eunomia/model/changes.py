"""The rows changed by each version, so that a plugin can update a cache instead of rebuilding it."""

from collections.abc import Iterable

import numpy as np

from eunomia.model.shapes import Deferred, LazyFields, builds, lazy
from eunomia.units import Rows

VERSIONS_KEPT = 4096
"""Number of the last versions whose changes are kept."""


@builds
class Changes(LazyFields):
    """Rows changed since a version."""

    jobs: Rows
    apps: Rows
    touched: list[int]
    """Rows of jobs in the order of their changes, with repetitions."""


lazy(Changes, "jobs", "apps")


class ChangeLog:
    """Rows of jobs and apps in the order of their changes; the state appends them, and closes a version once a step."""

    __slots__ = ("_marks", "dropped", "rows", "version")

    def __init__(self) -> None:
        self.rows: list[int] = []
        """Rows of jobs, and the complements (``~row``) of rows of apps."""
        self.dropped = 0
        """Number of rows that came before these and are not kept."""
        self._marks: list[int] = []
        """Length of the list when each version was closed."""
        self.version = 0
        """The last version closed."""

    def close(self, version: int) -> None:
        """Close a version, which covers all rows appended since the last one."""
        self._marks.append(len(self.rows))
        self.version = version
        if version % VERSIONS_KEPT == 0 and len(self._marks) > VERSIONS_KEPT:
            gone = self._marks[-VERSIONS_KEPT - 1]
            self.rows, self.dropped = self.rows[gone:], self.dropped + gone
            self._marks = [mark - gone for mark in self._marks[-VERSIONS_KEPT:]]

    def since(self, version: int) -> Changes | None:
        """Rows changed after a version, including this step's; None: the version is too old."""
        at = len(self._marks) - (self.version - version)
        if version > self.version or at < 0:
            return None
        rows = self.rows[self._marks[at - 1] if at else 0 :]
        jobs = [row for row in rows if row >= 0]
        return Changes(jobs=Deferred(_jobs, jobs), apps=Deferred(_apps, rows), touched=jobs)  # type: ignore[arg-type]


def _jobs(rows: Iterable[int]) -> Rows:
    return np.array(sorted(set(rows)), dtype=np.int32)


def _apps(rows: Iterable[int]) -> Rows:
    return np.array(sorted({~row for row in rows if row < 0}), dtype=np.int32)
