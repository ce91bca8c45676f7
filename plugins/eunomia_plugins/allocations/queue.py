"""Jobs kept in their order from round to round: those that wait sorted by key, those that run as lines of time.

What ``ordered`` would do with everybody ranked anew follows from few of them: of the jobs that wait from the first of
each size and GPU type, of those that run from those behind the best one that waits.
"""

import bisect
import heapq
from typing import NamedTuple

import numpy as np

from eunomia import Snapshot
from eunomia.units import NONE, Ints, Reals, Rows, Version
from eunomia.valuations import Keys
from eunomia.workload import Jobs, JobState

Entry = tuple[float, int, int]
"""Key, place in the order of arrival, row: what sorts before it is served before it."""
Size = tuple[int, int]
"""GPU type (-1: any) and GPUs."""

_WAITING, _RUNNING, _STARTING = int(JobState.WAITING), int(JobState.RUNNING), int(JobState.STARTING)


class Grant(NamedTuple):
    """A waiting job that is served."""

    row: int
    kind: int
    gpus: int


class Queue:
    """The sorted jobs of one arbiter; brought up to date by what was touched since the last round that asked.

    Attributes:
        waiting: entries by size, each list sorted.
    """

    def __init__(self) -> None:
        self.waiting: dict[Size, list[Entry]] = {}
        self._entry: dict[int, tuple[Size, Entry]] = {}
        self._jobs: Jobs | None = None
        self._owner: object = None
        self._version = Version(0)
        self.running = Running()

    def follow(self, snapshot: Snapshot, keys: Keys, *, running: bool) -> None:
        """Take in what was touched.

        Args:
            snapshot: of an arbiter, with its sets.
            keys: of the order.
            running: whether jobs that run are kept too.
        """
        known = self._jobs is snapshot.jobs and self._owner is keys.owner and self.running.kept == running
        changes = snapshot.changed(self._version) if known else None
        if changes is None:
            self._forget(running)
            states = snapshot.jobs.state
            rows = np.flatnonzero((states == _WAITING) | (states == _STARTING) | (states == _RUNNING)).astype(np.int32)
        else:
            rows = changes.jobs
        self._jobs, self._owner, self._version = snapshot.jobs, keys.owner, snapshot.version
        self._take_in(snapshot, keys, rows)

    def _forget(self, running: bool) -> None:
        self.waiting, self._entry = {}, {}
        self.running = Running()
        self.running.kept = running

    def _take_in(self, snapshot: Snapshot, keys: Keys, rows: Rows) -> None:
        touched = rows.tolist()
        for row in touched:
            self._drop(row)
        states = snapshot.jobs.state[rows].tolist()
        waits = [row for row, state in zip(touched, states, strict=True) if state == _WAITING]
        if waits:
            self._sort_in(snapshot, keys, np.array(waits, np.int32))
        if self.running.kept:
            runs = [row for row, state in zip(touched, states, strict=True) if state in (_RUNNING, _STARTING)]
            self.running.drop([row for row in touched if row in self.running.place])
            if runs:
                self.running.add(snapshot, keys, np.array(runs, np.int32))

    def _drop(self, row: int) -> None:
        known = self._entry.pop(row, None)
        if known is not None:
            size, entry = known
            line = self.waiting[size]
            del line[bisect.bisect_left(line, entry)]

    def _sort_in(self, snapshot: Snapshot, keys: Keys, rows: Rows) -> None:
        table = snapshot.jobs
        order = order_of(snapshot)[rows].tolist()
        columns = (keys.of(rows).at_zero.tolist(), order, rows.tolist())
        sizes = zip(table.gpu_type[rows].tolist(), table.most[rows].tolist(), strict=True)
        fresh: dict[Size, list[Entry]] = {}
        for size, entry in zip(sizes, zip(*columns, strict=True), strict=True):
            self._entry[entry[2]] = (size, entry)
            fresh.setdefault(size, []).append(entry)
        for size, entries in fresh.items():
            line = self.waiting.setdefault(size, [])
            if len(entries) > 8:
                line += entries
                line.sort()
                continue
            for entry in entries:
                bisect.insort(line, entry)


def order_of(snapshot: Snapshot) -> Ints:
    """By job row, its place in the order of arrival."""
    if snapshot.sets is None:
        raise ValueError("a queue is kept for an arbiter's own snapshots only")
    return snapshot.sets.order


