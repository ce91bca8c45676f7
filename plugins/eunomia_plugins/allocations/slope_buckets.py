"""Running jobs in buckets of equal slope: jobs whose keys change at one rate keep their order as time passes.

So a round need not sort all running jobs: each bucket is sorted, and buckets are merged from their ends, only as far as
jobs are evicted.
"""

import bisect
import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from eunomia import LinearKey, Snapshot
from eunomia.units import NONE, Rows
from eunomia_plugins.allocations.preemption import Entry, Preemptible, PreemptionScan, RunningJob

BucketKind = tuple[float, int, int, bool]
"""Slope of the key per second, GPUs, their type, and whether the job can use GPUs of another type."""
KeyOf = Callable[[Rows], LinearKey]
"""Computes the keys of job rows."""
JobKey = tuple[float, float, float]
"""Intercept, slope and end of validity of one job's key."""
Positions = list[int]
"""By bucket, the number of jobs already scanned."""

MAX_BUCKETS: Final = 64
"""Most buckets; with more of them, sorting columns of all running jobs costs less."""


class UndecidedError(Exception):
    """Rounding makes different keys of one bucket equal, so the scan must sort all running jobs."""


class SlopeBucket:
    """Jobs of one kind, sorted by key at time 0 and then by arrival; entries have the key at time 0."""

    __slots__ = ("entries", "gpus", "kind", "movable", "slope")

    def __init__(self, kind: BucketKind) -> None:
        self.slope, self.gpus, self.kind, self.movable = kind
        self.entries: list[Entry] = []

    def before(self, entry: Entry, now: float) -> int:
        """Count the jobs that are served before a waiting job.

        Raises:
            UndecidedError: these are not the first jobs of the bucket.
        """
        entries, grown, (key, order, _) = self.entries, self.slope * now, entry
        at, count = bisect.bisect_left(entries, (key - grown, order)), len(entries)
        # Both the current keys and the key that is searched for are rounded.
        while at and (entries[at - 1][0] + grown, entries[at - 1][1]) > (key, order):
            at -= 1
        while at < count and (entries[at][0] + grown, entries[at][1]) < (key, order):
            at += 1
        self._check_ties_before(at, 0, key, order, grown)
        self._check_ties_after(at, key, order, grown)
        return at

    def checked(self, at: int, start: int, now: float) -> tuple[float, int]:
        """Current key and order of the job at ``at``.

        Raises:
            UndecidedError: a job from ``start`` on precedes it in the bucket but follows it by arrival.
        """
        grown = self.slope * now
        key, order = self.entries[at][0] + grown, self.entries[at][1]
        self._check_ties_before(at, start, key, order, grown)
        return key, order

    # Entries with the same key at time 0 are sorted by arrival, so comparing the one next to ``at`` is enough for all
    # of them; only keys that become equal by rounding make more than one such run.

    def _check_ties_before(self, at: int, start: int, key: float, order: int, grown: float) -> None:
        """Raise if a job from ``start`` to ``at`` has this key and a later arrival number than ``order``."""
        entries = self.entries
        while at > start and entries[at - 1][0] + grown == key:
            at_zero, arrived, _ = entries[at - 1]
            if arrived > order:
                raise UndecidedError
            at = bisect.bisect_left(entries, (at_zero,), 0, at)

    def _check_ties_after(self, at: int, key: float, order: int, grown: float) -> None:
        """Raise if a job from ``at`` on has this key and an earlier arrival number than ``order``."""
        entries = self.entries
        while at < len(entries) and entries[at][0] + grown == key:
            at_zero, arrived, _ = entries[at]
            if arrived < order:
                raise UndecidedError
            at = bisect.bisect_left(entries, (at_zero, math.inf), at)


class SlopeBuckets:
    """The running jobs, updated row by row.

    Attributes:
        enabled: whether running jobs are kept at all.
    """

    def __init__(self) -> None:
        self.enabled = False
        self._buckets: dict[BucketKind, SlopeBucket] = {}
        self._known: dict[int, tuple[BucketKind, Entry]] = {}
        """By row."""
        self._protected: set[int] = set()
        """Rows of jobs with protected leases; they are in no bucket."""
        self._protection_ends: list[tuple[float, int, Entry]] = []
        """Heap: end of a job's protection, row, entry."""
        self._key_ends: list[tuple[float, int, Entry]] = []
        """Heap: end of the validity of a job's key, row, entry."""

    def drop(self, row: int) -> None:
        """Remove a job, if it is present."""
        known = self._known.pop(row, None)
        if known is None:
            return
        if row in self._protected:
            self._protected.discard(row)
            return
        kind, entry = known
        entries = self._buckets[kind].entries
        del entries[bisect.bisect_left(entries, entry)]
        if not entries:
            del self._buckets[kind]

    def add(self, snapshot: Snapshot, row: int, order: int, key: JobKey) -> None:
        """Add a job."""
        gpus, of, protected_until = held_by(snapshot, row)
        intercept, slope, valid_until = key
        kind, entry = (slope, gpus, of, snapshot.jobs.gpu_type.item(row) == NONE), (intercept, order, row)
        self._known[row] = (kind, entry)
        if valid_until < math.inf:
            heapq.heappush(self._key_ends, (valid_until, row, entry))
        if protected_until > snapshot.now:
            self._protected.add(row)
            heapq.heappush(self._protection_ends, (protected_until, row, entry))
        else:
            self._put(kind, entry)

    def _put(self, kind: BucketKind, entry: Entry) -> None:
        bucket = self._buckets.get(kind)
        if bucket is None:
            bucket = self._buckets[kind] = SlopeBucket(kind)
        bisect.insort(bucket.entries, entry)

    def refresh(self, snapshot: Snapshot, key_of: KeyOf) -> None:
        """Add jobs whose protection has ended, and recompute keys that are no longer valid."""
        now = snapshot.now
        for row, entry in _due(self._protection_ends, now):
            if row in self._protected and self._known[row][1] is entry:
                self._protected.discard(row)
                self._put(*self._known[row])
        if not self._key_ends or self._key_ends[0][0] > now:
            return
        due = _due(self._key_ends, now)
        expired = [entry for row, entry in due if row in self._known and self._known[row][1] is entry]
        rows = [row for _, _, row in expired]
        for (_, order, row), key in zip(expired, keys_of(key_of, rows), strict=True):
            self.drop(row)
            self.add(snapshot, row, order, key)

    def scan(self, now: float, free: list[int]) -> "BucketScan | None":
        """The scan over preemptible jobs; None: there are too many buckets."""
        return BucketScan(list(self._buckets.values()), now, free) if len(self._buckets) <= MAX_BUCKETS else None

    def preemptible(self, now: float) -> Preemptible:
        """Columns of the running jobs that may be preempted."""
        buckets = list(self._buckets.values())
        jobs = [
            (at_zero + bucket.slope * now, order, row, bucket.gpus, bucket.kind, bucket.movable)
            for bucket in buckets
            for at_zero, order, row in bucket.entries
        ]
        return columns_of(jobs)


