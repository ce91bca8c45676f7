"""Jobs kept in their order from round to round: those that wait sorted by key, those that run as lines of time.

What ``ordered`` would do with everybody ranked anew follows from few of them: of the jobs that wait from the first of
each size and GPU type, of those that run from those behind the best one that waits.
"""

import bisect
import contextlib
import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eunomia import Snapshot
from eunomia.units import NONE, Ints, Version
from eunomia.valuations import Keys, Line, lines_of
from eunomia.workload import Jobs, JobState
from eunomia_plugins.allocations.contests import ColumnWalk, Contestants, Entry, Grant, P, Walk
from eunomia_plugins.allocations.lanes import Lanes, UndecidedError, columns_of, held_by

Size = tuple[int, int]
"""GPU type (-1: any) and GPUs."""

_WAITING, _RUNNING, _STARTING = int(JobState.WAITING), int(JobState.RUNNING), int(JobState.STARTING)
_ON = (_RUNNING, _STARTING)


class Queue:
    """The sorted jobs of one arbiter; brought up to date by what was touched since the last round that asked.

    Attributes:
        waiting: entries by size, each list sorted.
        widest: the largest size that was ever among them; of a GPU type that is not there: infinite.
    """

    def __init__(self) -> None:
        self.waiting: dict[Size, list[Entry]] = {}
        self.widest = 0.0
        self._entry: dict[int, tuple[Size, Entry]] = {}
        self._jobs: Jobs | None = None
        self._owner: object = None
        self._version = Version(0)
        self.running = Lanes()
        self._fits: tuple[Ints, Fits] | None = None

    def fits(self, capacity: Ints) -> "Fits":
        """Which sizes can run in the cluster at all; looked at again when it is another one."""
        if self._fits is None or self._fits[0] is not capacity:
            self._fits = capacity, Fits(capacity)
        return self._fits[1]

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
            rows = np.flatnonzero((states == _WAITING) | (states == _STARTING) | (states == _RUNNING)).tolist()
        else:
            rows = list(set(changes.touched))
        self._jobs, self._owner, self._version = snapshot.jobs, keys.owner, snapshot.version
        self._take_in(snapshot, keys, rows)

    def _forget(self, running: bool) -> None:
        self.waiting, self._entry = {}, {}
        self.running = Lanes()
        self.running.kept = running

    def _take_in(self, snapshot: Snapshot, keys: Keys, rows: list[int]) -> None:
        state, runs_too = snapshot.jobs.state.item, self.running.kept
        waits, runs = list[int](), list[int]()
        for row in rows:
            self._drop(row)
            now = state(row)
            if now == _WAITING:
                waits.append(row)
            elif runs_too and now in _ON:
                runs.append(row)
        if waits:
            self._sort_in(snapshot, waits, lines_of(keys, waits))
        if runs:
            order = order_of(snapshot).item
            for row, line in zip(runs, lines_of(keys, runs), strict=True):
                self.running.add(snapshot, row, order(row), line)

    def _drop(self, row: int) -> None:
        known = self._entry.pop(row, None)
        if known is not None:
            size, entry = known
            line = self.waiting[size]
            del line[bisect.bisect_left(line, entry)]
        elif self.running.kept:
            self.running.drop(row)

    def _sort_in(self, snapshot: Snapshot, rows: list[int], lines: Sequence[Line]) -> None:
        kind, gpus, order = snapshot.jobs.gpu_type.item, snapshot.jobs.most.item, order_of(snapshot).item
        fresh: dict[Size, list[Entry]] = {}
        for row, (at_zero, _, _) in zip(rows, lines, strict=True):
            size, entry = (kind(row), gpus(row)), (at_zero, order(row), row)
            self._entry[row] = (size, entry)
            fresh.setdefault(size, []).append(entry)
        for size, entries in fresh.items():
            line = self.waiting.setdefault(size, [])
            self.widest = max(self.widest, size[1] if size[0] >= NONE else math.inf)
            if len(entries) > 8:
                line += entries
                line.sort()
                continue
            for entry in entries:
                bisect.insort(line, entry)


def order_of(snapshot: Snapshot) -> Ints:
    """By job row, its place in the order of arrival."""
    if snapshot.arrivals is None:
        raise ValueError("a queue is kept for an arbiter's own snapshots only")
    return snapshot.arrivals


