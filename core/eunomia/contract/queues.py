"""Rows kept in the order of a linear key: a round reads only the rows that changed, and the first row of each size.

Waiting jobs are grouped by GPU type and size. Running jobs whose keys have equal slopes keep their relative order as
time passes, so they are in buckets of equal slope, size and GPU type; buckets are merged only as far as needed.
"""

import bisect
import heapq
import math
from collections.abc import Callable, Iterator, Set
from typing import Final

from eunomia.contract.keys import Facts, Key, line_of
from eunomia.units import NONE

Entry = tuple[float, float, int]
"""A tuple of key at time 0, place in the order of arrival, and row; entries sort in the order of service."""
Size = tuple[int, int]
"""GPU type (-1: any) and number of GPUs."""
Kind = tuple[float, int, int, bool]
"""Slope of the key per second, GPUs held, their type, and whether the job can use GPUs of another type."""
Ranked = tuple[bool, int, int, bool, float, float]
"""The attributes of a row that a queue needs besides its key: whether it runs, the GPUs that it requests or holds and
their type (-1: any), whether it can use GPUs of another type than it holds, its place in the order of arrival, and the
time until which it is protected."""

MANY: Final = 32
"""Number of rows from which lists are re-sorted as a whole instead of inserted into entry by entry."""


class UndecidedError(Exception):
    """Rounding makes different keys of a bucket equal, so its order may differ from that of the present keys."""


class Bucket:
    """The running rows of one kind, sorted by key at time 0 and then by arrival."""

    __slots__ = ("entries", "gpus", "movable", "slope", "type")

    def __init__(self, kind: Kind) -> None:
        self.slope, self.gpus, self.type, self.movable = kind
        self.entries: list[Entry] = []

    def before(self, key: float, order: float, grown: float, count: int) -> int:
        """Return the number of rows that are served before another row.

        Args:
            key: the other row's present key.
            order: the other row's place in the order of arrival.
            grown: the growth of the bucket's keys since time 0.
            count: number of the bucket's rows to consider.

        Raises:
            UndecidedError: these are not the first rows of the bucket, because of rounding.
        """
        entries = self.entries
        at = bisect.bisect_left(entries, (key - grown, order))
        # Both the present keys and the key that is searched for are rounded.
        while at and (entries[at - 1][0] + grown, entries[at - 1][1]) > (key, order):
            at -= 1
        while at < count and (entries[at][0] + grown, entries[at][1]) < (key, order):
            at += 1
        if at and entries[at - 1][0] + grown == key:
            self.check_ties_before(at, 0, key, order, grown)
        if at < count and entries[at][0] + grown == key:
            self._check_ties_after(at, key, order, grown)
        return at

    # Entries with the same key at time 0 are sorted by arrival, so comparing the one next to ``at`` is enough for all
    # of them; only keys that become equal by rounding make more than one such run.

    def check_ties_before(self, at: int, start: int, key: float, order: float, grown: float) -> None:
        """Raise ``UndecidedError`` if a row from ``start`` to ``at`` has the same key and arrived after ``order``."""
        entries = self.entries
        while at > start and entries[at - 1][0] + grown == key:
            at_zero, arrived, _ = entries[at - 1]
            if arrived > order:
                raise UndecidedError
            at = bisect.bisect_left(entries, (at_zero,), 0, at)

    def _check_ties_after(self, at: int, key: float, order: float, grown: float) -> None:
        entries = self.entries
        while at < len(entries) and entries[at][0] + grown == key:
            at_zero, arrived, _ = entries[at]
            if arrived < order:
                raise UndecidedError
            at = bisect.bisect_left(entries, (at_zero, math.inf), at)


