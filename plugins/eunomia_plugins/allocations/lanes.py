"""Jobs that run, in lanes: those whose keys move alike keep their order among themselves, whatever time it is.

So nobody is sorted when a round asks who comes last: each lane is sorted, and lanes are merged from their ends, only as
far as somebody has to leave.
"""

import bisect
import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from eunomia import Snapshot
from eunomia.units import NONE
from eunomia.valuations import Keys, Line, lines_of
from eunomia_plugins.allocations.contests import Contestants, Entry, Held, Walk

Kind = tuple[float, int, int, bool]
"""What the key adds each second, GPUs, their type, and whether GPUs of another type would do."""
Cut = list[int]
"""By lane, how many have had their turn."""

MANY: Final = 64
"""Lanes that cost more to look through than columns of everybody cost to sort."""


class UndecidedError(Exception):
    """Rounding makes keys of one lane equal that were not, and so they go by arrival: everybody has to be sorted."""


class Lane:
    """Jobs of one kind, sorted by key at time 0 and then by arrival; entries have the key at time 0."""

    __slots__ = ("each", "entries", "gpus", "kind", "movable")

    def __init__(self, kind: Kind) -> None:
        self.each, self.gpus, self.kind, self.movable = kind
        self.entries: list[Entry] = []

    def before(self, entry: Entry, now: float) -> int:
        """How many are served before a waiting job.

        Raises:
            UndecidedError: they are not the first so many.
        """
        entries, passed, (key, order, _) = self.entries, self.each * now, entry
        at, many = bisect.bisect_left(entries, (key - passed, order)), len(entries)
        # Keys of now are rounded, and what they are looked up by is too.
        while at and (entries[at - 1][0] + passed, entries[at - 1][1]) > (key, order):
            at -= 1
        while at < many and (entries[at][0] + passed, entries[at][1]) < (key, order):
            at += 1
        self._settle_before(at, 0, key, order, passed)
        self._settle_after(at, key, order, passed)
        return at

    def settled(self, at: int, start: int, now: float) -> tuple[float, int]:
        """Key of now and order of the job at ``at``.

        Raises:
            UndecidedError: a job from ``start`` on is served before it in the lane, and after it by arrival.
        """
        passed = self.each * now
        key, order = self.entries[at][0] + passed, self.entries[at][1]
        self._settle_before(at, start, key, order, passed)
        return key, order

    # Entries with one key at time 0 stand by arrival, so the one next to ``at`` stands for all of them; only keys that
    # become equal by rounding make more than one such run.

    def _settle_before(self, at: int, start: int, key: float, order: int, passed: float) -> None:
        """Check that all from ``start`` to ``at`` that share this key came before ``order``."""
        entries = self.entries
        while at > start and entries[at - 1][0] + passed == key:
            at_zero, arrived, _ = entries[at - 1]
            if arrived > order:
                raise UndecidedError
            at = bisect.bisect_left(entries, (at_zero,), 0, at)

    def _settle_after(self, at: int, key: float, order: int, passed: float) -> None:
        """Check that all from ``at`` on that share this key came after ``order``."""
        entries = self.entries
        while at < len(entries) and entries[at][0] + passed == key:
            at_zero, arrived, _ = entries[at]
            if arrived < order:
                raise UndecidedError
            at = bisect.bisect_left(entries, (at_zero, math.inf), at)


class Lanes:
    """The jobs that run, brought up to date row by row.

    Attributes:
        kept: whether they are kept at all.
    """

    def __init__(self) -> None:
        self.kept = False
        self._lanes: dict[Kind, Lane] = {}
        self._known: dict[int, tuple[Kind, Entry]] = {}
        """By row."""
        self._guarded: set[int] = set()
        """Rows of those who may not lose what they have yet; they are in no lane."""
        self._guards: list[tuple[float, int, Entry]] = []
        """Heap: until when somebody is guarded, row, entry."""
        self._ends: list[tuple[float, int, Entry]] = []
        """Heap: when a line ends, row, entry."""

    def drop(self, row: int) -> None:
        """Take a job out, if it is there."""
        known = self._known.pop(row, None)
        if known is None:
            return
        if row in self._guarded:
            self._guarded.discard(row)
            return
        kind, entry = known
        entries = self._lanes[kind].entries
        del entries[bisect.bisect_left(entries, entry)]
        if not entries:
            del self._lanes[kind]

    def add(self, snapshot: Snapshot, row: int, order: int, line: Line) -> None:
        """Add a job."""
        gpus, of, guarded_until = held_by(snapshot, row)
        at_zero, each, until = line
        kind, entry = (each, gpus, of, snapshot.jobs.gpu_type.item(row) == NONE), (at_zero, order, row)
        self._known[row] = (kind, entry)
        if until < math.inf:
            heapq.heappush(self._ends, (until, row, entry))
        if guarded_until > snapshot.now:
            self._guarded.add(row)
            heapq.heappush(self._guards, (guarded_until, row, entry))
        else:
            self._put(kind, entry)

    def _put(self, kind: Kind, entry: Entry) -> None:
        lane = self._lanes.get(kind)
        if lane is None:
            lane = self._lanes[kind] = Lane(kind)
        bisect.insort(lane.entries, entry)

    def refresh(self, snapshot: Snapshot, keys: Keys) -> None:
        """Let those in who are guarded no longer, and ask again for lines that have ended."""
        now = snapshot.now
        for row, entry in _due(self._guards, now):
            if row in self._guarded and self._known[row][1] is entry:
                self._guarded.discard(row)
                self._put(*self._known[row])
        if not self._ends or self._ends[0][0] > now:
            return
        over = [entry for row, entry in _due(self._ends, now) if row in self._known and self._known[row][1] is entry]
        rows = [row for _, _, row in over]
        for (_, order, row), line in zip(over, lines_of(keys, rows), strict=True):
            self.drop(row)
            self.add(snapshot, row, order, line)

    def walk(self, now: float, free: list[int]) -> "LaneWalk | None":
        """The walk down those who may lose what they have; None: there are too many lanes."""
        return LaneWalk(list(self._lanes.values()), now, free) if len(self._lanes) <= MANY else None

    def contestants(self, now: float) -> Contestants:
        """Columns of those who may lose what they have."""
        lanes = list(self._lanes.values())
        made = [
            (at_zero + lane.each * now, order, row, lane.gpus, lane.kind, lane.movable)
            for lane in lanes
            for at_zero, order, row in lane.entries
        ]
        return columns_of(made)


