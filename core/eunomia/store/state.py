"""The whole state of the arbiter: the tables behind the snapshot, leases, memos, and the open offer."""

import dataclasses

import numpy as np

from eunomia.contract.memos import Memo
from eunomia.contract.offers import Offer
from eunomia.contract.valuations import Form
from eunomia.contract.verdicts import Reason
from eunomia.model.changes import ChangeLog
from eunomia.model.cluster import Cluster
from eunomia.model.columns import Table
from eunomia.model.leases import GpuState, Holdings, Lease
from eunomia.model.ledger import AppLedger, JobLedger
from eunomia.model.space import Space
from eunomia.model.workload import Apps, Jobs, JobState, Users
from eunomia.store.amounts import Amounts
from eunomia.store.facts import Counters, KeptReports, Names
from eunomia.store.indexes import Capacity, LeaseEnds, Owners, WaitingJobs
from eunomia.store.service import Service
from eunomia.store.tables import AppRows, GpuRows, JobRows
from eunomia.units import NONE, ZERO, AppId, Ints, JobId, Rows, Stage


@dataclasses.dataclass(slots=True, kw_only=True)
class OpenOffer:
    """An offer open to app masters, with the bids so far by app row."""

    offer: Offer
    bids: dict[int, Form]
    asked: dict[int, AppId]
    """Ids of the apps that were asked for a bid, by row; by now a row may belong to another app."""


@dataclasses.dataclass(slots=True)
class ForStages:
    """The stages' state outside the tables: memos, and the index that snapshots show."""

    plain: bool
    """Whether the index of each snapshot is rebuilt from the tables."""
    memos: dict[tuple[str, Stage], Memo] = dataclasses.field(default_factory=dict)
    """The memo of each plugin and stage."""
    index: object = None
    """The index of the last snapshot, which ``show`` reuses; None: ``show`` builds one."""


STAGES = tuple(Stage)
STAGE_NUMBER = {stage: number for number, stage in enumerate(STAGES)}
_EMPTY, _PAUSED = int(JobState.EMPTY), int(JobState.PAUSED)


def _gpu_rows(gpus: int) -> Table[GpuRows]:
    made: Table[GpuRows] = Table(GpuRows, capacity=max(1, gpus), shown=Holdings)
    for _ in range(gpus):
        made.add()
    return made


