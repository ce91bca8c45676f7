"""Jobs kept in their order from round to round: those that wait sorted by key, those that run as lines of time.

What ``ordered`` would do with everybody ranked anew follows from few of them: of the jobs that wait from the first of
each size and GPU type, of those that run from those behind the best one that waits.
"""

import bisect
import heapq
import math
from typing import NamedTuple

import numpy as np

from eunomia import Snapshot
from eunomia.units import NONE, Bools, Ints, Reals, Rows, Version
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
        widest: the largest size that was ever among them; of a GPU type that is not there: infinite.
    """

    def __init__(self) -> None:
        self.waiting: dict[Size, list[Entry]] = {}
        self.widest = 0.0
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
            self.widest = max(self.widest, size[1] if size[0] >= NONE else math.inf)
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
        self.kinds: Ints = np.empty(64, np.int64)
        self.movable: Bools = np.empty(64, np.bool_)
        self.at_zero: Reals = np.empty(64)
        self.each: Reals = np.empty(64)
        self.until: Reals = np.empty(64)
        self.protected: Reals = np.empty(64)
        self._columns = self._all()

    def drop(self, rows: list[int]) -> None:
        """Take jobs out; the last ones move into the gaps."""
        for row in rows:
            gap, last = self.place.pop(row), len(self.place)
            if gap != last:
                for column in self._columns:
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
            self.gpus[place], self.kinds[place], self.protected[place] = _held(snapshot, row)
        self.movable[here] = snapshot.jobs.gpu_type[rows] == NONE

    def refresh(self, snapshot: Snapshot, keys: Keys) -> None:
        """Ask again for lines that have ended."""
        over = np.flatnonzero(self.until[: len(self.place)] <= snapshot.now)
        if over.size:
            rows = self.rows[over].astype(np.int32)
            self.at_zero[over], self.each[over], self.until[over] = keys.of(rows)

    def contestants(self, snapshot: Snapshot) -> "Contestants":
        """Those who may lose what they have, with their keys of now."""
        many, now = len(self.place), snapshot.now
        keys = self.at_zero[:many] + self.each[:many] * now
        rest = (self.order[:many], self.rows[:many], self.gpus[:many], self.kinds[:many], self.movable[:many])
        found = Contestants(keys, *rest)
        free = self.protected[:many] <= now
        return found if free.all() else found.select(np.flatnonzero(free))

    def _all(self) -> "tuple[Reals | Ints | Bools, ...]":
        return tuple(getattr(self, name) for name in _COLUMNS)

    def _grow(self, size: int) -> None:
        for name in _COLUMNS:
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.empty(size - column.size, column.dtype)]))
        self._columns = self._all()


_COLUMNS = ("rows", "order", "gpus", "kinds", "movable", "at_zero", "each", "until", "protected")


def _held(snapshot: Snapshot, row: int) -> tuple[int, int, float]:
    """GPUs that a job's own lease has, their type, and until when they are protected."""
    sets = snapshot.sets
    if sets is None:
        return 0, NONE, np.inf
    gpus = sets.gpus_of(row)
    kind = int(snapshot.cluster.gpu_type[gpus[0]]) if gpus.size else 0
    return int(gpus.size), kind, sets.protected_until(row)


class Contestants(NamedTuple):
    """Columns of jobs that run and may lose what they have."""

    keys: Reals
    order: Ints
    rows: Ints
    gpus: Ints
    kinds: Ints
    """GPU type of what they have."""
    movable: Bools
    """Whether GPUs of another type would do."""

    def ranked(self) -> "Contestants":
        """The same, first served first."""
        at = self.keys.argsort()
        keys = self.keys[at]
        if (keys[1:] == keys[:-1]).any():  # ties go by arrival
            at = np.lexsort((self.order, self.keys))
        return self.select(at)

    def select(self, at: Ints) -> "Contestants":
        """Some of them, or in another order."""
        rest = (self.order[at], self.rows[at], self.gpus[at], self.kinds[at], self.movable[at])
        return Contestants(self.keys[at], *rest)


def contestants_of(snapshot: Snapshot, keys: Keys, rows: list[int]) -> Contestants:
    """Columns of these jobs."""
    columns = np.array(rows, np.int32)
    lines = keys.of(columns)
    held = np.array([_held(snapshot, row)[:2] for row in rows], np.int64).reshape(-1, 2)
    keys_now = lines.at_zero + lines.each_second * snapshot.now
    movable = snapshot.jobs.gpu_type[columns] == NONE
    return Contestants(keys_now, order_of(snapshot)[columns], columns.astype(np.int64), held[:, 0], held[:, 1], movable)


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


def contest(queue: Queue, runs: Contestants, free: list[int], fits: Fits) -> Outcome:
    """Serve jobs that wait and jobs that run in one order, each whole or not at all, with what all of them could have.

    Who runs stays where it is while there is room; if not, it goes on on another type where it may, or loses what it
    has. Those who are passed are not tried again.

    Args:
        queue: the jobs that wait.
        runs: the jobs that run; together they hold what they are to be served with, beside what is free.
        free: GPUs by type.
        fits: which sizes can run in the cluster at all.
    """
    heads = _heads(queue, fits)
    if not heads or not (runs.rows.size and heads[0][0][0] <= runs.keys.max()):
        return Outcome(_served(queue, heads, free, stop=False), [])  # who runs, runs ahead of all that wait
    walk = _Walk(runs.ranked(), free)
    walk.skip_to(_first_that_fits(heads, walk))
    while heads:
        entry, (kind, gpus), at = heads[0]
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


