"""The rows changed by each version, so that a plugin can update a cache instead of rebuilding it."""

from typing import Any

import numpy as np

from eunomia.model.shapes import Deferred, LazyFields, builds, lazy
from eunomia.units import Rows

VERSIONS_KEPT = 512
"""Changes are kept for at least this number of most recent versions, and for at most twice as many."""


@builds
class Changes(LazyFields):
    """The rows changed since a version."""

    jobs: Rows
    apps: Rows
    touched: list[int]
    """Rows of jobs in order of change, possibly repeated."""


lazy(Changes, "jobs", "apps")


class ChangeLog:
    """A log of changed rows of jobs and apps; the state appends rows, and each snapshot marks its position."""

    __slots__ = ("_next", "dropped", "marks", "rows")

    def __init__(self) -> None:
        self.rows: list[int] = []
        """Changed rows: rows of jobs as they are, rows of apps as complements (``~row``)."""
        self.dropped = self._next = 0
        """Number of older entries that were dropped, now and after the next call of ``forget``."""
        self.marks: dict[int, int] = {}
        """Total number of entries, by version, when the first snapshot of that version was made."""

    def forget(self) -> None:
        """Drop the entries that were appended before the previous call."""
        so_far = self.dropped + len(self.rows)
        self.rows, self.dropped, self._next = self.rows[self._next - self.dropped :], self._next, so_far
        self.marks = {version: at for version, at in self.marks.items() if at >= self.dropped}

    def since(self, version: int) -> Changes | None:
        """Return the rows changed since a version; None if it had no snapshot, or if its entries were dropped."""
        at = self.marks.get(version, -1) - self.dropped
        if at < 0:
            return None
        rows = self.rows[at:]
        touched = [row for row in rows if row >= 0]
        jobs: Any = Deferred(lambda: np.array(sorted({*touched}), dtype=np.int32))
        apps: Any = Deferred(lambda: np.array(sorted({~row for row in rows if row < 0}), dtype=np.int32))
        return Changes(jobs=jobs, apps=apps, touched=touched)
