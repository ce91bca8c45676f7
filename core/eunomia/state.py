"""All that the arbiter knows: the tables behind the snapshot, leases, memos, and the open offer."""

import dataclasses
import heapq
import math
from collections.abc import Iterable

import numpy as np

from eunomia.cluster import Cluster
from eunomia.columns import Table, column
from eunomia.decisions import Waiting
from eunomia.forecasts import Forecast
from eunomia.leases import GpuState, Holdings, Lease, LeaseState
from eunomia.ledger import AppLedger, JobLedger, Ledger
from eunomia.memos import Memo, Memos
from eunomia.offers import Offer
from eunomia.shapes import reads
from eunomia.snapshot import Changes, Measured, Snapshot
from eunomia.units import (
    NEVER,
    NONE,
    ZERO,
    AppId,
    Cause,
    Epoch,
    Ints,
    JobId,
    Reals,
    Rows,
    Seconds,
    Stage,
    UserId,
    Version,
)
from eunomia.valuations import Form
from eunomia.verdicts import Reason
from eunomia.workload import Apps, Jobs, JobState, Users

CHANGES_KEPT = 64
"""Versions for which ``snapshot.changed`` can say what was touched."""


@reads
class AppAccounts:
    """What the arbiter keeps of an app beside what stages see."""

    area_at_arrival: Reals = column(float, 0.0)
    """Integral of the number of apps over time when it came."""
    ended: Rows = column("int32", 0)
    """1: over, but some of its GPUs have not come back."""
    leases: Ints = column("int64", 0)
    """Leases that it has, those it is leaving among them."""


@reads
class JobAccounts:
    """What the arbiter keeps of a job beside what stages see."""

    lease: Ints = column("int64", NONE)
    """The lease that names it; -1: none, or its app's tuner divides."""
    gpus: Ints = column("int64", 0)
    """GPUs that it runs on."""
    ready_at: Reals = column(float, 0.0)
    """When it may be started again after a failure."""
    reason: Rows = column("int32", 0)
    """The last verdict; 0: none."""
    stage: Rows = column("int32", -1)
    plugin: Rows = column("int32", 0)
    """Index into ``State.plugins``."""
    round: Ints = column("int64", 0)
    since: Reals = column(float, 0.0)
    order: Ints = column("int64", 0)
    """Counts arrivals: ties of time are broken by it."""


@dataclasses.dataclass(slots=True, kw_only=True)
class OpenOffer:
    """An offer that app masters are valuing, and the bids so far by app row."""

    offer: Offer
    bids: dict[int, Form]
    asked: dict[int, AppId]
    """Who was asked, by row: a row may have gone to another app meanwhile."""


STAGES = tuple(Stage)