class Running:
    """Jobs that run, as columns without gaps.

    Attributes:
        kept: whether they are kept at all.
        place: by row, where it stands in the columns.
    """

    def __init__(self) -> None:
        self.kept = False
        self.place: dict[int, int] = {}
        self.rows: Ints = np.empty(64, np.int64)
        self.order: Ints = np.empty(64, np.int64)
        self.gpus: Ints = np.empty(64, np.int64)
        self.at_zero: Reals = np.empty(64)
        self.each: Reals = np.empty(64)
        self.until: Reals = np.empty(64)
        self.protected: Reals = np.empty(64)

    def drop(self, rows: list[int]) -> None:
        """Take jobs out; the last ones move into the gaps."""
        for row in rows:
            gap, last = self.place.pop(row), len(self.place)
            if gap != last:
                for column in self._columns():
                    column[gap] = column[last]
                self.place[int(self.rows[gap])] = gap

    def add(self, snapshot: Snapshot, keys: Keys, rows: Rows) -> None:
        """Add jobs."""
        first, size = len(self.place), rows.size
        if first + size > self.rows.size:
            self._grow(2 * (first + size))
        here = slice(first, first + size)
        lines = keys.of(rows)
        self.rows[here], self.order[here] = rows, order_of(snapshot)[rows]
        self.at_zero[here], self.each[here], self.until[here] = lines
        for place, row in enumerate(rows.tolist(), start=first):
            self.place[row] = place
            self.gpus[place], self.protected[place] = _held(snapshot, row)

    def refresh(self, snapshot: Snapshot, keys: Keys) -> None:
        """Ask again for lines that have ended."""
        over = np.flatnonzero(self.until[: len(self.place)] <= snapshot.now)
        if over.size:
            rows = self.rows[over].astype(np.int32)
            self.at_zero[over], self.each[over], self.until[over] = keys.of(rows)

    def contestants(self, snapshot: Snapshot) -> "Contestants":
        """Those who may lose what they have, with their keys of now."""
        many, now = len(self.place), snapshot.now
        found = Contestants(
            self.at_zero[:many] + self.each[:many] * now, self.order[:many], self.rows[:many], self.gpus[:many]
        )
        free = self.protected[:many] <= now
        return found if free.all() else found.select(np.flatnonzero(free))

    def _columns(self) -> tuple[Reals | Ints, ...]:
        return (self.rows, self.order, self.gpus, self.at_zero, self.each, self.until, self.protected)

    def _grow(self, size: int) -> None:
        for name in ("rows", "order", "gpus", "at_zero", "each", "until", "protected"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.empty(size - column.size, column.dtype)]))


def _held(snapshot: Snapshot, row: int) -> tuple[int, float]:
    """GPUs that a job's own lease has, and until when they are protected."""
    sets = snapshot.sets
    if sets is None:
        return 0, np.inf
    return int(sets.gpus_of(row).size), sets.protected_until(row)


class Contestants(NamedTuple):
    """Columns of jobs that run and may lose what they have."""

    keys: Reals
    order: Ints
    rows: Ints
    gpus: Ints

    def select(self, at: Ints) -> "Contestants":
        """Some of them."""
        return Contestants(self.keys[at], self.order[at], self.rows[at], self.gpus[at])


def contestants_of(snapshot: Snapshot, keys: Keys, rows: list[int]) -> Contestants:
    """Columns of these jobs."""
    columns = np.array(rows, np.int32)
    lines = keys.of(columns)
    gpus = np.array([_held(snapshot, row)[0] for row in rows], np.int64)
    keys_now = lines.at_zero + lines.each_second * snapshot.now
    return Contestants(keys_now, order_of(snapshot)[columns], columns.astype(np.int64), gpus)


def serve(queue: Queue, free: list[int], *, stop: bool, fits: "Fits") -> list[Grant]:
    """Serve jobs in their order with what is free; who does not fit is passed, or ends the service.

    Args:
        queue: the jobs that wait.
        free: GPUs by type; used up.
        stop: whether the first job that does not fit ends the service.
        fits: which sizes can run in the cluster at all.
    """
    heads = _heads(queue, fits)
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
    """Which sizes can run in a cluster at all."""

    def __init__(self, capacity: Ints) -> None:
        self._capacity: list[int] = capacity.tolist()

    def limit(self, kind: int) -> int:
        """GPUs of a type; of any type: of the largest. A type that is not there has none."""
        if kind == NONE:
            return max(self._capacity)
        return self._capacity[kind] if 0 <= kind < len(self._capacity) else 0


