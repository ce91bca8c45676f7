"""The rows changed by each version, so that a plugin can update a cache instead of rebuilding it."""

from collections.abc import Iterable

import numpy as np

from eunomia.model.shapes import Deferred, LazyFields, builds, lazy
from eunomia.units import Rows

VERSIONS_KEPT = 512
"""Number of most recent versions whose changes are kept."""


@builds
class Changes(LazyFields):
    """The rows changed since a version."""

    jobs: Rows
    apps: Rows
    touched: list[int]
    """Rows of jobs in order of change, possibly repeated."""


lazy(Changes, "jobs", "apps")


class ChangeLog:
    """A log of changed rows of jobs and apps; the state appends rows, and closes a version after each step."""

    __slots__ = ("_marks", "dropped", "rows", "version")

    def __init__(self) -> None:
        self.rows: list[int] = []
        """Changed rows: rows of jobs as they are, rows of apps as complements (``~row``)."""
        self.dropped = 0
        """Number of older entries that were dropped."""
        self._marks: list[int] = []
        """Total number of entries when each version was closed."""
        self.version = 0
        """The version that was closed last."""

    def close(self, version: int) -> None:
        """Close a version; it covers all rows appended since the previous version."""
        self._marks.append(len(self.rows))
        self.version = version
        if version % VERSIONS_KEPT == 0 and len(self._marks) > VERSIONS_KEPT:
            gone = self._marks[-VERSIONS_KEPT - 1]
            self.rows, self.dropped = self.rows[gone:], self.dropped + gone
            self._marks = [mark - gone for mark in self._marks[-VERSIONS_KEPT:]]

    def since(self, version: int) -> Changes | None:
        """Return the rows changed after a version, including the current step; None if the version is too old."""
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
