"""The next time at which a running job enters another queue; times are kept sorted and updated from changed rows."""

import heapq
import math

import numpy as np

from eunomia import NEVER, Facts, JobState, Seconds, Snapshot
from eunomia.contract.keys import Key, line_of
from eunomia.model.workload import Jobs
from eunomia.units import NONE, Version

SOON = 1e-3
"""Seconds added to a wake-up time, so that rounding does not cause another round at the present time."""
_RUNNING = int(JobState.RUNNING)


class Crossings:
    """The times at which ranks of running jobs change."""

    def __init__(self) -> None:
        self._jobs: Jobs | None = None
        self._version = Version(0)
        self._heap: list[tuple[float, int]] = []
        self._until: dict[int, float] = {}

    def first(self, snapshot: Snapshot, facts: Facts, rank: Key) -> Seconds:
        """Return the first time after now at which a rank changes, or NEVER if none does."""
        changes = snapshot.changed(self._version) if self._jobs is snapshot.jobs else None
        if changes is None:
            self._heap, self._until = [], {}
            held = snapshot.holdings.job
            rows = np.unique(held[held != NONE]).tolist()
        else:
            rows = changes.touched
        self._jobs, self._version = snapshot.jobs, snapshot.version
        for row in set(rows):
            self._update(facts, rank, row)
        while self._heap and self._passed(facts.now):
            row = heapq.heappop(self._heap)[1]
            if row in self._until and self._until[row] <= facts.now:
                self._update(facts, rank, row)
                if self._until.get(row, math.inf) <= facts.now:
                    return Seconds(facts.now + SOON)  # rounding left it in the same queue
        return Seconds(max(self._heap[0][0], facts.now + SOON)) if self._heap else NEVER

    def _passed(self, now: float) -> bool:
        time, row = self._heap[0]
        return self._until.get(row) != time or time <= now

    def _update(self, facts: Facts, rank: Key, row: int) -> None:
        self._until.pop(row, None)
        if facts.jobs.state[row] == _RUNNING:
            until = line_of(rank, facts, row)[2]
            if until < math.inf:
                self._until[row] = until
                heapq.heappush(self._heap, (until, row))