class Queue:
    """A queue of jobs or apps in the order of a key; ``Index.queue`` builds and updates it.

    Args:
        key: computes the key of one row.
        read: returns the attributes of a row that a queue needs; None: the row belongs to no queue.
        running: whether the queue also contains running rows.
        protected: whether it also contains running rows that a lease protects.
        waiting: the waiting rows, the only ones that a queue without running rows reads; None: not known.
    """

    waiting: dict[Size, list[Entry]]
    """Sorted entries of waiting rows by GPU type (-1: any) and number of GPUs."""
    widest: float
    """Largest number of GPUs that a waiting job ever requested; inf once one requested a type that does not exist."""
    buckets: dict[Kind, Bucket]
    """Sorted buckets of running rows, by the slope of their keys and the GPUs that they hold."""
    facts: Facts
    """Facts as of the last update."""

    def __init__(
        self,
        key: Key,
        read: Callable[[int], Ranked | None],
        *,
        running: bool,
        protected: bool = False,
        waiting: Set[int] | None = None,
    ) -> None:
        self.key, self._read, self._keeps_running, self._keeps_protected = key, read, running, protected
        self._only = None if running else waiting
        self.waiting, self.widest, self.buckets = {}, 0.0, {}
        self._place: dict[int, tuple[list[Entry], Entry, Kind | None, float]] = {}
        """By row: the list with its entry, the entry, its bucket's kind, and the end of its key's validity."""
        self._guarded: list[tuple[float, int]] = []
        """Heap of pairs: end of a job's protection in seconds, row."""
        self._ending: list[tuple[float, int]] = []
        """Heap of pairs: end of a key's validity in seconds, row."""

    def update(self, facts: Facts, rows: list[int], *, whole: bool) -> None:
        """Update the entries of rows that changed, and of rows whose key validity or protection ended.

        Args:
            facts: the facts at this moment.
            rows: the rows that changed, in any order, possibly repeated.
            whole: whether ``rows`` contains all rows.
        """
        self.facts = facts
        if whole:
            self.waiting, self.buckets, self._place, self._guarded, self._ending = {}, {}, {}, [], []
        now, due, place = facts.now, set(rows), self._place
        while self._guarded and self._guarded[0][0] <= now:
            due.add(heapq.heappop(self._guarded)[1])
        while self._ending and self._ending[0][0] <= now:
            until, row = heapq.heappop(self._ending)
            if row in place and place[row][3] == until:  # else the row was read again since
                due.add(row)
        for row in due:
            if row in place:
                entries, entry, kind, _ = place.pop(row)
                del entries[bisect.bisect_left(entries, entry)]
                if kind is not None and not entries:
                    del self.buckets[kind]
        if self._only is not None:
            due &= self._only
        if due:
            self._put(due)

    def _put(self, rows: set[int]) -> None:
        """Insert the entries of rows into their lists."""
        facts, read, waiting, buckets = self.facts, self._read, self.waiting, self.buckets
        many = len(rows) >= MANY
        put: Callable[[list[Entry], Entry], None] = list.append if many else bisect.insort
        for row in rows:
            found = read(row)
            if found is None or (found[0] and not self._keeps_running):
                continue
            runs, gpus, gpu_type, movable, order, protected_until = found
            if runs and protected_until > facts.now and not self._keeps_protected:
                heapq.heappush(self._guarded, (protected_until, row))
                continue
            at_zero, slope, until = line_of(self.key, facts, row)
            entry, kind = (at_zero, order, row), (slope, gpus, gpu_type, movable) if runs else None
            if kind is None:
                size, until = (gpu_type, gpus), math.inf
                if size not in waiting:
                    waiting[size] = []
                    self.widest = max(self.widest, gpus if gpu_type >= NONE else math.inf)
                entries = waiting[size]
            else:
                if kind not in buckets:
                    buckets[kind] = Bucket(kind)
                entries = buckets[kind].entries
            self._place[row] = entries, entry, kind, until
            put(entries, entry)
            if until < math.inf:
                heapq.heappush(self._ending, (until, row))
        for entries in [*waiting.values(), *[bucket.entries for bucket in buckets.values()]] if many else ():
            entries.sort()

    def same(self, other: "Queue") -> bool:
        """Return whether both queues contain the same rows with the same keys."""
        return self._content() == other._content()

    def _content(self) -> tuple[object, ...]:
        buckets = {kind: bucket.entries for kind, bucket in self.buckets.items()}
        return {size: entries for size, entries in self.waiting.items() if entries}, buckets

    def keys(self, rows: list[int]) -> list[float]:
        """Return the present keys of rows; keys of rows that are not in the queue are computed."""
        now, place = self.facts.now, self._place
        found: list[float] = []
        for row in rows:
            entry, kind = place[row][1:3] if row in place else self._of(row)
            found.append(entry[0] + kind[0] * now if kind else entry[0])
        return found

    def exact(self, rows: list[int] | None = None) -> list[Bucket]:
        """Return buckets of running rows by their present keys, so that rounding cannot leave their order undecided.

        Args:
            rows: running rows that hold GPUs, protected or not; None: all running rows of the queue.
        """
        now, made = self.facts.now, dict[Kind, Bucket]()
        found = [(entry, kind) for kind, bucket in self.buckets.items() for entry in bucket.entries]
        if rows is not None:
            found = [self._of(row) for row in rows]
        for (at_zero, order, row), (slope, gpus, gpu_type, movable) in found:
            kind = 0.0, gpus, gpu_type, movable
            bucket = made.get(kind)
            if bucket is None:
                bucket = made[kind] = Bucket(kind)
            bucket.entries.append((at_zero + slope * now, order, row))
        for bucket in made.values():
            bucket.entries.sort()
        return list(made.values())

    def _of(self, row: int) -> tuple[Entry, Kind]:
        found, (at_zero, slope, _) = self._read(row), line_of(self.key, self.facts, row)
        _, gpus, gpu_type, movable, order, _ = found or (True, 0, 0, False, 0.0, 0.0)
        return (at_zero, order, row), (slope, gpus, gpu_type, movable)

    def in_order(self, *, waiting: bool = True, running: bool = True) -> Iterator[int]:
        """Yield rows lazily in the order of their present keys.

        Args:
            waiting: whether to include waiting rows.
            running: whether to include running rows.
        """
        now = self.facts.now
        lists = [(entries, 0.0) for entries in self.waiting.values() if entries] if waiting else []
        lists += [(bucket.entries, bucket.slope * now) for bucket in self.buckets.values()] if running else []
        heap: list[tuple[float, float, int, int, int]] = []
        for number, (entries, grown) in enumerate(lists):
            _push(heap, entries, grown, number, 0)
        while heap:
            _, _, row, number, at = heapq.heappop(heap)
            yield row
            entries, grown = lists[number]
            if at + 1 < len(entries) and entries[at + 1][0] == entries[at][0]:
                at_zero, order, behind = entries[at + 1]
                heapq.heappush(heap, (at_zero + grown, order, behind, number, at + 1))
            elif at + 1 < len(entries) and entries[at + 1][0] + grown != entries[at][0] + grown:
                _push(heap, entries, grown, number, at + 1)


def _push(
    heap: list[tuple[float, float, int, int, int]], entries: list[Entry], grown: float, number: int, at: int
) -> None:
    """Push the entry at ``at``, and the first entry of each later key that rounding makes equal to its key now."""
    key = entries[at][0] + grown
    while at < len(entries) and entries[at][0] + grown == key:
        at_zero, order, row = entries[at]
        heapq.heappush(heap, (key, order, row, number, at))
        at = bisect.bisect_left(entries, (at_zero, math.inf), at)
