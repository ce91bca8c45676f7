"""When the first running job enters its next queue: the times are kept sorted and updated for changed rows only."""

import heapq
from collections.abc import Callable

import numpy as np

from eunomia import NEVER, LinearKey, Seconds, Snapshot
from eunomia.model.workload import Jobs, JobState
from eunomia.units import NONE, Rows, Version

SOON = 1e-3
"""Seconds added to a wake-up, so that rounding does not cause a second round at the present time."""


KeyOf = Callable[[Rows], LinearKey]
"""Computes the ranks of job rows, and until when they are valid."""


class Crossings:
    """Times at which ranks of running jobs change."""

    def __init__(self) -> None:
        self._jobs: Jobs | None = None
        self._version = Version(0)
        self._heap: list[tuple[float, int]] = []
        self._until: dict[int, float] = {}

    def first(self, snapshot: Snapshot, rank_of: KeyOf) -> Seconds:
        """Return the first time after now at which a rank changes; NEVER: no rank changes."""
        changes = snapshot.changed(self._version) if self._jobs is snapshot.jobs else None
        if changes is None:
            self._heap, self._until = [], {}
            held = snapshot.holdings.job
            rows = np.unique(held[held != NONE]).astype(np.int32)
        else:
            rows = changes.jobs
        self._jobs, self._version = snapshot.jobs, snapshot.version
        self._update(snapshot, rank_of, rows)
        while self._heap and self._passed(float(snapshot.now)):
            row = heapq.heappop(self._heap)[1]
            if row in self._until and self._until[row] <= snapshot.now:
                self._update(snapshot, rank_of, np.array([row], np.int32))
                if self._until.get(row, np.inf) <= snapshot.now:
                    return Seconds(snapshot.now + SOON)  # rounding left it in the same queue
        return Seconds(max(self._heap[0][0], snapshot.now + SOON)) if self._heap else NEVER

    def _passed(self, now: float) -> bool:
        time, row = self._heap[0]
        return self._until.get(row) != time or time <= now

    def _update(self, snapshot: Snapshot, rank_of: KeyOf, rows: Rows) -> None:
        for row in rows.tolist():
            self._until.pop(row, None)
        running = rows[snapshot.jobs.state[rows] == JobState.RUNNING]
        if running.size == 0:
            return
        for row, (_, _, until) in zip(running.tolist(), rank_of(running).entries(), strict=True):
            if until < np.inf:
                self._until[row] = until
                heapq.heappush(self._heap, (until, row))
