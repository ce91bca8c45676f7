"""The state that a stage reads: read-only columns that the core keeps up to date, valid during the call."""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from eunomia.contract.contracts import Feature
from eunomia.contract.index import Index, index_of
from eunomia.contract.memos import Memos
from eunomia.model.adaptations import ComingRegime
from eunomia.model.changes import Changes
from eunomia.model.cluster import Cluster
from eunomia.model.forecasts import Forecast
from eunomia.model.kind_profiles import KnownRate
from eunomia.model.leases import Holdings
from eunomia.model.ledger import Ledger
from eunomia.model.shapes import LazyFields, builds, lazy, reads
from eunomia.model.workload import Apps, Jobs, Users
from eunomia.units import Basis, Cause, Ints, Locality, Reals, Rows, Seconds, Version


@builds
class Measured:
    """A known rate of a job in iterations per second, usually measured by its app master."""

    job: int
    gpus: int
    gpu_type: str
    locality: Locality
    rate: float
    batch_size: float = math.nan
    """Global batch size at which the rate was measured; NaN: the rate holds at any."""
    cpus: float = math.nan
    """CPUs of the job for all its GPUs together; NaN: not known."""
    memory_gib: float = math.nan
    """Memory of the job in GiB for all its GPUs together; NaN: not known."""
    known: Basis = Basis.MEASURED
    """Source of the rate: a rate of the job's kind may be declared or estimated instead of measured."""

    def holds_at(self, batch_size: float) -> bool:
        """Return whether the rate is valid at a global batch size (NaN: unknown); unknown sizes count as equal."""
        return math.isnan(self.batch_size) or math.isnan(batch_size) or self.batch_size == batch_size


FindService = Callable[..., tuple[Reals, Reals]]
"""Computes the attained service of jobs; takes the arguments of ``Snapshot.service``."""


@reads
class Reported:
    """The reports of apps and the operator; the properties of ``Snapshot`` with the same names describe the fields."""

    forecasts: Mapping[int, Forecast] = dataclasses.field(default_factory=dict)
    measured: Mapping[int, tuple[Measured, ...]] = dataclasses.field(default_factory=dict)
    measured_at_others: Mapping[int, tuple[Measured, ...]] = dataclasses.field(default_factory=dict)
    coming_regimes: Mapping[int, tuple[ComingRegime, ...]] = dataclasses.field(default_factory=dict)
    profiles: Mapping[int, tuple[KnownRate, ...]] = dataclasses.field(default_factory=dict)


@reads
class SnapshotSource:
    """The data sources of a snapshot's methods; a snapshot for a single app needs only the seed."""

    seed: int
    find_changes: Callable[[Version], Changes | None] = dataclasses.field(default=lambda _: None)
    narrow: "Callable[[Snapshot, int], Snapshot]" = dataclasses.field(default=lambda snapshot, _: snapshot)
    find_service: FindService | None = None
    note_draw: Callable[[], None] | None = None