class BucketScan(PreemptionScan[Positions]):
    """The preemption scan over slope buckets, each from its last job."""

    def __init__(self, buckets: list[SlopeBucket], now: float, free: list[int]) -> None:
        self._buckets, self._now = buckets, now
        self._last = [bucket.entries[-1][0] + bucket.slope * now for bucket in buckets]
        super().__init__([0] * len(buckets), [len(bucket.entries) for bucket in buckets], free)

    def last_key(self) -> float:
        """The largest key; -inf: no job runs."""
        return max(self._last, default=-math.inf)

    def position(self, entry: Entry) -> Positions:
        """The position of a waiting job among the running ones."""
        key, now = entry[0], self._now
        return [
            end if last < key else bucket.before(entry, now)
            for bucket, last, end in zip(self._buckets, self._last, self.end, strict=True)
        ]

    def held(self, start: Positions, end: Positions) -> list[int]:
        """By type, GPUs of the jobs between two positions."""
        held = [0] * len(self._free)
        for bucket, first, last in zip(self._buckets, start, end, strict=True):
            if first < last:
                held[bucket.kind] += (last - first) * bucket.gpus
        return held

    def from_first_misfit(self, start: Positions, end: Positions, excess: list[int]) -> list[RunningJob]:
        """Jobs between two positions, from the first one that does not fit on."""
        found, excess = list[RunningJob](), excess.copy()
        ends = self._ends(start, end)
        while max(excess) > 0:  # the jobs found so far hold less than the excess
            key, order, number, at = heapq.heappop(ends)
            bucket = self._buckets[number]
            found.append((bucket.entries[at][2], bucket.gpus, bucket.kind, bucket.movable))
            excess[bucket.kind] -= bucket.gpus
            if at > start[number]:
                key, order = bucket.checked(at - 1, start[number], self._now)
                heapq.heappush(ends, (-key, -order, number, at - 1))
        found.reverse()
        return found

    def _ends(self, start: Positions, end: Positions) -> list[tuple[float, int, int, int]]:
        """The last job of each bucket between two positions, as a heap in reverse order of service."""
        heap = []
        for number, bucket in enumerate(self._buckets):
            if start[number] < end[number]:
                key, order = bucket.checked(end[number] - 1, start[number], self._now)
                heap.append((-key, -order, number, end[number] - 1))
        heapq.heapify(heap)
        return heap


def keys_of(key_of: KeyOf, rows: list[int]) -> list[JobKey]:
    """The keys of these job rows as plain numbers."""
    return key_of(np.array(rows, np.int32)).entries() if rows else []


def _due(heap: list[tuple[float, int, Entry]], now: float) -> Iterator[tuple[int, Entry]]:
    while heap and heap[0][0] <= now:
        _, row, entry = heapq.heappop(heap)
        yield row, entry


def held_by(snapshot: Snapshot, row: int) -> tuple[int, int, float]:
    """Number of GPUs in a job's own lease, their type, and the end of their protection."""
    live = snapshot.live_index
    if live is None:
        return 0, 0, math.inf
    gpus = live.gpus_of(row)
    kind = int(snapshot.cluster.gpu_type[gpus[0]]) if gpus.size else 0
    return gpus.size, kind, live.protected_until(row)


def columns_of(jobs: Sequence[tuple[float, int, int, int, int, bool]]) -> Preemptible:
    """Return columns of jobs: key, arrival number, row, GPUs, their type, and whether another type is possible."""
    keys, order, rows, gpus, kinds, movable = zip(*jobs, strict=True) if jobs else ((),) * 6
    return Preemptible(
        keys=np.array(keys, np.float64),
        order=np.array(order, np.int64),
        rows=np.array(rows, np.int64),
        gpus=np.array(gpus, np.int64),
        kinds=np.array(kinds, np.int64),
        movable=np.array(movable, np.bool_),
    )
