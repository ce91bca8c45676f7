"""``snapshot.index``: indexes that the arbiter keeps up to date, so that stages need not scan columns.

A queue has rows in the order of a linear key: a round reads only the rows that changed, and the first row of each size.
Waiting jobs are grouped by GPU type and size. Running jobs whose keys have equal slopes keep their relative order as
time passes, so they are in buckets of equal slope, size and GPU type; buckets are merged only as far as needed.
"""

import abc
import bisect
import dataclasses
import heapq
import math
from collections.abc import Callable, Iterator, Set
from typing import Any, Final, TypeVar

import numpy as np

from eunomia.contract.keys import Facts, Key, Sizes, line_of
from eunomia.contract.menus import Menus
from eunomia.model.changes import ChangeLog
from eunomia.model.leases import GpuState
from eunomia.model.space import Space
from eunomia.model.workload import Apps, Jobs, JobState
from eunomia.units import NONE, Row, Unit

C = TypeVar("C")
QUEUES_KEPT: Final = 8
"""Maximum number of queues that an index caches; the least recently used queue is evicted."""
_WAITING, _ON = int(JobState.WAITING), (int(JobState.STARTING), int(JobState.RUNNING))

Entry = tuple[float, float, int]
"""A tuple of key at time 0, place in the order of arrival, and row; entries sort in the order of service."""
Size = tuple[int, int]
"""GPU type (-1: any) and number of GPUs."""
Kind = tuple[float, int, int, bool]
"""Change of the key per second, number and type of GPUs held, and whether the job can use another type."""
Ranked = tuple[bool, int, int, bool, float, float]
"""The attributes of a row that a queue needs besides its key: whether it runs, the GPUs that it requests or holds and
their type (-1: any), whether it can use GPUs of another type than it holds, its place in the order of arrival, and the
time until which it is protected."""

MANY: Final = 32
"""Number of changed rows from which lists are re-sorted as a whole instead of updated entry by entry."""


