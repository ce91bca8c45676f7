"""What a stage sees: read-only columns that the core keeps up to date, valid during the call."""

import hashlib
from collections.abc import Callable, Mapping, Set
from typing import Protocol

import numpy as np

from eunomia.changes import Changes
from eunomia.cluster import Cluster
from eunomia.forecasts import Forecast
from eunomia.leases import Holdings
from eunomia.ledger import Ledger
from eunomia.memos import Memos
from eunomia.shapes import builds, lazy, reads
from eunomia.space import Space
from eunomia.units import Cause, Ints, Locality, Reals, Rows, Seconds, Version
from eunomia.workload import Apps, Jobs, Users


@builds
class Measured:
    """A rate that an app master measured: iterations a second."""

    job: int
    gpus: int
    gpu_type: str
    locality: Locality
    rate: float


class FindService(Protocol):
    """Counts what jobs have attained, as ``Snapshot.service`` gives it."""

    def __call__(self, rows: Rows, *, by_gpus: bool) -> tuple[Reals, Reals]:
        """See ``Snapshot.service``."""
        ...


class LiveIndex(Protocol):
    """Sets and sums that the arbiter keeps up to date, so that a stage need not search the columns. Read only."""

    @property
    def space(self) -> Space:
        """Free GPUs; to be copied before any is taken."""
        ...

    @property
    def plain(self) -> bool:
        """True: no GPU has to be given back, and every lease names its job."""
        ...

    @property
    def proportional(self) -> bool:
        """True: no job asks for, or holds, other CPUs or memory than its GPUs' part of a machine."""
        ...

    @property
    def waiting(self) -> Set[int]:
        """Rows of jobs that wait."""
        ...

    @property
    def nobody_overdue(self) -> bool:
        """True: every lease that ended was renewed."""
        ...

    @property
    def overdue(self) -> list[int]:
        """Rows of jobs whose lease ended, is not protected and was not renewed."""
        ...

    def gpus_of(self, job: int) -> Ints:
        """GPUs of a job's own lease, ascending; empty where it has none."""
        ...

    def protected_until(self, job: int) -> float:
        """Until when no round may take the job's lease; -inf: a round may."""
        ...

    def service_of(self, job: int, *, by_gpus: bool) -> tuple[float, float]:
        """See ``Snapshot.service_of``."""
        ...


@reads
class Snapshot:
    """The state of one moment. Columns have a row for each job, app, user or GPU; rows not in use hold the fill."""

    now: Seconds
    round: int
    version: Version
    causes: frozenset[Cause]
    cluster: Cluster
    users: Users
    apps: Apps
    jobs: Jobs
    active: Rows
    """Rows of jobs that are not paused and not over, by arrival."""
    active_apps: Rows
    """Rows of apps, by arrival."""
    holdings: Holdings
    """A row a GPU."""
    forecasts: Mapping[int, Forecast]
    """By app row, where the app reported one."""
    measured: Mapping[int, tuple[Measured, ...]]
    """By job row, where rates were measured."""
    ledger: Ledger
    memos: Memos
    kinds: tuple[str, ...]
    """Names of kinds of job; ``jobs.job_kind`` indexes them."""
    seed: int
    find_changes: Callable[[Version], Changes | None]
    narrow: "Callable[[int], Snapshot]"
    arrivals: Ints | None = None
    """By job row: counts arrivals, and so breaks ties of time; None: only times are known."""
    find_service: "FindService | None" = None
    """What jobs have attained, as the arbiter counts it; None: as the ledger's columns say."""
    sets: "LiveIndex | None" = None
    """What the core keeps up to date so that no stage has to look for it; None: only the columns are there."""

    def changed(self, since: Version) -> Changes | None:
        """Rows touched since a version that this plugin saw; None: too long ago, build anew."""
        return self.find_changes(since)

    def iterations_left(self, jobs: Rows) -> Reals:
        """Iterations that these jobs still have to do at ``now``; NaN where the work is not known."""
        table = self.jobs
        since = table.since[jobs]
        ran = np.where(np.isnan(since), 0.0, (self.now - since) * table.rate[jobs])
        return np.maximum(table.iterations[jobs] - table.done[jobs] - ran, 0.0)

    def service(self, jobs: Rows, *, by_gpus: bool) -> tuple[Reals, Reals]:
        """What jobs have attained, as lines of time: what it would be at time 0, and what each second adds.

        Args:
            jobs: rows.
            by_gpus: GPU-seconds; else seconds.
        """
        if self.find_service is not None:
            return self.find_service(jobs, by_gpus=by_gpus)
        ledger = self.ledger.jobs
        attained = ledger.received[jobs].sum(axis=1) if by_gpus else ledger.attained[jobs]
        return attained, np.zeros(jobs.size)

    def service_of(self, job: int, *, by_gpus: bool) -> tuple[float, float]:
        """The same of one job."""
        if self.sets is not None:
            return self.sets.service_of(job, by_gpus=by_gpus)
        at_zero, each = self.service(np.array([job]), by_gpus=by_gpus)
        return at_zero.item(), each.item()

    def rng(self, plugin: str) -> np.random.Generator:
        """A generator from seed, round and name: the same snapshot gives the same draws, after a restart too."""
        text = f"{self.seed}/{self.round}/{plugin}".encode()
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"))

    def only(self, app: int) -> "Snapshot":
        """What the app master of this app may see: its own app as row 0 and its own jobs; no other holders."""
        return self.narrow(app)


lazy(Snapshot, "active", "active_apps", "ledger", "kinds")
