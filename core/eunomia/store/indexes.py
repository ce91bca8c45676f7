"""Indexes: sets and sums derived from the tables, so that no step has to search the tables.

The writers keep them up to date. With ``--strict-plugins`` they are compared after each step with indexes rebuilt from
the tables, except ``Owners.leaving``, and ``Capacity``, which is recounted after each change.
"""

import heapq
import math
from collections.abc import Mapping
from typing import Self

import numpy as np

from eunomia.contract.verdicts import Reason
from eunomia.model.cluster import Cluster
from eunomia.model.columns import Table
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.model.workload import JobState
from eunomia.store.tables import AppRows, GpuRows, JobRows
from eunomia.units import NEVER, NONE, Ints, Seconds

Verdict = tuple[int, int, str]
"""A verdict: the numbers of a reason and of a stage, and the name of a plugin."""
_NO_VERDICT = NONE, NONE, ""
_WAITING, _ON = int(JobState.WAITING), (int(JobState.RUNNING), int(JobState.STARTING))


class WaitingJobs:
    """The index of waiting jobs, which the writers keep up to date.

    Args:
        jobs: the table of jobs.
        leases: all leases by number.

    Attributes:
        rows: rows of waiting jobs.
        asked: sum of the waiting jobs' largest sizes, in GPUs.
        short: rows of running and starting jobs with fewer GPUs than their largest size.
        off_default: rows of waiting jobs whose last verdict may differ from ``default``.
        default: the verdict on jobs that no stage turned down; None: none yet.
        plugin: number of the plugin that gave ``default``; -1: this plugin has no number yet.
        backing_off: time in seconds at which each failed job is retried, by row.
    """

    __slots__ = ("_jobs", "_leases", "asked", "backing_off", "default", "off_default", "plugin", "rows", "short")

    def __init__(self, jobs: Table[JobRows], leases: Mapping[int, Lease]) -> None:
        self._jobs, self._leases = jobs, leases
        self.rows: set[int] = set()
        self.asked = 0
        self.short: set[int] = set()
        self.off_default: set[int] = set()
        self.default: Verdict | None = None
        self.plugin = NONE
        self.backing_off: dict[int, float] = {}

    def moved(self, job: int, before: int, to: int, most: int, size: int) -> None:
        """Record a job's change of state ``before`` -> ``to`` (0: no job), with its largest size and number of GPUs."""
        if to in _ON and size < most:
            self.short.add(job)
        elif self.short:
            self.short.discard(job)
        if to == _WAITING:
            if before != _WAITING:
                cells, default = self._jobs.cells, self.default or _NO_VERDICT
                self.rows.add(job)
                self.asked += most
                if (cells.reason[job], cells.stage[job], cells.plugin[job]) != (default[0], default[1], self.plugin):
                    self.off_default.add(job)
        elif before == _WAITING:
            self.rows.discard(job)
            self.off_default.discard(job)
            self.asked -= most

    def compare_with(self, default: Verdict, plugin: int) -> None:
        """Set the default verdict and its plugin's number, and list every waiting job in ``off_default``."""
        self.default, self.plugin, self.off_default = default, plugin, set(self.rows)

    def rebuild(self) -> Self:
        """Return a new index built from the tables."""
        made, cells = type(self)(self._jobs, self._leases), self._jobs.cells
        for row in np.flatnonzero(self._jobs.live.state[: self._jobs.used]).tolist():
            lease = self._leases.get(cells.lease[row])
            size = cells.gpus[row] if lease is None else len(lease.home)
            made.moved(row, 0, cells.state[row], cells.most[row], size)
            if cells.reason[row] in (Reason.BACKING_OFF, Reason.GPU_HOURS):
                made.backing_off[row] = cells.ready_at[row]
        return made

    def same(self, other: Self) -> bool:
        """Return whether two indexes contain the same jobs, ignoring ``off_default`` and ``default``."""
        mine = self.rows, self.asked, self.short, self.backing_off
        return mine == (other.rows, other.asked, other.short, other.backing_off)