class LaneWalk(Walk[Cut]):
    """The walk down lanes, from their ends."""

    def __init__(self, lanes: list[Lane], now: float, free: list[int]) -> None:
        self._lanes, self._now = lanes, now
        self._last = [lane.entries[-1][0] + lane.each * now for lane in lanes]
        super().__init__([0] * len(lanes), [len(lane.entries) for lane in lanes], free)

    def last(self) -> float:
        """The largest key; -inf: nobody runs."""
        return max(self._last, default=-math.inf)

    def place(self, entry: Entry) -> Cut:
        """Where a waiting job comes in."""
        key, now = entry[0], self._now
        return [
            end if last < key else lane.before(entry, now)
            for lane, last, end in zip(self._lanes, self._last, self.end, strict=True)
        ]

    def held(self, start: Cut, end: Cut) -> list[int]:
        """By type, what those hold who are served between two places."""
        held = [0] * len(self._free)
        for lane, first, last in zip(self._lanes, start, end, strict=True):
            if first < last:
                held[lane.kind] += (last - first) * lane.gpus
        return held

    def misfits(self, start: Cut, end: Cut, excess: list[int]) -> list[Held]:
        """Those between two places from the first that does not fit on."""
        found, excess = list[Held](), excess.copy()
        ends = self._ends(start, end)
        while max(excess) > 0:  # those behind hold less than that
            key, order, number, at = heapq.heappop(ends)
            lane = self._lanes[number]
            found.append((lane.entries[at][2], lane.gpus, lane.kind, lane.movable))
            excess[lane.kind] -= lane.gpus
            if at > start[number]:
                key, order = lane.settled(at - 1, start[number], self._now)
                heapq.heappush(ends, (-key, -order, number, at - 1))
        found.reverse()
        return found

    def _ends(self, start: Cut, end: Cut) -> list[tuple[float, int, int, int]]:
        """The last one of each lane between two places, as a heap; who is served last comes first."""
        made = []
        for number, lane in enumerate(self._lanes):
            if start[number] < end[number]:
                key, order = lane.settled(end[number] - 1, start[number], self._now)
                made.append((-key, -order, number, end[number] - 1))
        heapq.heapify(made)
        return made


def _due(heap: list[tuple[float, int, Entry]], now: float) -> Iterator[tuple[int, Entry]]:
    while heap and heap[0][0] <= now:
        _, row, entry = heapq.heappop(heap)
        yield row, entry


def held_by(snapshot: Snapshot, row: int) -> tuple[int, int, float]:
    """GPUs that a job's own lease has, their type, and until when they are protected."""
    sets = snapshot.sets
    if sets is None:
        return 0, 0, math.inf
    gpus = sets.gpus_of(row)
    kind = int(snapshot.cluster.gpu_type[gpus[0]]) if gpus.size else 0
    return gpus.size, kind, sets.protected_until(row)


def columns_of(jobs: Sequence[tuple[float, int, int, int, int, bool]]) -> Contestants:
    """Columns of jobs: key of now, place in the order of arrival, row, GPUs, their type, whether another would do."""
    keys, order, rows, gpus, kinds, movable = zip(*jobs, strict=True) if jobs else ((),) * 6
    return Contestants(
        keys=np.array(keys, np.float64),
        order=np.array(order, np.int64),
        rows=np.array(rows, np.int64),
        gpus=np.array(gpus, np.int64),
        kinds=np.array(kinds, np.int64),
        movable=np.array(movable, np.bool_),
    )
