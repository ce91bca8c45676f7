"""Keeps jobs sorted between rounds: waiting jobs by key, running jobs in slope buckets.

The result equals that of ranking all jobs each round, but only few are looked at: the first waiting job of each size
and GPU type, and the running jobs behind the best waiting one.
"""

import bisect
import contextlib
import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eunomia import Snapshot
from eunomia.model.workload import Jobs, JobState
from eunomia.units import NONE, Ints, Version
from eunomia_plugins.allocations.preemption import ColumnScan, Entry, Grant, P, Preemptible, PreemptionScan
from eunomia_plugins.allocations.slope_buckets import (
    JobKey,
    KeyOf,
    SlopeBuckets,
    UndecidedError,
    columns_of,
    held_by,
    keys_of,
)

Size = tuple[int, int]
"""GPU type (-1: any) and GPUs."""

_WAITING, _RUNNING, _STARTING = int(JobState.WAITING), int(JobState.RUNNING), int(JobState.STARTING)
_HOLDING = (_RUNNING, _STARTING)


class Queue:
    """The sorted jobs of one arbiter, updated from the jobs that changed since the last update.

    Attributes:
        waiting: entries by size, each list sorted.
        widest: the largest size ever among them; infinite once a job asked for a GPU type that does not exist.
        running: jobs that run or start, where these are kept.
    """

    def __init__(self) -> None:
        self.waiting: dict[Size, list[Entry]] = {}
        self.widest = 0.0
        self._entry: dict[int, tuple[Size, Entry]] = {}
        self._jobs: Jobs | None = None
        self._version = Version(0)
        self.running = SlopeBuckets()
        self._fits: tuple[Ints, Fits] | None = None

    def fits(self, capacity: Ints) -> "Fits":
        """Return the sizes that the cluster can run; recomputed if the capacity array is a new one."""
        if self._fits is None or self._fits[0] is not capacity:
            self._fits = capacity, Fits(capacity)
        return self._fits[1]

    def update(self, snapshot: Snapshot, key_of: KeyOf, *, running: bool) -> None:
        """Apply the changes since the last update.

        Args:
            snapshot: of an arbiter, with its live index.
            key_of: the order; the same at every call.
            running: whether running jobs are kept too.
        """
        known = self._jobs is snapshot.jobs and self.running.enabled == running
        changes = snapshot.changed(self._version) if known else None
        if changes is None:
            self._reset(running)
            states = snapshot.jobs.state
            rows = np.flatnonzero((states == _WAITING) | (states == _STARTING) | (states == _RUNNING)).tolist()
        else:
            rows = list(set(changes.touched))
        self._jobs, self._version = snapshot.jobs, snapshot.version
        self._update_rows(snapshot, key_of, rows)

    def _reset(self, running: bool) -> None:
        self.waiting, self._entry = {}, {}
        self.running = SlopeBuckets()
        self.running.enabled = running

    def _update_rows(self, snapshot: Snapshot, key_of: KeyOf, rows: list[int]) -> None:
        state, runs_too = snapshot.jobs.state.item, self.running.enabled
        waits, runs = list[int](), list[int]()
        for row in rows:
            self._drop(row)
            now = state(row)
            if now == _WAITING:
                waits.append(row)
            elif runs_too and now in _HOLDING:
                runs.append(row)
        if waits:
            self._sort_in(snapshot, waits, keys_of(key_of, waits))
        if runs:
            order = order_of(snapshot).item
            for row, key in zip(runs, keys_of(key_of, runs), strict=True):
                self.running.add(snapshot, row, order(row), key)

    def _drop(self, row: int) -> None:
        known = self._entry.pop(row, None)
        if known is not None:
            size, entry = known
            entries = self.waiting[size]
            del entries[bisect.bisect_left(entries, entry)]
        elif self.running.enabled:
            self.running.drop(row)

    def _sort_in(self, snapshot: Snapshot, rows: list[int], keys: Sequence[JobKey]) -> None:
        kind, gpus, order = snapshot.jobs.gpu_type.item, snapshot.jobs.most.item, order_of(snapshot).item
        added: dict[Size, list[Entry]] = {}
        for row, (intercept, _, _) in zip(rows, keys, strict=True):
            size, entry = (kind(row), gpus(row)), (intercept, order(row), row)
            self._entry[row] = (size, entry)
            added.setdefault(size, []).append(entry)
        for size, entries in added.items():
            known = self.waiting.setdefault(size, [])
            self.widest = max(self.widest, size[1] if size[0] >= NONE else math.inf)
            if len(entries) > 8:
                known += entries
                known.sort()
                continue
            for entry in entries:
                bisect.insort(known, entry)


def order_of(snapshot: Snapshot) -> Ints:
    """By job row, its place in the order of arrival."""
    if snapshot.arrivals is None:
        raise ValueError("a queue needs a snapshot that an arbiter made, but got one without the order of arrival")
    return snapshot.arrivals


def preemptible(snapshot: Snapshot, key_of: KeyOf, rows: list[int]) -> Preemptible:
    """Columns of these running jobs."""
    order, kind, now = order_of(snapshot), snapshot.jobs.gpu_type, snapshot.now
    jobs = []
    for row, (intercept, slope, _) in zip(rows, keys_of(key_of, rows), strict=True):
        gpus, home, _ = held_by(snapshot, row)
        jobs.append((intercept + slope * now, order.item(row), row, gpus, home, kind.item(row) == NONE))
    return columns_of(jobs)


