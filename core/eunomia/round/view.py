"""The read-only view of what the arbiter knows: for drivers, screens, logs and app masters.

Columns and mappings are views of the arbiter's own memory: they follow each step, and refuse to be written. A row may
belong to another job or app after the next step; an id does not. Nothing outside of core reads the store itself.
"""

import dataclasses
import operator
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np

from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.verdicts import Reason
from eunomia.model.adaptations import Adaptations
from eunomia.model.cluster import Cluster
from eunomia.model.forecasts import Forecast
from eunomia.model.kind_profiles import KnownRate
from eunomia.model.leases import Holdings, Lease, LeaseState, Probing
from eunomia.model.ledger import AppLedger, JobLedger
from eunomia.model.shapes import builds, value
from eunomia.model.workload import Apps, Jobs, Users
from eunomia.round.show import show
from eunomia.store.state import STAGES, State
from eunomia.units import NONE, AppId, Cause, Ints, JobId, Reals, Rows, Seconds, Stage

T = TypeVar("T")


@builds
class LeaseView:
    """A lease as it stood when it was read."""

    id: int
    app: int
    """App row."""
    job: int
    """Job row; -1: the app divides the lease among its jobs."""
    state: LeaseState
    epoch: int
    gpus: Ints
    """GPUs that the lease holds or is promised, ascending, without those that it is giving back."""
    running: Ints
    """GPUs on which the lease's job runs, or is to run: during a measurement not all of the lease."""
    granted_at: Seconds
    ends_at: Seconds
    protected_until: Seconds
    tuned: int
    """Epoch of the order about CPUs and memory that executors have not confirmed yet; -1: none."""
    probe: Probing | None
    """The measurement under way; None: the job runs on all GPUs of the lease."""


_SAME = tuple(field.name for field in dataclasses.fields(LeaseView) if field.name not in ("gpus", "running"))
_values = operator.attrgetter(*_SAME)


def _seen(lease: Lease) -> LeaseView:
    gpus = _read_only(lease.gpus)
    running = gpus if lease.probe is None else _read_only(lease.running)
    return LeaseView(gpus=gpus, running=running, **dict(zip(_SAME, _values(lease), strict=True)))


def _read_only(gpus: list[int]) -> Ints:
    made = np.array(gpus, np.int64)
    made.flags.writeable = False
    return made


@value
class LastVerdict:
    """The last verdict on a job."""

    reason: Reason | None
    """None: the job has started since then, or there was no verdict."""
    stage: Stage | None
    """The stage that gave it; None: the core did."""
    plugin: str
    """Name of that stage's plugin; empty: the core."""
    at: Seconds
    """When it was given; of a job that has started since, its last start."""


@builds
class NamesView:
    """Rows by id, and numbers by name."""

    apps: Mapping[AppId, int]
    """Rows of apps, ended ones included as long as GPUs have not come back."""
    jobs: Mapping[JobId, int]
    kinds: Mapping[str, int]
    """Numbers of kinds of job, as in ``jobs.job_kind``."""
    tuner_kinds: Mapping[str, int]


@builds
class ReportsView:
    """Reports that only some jobs or apps have."""

    forecasts: Mapping[int, Forecast]
    """By app row."""
    adaptations: Mapping[int, Adaptations]
    """By job row."""
    profiles: Mapping[int, tuple[KnownRate, ...]]
    """By number of a kind of job."""


