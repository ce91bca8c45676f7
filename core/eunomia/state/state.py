"""The arbiter's whole state: the tables behind the snapshot, leases, memos, and the open offer."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from eunomia.contract.decisions import Waiting
from eunomia.contract.memos import Memo
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Measured
from eunomia.contract.valuations import Form
from eunomia.contract.verdicts import Reason
from eunomia.model.adaptations import Adaptations, ComingRegime
from eunomia.model.changes import ChangeLog, Changes
from eunomia.model.cluster import Cluster
from eunomia.model.columns import Table
from eunomia.model.forecasts import Forecast
from eunomia.model.kind_profiles import KnownRate
from eunomia.model.leases import GpuState, Holdings, Lease, LeaseState
from eunomia.model.ledger import AppLedger, JobLedger
from eunomia.model.workload import Apps, Jobs, JobState, Users
from eunomia.state.amounts import Amounts, of_next_lease
from eunomia.state.machine_shares import MachineShares
from eunomia.state.state_index import Standing
from eunomia.store.lease_ends import LeaseEnds
from eunomia.store.service import Service
from eunomia.store.tables import AppRows, JobRows
from eunomia.units import (
    NEVER,
    NONE,
    ZERO,
    AppId,
    Cause,
    Epoch,
    Ints,
    JobId,
    Rows,
    Seconds,
    Stage,
    UserId,
    Version,
)


@dataclasses.dataclass(slots=True, kw_only=True)
class OpenOffer:
    """An offer that app masters are valuing, and the bids so far by app row."""

    offer: Offer
    bids: dict[int, Form]
    asked: dict[int, AppId]
    """The apps asked for a bid, by row: another app may have taken over a row since then."""


STAGES = tuple(Stage)
_STAGE_NUMBER = {stage: number for number, stage in enumerate(STAGES)}
_FREED, _LEFT = Cause.FREED, Cause.LEFT
_RUNS, _STARTS, _WAITS = JobState.RUNNING, JobState.STARTING, JobState.WAITING
_EMPTY, _PAUSED = int(JobState.EMPTY), int(JobState.PAUSED)
_WAITING, _ON = int(JobState.WAITING), (int(JobState.RUNNING), int(JobState.STARTING))
_HELD = int(GpuState.HELD)


def _holdings(gpus: int) -> Table[Holdings]:
    made: Table[Holdings] = Table(Holdings, capacity=max(1, gpus))
    for _ in range(gpus):
        made.add()
    return made


class State:
    """The whole state. Only folding events and adopting a decision write to it."""

    def __init__(self, cluster: Cluster, *, seed: int = 0, plain: bool = False) -> None:
        self.cluster = cluster
        self.plain = plain
        """Whether snapshots carry columns only, without the live index, so that every stage uses its plain code."""
        self.seed = seed
        self.now = ZERO
        self.round = 0
        self.version = Version(0)
        self.last_epoch = self.last_lease = self.last_offer = self.arrivals = self.draws = 0
        widths = {"gpu_types": len(cluster.gpu_types)}
        self.users: Table[Users] = Table(Users)
        self.apps: Table[AppRows] = Table(AppRows, shown=Apps)
        self.jobs: Table[JobRows] = Table(JobRows, widths=widths, shown=Jobs)
        self.service = Service(self.jobs, self.apps, len(cluster.gpu_types))
        self.holdings = _holdings(cluster.gpus)
        self.user_rows: dict[UserId, int] = {}
        self.app_rows: dict[AppId, int] = {}
        self.job_rows: dict[JobId, int] = {}
        self.kinds: dict[str, int] = {}
        self.tuner_kinds: dict[str, int] = {"none": 0}
        self.plugins: dict[str, int] = {"": 0}
        """Names of plugins that gave verdicts, by number."""
        self.forecasts: dict[int, Forecast] = {}
        self.measured: dict[int, tuple[Measured, ...]] = {}
        self.measured_at_others: dict[int, tuple[Measured, ...]] = {}
        self.profiles: dict[int, tuple[KnownRate, ...]] = {}
        self.adaptations: dict[int, Adaptations] = {}
        self.coming_regimes: dict[int, tuple[ComingRegime, ...]] = {}
        self.leases: dict[int, Lease] = {}
        self.probing: dict[int, Seconds] = {}
        """By lease whose job measures its rate: when it goes back at the latest."""
        self.leaving: dict[int, set[int]] = {}
        """By lease: the GPUs that the lease still has to give back."""
        self.memos: dict[tuple[str, Stage], Memo] = {}
        self.open: OpenOffer | None = None
        self.causes: set[Cause] = set()
        self.cause_since = self.stage_wake_at = NEVER
        self.last_boundary = ZERO
        self.faults_in_row, self.fallen_back = 0, False
        self.contention_area = 0.0
        self.outcomes: dict[AppId, str] = {}
        """How apps ended: finished, failed, cancelled."""
        self.starts_at: dict[int, float] = {}
        self.shown: object = None
        """The live index that ``show`` keeps between snapshots."""
        self._changes = ChangeLog()
        self.lease_ends = LeaseEnds(self.leases)
        self.machine_shares = MachineShares(cluster)
        self.amounts = Amounts(cluster, self.holdings, self.next_epoch)
        self._types: list[int] = cluster.gpu_type.tolist()
        self._by_type: list[int] = np.bincount(cluster.gpu_type, minlength=len(cluster.gpu_types)).tolist()

    @functools.cached_property
    def _one_type(self) -> bool:
        return len(self.cluster.gpu_types) == 1

    # --- names -----------------------------------------------------------------------------------------------------

    def app_row(self, app: AppId) -> int:
        """Row of an app; -1: no such app."""
        return self.app_rows.get(app, NONE)

    def job_row(self, job: JobId) -> int:
        """Row of a job; -1: no such job."""
        return self.job_rows.get(job, NONE)

    def app_id(self, row: int) -> AppId:
        """Id of the app in a row."""
        found: AppId = self.apps.cells.id[row]
        return found

    def job_id(self, row: int) -> JobId:
        """Id of the job in a row."""
        found: JobId = self.jobs.cells.id[row]
        return found

    def kind(self, name: str) -> int:
        """Number of a kind of job; a new kind gets the next number."""
        return self.kinds.setdefault(name, len(self.kinds))

    def plugin(self, name: str) -> int:
        """Number of a plugin; a new plugin gets the next number."""
        return self.plugins.setdefault(name, len(self.plugins))

    def turned_down_by(self, job: int) -> str:
        """Name of the plugin that gave a job's last verdict; empty: the core gave it."""
        return list(self.plugins)[int(self.jobs.live.plugin[job])]

    def next_epoch(self) -> Epoch:
        """Advance the epoch counter and return the new epoch."""
        self.last_epoch += 1
        return Epoch(self.last_epoch)

    # --- the state index and the ledger ----------------------------------------------------------------------------

    @functools.cached_property
    def standing(self) -> Standing:
        """The state index (waiting jobs, free GPUs, leases by app), built from the tables on first use."""
        return Standing.of(self)

    @property
    def job_ledger(self) -> JobLedger:
        """Time and GPU-seconds that jobs received, up to now."""
        return self.service.of_jobs(self.now)

    @property
    def app_ledger(self) -> AppLedger:
        """GPU-seconds and contention of apps, up to now."""
        return self.service.of_apps(self.now, self.contention_area, np.array(self.present(), dtype=np.int32))

    def turn(self, job: int, to: JobState, at: Seconds | None = None) -> None:
        """Set a job's state from now on, or from ``at``, and update its accounts to that time."""
        jobs = self.jobs.cells
        before = jobs.state[job]
        self.service.add_job(job, self.now if at is None else at)
        jobs.state[job] = to
        standing = self.standing
        if (to is _RUNS or to is _STARTS) and self.size_of(job) < jobs.most[job]:
            standing.short.add(job)
        elif standing.short:
            standing.short.discard(job)
        if to is _WAITS:
            if before != _WAITING:
                standing.waiting.add(job)
                standing.stale_verdicts.add(job)
                standing.asked += jobs.most[job]
        elif before == _WAITING:
            standing.waiting.discard(job)
            standing.stale_verdicts.discard(job)
            standing.asked -= jobs.most[job]

    def drop_job(self, job: int) -> None:
        """Drop a job that is on no GPU."""
        standing, jobs = self.standing, self.jobs.cells
        standing.short.discard(job)
        if job in standing.waiting:
            standing.waiting.discard(job)
            standing.stale_verdicts.discard(job)
            standing.asked -= jobs.most[job]
        app = jobs.app[job]
        standing.jobs_of[app].discard(job)
        del self.job_rows[jobs.id[job]]
        rates = (self.measured, self.measured_at_others)
        for by_job in (standing.backing_off, *rates, self.adaptations, self.coming_regimes, self.starts_at):
            if by_job:
                by_job.pop(job, None)
        self.touch(job=job, app=app)
        self.jobs.drop(job)
        self.cause(_LEFT)

    def sized(self, job: int) -> None:
        """Record whether a job that starts or changes size runs below its largest size."""
        jobs, short = self.jobs.cells, self.standing.short
        if jobs.state[job] in _ON and self.size_of(job) < jobs.most[job]:
            short.add(job)
        elif short:
            short.discard(job)

    def size_of(self, job: int) -> int:
        """Number of GPUs that a job runs on or is about to run on."""
        jobs = self.jobs.cells
        lease = self.leases.get(jobs.lease[job])
        if lease is None:
            return int(jobs.gpus[job])
        return lease.gpus.size if lease.probe is None else lease.probe.home.size

    def own(self, gpus: Sequence[int] | Ints, job: int, *, come: bool) -> None:
        """Count GPUs as used by a job (``come``), or subtract them from its count."""
        if job == NONE:
            return
        jobs = self.jobs.cells
        if jobs.counted_at[job] != self.now:  # also where it is NaN: no entry yet
            self.service.add_job(job, self.now)
        on, many = jobs.on, len(gpus)
        if many == 1 or self._one_type:
            on[job, self._types[gpus[0]]] += many if come else -many
            return
        for gpu in gpus:
            on[job, self._types[gpu]] += 1 if come else -1

    def put(self, gpu: int, job: int) -> None:
        """Assign a GPU to another job, or to none."""
        held = self.holdings.live
        self.own((gpu,), int(held.job[gpu]), come=False)
        held.job[gpu] = job
        self.own((gpu,), job, come=True)

    def clear(self, job: int) -> None:
        """Take a job off all GPUs that it is assigned to."""
        on = self.jobs.cells.on
        if {on[job, kind] for kind in range(on.shape[1])} != {0}:
            for gpu in np.flatnonzero(self.holdings.live.job == job).tolist():
                self.put(gpu, NONE)

    # --- time ------------------------------------------------------------------------------------------------------

    def advance(self, now: Seconds) -> None:
        """Advance the clock; the ledgers are brought up to date only when they are read."""
        elapsed = now - self.now
        if elapsed > 0.0:
            self.contention_area += elapsed * self.standing.present
            self.now = now

    def keep_contention(self, app: int) -> None:
        """Store the N_avg of an app that ends, which no longer changes."""
        rows = np.array([app])
        mean = self.service.contention(self.now, self.contention_area, rows, self.standing.present)
        self.apps.cells.contention[app] = mean.item()

    def present(self) -> list[int]:
        """Rows of apps that have not ended."""
        ended = self.apps.live.ended
        return [row for row in self.app_rows.values() if not ended[row]]

    # --- leases ----------------------------------------------------------------------------------------------------

    def leave(self, lease: Lease) -> None:
        """Mark a lease as leaving: all its GPUs have to come back."""
        lease.state = LeaseState.LEAVING
        self.lease_ends.released(lease.id)
        self.standing.shared.discard(lease.id)

    def vacate(self, gpus: Sequence[int], at: Seconds | None = None) -> None:
        """Return GPUs of one lease, now or at ``at``: to their successors, else to the free GPUs."""
        at = self.now if at is None else at
        cells = self.holdings.cells
        app = cells.app[gpus[0]]
        self.service.add_app(app, at)
        self.apps.cells.gpus[app] -= len(gpus)
        for job in {cells.job[gpu] for gpu in gpus}:
            self.own([gpu for gpu in gpus if cells.job[gpu] == job], job, come=False)
        self.pass_on(gpus, at)

    def pass_on(self, gpus: Sequence[int], at: Seconds) -> None:
        """Give GPUs that their holder has left to their successors, else to the free GPUs."""
        successor, free = self.holdings.cells.successor, gpus
        if {successor[gpu] for gpu in gpus} != {NONE}:
            promised: dict[int, list[int]] = {}
            for gpu in gpus:
                promised.setdefault(successor[gpu], []).append(gpu)
            free = [gpu for gpu in gpus if successor[gpu] not in self.leases]
            for number, taken in promised.items():
                if number in self.leases:
                    self._hand_over(taken, self.leases[number], at)
        if free:
            self.holdings.clear(free)
            self.standing.space.give(free)
            self.cause(_FREED)

    def _hand_over(self, gpus: Sequence[int], lease: Lease, at: Seconds) -> None:
        """Hand GPUs that their holder has left to their successor, with the CPUs and memory set for it."""
        held = self.holdings.cells
        kept = [(column, [column[gpu] for gpu in gpus]) for column in of_next_lease(held)]
        self.holdings.clear(gpus)
        for column, items in kept:
            for gpu, item in zip(gpus, items, strict=True):
                column[gpu] = item
        self.occupy(gpus, lease, at)
        self.amounts.refresh(lease)

    def occupy(self, gpus: Sequence[int] | Ints, lease: Lease, at: Seconds | None = None) -> None:
        """Make a lease the holder of GPUs that have no holder."""
        many, app, job = len(gpus), lease.app, lease.job
        held, where = (self.holdings.cells, gpus[0]) if many == 1 else (self.holdings.live, gpus)
        held.app[where], held.job[where], held.lease[where], held.epoch[where] = app, job, lease.id, lease.epoch
        held.ends_at[where], held.protected_until[where] = lease.ends_at, lease.protected_until
        held.state[where] = _HELD
        self.service.add_app(app, self.now if at is None else at)
        self.apps.cells.gpus[app] += many
        self.own(gpus, job, come=True)

    def installed(self, gpu_type: int) -> int:
        """Number of the cluster's GPUs of a type, down ones included; -1: of all types."""
        return self._by_type[gpu_type] if gpu_type >= 0 else self.cluster.gpus

    def capacity(self) -> Ints:
        """Number of GPUs by type, without the GPUs that are down."""
        standing = self.standing
        if standing.capacity is None:
            up = self.holdings.live.state[: self.cluster.gpus] != GpuState.DOWN
            count = np.bincount(self.cluster.gpu_type[up], minlength=len(self.cluster.gpu_types))
            standing.capacity = count.astype(np.int64)
            standing.capacity.flags.writeable = False
        return standing.capacity

    def down(self, gpu: int) -> None:
        """Mark a GPU without a holder as down until its machine comes back."""
        states = self.holdings.live.state
        if states[gpu] == GpuState.FREE:
            self.standing.space.take((gpu,))
        states[gpu] = GpuState.DOWN
        self.standing.capacity = None

    def add_lease(self, lease: Lease) -> None:
        """Add a new lease."""
        standing = self.standing
        self.leases[lease.id] = lease
        standing.leases_of.setdefault(lease.app, set()).add(lease.id)
        if lease.job == NONE:
            standing.shared.add(lease.id)

    def drop_lease(self, lease: int) -> None:
        """Drop a lease that has no GPUs left; an ended app is dropped with its last lease."""
        standing = self.standing
        gone = self.leases.pop(lease)
        if self.amounts.are_known:
            self.amounts.drop(lease)
        self.probing.pop(lease, None)
        if self.leaving:
            self.leaving.pop(lease, None)
        self.lease_ends.released(lease)
        standing.shared.discard(lease)
        of_app = standing.leases_of[gone.app]
        of_app.discard(lease)
        of_job = self.jobs.cells.lease
        if gone.job != NONE and of_job[gone.job] == lease:
            of_job[gone.job] = NONE
        if not of_app and self.apps.cells.ended[gone.app]:
            self.drop_app(gone.app)

    def drop_app(self, app: int) -> None:
        """Drop an app that has ended and has given back all its GPUs."""
        self.app_rows.pop(self.app_id(app), None)
        if self.forecasts:
            self.forecasts.pop(app, None)
        self.standing.jobs_of.pop(app, None)
        self.standing.leases_of.pop(app, None)
        self.apps.drop(app)

    def app_leases(self, app: int) -> list[Lease]:
        """Leases of an app, the oldest first."""
        return [self.leases[lease] for lease in sorted(self.standing.leases_of.get(app, ()))]

    # --- changes, causes and verdicts ------------------------------------------------------------------------------

    def cause(self, cause: Cause) -> None:
        """Record a cause for the next round."""
        self.causes.add(cause)
        if self.now < self.cause_since:
            self.cause_since = self.now

    def touch(self, *, job: int = NONE, app: int = NONE) -> None:
        """Record that the row of a job or an app changed."""
        rows = self._changes.rows
        if job != NONE:
            rows.append(job)
        if app != NONE:
            rows.append(~app)

    def bump(self) -> None:
        """Close a version, which covers all rows changed since the last one."""
        self.version = Version(self.version + 1)
        self._changes.close(self.version)

    def changed(self, since: Version) -> Changes | None:
        """Rows touched after a version, including this step's; None: the version is too old."""
        return self._changes.since(self.version - since)

    def verdict(self, job: int, waiting: Waiting) -> None:
        """Store the verdict on a job."""
        jobs = self.jobs.cells
        reason = 0 if waiting.reason is None else int(waiting.reason)
        stage = -1 if waiting.stage is None else _STAGE_NUMBER[waiting.stage]
        plugin = self.plugin(waiting.plugin)
        jobs.reason[job], jobs.stage[job], jobs.plugin[job] = reason, stage, plugin
        jobs.told_in[job], jobs.told_at[job] = self.round, self.now
        if job in self.standing.waiting:
            if (reason, stage, waiting.plugin) == self.standing.default_verdict:
                self.standing.stale_verdicts.discard(job)
            else:
                self.standing.stale_verdicts.add(job)

    def reason(self, job: int) -> Reason | None:
        """Reason of a job's last verdict; None: no verdict."""
        code = self.jobs.cells.reason[job]
        return Reason(code) if code else None

    # --- views -----------------------------------------------------------------------------------------------------

    def active(self) -> Rows:
        """Rows of jobs that have not ended and are not paused, by arrival."""
        used = self.jobs.used
        states = self.jobs.live.state[:used]
        return self.by_arrival(np.flatnonzero((states != _EMPTY) & (states != _PAUSED)))

    def by_arrival(self, rows: Ints) -> Rows:
        """These rows of jobs in order of arrival."""
        return rows[np.argsort(self.jobs.live.order[rows], kind="stable")].astype(np.int32)

    def waiting(self) -> Rows:
        """Rows of jobs that wait for GPUs."""
        return np.array(sorted(self.standing.waiting), dtype=np.int32)