def serve(queue: Queue, free: list[int], *, stop: bool, fits: "Fits") -> list[Grant]:
    """Serve waiting jobs in order from free GPUs; a job that does not fit is skipped, or ends the service.

    Args:
        queue: the waiting jobs.
        free: GPUs by type; used up.
        stop: whether the first job that does not fit ends the service.
        fits: which sizes can run in the cluster at all.
    """
    return _served(queue, _heads(queue, fits), free, stop=stop)


def _served(queue: Queue, heads: "list[Head]", free: list[int], *, stop: bool) -> list[Grant]:
    served: list[Grant] = []
    while heads and any(free):
        (_, _, row), (kind, gpus), at = heads[0]
        of = kind if kind != NONE else free.index(max(free))
        if gpus > free[of]:
            if stop:
                break
            heapq.heappop(heads)
            continue
        free[of] -= gpus
        served.append(Grant(row, of, gpus))
        _advance(heads, queue.waiting[kind, gpus], (kind, gpus), at)
    return served


class Fits:
    """The sizes that fit a cluster when it is empty."""

    def __init__(self, capacity: Ints) -> None:
        self._capacity: list[int] = capacity.tolist()
        self.everywhere = min(self._capacity)
        """Sizes up to this one fit each type of the cluster."""

    def limit(self, kind: int) -> int:
        """GPUs of a type; -1 (any): of the largest type; 0 for a type that the cluster does not have."""
        if kind == NONE:
            return max(self._capacity)
        return self._capacity[kind] if 0 <= kind < len(self._capacity) else 0


Head = tuple[Entry, Size, int]
"""The next job of a size: its entry, the size, and its index in the list of that size."""


def _heads(queue: Queue, fits: Fits) -> list[Head]:
    heads = [(entries[0], size, 0) for size, entries in queue.waiting.items() if entries]
    if queue.widest > fits.everywhere:
        heads = [head for head in heads if head[1][1] <= fits.limit(head[1][0])]
    heapq.heapify(heads)
    return heads


def _advance(heads: list[Head], entries: list[Entry], size: Size, at: int) -> None:
    """Replace the first head, which was served, by the next job of its size."""
    if at + 1 < len(entries):
        heapq.heapreplace(heads, (entries[at + 1], size, at + 1))

    else:
        heapq.heappop(heads)


class ScanResult(NamedTuple):
    """The result of a preemption scan."""

    grants: list[Grant]
    """Jobs that start or change their GPU type, in order."""
    evicted: list[int]
    """Rows of the running jobs that lose their GPUs to the granted jobs."""


def scan_all(queue: Queue, snapshot: Snapshot, free: list[int], fits: Fits) -> ScanResult:
    """Scan all running jobs that are not protected; see ``scan_with``."""
    now = float(snapshot.now)
    buckets = queue.running.scan(now, free)
    if buckets is not None:
        with contextlib.suppress(UndecidedError):
            return scan_with(queue, buckets, free, fits)
    return scan_with(queue, ColumnScan(queue.running.preemptible(now), free), free, fits)


def scan_with(queue: Queue, scan: PreemptionScan[P], free: list[int], fits: Fits) -> ScanResult:
    """Serve waiting and running jobs in one order from free and held GPUs; each job gets its whole gang or none.

    A running job stays where it is while it fits; if not, it continues on another type where it may, or is evicted.
    A job that is passed over is not tried again.

    Args:
        queue: the waiting jobs.
        scan: over the running jobs; their GPUs and the free ones are given out.
        free: GPUs by type.
        fits: which sizes can run in the cluster at all.
    """
    heads = _heads(queue, fits)
    if not heads or heads[0][0][0] > scan.last_key():
        return ScanResult(_served(queue, heads, free, stop=False), [])  # all running jobs precede all waiting ones
    _skip_to_first_that_fits(heads, scan)
    capacity = scan.capacity
    while heads:
        entry, (kind, gpus), at = heads[0]
        if gpus > _most(capacity.left, kind):  # and what is left only shrinks
            heapq.heappop(heads)
            continue
        scan.advance_to(entry)
        of = capacity.choose(gpus, kind)
        if gpus > capacity.left[of]:
            heapq.heappop(heads)
            continue
        capacity.take(gpus, of)
        scan.grants.append(Grant(entry[2], of, gpus))
        _advance(heads, queue.waiting[kind, gpus], (kind, gpus), at)
    scan.finish()
    return ScanResult(scan.grants, scan.evicted)


def _skip_to_first_that_fits(heads: list[Head], scan: PreemptionScan[P]) -> None:
    """Drop jobs that do not fit even without the running jobs behind them; running jobs before the rest stay."""
    left = scan.capacity.left
    while heads:
        entry, (kind, gpus), _ = heads[0]
        if gpus <= _most(left, kind):
            position = scan.position(entry)
            left = scan.left_from(position)  # later heads have no more than this
            if gpus <= _most(left, kind):
                scan.skip_to(position, left)
                return
        heapq.heappop(heads)
    scan.skip_to(scan.end, scan.left_from(scan.end))


def _most(left: list[int], kind: int) -> int:
    return max(left) if kind == NONE else left[kind]