class State:
    """The whole state of the arbiter; only the writers change its tables.

    Args:
        cluster: the machines and GPUs.
        seed: seed of all random choices.
        plain: whether the index of each snapshot is rebuilt from the tables.

    Attributes:
        now: seconds since the start.
        users, apps, jobs, holdings, leases: the tables; ``holdings`` has a row for each GPU.
        names: rows by id, and numbers of names.
        reports: reports that only some jobs and apps have.
        counters: counters, and the causes of the next round.
        service: the accounting of jobs and apps.
        waiting_jobs, owners, free_gpus, lease_ends, capacity: indexes, which can be rebuilt from the tables.
        changes: the log of changed rows, in order of change.
        amounts: CPUs and memory in use, and the leases that wait for some.
        stages: memos, and the index that stages see.
        open: the offer open to app masters; None: none is open.
    """

    def __init__(self, cluster: Cluster, *, seed: int = 0, plain: bool = False) -> None:
        self.cluster, self.now = cluster, ZERO
        widths = {"gpu_types": len(cluster.gpu_types)}
        self.users: Table[Users] = Table(Users)
        self.apps: Table[AppRows] = Table(AppRows, shown=Apps)
        self.jobs: Table[JobRows] = Table(JobRows, widths=widths, shown=Jobs)
        self.holdings = _gpu_rows(cluster.gpus)
        self.leases: dict[int, Lease] = {}
        self.names, self.reports, self.counters = Names(), KeptReports(), Counters(seed)
        self.service = Service(self.jobs, self.apps, self.holdings)
        self.waiting_jobs = WaitingJobs(self.jobs, self.leases)
        self.owners = Owners(self.apps, self.jobs, self.leases)
        self.free_gpus = self.free_of()
        self.lease_ends = LeaseEnds(self.leases)
        self.capacity = Capacity(cluster, self.holdings)
        self.changes = ChangeLog()
        self.amounts = Amounts(cluster, self.holdings, self.counters)
        self.stages = ForStages(plain)
        self.open: OpenOffer | None = None

    def follow(self, cluster: Cluster) -> None:
        """Adapt the tables to a cluster after machines have joined or left; tables and views keep their identity.

        ``rebuild`` must be called afterwards.
        """
        self.cluster = cluster
        if cluster.gpus > self.holdings.used:
            self.holdings.restore(self.holdings.state(), rows=cluster.gpus)
        self.jobs.widen({"gpu_types": len(cluster.gpu_types)})
        self.capacity.follow(cluster)
        self.amounts.follow(cluster)
        self.service = Service(self.jobs, self.apps, self.holdings)

    def rebuild(self) -> None:
        """Rebuild the indexes from the tables, after code other than the writers has filled the tables."""
        self.lease_ends = self.lease_ends.rebuild(self.now)
        self.waiting_jobs, self.owners = self.waiting_jobs.rebuild(), self.owners.rebuild()
        self.free_gpus = self.free_of()
        self.amounts.rebuild(self.jobs, self.leases)
        self.capacity.count()
        self.stages.index = None

    def free_of(self) -> Space:
        """Return a new index of free GPUs, built from the table of GPUs."""
        return Space(self.cluster, self.holdings.live.state[: self.cluster.gpus] == GpuState.FREE)

    # --- names -----------------------------------------------------------------------------------------------------

    def app_row(self, app: AppId) -> int:
        """Return the row of an app; -1 if there is no such app."""
        return self.names.apps.get(app, NONE)

    def job_row(self, job: JobId) -> int:
        """Return the row of a job; -1 if there is no such job."""
        return self.names.jobs.get(job, NONE)

    def app_id(self, row: int) -> AppId:
        """Return the id of the app in a row."""
        return AppId(self.apps.cells.id[row])

    def job_id(self, row: int) -> JobId:
        """Return the id of the job in a row."""
        return JobId(self.jobs.cells.id[row])

    # --- the ledger ------------------------------------------------------------------------------------------------

    @property
    def job_ledger(self) -> JobLedger:
        """Return the seconds and GPU-seconds that jobs received until now."""
        return self.service.of_jobs(self.now)

    @property
    def app_ledger(self) -> AppLedger:
        """Return the GPU-seconds and the contention of apps until now."""
        return self.service.of_apps(self.now, self.counters.contention_area, self.present)

    def present(self) -> list[int]:
        """Return the rows of apps that have not ended."""
        ended = self.apps.live.ended
        return [row for row in self.names.apps.values() if not ended[row]]

    def app_leases(self, app: int) -> list[Lease]:
        """Return the leases of an app, oldest first."""
        return [self.leases[lease] for lease in sorted(self.owners.leases_of(app))]

    # --- changes and verdicts --------------------------------------------------------------------------------------

    def touch(self, *, job: int = NONE, app: int = NONE) -> None:
        """Record that the row of a job or an app changed."""
        rows = self.changes.rows
        if job != NONE:
            rows.append(job)
        if app != NONE:
            rows.append(~app)

    def reason(self, job: int) -> Reason | None:
        """Return the reason of a job's last verdict; None if there is no verdict."""
        code = self.jobs.cells.reason[job]
        return Reason(code) if code else None

    def active(self) -> Rows:
        """Return the rows of jobs that have not ended and are not paused, by arrival."""
        states = self.jobs.live.state[: self.jobs.used]
        return self.by_arrival(np.flatnonzero((states != _EMPTY) & (states != _PAUSED)))

    def by_arrival(self, rows: Ints) -> Rows:
        """Return job rows sorted by arrival."""
        return rows[np.argsort(self.jobs.live.order[rows], kind="stable")].astype(np.int32)
