"""``snapshot.index``: indexes that the arbiter keeps up to date, so that stages need not scan columns."""

import abc
import dataclasses
import math
from collections.abc import Set
from typing import Any, Final, TypeVar

import numpy as np

from eunomia.contract.keys import Facts, Key, Sizes
from eunomia.contract.menus import Menus
from eunomia.contract.queues import Queue, Ranked
from eunomia.model.changes import ChangeLog
from eunomia.model.leases import GpuState
from eunomia.model.space import Space
from eunomia.model.workload import Apps, Jobs, JobState
from eunomia.units import NONE, Row, Unit

C = TypeVar("C")
QUEUES_KEPT: Final = 8
"""Maximum number of queues that an index caches; the least recently used queue is evicted."""
_WAITING, _ON = int(JobState.WAITING), (int(JobState.STARTING), int(JobState.RUNNING))


class Index(abc.ABC):
    """Read-only index of free GPUs, waiting jobs, GPUs by job, and queues of jobs or apps by a linear key."""

    free: Space
    """Free GPUs by machine and GPU type, as bit sets; copy it before taking GPUs from it."""
    waiting: Set[int]
    """Rows of waiting jobs."""
    proportional: bool
    """Whether every job asks for and holds CPUs and memory in proportion to its GPUs."""
    none_overdue: bool
    """Whether every lease that has ended was renewed."""
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
    """The columns whose memory the cached cells view."""
    _cells: tuple[Jobs, Apps]

    @property
    @abc.abstractmethod
    def settled(self) -> bool:
        """Return whether no GPU is being released and every lease names its job."""

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
        rows: list[int] | None = None
        name = (key if owner is None else owner), running, protected, of
        queue, seen = self._queues.pop(name, (None, 0))
        if queue is None:
            read = self._job if is_job else self._app
            everything = running or not is_job
            queue = Queue(key, read, running=everything, protected=protected, waiting=self.waiting)
            if len(self._queues) >= QUEUES_KEPT:
                del self._queues[next(iter(self._queues))]
        elif log is not None and seen >= log.dropped:
            rows = log.rows[seen - log.dropped :]
            rows = [row for row in rows if row >= 0] if is_job else [~row for row in rows if row < 0]
        queue.key = key
        queue.update(self.facts(menus), self._rows(is_job) if rows is None else rows, whole=rows is None)
        self._queues[name] = queue, 0 if log is None else log.dropped + len(log.rows)
        return queue

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
        self._settled = not (leaves | ((held.lease[:gpus] != NONE) & (held.job[:gpus] == NONE))).any()
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
    def settled(self) -> bool:
        return bool(self._settled)

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