@reads
class Snapshot(LazyFields):
    """The state at time ``now``. Columns have one row per job, app, user or GPU; unused rows contain fill values."""

    now: Seconds
    round: int
    version: Version
    causes: frozenset[Cause]
    cluster: Cluster
    users: Users
    apps: Apps
    jobs: Jobs
    active: Rows
    """Rows of jobs that have not ended and are not paused, by arrival."""
    active_apps: Rows
    """Rows of apps that have not ended, by arrival."""
    holdings: Holdings
    """The holder of each GPU, one row per GPU."""
    ledger: Ledger
    memos: Memos
    kinds: tuple[str, ...]
    """Names of the kinds of job, indexed by ``jobs.job_kind``."""
    source: SnapshotSource
    """The data sources of the methods."""
    reports: Reported = dataclasses.field(default_factory=Reported)
    """The reports of apps and the operator, such as ``forecasts`` and ``measured``."""
    arrivals: Ints | None = None
    """Position of each job row in the order of arrival, which breaks ties in arrival time; None: not known."""
    index: Index = dataclasses.field(init=False)
    """Index of free GPUs, waiting jobs and queues by key, so that stages need not scan columns. It is built from the
    columns if no arbiter maintains one."""
    needs: frozenset[Feature] = frozenset()
    """Features that the stages of the profile need; a stage may omit optional columns that none of them needs."""
    measuring: frozenset[int] = frozenset()
    """Rows of jobs that are being measured at a setting of ``Menus.probe``: they keep their GPUs, CPUs and memory, and
    are not retuned, until they return."""

    if not TYPE_CHECKING:  # type checkers would take any name for a field

        def __getattr__(self, name: str) -> Any:
            """Build the index on first use if the snapshot has none; other lazy fields are read as usual."""
            if name != "index":
                return LazyFields.__getattr__(self, name)
            self.index = index_of(self)
            return self.index

    def changed(self, since: Version) -> Changes | None:
        """Return the rows changed since a version; None: the version is too old, so caches must be rebuilt."""
        return self.source.find_changes(since)

    def iterations_left(self, jobs: Rows) -> Reals:
        """Return the iterations left for each of these jobs at ``now``; NaN where the total is not known."""
        table = self.jobs
        since = table.since[jobs]
        ran = np.where(np.isnan(since), 0.0, (self.now - since) * table.rate[jobs])
        return np.maximum(table.iterations[jobs] - table.done[jobs] - ran, 0.0)

    def service(self, jobs: Rows, *, by_gpus: bool) -> tuple[Reals, Reals]:
        """Return the attained service of jobs as linear functions of time: value at time 0 and increase per second.

        Args:
            jobs: job rows.
            by_gpus: whether service is in GPU-seconds instead of seconds.
        """
        if self.source.find_service is not None:
            return self.source.find_service(jobs, by_gpus=by_gpus)
        ledger = self.ledger.jobs
        attained = ledger.received[jobs].sum(axis=1) if by_gpus else ledger.attained[jobs]
        return attained, np.zeros(jobs.size)

    def service_of(self, job: int, *, by_gpus: bool) -> tuple[float, float]:
        """Return the attained service of one job; see ``service``."""
        at_zero, each = self.service(np.array([job]), by_gpus=by_gpus)
        return at_zero.item(), each.item()

    def rng(self, plugin: str) -> np.random.Generator:
        """Return a generator seeded by seed, round and plugin, so that equal snapshots give equal draws."""
        if self.source.note_draw is not None:
            self.source.note_draw()
        text = f"{self.source.seed}/{self.round}/{plugin}".encode()
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"))

    def only(self, app: int) -> "Snapshot":
        """Return the snapshot that this app's master may see: its app as row 0, its jobs, and no other holders."""
        return self.source.narrow(self, app)

    @property
    def forecasts(self) -> Mapping[int, Forecast]:
        """Return the forecasts of the apps that reported one, by app row."""
        return self.reports.forecasts

    @property
    def measured(self) -> Mapping[int, tuple[Measured, ...]]:
        """Return known rates by job row, at the present batch size or valid at any; jobs without any are omitted."""
        return self.reports.measured

    @property
    def measured_at_others(self) -> Mapping[int, tuple[Measured, ...]]:
        """Return known rates by job row, at other batch sizes, past or future; jobs without any are omitted."""
        return self.reports.measured_at_others

    @property
    def coming_regimes(self) -> Mapping[int, tuple[ComingRegime, ...]]:
        """Return announced regimes by job row, in order, at the end of a job's work; jobs without any are omitted."""
        return self.reports.coming_regimes

    @property
    def profiles(self) -> Mapping[int, tuple[KnownRate, ...]]:
        """Return the rates of each kind of job, measured or set by the operator, by its number in ``jobs.job_kind``."""
        return self.reports.profiles

    @property
    def seed(self) -> int:
        """Return the seed of all random choices."""
        return self.source.seed

    @property
    def find_changes(self) -> Callable[[Version], Changes | None]:
        """Return the function that implements ``changed``."""
        return self.source.find_changes

    @property
    def find_service(self) -> FindService | None:
        """Return the function that reads attained service from the arbiter's counters; None: read the ledger."""
        return self.source.find_service

    @property
    def note_draw(self) -> Callable[[], None] | None:
        """Return the function to call at each random draw, which counts draws; None: they are not counted."""
        return self.source.note_draw

    narrow = only


lazy(Snapshot, "active", "active_apps", "ledger", "kinds")