class UndecidedError(Exception):
    """Rounding makes different keys of a bucket equal, so the bucket may not be in order of the present keys."""


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
            UndecidedError: because of rounding, these rows are not the first ones of the bucket.
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
        """Raise ``UndecidedError`` if a row in ``start:at`` has the key ``key`` and arrived after ``order``."""
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
    """The facts that keys read at the last update."""

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
        """For each row: the list with its entry, the entry, its bucket's kind, and the end of its key's validity."""
        self._guarded: list[tuple[float, int]] = []
        """Heap of pairs: end of a job's protection in seconds, row."""
        self._ending: list[tuple[float, int]] = []
        """Heap of pairs: end of a key's validity in seconds, row."""

    def update(self, facts: Facts, rows: list[int]) -> None:
        """Update the entries of rows that changed, possibly repeated, and of rows whose key or protection has ended."""
        self.facts = facts
        due, place, guarded, ending = set(rows), self._place, self._guarded, self._ending
        if (guarded and guarded[0][0] <= facts.now) or (ending and ending[0][0] <= facts.now):
            due |= self._ended(facts.now)
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

    def _ended(self, now: float) -> set[int]:
        """Return the rows whose protection or key validity has ended, and remove them from the heaps."""
        ended, place = set[int](), self._place
        while self._guarded and self._guarded[0][0] <= now:
            ended.add(heapq.heappop(self._guarded)[1])
        while self._ending and self._ending[0][0] <= now:
            until, row = heapq.heappop(self._ending)
            if row in place and place[row][3] == until:  # else the row was read again since
                ended.add(row)
        return ended

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
        """Return running rows in buckets sorted by present key, so that rounding cannot leave the order undecided.

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
    """Push the entry at ``at``, and the first entry of each later key that rounds to the same present key."""
    key = entries[at][0] + grown
    while at < len(entries) and entries[at][0] + grown == key:
        at_zero, order, row = entries[at]
        heapq.heappush(heap, (key, order, row, number, at))
        at = bisect.bisect_left(entries, (at_zero, math.inf), at)


class Index(abc.ABC):
    """Read-only index of free GPUs, waiting jobs, GPUs by job, and queues of jobs or apps by a linear key."""

    free: Space
    """Free GPUs by machine and GPU type, as bit sets; copy it before taking GPUs from it."""
    waiting: Set[int]
    """Rows of waiting jobs."""
    proportional: bool
    """Whether every job requests and holds CPUs and memory in proportion to its GPUs."""
    none_overdue: bool
    """Whether no lease has passed its end without renewal."""
    settled: bool
    """Whether no GPU is being released and every lease names its job."""
    kept: bool
    """Whether the arbiter maintains this index across rounds. False (``--plain``, or a snapshot built by hand): it was
    built for this snapshot only, and plugins should not use caches of their own either."""

    _moment: Any
    """The state or snapshot that provides the current time."""
    _changes: ChangeLog | None = None
    """Log of changed rows, of which each queue reads the entries since its last update; None: no log is kept."""
    _queues: dict[Any, tuple[Queue, int]]
    _tables: tuple[Jobs, Apps]
    _attained: tuple[Any, Any]
    """The functions of ``Facts`` that return a job's attained service."""
    _sizes: Sizes | None = None
    _seen: tuple[Any, Any] = (None, None)
    """The columns from which ``_cells`` was made, to detect that a table was reallocated."""
    _cells: tuple[Jobs, Apps]

    @property
    @abc.abstractmethod
    def overdue(self) -> list[int]:
        """Return the rows of jobs whose lease ended without renewal and is not protected, by lease number."""

    @abc.abstractmethod
    def gpus_of(self, job: Row) -> list[int]:
        """Return the GPUs that a job's own lease holds or is promised, ascending; empty if it has no lease."""

    @abc.abstractmethod
    def protected_until(self, job: Row) -> float:
        """Return the time in seconds until which no round may preempt the job; -inf: a round may do so now."""

    def queue(
        self,
        key: Key,
        menus: Menus,
        *,
        running: bool,
        protected: bool = False,
        of: Unit = Unit.JOB,
        owner: object | None = None,
    ) -> Queue:
        """Return a queue of jobs or apps sorted by a key; it is sorted once and then updated from changed rows.

        Args:
            key: computes the key of one row; the same function or method in every round.
            menus: the elasticity's answer, which the key may read.
            running: whether to include running and starting jobs besides waiting ones. Apps are always included.
            protected: whether to include running jobs while their lease is protected, and not only once the
                protection has ended.
            of: ``Unit.JOB`` or ``Unit.APP``.
            owner: identifies the cached queue in place of the key, if the key is a new object in every round.
        """
        is_job, log = of is Unit.JOB, self._changes
        name = (key if owner is None else owner), running, protected, of
        queue, seen = self._queues.pop(name, (None, 0))
        if queue is None or log is None or seen < log.dropped:
            queue, rows = self._new_queue(key, is_job, running, protected), self._rows(is_job)
        else:
            rows = log.rows[seen - log.dropped :]
            rows = [row for row in rows if row >= 0] if is_job else [~row for row in rows if row < 0]
        queue.key = key
        queue.update(self.facts(menus), rows)
        self._queues[name] = queue, 0 if log is None else log.dropped + len(log.rows)
        return queue

    def _new_queue(self, key: Key, is_job: bool, running: bool, protected: bool) -> Queue:
        if len(self._queues) >= QUEUES_KEPT:
            del self._queues[next(iter(self._queues))]
        read = self._job if is_job else self._app
        return Queue(key, read, running=running or not is_job, protected=protected, waiting=self.waiting)

    def facts(self, menus: Menus) -> Facts:
        """Return the facts that keys may read at this moment."""
        sizes, (jobs, apps) = self._sizes, self._tables
        if sizes is None or sizes.menus is not menus or not menus.one_size:
            sizes = self._sizes = Sizes(menus)
        if self._seen[0] is not jobs.state or self._seen[1] is not apps.arrived:  # first, or a table has grown
            self._seen, self._cells = (jobs.state, apps.arrived), (cells_of(jobs), cells_of(apps))
        return Facts(self._moment.now, *self._cells, menus, sizes.largest, sizes.smallest, *self._attained)

    @abc.abstractmethod
    def _rows(self, jobs: bool) -> list[int]: ...

    @abc.abstractmethod
    def _job(self, row: int) -> Ranked | None:
        """Return the attributes of a job that a queue needs; None if it neither waits nor has GPUs to run on."""

    def _app(self, row: int) -> Ranked | None:
        apps = self._cells[1]
        return None if apps.id[row] is None else (True, 0, NONE, False, apps.arrived[row], -math.inf)


