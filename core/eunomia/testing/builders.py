"""A snapshot built by hand, for tests of one stage without an arbiter.

```python
town = World("2x4 V100").app("ana").job("ana/1", gpus=(1, 4)).holds("ana/1", 0, 1, ends_at=600.0)
menus = fixed.eunomia_elasticity(town.snapshot(now=60.0))
```
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from eunomia.contract.contracts import Feature
from eunomia.contract.memos import Memo, Memos
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Measured, Reported, Snapshot, SnapshotSource
from eunomia.model.adaptations import Adaptation, Adaptations, ComingRegime
from eunomia.model.cluster import Cluster
from eunomia.model.columns import Table
from eunomia.model.forecasts import Forecast
from eunomia.model.leases import GpuState, Holdings
from eunomia.model.ledger import AppLedger, JobLedger, Ledger
from eunomia.model.workload import Apps, Jobs, JobState, Users
from eunomia.round.narrowing import narrowed
from eunomia.units import NEVER, NONE, Cause, Locality, OfferId, Rows, Scope, Seconds, Stage, Version


class World:
    """A cluster with apps, jobs and holders. Methods that add return the world, so that calls can be chained.

    Args:
        cluster: a cluster, or its short form such as ``"2x4 V100"``.
        seed: seed of ``snapshot.rng``.
    """

    def __init__(self, cluster: Cluster | str = "1x4 V100", *, seed: int = 0) -> None:
        self.cluster = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
        self.seed = seed
        self._users: Table[Users] = Table(Users)
        self._apps: Table[Apps] = Table(Apps)
        self._jobs: Table[Jobs] = Table(Jobs)
        self._app_ledger: Table[AppLedger] = Table(AppLedger)
        self._job_ledger: Table[JobLedger] = Table(JobLedger, widths={"gpu_types": len(self.cluster.gpu_types)})
        self._holdings: Table[Holdings] = Table(Holdings, capacity=max(1, self.cluster.gpus))
        for _ in range(self.cluster.gpus):
            self._holdings.add()
        self._user_rows: dict[str, int] = {}
        self._app_rows: dict[str, int] = {}
        self._job_rows: dict[str, int] = {}
        self._kinds: dict[str, int] = {}
        self._forecasts: dict[int, Forecast] = {}
        self._measured: dict[int, tuple[Measured, ...]] = {}
        self._adaptations: dict[int, Adaptations] = {}
        self._coming: dict[int, tuple[ComingRegime, ...]] = {}
        self._memos: dict[tuple[str, Stage], Memo] = {}
        self._needs: frozenset[Feature] = frozenset()
        self._leases = 0

    def row(self, name: str) -> int:
        """Return the row of the job with a name, or of the app if no job has that name."""
        return self._job_rows[name] if name in self._job_rows else self._app_rows[name]

    def app(
        self,
        name: str,
        *,
        user: str = "ana",
        weight: float = 1.0,
        arrived: float = 0.0,
        forecast: Forecast | None = None,
        contention: float = 1.0,
    ) -> Self:
        """Add an app, and its user if that does not exist."""
        if user not in self._user_rows:
            self._user_rows[user] = self._users.add(id=user)
        row = self._apps.add(id=name, user=self._user_rows[user], weight=weight, arrived=arrived)
        self._app_ledger.add(contention=contention)
        self._app_rows[name] = row
        if forecast is not None:
            self._forecasts[row] = forecast
        return self

    def job(
        self,
        name: str,
        *,
        gpus: int | tuple[int, int] = 1,
        arrived: float = 0.0,
        gpu_type: str | None = None,
        kind: str = "",
        received: float | Sequence[float] = 0.0,
        state: JobState = JobState.WAITING,
        **columns: float,
    ) -> Self:
        """Add a job ``app/number``; its app is added if it does not exist.

        Args:
            name: name of the job; the text before the first ``/`` names its app.
            gpus: size of its gang, or smallest and largest size.
            arrived: arrival time in seconds since the arbiter's start.
            gpu_type: the only GPU type on which it runs.
            kind: its kind; jobs of a kind share a menu.
            received: GPU-seconds received, by GPU type or on the first type only.
            state: state of the job.
            **columns: further columns of ``Jobs``: ``cpus``, ``iterations``, ``seconds_per_iteration``, ...
        """
        app = name.split("/", 1)[0]
        if app not in self._app_rows:
            self.app(app, arrived=arrived)
        least, most = gpus if isinstance(gpus, tuple) else (gpus, gpus)
        self._job_rows[name] = self._jobs.add(
            id=name,
            app=self._app_rows[app],
            job_kind=self._kinds.setdefault(kind or name, len(self._kinds)),
            state=int(state),
            least=least,
            most=most,
            gpu_type=NONE if gpu_type is None else self.cluster.gpu_types.index(gpu_type),
            arrived=arrived,
            **columns,
        )
        by_type = np.zeros(len(self.cluster.gpu_types))
        by_type[: np.size(received)] = received
        self._job_ledger.add(received=by_type)
        return self

    def jobs(self, count: int, *, app: str = "many", gpus: int | tuple[int, int] = 1, **columns: Any) -> Self:
        """Add a number of equal jobs that arrive one second apart."""
        for number in range(count):
            self.job(f"{app}/{number}", gpus=gpus, arrived=float(number), **columns)
        return self

    def holds(
        self,
        name: str,
        *gpus: int,
        ends_at: float = NEVER,
        protected_until: float = -NEVER,
        cpus: float = 0.0,
        memory_gib: float = 0.0,
        ranges: tuple[float, float, float, float] | None = None,
    ) -> Self:
        """Add a lease of GPUs for a job, or for an app that divides its GPUs.

        ``ranges`` are the minimum and maximum CPUs and minimum and maximum GiB of each GPU; None: no range.
        """
        job = self._job_rows.get(name, NONE)
        held = self._holdings.live
        for gpu in gpus:
            held.app[gpu] = self._jobs.live.app[job] if job != NONE else self._app_rows[name]
            held.job[gpu] = job
            held.lease[gpu] = held.epoch[gpu] = self._leases
            held.ends_at[gpu], held.protected_until[gpu] = ends_at, protected_until
            held.cpus[gpu], held.memory_gib[gpu] = cpus, memory_gib
            held.state[gpu] = int(GpuState.HELD)
            if ranges is not None:
                held.least_cpus[gpu], held.most_cpus[gpu] = ranges[:2]
                held.least_memory_gib[gpu], held.most_memory_gib[gpu] = ranges[2:]
        self._leases += 1
        if job != NONE:
            self._jobs.live.state[job] = int(JobState.RUNNING)
        return self

    def down(self, *gpus: int) -> Self:
        """Mark GPUs as down."""
        self._holdings.live.state[list(gpus)] = int(GpuState.DOWN)
        return self

    def measures(
        self,
        job: str,
        gpus: int,
        rate: float,
        *,
        locality: Locality = Locality.ISLAND,
        gpu_type: str | None = None,
        **columns: Any,
    ) -> Self:
        """Add a measured rate of a job, in iterations per second.

        Args:
            job: name of the job.
            gpus: the size.
            rate: iterations per second.
            locality: locality of its GPUs.
            gpu_type: GPU type; None: the first type of the cluster.
            **columns: further columns of ``Measured``: ``batch_size``, ``cpus``, ``memory_gib``; NaN: any, or unknown.
        """
        row = self._job_rows[job]
        kind = self.cluster.gpu_types[0] if gpu_type is None else gpu_type
        point = Measured(job=row, gpus=gpus, gpu_type=kind, locality=locality, rate=rate, **columns)
        self._measured[row] = (*self._measured.get(row, ()), point)
        return self

    def adapts(self, job: str, batch_size: float, *, iterations_done: float, at: float = 0.0) -> Self:
        """Change a job's global batch size; adaptations are added in order of time."""
        row, batch = self._job_rows[job], self._jobs.live.batch_size
        known = self._adaptations.get(row) or Adaptations(first_batch_size=float(batch[row]))
        change = Adaptation(at=Seconds(at), batch_size=batch_size, iterations_done=iterations_done)
        self._adaptations[row] = known.then(change)
        batch[row] = batch_size
        return self

    def announces(self, job: str, *regimes: ComingRegime) -> Self:
        """Set the future regimes of a job, in order."""
        self._coming[self._job_rows[job]] = regimes
        return self

    def remembers(self, plugin: str, stage: Stage, memo: Memo) -> Self:
        """Add a memo for a plugin."""
        self._memos[plugin, stage] = memo
        return self

    def active(self) -> Rows:
        """Return the rows of jobs that are not paused, by arrival."""
        states = self._jobs.live.state[: self._jobs.used]
        rows = np.flatnonzero((states != JobState.EMPTY) & (states != JobState.PAUSED))
        return rows[np.argsort(self._jobs.live.arrived[rows], kind="stable")].astype(np.int32)

    def needs(self, *features: Feature) -> Self:
        """Declare that stages of the profile need these features, so that optional columns are filled."""
        self._needs |= frozenset(features)
        return self

    def snapshot(self, now: float = 0.0, *, causes: frozenset[Cause] = frozenset(), round: int = 1) -> Snapshot:
        """Return the snapshot of the world at ``now``."""
        apps = np.arange(self._apps.used)
        by_arrival = np.argsort(self._apps.live.arrived[: self._apps.used], kind="stable")
        return Snapshot(
            now=Seconds(now),
            round=round,
            version=Version(round),
            causes=causes,
            cluster=self.cluster,
            users=self._users.view,
            apps=self._apps.view,
            jobs=self._jobs.view,
            active=self.active(),
            active_apps=apps[by_arrival].astype(np.int32),
            holdings=self._holdings.view,
            reports=Reported(
                forecasts=self._forecasts,
                measured=self._rates(present=True),
                measured_at_others=self._rates(present=False),
                coming_regimes=dict(self._coming),
            ),
            ledger=Ledger(jobs=self._job_ledger.view, apps=self._app_ledger.view, adaptations=dict(self._adaptations)),
            memos=Memos(self._memos),
            kinds=tuple(self._kinds),
            source=SnapshotSource(seed=self.seed, narrow=narrowed),
            needs=self._needs,
        )

    def _rates(self, *, present: bool) -> dict[int, tuple[Measured, ...]]:
        """Return, by job row, rates at the present batch size, or at other batch sizes."""
        batch = self._jobs.live.batch_size
        rates = {
            row: tuple(seen for seen in all_of_it if seen.holds_at(float(batch[row])) is present)
            for row, all_of_it in self._measured.items()
        }
        return {row: found for row, found in rates.items() if found}

    def offer(self, now: float = 0.0, *, scope: Scope = Scope.FREE, lease: float = NEVER) -> Offer:
        """Return the offer at ``now``: free GPUs and ended leases; with ``ALL``, every GPU that is not protected."""
        held = self._holdings.live
        up = held.state[: self.cluster.gpus] != GpuState.DOWN
        open_to_all = held.ends_at[: self.cluster.gpus] <= now
        if scope is Scope.ALL:
            open_to_all = held.protected_until[: self.cluster.gpus] <= now
        free = (held.app[: self.cluster.gpus] == NONE) | open_to_all
        gpus = np.flatnonzero(up & free).astype(np.int64)
        kept = np.flatnonzero(up & ~free)
        candidates = np.setdiff1d(self.active(), held.job[kept], assume_unique=False)
        order = self.active()
        return Offer(
            id=OfferId(1),
            scope=scope,
            made_at=Seconds(now),
            gpus=gpus,
            candidates=order[np.isin(order, candidates)],
            free_gpus=int(gpus.size),
            lease=Seconds(lease),
            capacity=np.bincount(self.cluster.gpu_type[up], minlength=len(self.cluster.gpu_types)).astype(np.int64),
            contention=self._app_ledger.live.contention.copy(),
            named=np.unique(self.cluster.machine[kept]).astype(np.int64),
        )