def _shut(kind: type[T], kept: object) -> T:
    """Return a view of the mappings that an object keeps, by name."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: MappingProxyType(getattr(kept, name)) for name in names})


def _read(path: str) -> Any:
    """Return a property that reads a value of the state; no Python function runs, since simulations read it often."""
    return property(operator.attrgetter(f"_state.{path}"))


@builds
class AmountsView:
    """CPUs and memory of leases."""

    _state: State
    are_known: ClassVar[bool] = _read("amounts.are_known")
    """Whether the cluster gives CPUs or memory of machines; else no lease waits for any, and none is retuned."""
    differ: ClassVar[bool] = _read("amounts.uneven")
    """Whether a job asks for, or a lease holds, other CPUs or memory than an equal share of its machine."""

    @property
    def tuning(self) -> frozenset[int]:
        """Leases with an order about CPUs and memory that executors have not confirmed."""
        return frozenset(self._state.amounts.tuning)

    @property
    def tight(self) -> frozenset[int]:
        """Leases that wait for CPUs or memory: to begin, or to get more on their GPUs."""
        return frozenset(self._state.amounts.tight)

    def of(self, lease: int) -> tuple[Reals, Reals]:
        """Return CPUs and memory in GiB by GPU of a lease, as executors have to set them now."""
        return self._state.amounts.given(self._state.leases[lease])

    def shares(self, gpus: Ints) -> tuple[Reals, Reals]:
        """Return the CPUs and memory in GiB of these GPUs where each machine divides them equally; 0: not known."""
        cpus, memory_gib = self._state.amounts.shares.by_gpu
        return cpus[gpus], memory_gib[gpus]


@builds
class ClusterView:
    """What the arbiter knows; ``Arbiter.view`` hands it out. Columns have a row for each user, app, job or GPU."""

    users: Users
    apps: Apps
    jobs: Jobs
    gpus: Holdings
    names: NamesView
    reports: ReportsView
    amounts: AmountsView
    _state: State

    # --- the run -----------------------------------------------------------------------------------------------------

    cluster: ClassVar[Cluster] = _read("cluster")
    """The machines and GPUs; another object once a machine has joined or left."""
    now: ClassVar[Seconds] = _read("now")
    """Time of the last step, in seconds since the start."""
    round: ClassVar[int] = _read("counters.round")
    """Number of the last round."""
    seed: ClassVar[int] = _read("counters.seed")
    """Seed of all random choices."""
    last_epoch: ClassVar[int] = _read("counters.last_epoch")
    """Epoch of the last order."""
    fallen_back: ClassVar[bool] = _read("counters.fallen_back")
    """Whether the fallback serves, since the chosen profile made too many faulty rounds."""
    draws: ClassVar[int] = _read("counters.draws")
    """Number of random generators that stages asked for."""
    causes: ClassVar[frozenset[Cause]] = _read("counters.causes")
    """Causes of the next round so far."""

    @property
    def open_offer(self) -> Offer | None:
        """The offer that app masters value; None: none is open."""
        return None if self._state.open is None else self._state.open.offer

    def show(self) -> Snapshot:
        """Return the snapshot that stages would get now; it is valid until the next step."""
        return show(self._state)

    # --- rows --------------------------------------------------------------------------------------------------------

    def app_row(self, app: AppId) -> int:
        """Row of an app; -1: no such app."""
        return self.names.apps.get(app, NONE)

    def job_row(self, job: JobId) -> int:
        """Row of a job; -1: no such job."""
        return self.names.jobs.get(job, NONE)

    def app_id(self, row: int) -> AppId:
        """Id of the app in a row."""
        return AppId(self.apps.id[row])

    def job_id(self, row: int) -> JobId:
        """Id of the job in a row."""
        return JobId(self.jobs.id[row])

    def jobs_of(self, app: int) -> Rows:
        """Rows of an app's jobs, by arrival; none for row -1."""
        return self._state.by_arrival(np.array(sorted(self._state.owners.jobs_of.get(app, ())), dtype=np.int64))

    job_ledger: ClassVar[JobLedger] = _read("job_ledger")
    """Time and GPU-seconds that jobs received, up to now."""
    app_ledger: ClassVar[AppLedger] = _read("app_ledger")
    """GPU-seconds and contention of apps, up to now."""
    # --- verdicts ----------------------------------------------------------------------------------------------------

    def verdict(self, job: int) -> LastVerdict:
        """Return the last verdict on the job in a row."""
        cells, state = self._state.jobs.cells, self._state
        stage = cells.stage[job]
        return LastVerdict(
            reason=state.reason(job),
            stage=STAGES[stage] if stage >= 0 else None,
            plugin=list(state.names.plugins)[state.jobs.cells.plugin[job]],
            at=Seconds(cells.verdict_at[job]),
        )

    @property
    def verdict_marks(self) -> Ints:
        """[4, job row]: numbers that differ wherever another job is in a row, or another verdict stands."""
        jobs = self._state.jobs.live
        return np.stack([jobs.order, jobs.reason, jobs.stage, jobs.plugin], dtype=np.int64)

    # --- leases ------------------------------------------------------------------------------------------------------

    def lease(self, lease: int) -> LeaseView | None:
        """Return a lease by its number; None: there is none, or no longer."""
        found = self._state.leases.get(lease)
        return None if found is None else _seen(found)

    def lease_of(self, job: int) -> LeaseView | None:
        """Return the lease that names the job in a row; None: there is none."""
        return self.lease(self._state.jobs.cells.lease[job])

    def leases(self) -> Iterator[LeaseView]:
        """Yield all leases, in the order of their grants."""
        return map(_seen, self._state.leases.values())

    def leases_of(self, app: int) -> list[LeaseView]:
        """Return the leases of an app, the oldest first; none for row -1."""
        return [_seen(lease) for lease in self._state.app_leases(app)]

    @property
    def leaving(self) -> frozenset[int]:
        """GPUs that leases still have to give back, also those on an open offer."""
        return frozenset().union(*self._state.owners.leaving.values())


def view_of(state: State) -> ClusterView:
    """Return the view of a state."""
    return ClusterView(
        users=state.users.view,
        apps=state.apps.shown,
        jobs=state.jobs.shown,
        gpus=state.holdings.shown,
        names=_shut(NamesView, state.names),
        reports=_shut(ReportsView, state.reports),
        amounts=AmountsView(_state=state),
        _state=state,
    )