def cells_of(table: C) -> C:
    """Return the columns of a table as read-only memory views, whose items are plain Python numbers."""
    columns: dict[str, Any] = {}
    for field in dataclasses.fields(table):  # type: ignore[arg-type]
        column = getattr(table, field.name)
        columns[field.name] = column if column.dtype == object else memoryview(column).toreadonly()
    return type(table)(**columns)


class _ColumnIndex(Index):
    kept = False

    def __init__(self, snapshot: Any) -> None:
        self._moment, self._tables, self._queues = snapshot, (snapshot.jobs, snapshot.apps), {}
        self._held, self._types, gpus = snapshot.holdings, snapshot.cluster.gpu_type, snapshot.cluster.gpus
        held, ledger, self._arrivals = self._held, snapshot.ledger, snapshot.arrivals
        self.free = Space(snapshot.cluster, held.state[:gpus] == int(GpuState.FREE))
        self.waiting = set(np.flatnonzero(snapshot.jobs.state == _WAITING).tolist())
        leaves = held.state[:gpus] == int(GpuState.LEAVING)
        owner = np.where(leaves, NONE, held.job[:gpus])
        owner = np.where(held.successor[:gpus] != NONE, held.next_job[:gpus], owner)
        self._gpus: dict[int, list[int]] = {}
        for gpu in np.flatnonzero(owner != NONE).tolist():
            self._gpus.setdefault(int(owner[gpu]), []).append(gpu)
        self.settled = not bool((leaves | ((held.lease[:gpus] != NONE) & (held.job[:gpus] == NONE))).any())
        over = (held.state[:gpus] == int(GpuState.HELD)) & (held.ends_at[:gpus] <= snapshot.now)
        self._ended = np.flatnonzero(over)
        self.none_overdue = self._ended.size == 0
        self.proportional = bool(np.isnan(snapshot.jobs.cpus).all() and np.isnan(snapshot.jobs.memory_gib).all())
        self._attained = (
            lambda job: self._line(job, float(ledger.jobs.received[job].sum()), len(self._gpus.get(job, ()))),
            lambda job: self._line(job, float(ledger.jobs.attained[job]), 1),
        )

    def _line(self, job: int, total: float, each: float) -> tuple[float, float]:
        runs = self._tables[0].state[job] == _ON[1]
        return (total - each * self._moment.now, float(each)) if runs else (total, 0.0)

    @property
    def overdue(self) -> list[int]:
        over, held = self._ended, self._held
        over = over[(held.protected_until[over] <= self._moment.now) & (held.job[over] != NONE)]
        return [int(held.job[over[at]]) for at in np.unique(held.lease[over], return_index=True)[1]]

    def gpus_of(self, job: Row) -> list[int]:
        return list(self._gpus.get(int(job), ()))

    def protected_until(self, job: Row) -> float:
        gpus, held = self._gpus.get(int(job), []), self._held
        return max((float(held.protected_until[gpu]) for gpu in gpus if held.job[gpu] == job), default=-math.inf)

    def _rows(self, jobs: bool) -> list[int]:
        ids: Any = self._tables[0 if jobs else 1].id
        return [row for row, name in enumerate(ids.tolist()) if name is not None]

    def _job(self, row: int) -> Ranked | None:
        jobs = self._cells[0]
        state, kind, place = jobs.state[row], int(jobs.gpu_type[row]), float(jobs.arrived[row])
        place = place if self._arrivals is None else float(self._arrivals[row])
        if state == _WAITING:
            return False, int(jobs.most[row]), kind, False, place, -math.inf
        gpus = self._gpus.get(row, [])
        home = int(self._types[gpus[0]]) if gpus else 0
        return (True, len(gpus), home, kind == NONE, place, self.protected_until(row)) if state in _ON else None


def index_of(snapshot: Any) -> Index:
    """Build an index from the columns of a snapshot that was built by hand or for an app's agent."""
    return _ColumnIndex(snapshot)