class Owners:
    """The index of apps' jobs and leases, which the writers keep up to date.

    Args:
        apps: the table of apps.
        jobs: the table of jobs.
        leases: all leases by number.

    Attributes:
        jobs_of: rows of jobs by app.
        shared_by: leases of each app that name no job, as the app divides them or their job has ended.
        divided: number of the leases in ``shared_by`` that are not leaving.
        present: number of apps that have not ended.
        leaving: by lease, the GPUs that it must still release; leases without such GPUs are omitted.
        probing: time limit of each lease's measurement, in seconds since the arbiter's start.
    """

    __slots__ = ("_apps", "_jobs", "_leases", "divided", "jobs_of", "leaving", "present", "probing", "shared_by")

    def __init__(self, apps: Table[AppRows], jobs: Table[JobRows], leases: Mapping[int, Lease]) -> None:
        self._apps, self._jobs, self._leases = apps, jobs, leases
        self.jobs_of: dict[int, set[int]] = {}
        self.shared_by: dict[int, set[int]] = {}
        self.divided = 0
        self.present = 0
        self.leaving: dict[int, set[int]] = {}
        self.probing: dict[int, Seconds] = {}

    def leases_of(self, app: int) -> set[int]:
        """Return the numbers of an app's leases, including leaving ones."""
        lease = self._jobs.cells.lease
        own = {lease[job] for job in self.jobs_of.get(app, ())}
        own.discard(NONE)
        return own | self.shared_by.get(app, set())

    def rebuild(self) -> Self:
        """Return a new index built from the tables; it shares ``leaving``, which an open offer hides in the tables."""
        made = type(self)(self._apps, self._jobs, self._leases)
        app, apps = self._jobs.cells.app, self._apps
        for job in np.flatnonzero(self._jobs.live.state[: self._jobs.used]).tolist():
            made.jobs_of.setdefault(app[job], set()).add(job)
        in_use = [row for row in range(apps.used) if apps.cells.id[row] is not None]
        made.present = sum(not apps.cells.ended[row] for row in in_use)
        made.leaving = self.leaving
        for lease in self._leases.values():
            if lease.job == NONE:
                made.shared_by.setdefault(lease.app, set()).add(lease.id)
                made.divided += lease.state is not LeaseState.LEAVING
            if lease.probe is not None:
                made.probing[lease.id] = lease.probe.until
        return made

    def same(self, other: Self) -> bool:
        """Return whether both indexes have the same content, ignoring ``leaving``."""
        sets = all(_filled(getattr(self, name)) == _filled(getattr(other, name)) for name in ("jobs_of", "shared_by"))
        mine = self.divided, self.present, self.probing
        return sets and mine == (other.divided, other.present, other.probing)


def _filled(sets: dict[int, set[int]]) -> dict[int, set[int]]:
    return {key: items for key, items in sets.items() if items}