def _first_that_fits(heads: list[Head], walk: "_Walk") -> int:
    """Pass the heads that could not be served even if nobody behind them kept anything; who runs ahead, stays.

    Returns:
        The place, among those who run, of the first head that is left.
    """
    all_of_it = walk.behind(0)
    while heads:
        entry, (kind, gpus), _ = heads[0]
        if gpus <= _most(all_of_it, kind):
            place = walk.place(entry)
            if gpus <= _most(walk.behind(place), kind):
                return place
        heapq.heappop(heads)
    return walk.many


def _most(room: list[int], kind: int) -> int:
    return max(room) if kind == NONE else room[kind]


class Room:
    """What is left for those who have not had their turn.

    Attributes:
        left: by type, what is free and what those hold who have not had their turn.
        idle: by type, what nobody holds; it says which type is chosen, not whether there is room.
    """

    __slots__ = ("idle", "left")

    def __init__(self, left: list[int], idle: list[int]) -> None:
        self.left, self.idle = left, idle

    def choose(self, gpus: int, kind: int, home: int = NONE) -> int:
        """The type that a job gets: the one that it asks for or has, else the one with most that nobody holds.

        Where none has so many that nobody holds, it is the one with most left.

        Args:
            gpus: that it needs at least.
            kind: that it asks for; -1: any.
            home: that it has; -1: it holds nothing.
        """
        if kind != NONE:
            return kind
        if home != NONE and gpus <= self.left[home]:
            return home
        most = max(self.idle)
        return self.idle.index(most) if gpus <= most else self.left.index(max(self.left))

    def take(self, gpus: int, kind: int, home: int = NONE) -> None:
        """Give so many GPUs of a type to a job that has its turn, and holds some of type ``home``."""
        self.left[kind] -= gpus
        if kind != home:
            self.idle[kind] = max(0, self.idle[kind] - gpus)


class _Walk:
    """The walk down those who run: who fits into what is left stays."""

    def __init__(self, runs: Contestants, free: list[int]) -> None:
        self._runs, self._free, self.many = runs, free, runs.rows.size
        kinds = range(len(free))
        gpus = [runs.gpus] if len(kinds) == 1 else [np.where(runs.kinds == kind, runs.gpus, 0) for kind in kinds]
        self._total = np.zeros((len(kinds), self.many + 1), np.int64)
        for total, own in zip(self._total, gpus, strict=True):
            np.cumsum(own, out=total[1:])
        self._all: list[int] = self._total[:, -1].tolist()
        self._at = 0
        self.room = Room(self.behind(0), free.copy())
        self.grants: list[Grant] = []
        self.losers: list[int] = []

    def place(self, entry: Entry) -> int:
        """How many are served before this waiting job."""
        keys = self._runs.keys
        first = int(keys.searchsorted(entry[0]))
        if first == self.many or keys[first] != entry[0]:
            return first
        last = int(keys.searchsorted(entry[0], side="right"))
        return first + int(self._runs.order[first:last].searchsorted(entry[1]))

    def behind(self, place: int) -> list[int]:
        """By type, what is free and what those hold who are served from this place on."""
        before = self._total[:, place].tolist()
        return [free + own - ahead for free, own, ahead in zip(self._free, self._all, before, strict=True)]

    def skip_to(self, place: int) -> None:
        """Those before this place stay: nobody was served before them."""
        self._at, self.room.left = place, self.behind(place)

    def up_to(self, entry: Entry) -> None:
        """Go on to those who are served after this waiting job."""
        self._go(max(self.place(entry), self._at))

    def to_the_end(self) -> None:
        """Go on to the last of them."""
        self._go(self.many)

    def _go(self, end: int) -> None:
        at, left = self._at, self.room.left
        if at == end:
            return
        self._at = end
        taken = [int(total[end] - total[at]) for total in self._total]
        if all(many <= room for many, room in zip(taken, left, strict=True)):
            self.room.left = [room - many for many, room in zip(taken, left, strict=True)]
            return
        over = (
            np.searchsorted(total, total[at] + room, side="right")
            for total, room in zip(self._total, left, strict=True)
        )
        first = max(at, int(min(over)) - 1)  # those before it all fit
        self.room.left = [room - int(total[first] - total[at]) for room, total in zip(left, self._total, strict=True)]
        self._one_by_one(first, end)

    def _one_by_one(self, first: int, end: int) -> None:
        room, runs = self.room, self._runs
        columns = (runs.rows, runs.gpus, runs.kinds, runs.movable)
        for row, gpus, home, movable in zip(*(column[first:end].tolist() for column in columns), strict=True):
            of = room.choose(gpus, NONE, home) if movable else home
            if gpus > room.left[of]:
                self.losers.append(row)
                continue
            room.take(gpus, of, home)
            if of != home:
                self.grants.append(Grant(row, of, gpus))
