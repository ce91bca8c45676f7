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
    """A known rate of a job, mostly measured by its app master: iterations a second."""

    job: int
    gpus: int
    gpu_type: str
    locality: Locality
    rate: float
    batch_size: float = math.nan
    """Global batch size at which the rate was measured; NaN: the rate holds at any."""
    cpus: float = math.nan
    """CPUs that the job had for all its GPUs together; NaN: not known."""
    memory_gib: float = math.nan
    """Memory in GiB for the same GPUs; NaN as for the CPUs."""
    known: Basis = Basis.MEASURED
    """How the rate is known: a rate of the job's kind may be declared or estimated."""

    def holds_at(self, batch_size: float) -> bool:
        """Return whether the rate holds at a global batch size, as far as both are known; NaN: not known."""
        return math.isnan(self.batch_size) or math.isnan(batch_size) or self.batch_size == batch_size


FindService = Callable[..., tuple[Reals, Reals]]
"""Computes the service that jobs have attained, with the arguments of ``Snapshot.service``."""


@reads
class Reported:
    """What apps and the operator reported; the properties of ``Snapshot`` say what each field holds."""

    forecasts: Mapping[int, Forecast] = dataclasses.field(default_factory=dict)
    measured: Mapping[int, tuple[Measured, ...]] = dataclasses.field(default_factory=dict)
    measured_at_others: Mapping[int, tuple[Measured, ...]] = dataclasses.field(default_factory=dict)
    coming_regimes: Mapping[int, tuple[ComingRegime, ...]] = dataclasses.field(default_factory=dict)
    profiles: Mapping[int, tuple[KnownRate, ...]] = dataclasses.field(default_factory=dict)


@reads
class SnapshotSource:
    """What computes the answers of a snapshot's methods; an app's own snapshot needs the seed alone."""

    seed: int
    find_changes: Callable[[Version], Changes | None] = dataclasses.field(default=lambda _: None)
    narrow: "Callable[[Snapshot, int], Snapshot]" = dataclasses.field(default=lambda snapshot, _: snapshot)
    find_service: FindService | None = None
    note_draw: Callable[[], None] | None = None


@reads
class Snapshot(LazyFields):
    """The state at ``now``. Columns have a row for each job, app, user or GPU; unused rows hold fill values."""

    now: Seconds
    round: int
    version: Version
    causes: frozenset[Cause]
    cluster: Cluster
    users: Users
    apps: Apps
    jobs: Jobs
    active: Rows
    """Rows of jobs that are neither paused nor finished, by arrival."""
    active_apps: Rows
    """Rows of apps, by arrival."""
    holdings: Holdings
    """One row for each GPU."""
    ledger: Ledger
    memos: Memos
    kinds: tuple[str, ...]
    """Names of kinds of job; ``jobs.job_kind`` indexes them."""
    source: SnapshotSource
    """What computes the answers of the methods."""
    reports: Reported = dataclasses.field(default_factory=Reported)
    """``forecasts``, ``measured`` and the like."""
    arrivals: Ints | None = None
    """By job row: position in the order of arrival, which breaks ties of time; None: only times are known."""
    index: Index = dataclasses.field(init=False)
    """What a stage may ask for in place of scanning columns: free GPUs, waiting jobs, queues by key. Made from the
    columns where no arbiter keeps one."""
    needs: frozenset[Feature] = frozenset()
    """What the stages of the profile need: a stage may leave out optional columns that none of them needs."""
    measuring: frozenset[int] = frozenset()
    """Rows of jobs that are being measured at a setting of ``Menus.probe``: they keep their GPUs, CPUs and memory until
    they are back, and are not retuned."""

    if not TYPE_CHECKING:  # type checkers would take any name for a field

        def __getattr__(self, name: str) -> Any:
            """Make the index of a snapshot that has none; other fields are lazy."""
            if name != "index":
                return LazyFields.__getattr__(self, name)
            self.index = index_of(self)
            return self.index

    def changed(self, since: Version) -> Changes | None:
        """Rows changed since a version that the plugin saw; None: too long ago, so the plugin rebuilds its cache."""
        return self.source.find_changes(since)

    def iterations_left(self, jobs: Rows) -> Reals:
        """Return the iterations left for each of these jobs at ``now``; NaN where the total is not known."""
        table = self.jobs
        since = table.since[jobs]
        ran = np.where(np.isnan(since), 0.0, (self.now - since) * table.rate[jobs])
        return np.maximum(table.iterations[jobs] - table.done[jobs] - ran, 0.0)

    def service(self, jobs: Rows, *, by_gpus: bool) -> tuple[Reals, Reals]:
        """Return the attained service of jobs as linear functions of time: the value at time 0, and the gain a second.

        Args:
            jobs: job rows.
            by_gpus: whether service is in GPU-seconds rather than seconds.
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
        """Return a generator seeded by seed, round and plugin: the same snapshot gives the same draws."""
        if self.source.note_draw is not None:
            self.source.note_draw()
        text = f"{self.source.seed}/{self.round}/{plugin}".encode()
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"))

    def only(self, app: int) -> "Snapshot":
        """Return what this app's master may see: its app as row 0 and its jobs; other holders are hidden."""
        return self.source.narrow(self, app)

    @property
    def forecasts(self) -> Mapping[int, Forecast]:
        """By app row: what the app forecasts; only apps that reported a forecast."""
        return self.reports.forecasts

    @property
    def measured(self) -> Mapping[int, tuple[Measured, ...]]:
        """By job row: rates at its present batch size, or that hold at any; only jobs with such rates."""
        return self.reports.measured

    @property
    def measured_at_others(self) -> Mapping[int, tuple[Measured, ...]]:
        """By job row: rates at other batch sizes, past or to come; only jobs with such rates."""
        return self.reports.measured_at_others

    @property
    def coming_regimes(self) -> Mapping[int, tuple[ComingRegime, ...]]:
        """By job row: the last regimes of its work, in order, as announced; only jobs with such."""
        return self.reports.coming_regimes

    @property
    def profiles(self) -> Mapping[int, tuple[KnownRate, ...]]:
        """By number of a kind, as in ``jobs.job_kind``: its rates, measured or by the operator."""
        return self.reports.profiles

    @property
    def seed(self) -> int:
        """Seed of all random choices."""
        return self.source.seed

    @property
    def find_changes(self) -> Callable[[Version], Changes | None]:
        """The function behind ``changed``."""
        return self.source.find_changes

    @property
    def find_service(self) -> FindService | None:
        """Computes attained service from the arbiter's counters; None: from the ledger's columns."""
        return self.source.find_service

    @property
    def note_draw(self) -> Callable[[], None] | None:
        """Called with each draw, so that a run without draws is known; None: not counted."""
        return self.source.note_draw

    narrow = only


lazy(Snapshot, "active", "active_apps", "ledger", "kinds")