class LeaseEnds:
    """The index of future ends of leases, and of leases that have ended without renewal.

    Args:
        leases: all leases by number; an entry is stale if its lease now ends at another time.

    Attributes:
        ends: heap of pairs: end of a lease in seconds, lease number; empty: no lease ends.
        guards: heap of pairs: end of a lease's protection in seconds, lease number.
        overdue: numbers of the leases that have ended and were not renewed.
    """

    __slots__ = ("_leases", "ends", "guards", "overdue")

    def __init__(self, leases: Mapping[int, Lease]) -> None:
        self._leases = leases
        self.ends: list[tuple[float, int]] = []
        self.guards: list[tuple[float, int]] = []
        self.overdue: set[int] = set()

    def granted(self, lease: Lease, now: Seconds) -> None:
        """Record the terms of a lease that is granted or renewed, or whose terms change."""
        if self.overdue and lease.ends_at > now:
            self.overdue.discard(lease.id)
        if math.isfinite(lease.ends_at):
            heapq.heappush(self.ends, (lease.ends_at, lease.id))
        if lease.protected_until > now:
            heapq.heappush(self.guards, (lease.protected_until, lease.id))

    def next_end(self) -> Seconds:
        """Return the time in seconds at which the next lease ends; NEVER: no lease ends."""
        ends = self.ends
        while ends and not self._ends_then(*ends[0]):
            heapq.heappop(ends)
        return Seconds(ends[0][0]) if ends else NEVER

    def next_guard(self) -> Seconds:
        """Return the time in seconds at which the next protection of a lease ends; NEVER: none ends."""
        guards = self.guards
        while guards and not self._guarded_until(*guards[0]):
            heapq.heappop(guards)
        return Seconds(guards[0][0]) if guards else NEVER

    def take_ended(self, now: Seconds) -> bool:
        """Mark the leases that have ended by now as overdue; return whether there were any."""
        ended = False
        while self.ends and self.next_end() <= now:
            self.overdue.add(heapq.heappop(self.ends)[1])
            ended = True
        return ended

    def take_unguarded(self, now: Seconds) -> set[int]:
        """Remove the protections that have ended by now; return the numbers of their leases."""
        ended = set()
        while self.next_guard() <= now:
            ended.add(heapq.heappop(self.guards)[1])
        return ended

    def rebuild(self, now: Seconds) -> Self:
        """Return a new index built from the leases."""
        made = type(self)(self._leases)
        for lease in self._leases.values():
            if lease.state is not LeaseState.LEAVING:
                made.granted(lease, now)
        made.take_ended(now)
        return made

    def same(self, other: Self, now: Seconds) -> bool:
        """Return whether both have the same entries, ignoring stale ones and protections that have ended."""
        return self._content(now) == other._content(now)

    def _content(self, now: Seconds) -> tuple[set[tuple[float, int]], set[tuple[float, int]], set[int]]:
        ends = {entry for entry in self.ends if self._ends_then(*entry) and entry[1] not in self.overdue}
        guards = {entry for entry in self.guards if self._guarded_until(*entry) and entry[0] > now}
        return ends, guards, self.overdue

    def _ends_then(self, ends_at: float, lease: int) -> bool:
        held = self._leases.get(lease)
        return held is not None and held.ends_at == ends_at and held.state is not LeaseState.LEAVING

    def _guarded_until(self, until: float, lease: int) -> bool:
        held = self._leases.get(lease)
        return held is not None and held.protected_until == until and held.state is not LeaseState.LEAVING


class Capacity:
    """The numbers of GPUs by type, and the GPUs that are draining.

    Args:
        cluster: the cluster.
        gpus: the table of GPUs.

    Attributes:
        type_of: GPU type of each GPU.
        types: numbers of all types.
        in_service: [type] number of GPUs that are not down; read only.
        draining: draining GPUs, with the time in seconds by which the last process on each must have ended.
        drained: draining GPUs without processes, which are down only because they drain.
    """

    __slots__ = ("_by_type", "_cluster", "_gpus", "drained", "draining", "in_service", "type_of", "types")

    def __init__(self, cluster: Cluster, gpus: Table[GpuRows]) -> None:
        self._gpus = gpus
        self.draining: dict[int, Seconds] = {}
        self.drained: set[int] = set()
        self.in_service: Ints
        self.follow(cluster)

    def follow(self, cluster: Cluster) -> None:
        """Recount the GPUs of a cluster after machines have joined or left."""
        self._cluster = cluster
        self.type_of: list[int] = cluster.gpu_type.tolist()
        self.types = range(len(cluster.gpu_types))
        self._by_type: list[int] = [*cluster.capacity.tolist(), int(cluster.capacity.sum())]
        self.count()

    def installed(self, gpu_type: int) -> int:
        """Return the number of the cluster's GPUs of a type, including GPUs that are down; negative: any type."""
        return self._by_type[gpu_type if gpu_type >= 0 else -1]

    def count(self) -> None:
        """Recount the GPUs in service, after some went down or came back."""
        up = self._gpus.live.state[: self._cluster.gpus] != GpuState.DOWN
        count = np.bincount(self._cluster.gpu_type[up], minlength=len(self._cluster.gpu_types))
        self.in_service = count.astype(np.int64)
        self.in_service.flags.writeable = False