Head = tuple[Entry, Size, int]
"""The next job of a size: its entry, the size, and where it stands in its list."""


def _heads(queue: Queue, fits: Fits) -> list[Head]:
    heads = [(line[0], size, 0) for size, line in queue.waiting.items() if line and size[1] <= fits.limit(size[0])]
    heapq.heapify(heads)
    return heads


def _advance(heads: list[Head], line: list[Entry], size: Size, at: int) -> None:
    """The first head was served: the next job of its size takes its place."""
    if at + 1 < len(line):
        heapq.heapreplace(heads, (line[at + 1], size, at + 1))
    else:
        heapq.heappop(heads)


def contest(queue: Queue, runs: Contestants, free: int, fits: Fits) -> tuple[list[Grant], list[int]]:
    """Serve jobs that wait and jobs that run in one order, each whole or not at all, with what all of them could have.

    Where all have one GPU type; those who are passed are not tried again.

    Args:
        queue: the jobs that wait.
        runs: the jobs that run; together they hold what they are to be served with, beside what is free.
        free: GPUs.
        fits: which sizes can run in the cluster at all.

    Returns:
        Who starts, in order, and the rows of those who have to leave for them.
    """
    heads = _heads(queue, fits)
    runs, room = _behind(heads, runs, free)
    if not heads:
        return [], []
    ranked = runs.select(np.lexsort((runs.order, runs.keys)))
    walk = _Walk(ranked, room)
    served: list[Grant] = []
    while heads:
        entry, (kind, gpus), at = heads[0]
        walk.up_to(entry)
        if gpus > walk.room:
            heapq.heappop(heads)
            continue
        walk.room -= gpus
        served.append(Grant(entry[2], 0, gpus))
        _advance(heads, queue.waiting[kind, gpus], (kind, gpus), at)
    walk.to_the_end()
    return served, walk.losers


def _behind(heads: list[Head], runs: Contestants, free: int) -> tuple[Contestants, int]:
    """Pass the heads that could not be served even if nobody behind them kept anything; who runs ahead, stays.

    Returns:
        Those behind the first head that is left, and the GPUs that they and nobody else have.
    """
    room = free + int(runs.gpus.sum())
    while heads:
        (key, order, _), (_, gpus), _ = heads[0]
        if gpus <= room:
            behind = np.flatnonzero((runs.keys > key) | ((runs.keys == key) & (runs.order > order)))
            runs = runs.select(behind)
            room = free + int(runs.gpus.sum())
        if gpus <= room:
            break
        heapq.heappop(heads)
    return runs, room


class _Walk:
    """The walk down those who run: who fits into what is left stays."""

    def __init__(self, runs: Contestants, room: int) -> None:
        self._runs, self.room = runs, room
        self._total: Ints = np.concatenate([[0], np.cumsum(runs.gpus)])
        self._at = 0
        self.losers: list[int] = []

    def up_to(self, entry: Entry) -> None:
        """Go on to those who are served after this waiting job."""
        keys, order, at = self._runs.keys, self._runs.order, self._at
        end = int(np.searchsorted(keys, entry[0], side="left"))
        while end < keys.size and keys[end] == entry[0] and order[end] < entry[1]:
            end += 1
        self._go(max(end, at))

    def to_the_end(self) -> None:
        """Go on to the last of them."""
        self._go(self._runs.rows.size)

    def _go(self, end: int) -> None:
        at, gpus = self._at, self._runs.gpus
        if at == end:
            return
        self._at = end
        taken = int(self._total[end] - self._total[at])
        if taken <= self.room:
            self.room -= taken
            return
        left = self.room - (self._total[at:end] - self._total[at])
        first = at + int(np.argmax(gpus[at:end] > left))
        self.room -= int(self._total[first] - self._total[at])
        for place in range(first, end):
            many = int(gpus[place])
            if many <= self.room:
                self.room -= many
            else:
                self.losers.append(int(self._runs.rows[place]))