def contestants_of(snapshot: Snapshot, keys: Keys, rows: list[int]) -> Contestants:
    """Columns of these jobs."""
    order, kind, now = order_of(snapshot), snapshot.jobs.gpu_type, snapshot.now
    made = []
    for row, (at_zero, each, _) in zip(rows, lines_of(keys, rows), strict=True):
        gpus, home, _ = held_by(snapshot, row)
        made.append((at_zero + each * now, order.item(row), row, gpus, home, kind.item(row) == NONE))
    return columns_of(made)


def serve(queue: Queue, free: list[int], *, stop: bool, fits: "Fits") -> list[Grant]:
    """Serve jobs in their order with what is free; who does not fit is passed, or ends the service.

    Args:
        queue: the jobs that wait.
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
    """Which sizes can run in a cluster at all."""

    def __init__(self, capacity: Ints) -> None:
        self._capacity: list[int] = capacity.tolist()
        self.everywhere = min(self._capacity)
        """Sizes up to this one can run whatever type they ask for, if it is there."""

    def limit(self, kind: int) -> int:
        """GPUs of a type; of any type: of the largest. A type that is not there has none."""
        if kind == NONE:
            return max(self._capacity)
        return self._capacity[kind] if 0 <= kind < len(self._capacity) else 0


Head = tuple[Entry, Size, int]
"""The next job of a size: its entry, the size, and where it stands in its list."""


def _heads(queue: Queue, fits: Fits) -> list[Head]:
    heads = [(line[0], size, 0) for size, line in queue.waiting.items() if line]
    if queue.widest > fits.everywhere:
        heads = [head for head in heads if head[1][1] <= fits.limit(head[1][0])]
    heapq.heapify(heads)
    return heads


def _advance(heads: list[Head], line: list[Entry], size: Size, at: int) -> None:
    """The first head was served: the next job of its size takes its place."""
    if at + 1 < len(line):
        heapq.heapreplace(heads, (line[at + 1], size, at + 1))
    else:
        heapq.heappop(heads)


class Outcome(NamedTuple):
    """What a contest comes to."""

    grants: list[Grant]
    """Who starts, or goes on elsewhere, in order."""
    losers: list[int]
    """Rows of those who have to leave for them."""


def contest_all(queue: Queue, snapshot: Snapshot, free: list[int], fits: Fits) -> Outcome:
    """Serve jobs that wait and all that run and are not protected; see ``contest``."""
    now = float(snapshot.now)
    walk = queue.running.walk(now, free)
    if walk is not None:
        with contextlib.suppress(UndecidedError):
            return contest(queue, walk, free, fits)
    return contest(queue, ColumnWalk(queue.running.contestants(now), free), free, fits)


def contest(queue: Queue, walk: Walk[P], free: list[int], fits: Fits) -> Outcome:
    """Serve jobs that wait and jobs that run in one order, each whole or not at all, with what all of them could have.

    Who runs stays where it is while there is room; if not, it goes on on another type where it may, or loses what it
    has. Those who are passed are not tried again.

    Args:
        queue: the jobs that wait.
        walk: down the jobs that run; together they hold what they are to be served with, beside what is free.
        free: GPUs by type.
        fits: which sizes can run in the cluster at all.
    """
    heads = _heads(queue, fits)
    if not heads or heads[0][0][0] > walk.last():
        return Outcome(_served(queue, heads, free, stop=False), [])  # who runs, runs ahead of all that wait
    _skip_to_first_that_fits(heads, walk)
    while heads:
        entry, (kind, gpus), at = heads[0]
        if gpus > _most(walk.room.left, kind):  # and less is left later
            heapq.heappop(heads)
            continue
        walk.up_to(entry)
        of = walk.room.choose(gpus, kind)
        if gpus > walk.room.left[of]:
            heapq.heappop(heads)
            continue
        walk.room.take(gpus, of)
        walk.grants.append(Grant(entry[2], of, gpus))
        _advance(heads, queue.waiting[kind, gpus], (kind, gpus), at)
    walk.to_the_end()
    return Outcome(walk.grants, walk.losers)


def _skip_to_first_that_fits(heads: list[Head], walk: Walk[P]) -> None:
    """Pass the heads that could not be served even if nobody behind them kept anything; who runs ahead, stays."""
    behind = walk.room.left
    while heads:
        entry, (kind, gpus), _ = heads[0]
        if gpus <= _most(behind, kind):
            place = walk.place(entry)
            behind = walk.behind(place)  # behind later ones there is no more
            if gpus <= _most(behind, kind):
                walk.skip_to(place, behind)
                return
        heapq.heappop(heads)
    walk.skip_to(walk.end, walk.behind(walk.end))


def _most(room: list[int], kind: int) -> int:
    return max(room) if kind == NONE else room[kind]