class State:
    """The whole state. Only the fold of events and the adoption of a decision write to it."""

    def __init__(self, cluster: Cluster, *, seed: int = 0) -> None:
        self.cluster = cluster
        self.seed = seed
        self.now = ZERO
        self.round = 0
        self.version = Version(0)
        self.last_epoch = 0
        self.last_lease = 0
        self.last_offer = 0
        self.arrivals = 0
        widths = {"gpu_types": len(cluster.gpu_types)}
        self.users: Table[Users] = Table(Users)
        self.apps: Table[Apps] = Table(Apps)
        self.jobs: Table[Jobs] = Table(Jobs)
        self.app_accounts: Table[AppAccounts] = Table(AppAccounts)
        self.job_accounts: Table[JobAccounts] = Table(JobAccounts)
        self.app_ledger: Table[AppLedger] = Table(AppLedger)
        self.job_ledger: Table[JobLedger] = Table(JobLedger, widths=widths)
        self.holdings: Table[Holdings] = Table(Holdings, capacity=max(1, cluster.gpus))
        for _ in range(cluster.gpus):
            self.holdings.add()
        self.user_rows: dict[UserId, int] = {}
        self.app_rows: dict[AppId, int] = {}
        self.job_rows: dict[JobId, int] = {}
        self.kinds: dict[str, int] = {}
        self.tuner_kinds: dict[str, int] = {"none": 0}
        self.plugins: dict[str, int] = {"": 0}
        """Names of plugins that gave verdicts, by number."""
        self.forecasts: dict[int, Forecast] = {}
        self.measured: dict[int, tuple[Measured, ...]] = {}
        self.leases: dict[int, Lease] = {}
        self.leaving: dict[int, set[int]] = {}
        """By lease: GPUs that it still has to give back."""
        self.memos: dict[tuple[str, Stage], Memo] = {}
        self.open: OpenOffer | None = None
        self.causes: set[Cause] = set()
        self.cause_since = NEVER
        self.stage_wake_at = NEVER
        self.last_boundary = ZERO
        self.faults_in_row = 0
        self.fallen_back = False
        self.contention_area = 0.0
        self.outcomes: dict[AppId, str] = {}
        """How apps ended: finished, failed, cancelled."""
        self.starts_at: dict[int, float] = {}
        self._changes: list[tuple[set[int], set[int]]] = []
        self._touched: tuple[set[int], set[int]] = (set(), set())
        self._ends: list[tuple[float, int]] = []

    # --- names -----------------------------------------------------------------------------------------------------

    def app_row(self, app: AppId) -> int:
        """Row of an app; -1: not here."""
        return self.app_rows.get(app, NONE)

    def job_row(self, job: JobId) -> int:
        """Row of a job; -1: not here."""
        return self.job_rows.get(job, NONE)

    def app_id(self, row: int) -> AppId:
        """Id of an app."""
        return AppId(self.apps.live.id[row])

    def job_id(self, row: int) -> JobId:
        """Id of a job."""
        return JobId(self.jobs.live.id[row])

    def kind(self, name: str) -> int:
        """Number of a kind of job."""
        return self.kinds.setdefault(name, len(self.kinds))

    def plugin(self, name: str) -> int:
        """Number of a plugin."""
        return self.plugins.setdefault(name, len(self.plugins))

    def turned_down_by(self, job: int) -> str:
        """Name of the plugin that gave a job's last verdict; empty: the core."""
        return list(self.plugins)[int(self.job_accounts.live.plugin[job])]

    def next_epoch(self) -> Epoch:
        """Count one epoch on."""
        self.last_epoch += 1
        return Epoch(self.last_epoch)

    # --- time ------------------------------------------------------------------------------------------------------

    def advance(self, now: Seconds) -> None:
        """Let time pass: the ledger's sums grow, progress is what the rates say."""
        elapsed = now - self.now
        if elapsed <= 0.0:
            return
        self.contention_area += elapsed * len(self._present())
        jobs, ledger = self.jobs.live, self.job_ledger.live
        used = self.jobs.used
        running = np.flatnonzero(jobs.state[:used] == JobState.RUNNING)
        waiting = np.flatnonzero(jobs.state[:used] == JobState.WAITING)
        ledger.attained[running] += elapsed
        ledger.last_ran[running] = now
        ledger.waited[waiting] += elapsed
        held = self.holdings.live
        on = np.flatnonzero(held.job >= 0)
        on = on[jobs.state[held.job[on]] == JobState.RUNNING]
        np.add.at(ledger.received, (held.job[on], self.cluster.gpu_type[on]), elapsed)
        leased = np.flatnonzero(held.app >= 0)
        np.add.at(self.app_ledger.live.gpu_seconds, held.app[leased], elapsed)
        self.now = now

    def settle_contention(self) -> None:
        """Write N_avg of every app: the mean number of apps over its life so far (Themis eq. 1)."""
        rows = np.fromiter(self._present(), dtype=np.int64)
        if rows.size == 0:
            return
        lived = self.now - self.apps.live.arrived[rows]
        area = self.contention_area - self.app_accounts.live.area_at_arrival[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(lived > 0.0, area / lived, float(rows.size))
        self.app_ledger.live.contention[rows] = mean

    def _present(self) -> list[int]:
        ended = self.app_accounts.live.ended
        return [row for row in self.app_rows.values() if not ended[row]]

    # --- leases ----------------------------------------------------------------------------------------------------

    def watch_end(self, lease: Lease) -> None:
        """Note when the lease ends."""
        if math.isfinite(lease.ends_at):
            heapq.heappush(self._ends, (lease.ends_at, lease.id))

    def next_end(self) -> Seconds:
        """When the next lease ends; NEVER: none does."""
        while self._ends and not self._ends_then(*self._ends[0]):
            heapq.heappop(self._ends)
        return Seconds(self._ends[0][0]) if self._ends else NEVER

    def take_ended(self) -> bool:
        """Forget the ends that are past; True if a lease ended by now."""
        ended = False
        while self.next_end() <= self.now:
            heapq.heappop(self._ends)
            ended = True
        return ended

    def _ends_then(self, ends_at: float, lease: int) -> bool:
        held = self.leases.get(lease)
        return held is not None and held.ends_at == ends_at and held.state is not LeaseState.LEAVING

    def vacate(self, gpu: int) -> None:
        """Let the GPU come back: its successor gets it, else it is free."""
        held = self.holdings.live
        successor = int(held.successor[gpu])
        held.app[gpu], held.job[gpu], held.lease[gpu], held.epoch[gpu] = NONE, NONE, NONE, NONE
        held.ends_at[gpu], held.protected_until[gpu] = NEVER, -math.inf
        held.successor[gpu] = NONE
        held.state[gpu] = GpuState.FREE
        lease = self.leases.get(successor)
        if lease is None:
            held.cpus[gpu], held.memory_gib[gpu] = 0.0, 0.0
            self.cause(Cause.FREED)
        else:
            self.occupy(gpu, lease)
            self.refresh(lease)

    def occupy(self, gpu: int, lease: Lease) -> None:
        """Make the lease the holder of a GPU that nobody holds."""
        held = self.holdings.live
        held.app[gpu], held.job[gpu], held.lease[gpu], held.epoch[gpu] = lease.app, lease.job, lease.id, lease.epoch
        held.ends_at[gpu], held.protected_until[gpu] = lease.ends_at, lease.protected_until
        held.state[gpu] = GpuState.HELD

    def refresh(self, lease: Lease) -> None:
        """A pending lease whose GPUs are all its own is ready to be started."""
        held, gpus = self.holdings.live, lease.gpus
        # A GPU that the lease itself is giving back is not its own until it has come back.
        own = (held.lease[gpus] == lease.id) & (held.state[gpus] != GpuState.LEAVING)
        if lease.state is LeaseState.PENDING and np.all(own):
            lease.state = LeaseState.ORDERED

    def drop_lease(self, lease: int) -> None:
        """Forget a lease that has no GPUs left; an app that is over goes with its last one."""
        gone = self.leases.pop(lease)
        self.leaving.pop(lease, None)
        if gone.job != NONE and self.job_accounts.live.lease[gone.job] == lease:
            self.job_accounts.live.lease[gone.job] = NONE
        self.app_accounts.live.leases[gone.app] -= 1
        self.drop_app_if_over(gone.app)

    def drop_app_if_over(self, app: int) -> None:
        """Forget an app that ended and has given everything back."""
        accounts = self.app_accounts.live
        if accounts.ended[app] and accounts.leases[app] == 0:
            self.app_rows.pop(self.app_id(app), None)
            self.forecasts.pop(app, None)
            for table in (self.apps, self.app_accounts, self.app_ledger):
                table.drop(app)

    def app_leases(self, app: int) -> list[Lease]:
        """Leases of an app, oldest first."""
        if self.app_accounts.live.leases[app] == 0:
            return []
        return [lease for lease in self.leases.values() if lease.app == app]

    # --- what changed, and why -------------------------------------------------------------------------------------

    def cause(self, cause: Cause) -> None:
        """Note a reason for a round."""
        self.causes.add(cause)
        self.cause_since = min(self.cause_since, self.now, key=float)

    def touch(self, *, job: int = NONE, app: int = NONE) -> None:
        """Note that a row changed."""
        if job != NONE:
            self._touched[0].add(job)
        if app != NONE:
            self._touched[1].add(app)

    def bump(self) -> None:
        """Close a version: what was touched since the last one belongs to it."""
        self.version = Version(self.version + 1)
        self._changes.append(self._touched)
        self._touched = (set(), set())
        del self._changes[:-CHANGES_KEPT]

    def changed(self, since: Version) -> Changes | None:
        """Rows touched after a version; None: too long ago."""
        behind = self.version - since
        if behind < 0 or behind > len(self._changes):
            return None
        jobs: set[int] = set()
        apps: set[int] = set()
        for touched in self._changes[len(self._changes) - behind :]:
            jobs |= touched[0]
            apps |= touched[1]
        return Changes(jobs=_rows(sorted(jobs)), apps=_rows(sorted(apps)))

    def verdict(self, job: int, waiting: Waiting) -> None:
        """Keep why a job waits."""
        kept = self.job_accounts.live
        kept.reason[job] = 0 if waiting.reason is None else int(waiting.reason)
        kept.stage[job] = -1 if waiting.stage is None else STAGES.index(waiting.stage)
        kept.plugin[job] = self.plugin(waiting.plugin)
        kept.round[job] = self.round
        kept.since[job] = self.now

    def reason(self, job: int) -> Reason | None:
        """Why a job waits."""
        code = int(self.job_accounts.live.reason[job])
        return Reason(code) if code else None

    # --- views -----------------------------------------------------------------------------------------------------

    def active(self) -> Rows:
        """Rows of jobs that are not paused and not over, by arrival."""
        used = self.jobs.used
        states = self.jobs.live.state[:used]
        rows = np.flatnonzero((states != JobState.EMPTY) & (states != JobState.PAUSED))
        return rows[np.argsort(self.job_accounts.live.order[rows], kind="stable")].astype(np.int32)

    def snapshot(self, causes: Iterable[Cause] = ()) -> Snapshot:
        """Show the state of now to the stages."""
        self.settle_contention()
        return Snapshot(
            now=self.now,
            round=self.round,
            version=self.version,
            causes=frozenset(causes),
            cluster=self.cluster,
            users=self.users.view,
            apps=self.apps.view,
            jobs=self.jobs.view,
            active=self.active(),
            active_apps=_rows(sorted(self._present(), key=lambda row: (self.apps.live.arrived[row], row))),
            holdings=self.holdings.view,
            forecasts=self.forecasts,
            measured=self.measured,
            ledger=Ledger(jobs=self.job_ledger.view, apps=self.app_ledger.view),
            memos=Memos(self.memos),
            kinds=tuple(self.kinds),
            seed=self.seed,
            find_changes=self.changed,
            narrow=lambda app: narrowed(self, app).snapshot(causes),
        )

    def waiting(self) -> Rows:
        """Rows of jobs that wait for GPUs."""
        return np.flatnonzero(self.jobs.live.state[: self.jobs.used] == JobState.WAITING).astype(np.int32)


def _rows(items: Iterable[int]) -> Rows:
    return np.fromiter(items, dtype=np.int32)


def narrowed(state: State, app: int) -> State:
    """Build the state that the app's own master would have: one user, one app, its jobs and what it holds."""
    own = State(state.cluster, seed=state.seed)
    own.now, own.round, own.version = state.now, state.round, state.version
    own.kinds, own.tuner_kinds = dict(state.kinds), dict(state.tuner_kinds)
    apps, users = state.apps.live, state.users.live
    user = own.users.add(id=users.id[apps.user[app]], weight=users.weight[apps.user[app]])
    own.user_rows[UserId(users.id[apps.user[app]])] = user
    row = own.apps.copy_row(state.apps, app, user=user)
    own.app_ledger.copy_row(state.app_ledger, app)
    own.app_accounts.copy_row(state.app_accounts, app)
    own.app_rows[state.app_id(app)] = row
    if app in state.forecasts:
        own.forecasts[row] = state.forecasts[app]
    moved: dict[int, int] = {}
    mine = np.flatnonzero(state.jobs.live.app[: state.jobs.used] == app)
    for job in mine[np.argsort(state.job_accounts.live.order[mine], kind="stable")].tolist():
        moved[job] = own.jobs.copy_row(state.jobs, job, app=row)
        own.job_ledger.copy_row(state.job_ledger, job)
        own.job_accounts.copy_row(state.job_accounts, job)
        own.job_rows[state.job_id(job)] = moved[job]
        if job in state.measured:
            own.measured[moved[job]] = state.measured[job]
    held, copy = state.holdings.live, own.holdings.live
    for gpu in np.flatnonzero(held.app == app).tolist():
        for field in dataclasses.fields(Holdings):
            getattr(copy, field.name)[gpu] = getattr(held, field.name)[gpu]
        copy.app[gpu] = row
        copy.job[gpu] = moved.get(int(held.job[gpu]), NONE)
        copy.next_app[gpu] = row if held.next_app[gpu] == app else NONE
        copy.next_job[gpu] = moved.get(int(held.next_job[gpu]), NONE)
    # N_avg is the cluster's: one app alone cannot know it, so it is kept as it is.
    own.contention_area = state.contention_area
    own.settle_contention = lambda: None  # type: ignore[method-assign]
    return own
