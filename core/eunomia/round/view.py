"""The read-only view of the arbiter's state for drivers, screens, logs and app masters.

Columns and mappings are views of the arbiter's own memory: they reflect each step and cannot be written. A row may
belong to another job or app after the next step, while ids are stable. Code outside core must not read the store.
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
    """A copy of a lease at the time it was read."""

    id: int
    app: int
    """Row of the app that holds the lease."""
    job: int
    """Row of the lease's job; -1: the app divides the lease among its jobs."""
    state: LeaseState
    epoch: int
    gpus: Ints
    """GPUs that the lease holds or is promised, ascending, without those that it is releasing."""
    running: Ints
    """GPUs on which the lease's job runs or will run; during a measurement, not all GPUs of the lease."""
    granted_at: Seconds
    ends_at: Seconds
    protected_until: Seconds
    tuned: int
    """Epoch of the latest retune that executors have not confirmed yet; -1: none."""
    probe: Probing | None
    """The measurement in progress; None: the job runs on all GPUs of the lease."""


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
    """Reason for which the job waits; None if it started since, or there was no verdict."""
    stage: Stage | None
    """The stage that gave the verdict; None if the core did."""
    plugin: str
    """Name of the stage's plugin; empty if the core gave the verdict."""
    at: Seconds
    """Time of the verdict in seconds, or of the job's last start if that was later."""


@builds
class NamesView:
    """Rows of tables by id, and numbers of names."""

    apps: Mapping[AppId, int]
    """Rows of apps, including ended ones until all their GPUs are released."""
    jobs: Mapping[JobId, int]
    kinds: Mapping[str, int]
    """Numbers of kinds of job, as in ``jobs.job_kind``."""
    tuner_kinds: Mapping[str, int]


@builds
class ReportsView:
    """Reports that exist only for some jobs or apps."""

    forecasts: Mapping[int, Forecast]
    """Reported forecasts, by app row."""
    adaptations: Mapping[int, Adaptations]
    """Histories of batch sizes, by job row."""
    profiles: Mapping[int, tuple[KnownRate, ...]]
    """Known rates, by number of a kind of job."""


def _shut(kind: type[T], kept: object) -> T:
    """Return a read-only view of the mappings that are attributes of an object."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: MappingProxyType(getattr(kept, name)) for name in names})


def _read(path: str) -> Any:
    """Return a property that reads a value of the state without a Python call, as simulations read it often."""
    return property(operator.attrgetter(f"_state.{path}"))


@builds
class AmountsView:
    """A view of the CPUs and memory of leases."""

    _state: State
    are_known: ClassVar[bool] = _read("amounts.are_known")
    """Whether the CPUs or memory of machines are known; if not, no lease waits for any or is retuned."""
    differ: ClassVar[bool] = _read("amounts.uneven")
    """Whether a job requests, or a lease holds, CPUs or memory other than an equal share of its machine."""

    @property
    def tuning(self) -> frozenset[int]:
        """Return the numbers of the leases with a retune that executors have not confirmed."""
        return frozenset(self._state.amounts.tuning)

    @property
    def tight(self) -> frozenset[int]:
        """Return the numbers of the leases that wait for CPUs or memory, to begin or to get more."""
        return frozenset(self._state.amounts.tight)

    def of(self, lease: int) -> tuple[Reals, Reals]:
        """Return the CPUs, and the memory in GiB, of each GPU of a lease, as executors must set them now."""
        return self._state.amounts.given(self._state.leases[lease])

    def shares(self, gpus: Ints) -> tuple[Reals, Reals]:
        """Return the CPUs, and memory in GiB, of each GPU if machines divide them equally; 0: not known."""
        cpus, memory_gib = self._state.amounts.shares.by_gpu
        return cpus[gpus], memory_gib[gpus]


@builds
class ClusterView:
    """The read-only state of an arbiter, as ``Arbiter.view``. Columns have one row per user, app, job or GPU."""

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
    """The machines and GPUs; a new object after a machine has joined or left."""
    now: ClassVar[Seconds] = _read("now")
    """Time of the last step, in seconds since the start."""
    round: ClassVar[int] = _read("counters.round")
    """Number of the last round."""
    seed: ClassVar[int] = _read("counters.seed")
    """Seed of all random choices."""
    last_epoch: ClassVar[int] = _read("counters.last_epoch")
    """Epoch of the last order."""
    fallen_back: ClassVar[bool] = _read("counters.fallen_back")
    """Whether the fallback is in use, because the chosen profile had too many faulty rounds."""
    draws: ClassVar[int] = _read("counters.draws")
    """Number of random generators that stages have requested."""
    causes: ClassVar[frozenset[Cause]] = _read("counters.causes")
    """Causes collected so far for the next round."""

    @property
    def open_offer(self) -> Offer | None:
        """Return the open offer to app masters, or None."""
        return None if self._state.open is None else self._state.open.offer

    def show(self) -> Snapshot:
        """Return the snapshot that stages would get now, which is valid until the next step."""
        return show(self._state)

    # --- rows --------------------------------------------------------------------------------------------------------

    def app_row(self, app: AppId) -> int:
        """Return the row of an app; -1 if there is no such app."""
        return self.names.apps.get(app, NONE)

    def job_row(self, job: JobId) -> int:
        """Return the row of a job; -1 if there is no such job."""
        return self.names.jobs.get(job, NONE)

    def app_id(self, row: int) -> AppId:
        """Return the id of the app in a row."""
        return AppId(self.apps.id[row])

    def job_id(self, row: int) -> JobId:
        """Return the id of the job in a row."""
        return JobId(self.jobs.id[row])

    def jobs_of(self, app: int) -> Rows:
        """Return the rows of an app's jobs, by arrival; empty for row -1."""
        return self._state.by_arrival(np.array(sorted(self._state.owners.jobs_of.get(app, ())), dtype=np.int64))

    job_ledger: ClassVar[JobLedger] = _read("job_ledger")
    """Seconds and GPU-seconds that jobs received until now."""
    app_ledger: ClassVar[AppLedger] = _read("app_ledger")
    """GPU-seconds and contention of apps until now."""
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
        """Return numbers, [4, job row], that change if a row gets another job or another verdict."""
        jobs = self._state.jobs.live
        return np.stack([jobs.order, jobs.reason, jobs.stage, jobs.plugin], dtype=np.int64)

    # --- leases ------------------------------------------------------------------------------------------------------

    def lease(self, lease: int) -> LeaseView | None:
        """Return a lease by its number; None if it does not exist or no longer exists."""
        found = self._state.leases.get(lease)
        return None if found is None else _seen(found)

    def lease_of(self, job: int) -> LeaseView | None:
        """Return the lease of the job in a row; None if it has none of its own."""
        return self.lease(self._state.jobs.cells.lease[job])

    def leases(self) -> Iterator[LeaseView]:
        """Yield all leases in order of grant."""
        return map(_seen, self._state.leases.values())

    def leases_of(self, app: int) -> list[LeaseView]:
        """Return the leases of an app, oldest first; empty for row -1."""
        return [_seen(lease) for lease in self._state.app_leases(app)]

    @property
    def leaving(self) -> frozenset[int]:
        """Return the GPUs that leases must still release, including those on an open offer."""
        return frozenset().union(*self._state.owners.leaving.values())


def view_of(state: State) -> ClusterView:
    """Return a read-only view of a state."""
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
