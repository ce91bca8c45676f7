"""The agent: values an offer on the app's side, with the same elasticity and valuation as the arbiter (Themis §4.2.2).

The agent knows only its own app: it builds the same snapshot as ``snapshot.only(app)`` from the offer, and calls the
hooks of both stages. A valuation that declares ``SEPARABLE`` returns the same rows here as in the arbiter.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from eunomia.contract.bundles import ByBundle
from eunomia.contract.events import JobAdded
from eunomia.contract.memos import Memos
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Measured, Reported, Snapshot, SnapshotSource
from eunomia.contract.stages import ElasticityStage, ValuationStage
from eunomia.model.cluster import Cluster
from eunomia.model.columns import Table
from eunomia.model.forecasts import Forecast
from eunomia.model.leases import Holdings
from eunomia.model.ledger import AppLedger, JobLedger, Ledger
from eunomia.model.shapes import builds
from eunomia.model.workload import Apps, Jobs, JobState, Users
from eunomia.platform.checking import bind
from eunomia.platform.registry import Registry
from eunomia.units import NONE, AppId, Cause, JobId, Locality, OfferId, Scope, Seconds, Stage, UserId, Version
from eunomia_appmaster.master.bidding import AgentError, bid_of
from eunomia_appmaster.master.outbox import RateReport
from eunomia_appmaster.protocol import arbiter_pb2 as pb


@builds
class Standing:
    """Facts about the agent's app that offers do not contain: its user, weights, arrival time and kind of tuner."""

    app: AppId
    user: UserId
    weight: float
    user_weight: float
    arrived_at: float
    tuner_kind: str


@builds
class Known:
    """The reports of the app so far."""

    jobs: Mapping[str, JobAdded]
    forecast: Forecast | None
    rates: Sequence[RateReport]


class Agent:
    """Bids for one app.

    Args:
        cluster: the cluster's machines and slots.
        standing: facts about the app.
        elasticity: the hook of the profile's elasticity plugin.
        valuation: the hook of the profile's valuation plugin.
    """

    def __init__(
        self, cluster: Cluster, standing: Standing, elasticity: ElasticityStage, valuation: ValuationStage
    ) -> None:
        self._cluster = cluster
        self._standing = standing
        self._elasticity = elasticity
        self._valuation = valuation

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        standing: Standing,
        registry: Registry,
        elasticity: pb.StagePlugin,
        valuation: pb.StagePlugin,
    ) -> Self:
        """Create the plugins that the profile names, with its options.

        Raises:
            AgentError: a plugin is not installed, or has another version.
            EunomiaError: a plugin cannot be created.
        """
        values = _plugin(registry, valuation, Stage.VALUATION)
        sizes = values if elasticity.name == valuation.name else _plugin(registry, elasticity, Stage.ELASTICITY)
        size, worth = bind(sizes, "eunomia_elasticity"), bind(values, "eunomia_valuation")
        if size is None or worth is None:
            raise AgentError("an agent must have both stages", value=f"{elasticity.name} and {valuation.name}")
        return cls(cluster, standing, size, worth)

    def bid(self, made: pb.Offer, known: Known) -> ByBundle:
        """Compute the app's bid for an offer.

        Returns:
            A table of one claim: the value of the app's GPUs under unexpired leases, alone and with each bundle.

        Raises:
            EunomiaError: the valuation cannot value bundles, or does not value the app.
        """
        snapshot = lay_out(self._cluster, self._standing, made, known)
        return bid_of(snapshot, _offer(made, snapshot), self._elasticity, self._valuation)


def plugins_here(registry: Registry) -> list[tuple[str, str]]:
    """Return the name and version of each installed plugin that an agent can run: of elasticity or valuation."""
    return [
        (item.found.name, item.found.version)
        for item in registry.all()
        if item.plugin is not None and {Stage.ELASTICITY, Stage.VALUATION}.intersection(item.stages)
    ]


def _plugin(registry: Registry, wanted: pb.StagePlugin, stage: Stage) -> Any:
    if wanted.name not in registry or stage not in registry.stages(wanted.name):
        raise AgentError(f"an agent must have the plugin that answers {stage.value}", value=f'no "{wanted.name}"')
    here = registry.listed(wanted.name).found.version
    if wanted.version and here != wanted.version:
        raise AgentError(f'an agent must have "{wanted.name}" in version {wanted.version}', value=here or "none")
    options = json.loads(wanted.options_json or "{}")
    return registry.make(wanted.name, options, alias=wanted.name, place=lambda path: ".".join((wanted.name, *path)))


class _OwnApp:
    """The tables of a snapshot of one app: one user, the app as row 0, its jobs, and its slots."""

    def __init__(self, cluster: Cluster) -> None:
        widths = {"gpu_types": len(cluster.gpu_types)}
        self.cluster = cluster
        self.users: Table[Users] = Table(Users)
        self.apps: Table[Apps] = Table(Apps)
        self.jobs: Table[Jobs] = Table(Jobs)
        self.app_ledger: Table[AppLedger] = Table(AppLedger)
        self.job_ledger: Table[JobLedger] = Table(JobLedger, widths=widths)
        self.holdings: Table[Holdings] = Table(Holdings, capacity=max(1, cluster.gpus))
        for _ in range(cluster.gpus):
            self.holdings.add()
        self.kinds: dict[str, int] = {}
        self.rows: dict[str, int] = {}
        self.measured: dict[int, tuple[Measured, ...]] = {}
        self.measured_at_others: dict[int, tuple[Measured, ...]] = {}

    def add_job(self, view: pb.JobView, added: JobAdded | None) -> None:
        """Add a job, in order of arrival. ``added``: the job's declaration; None: this app master does not know it."""
        types, kinds = self.cluster.gpu_types, self.kinds
        gpu_type, kind = (None, None) if added is None else (added.gpu_type, added.kind)
        self.rows[view.job] = row = self.jobs.add(
            id=JobId(view.job),
            app=0,
            job_kind=kinds.setdefault(kind or view.job.rpartition("/")[0], len(kinds)),
            state=view.state,
            least=view.least,
            most=view.most,
            gpu_type=types.index(gpu_type) if gpu_type in types else (NONE if gpu_type is None else -2),
            arrived=view.arrived_at,
            iterations=view.iterations if view.HasField("iterations") else math.nan,
            done=view.done,
            since=view.since if view.HasField("since") else math.nan,
            rate=view.rate,
            starts=view.starts,
            **({} if added is None else _declared(added)),
        )
        self.job_ledger.add(
            attained=view.attained_seconds,
            waited=view.waited_seconds,
            last_ran=view.last_ran_at if view.HasField("last_ran_at") else math.nan,
            starts=view.starts,
        )
        received = self.job_ledger.live.received[row]
        received[: len(view.received_gpu_seconds)] = view.received_gpu_seconds

    def hold(self, slots: Iterable[pb.HeldSlot]) -> None:
        """Set the slots that the app holds."""
        held = self.holdings.live
        for slot in slots:
            held.app[slot.gpu] = 0
            held.job[slot.gpu] = self.rows.get(slot.job, NONE)
            held.lease[slot.gpu] = slot.lease
            held.ends_at[slot.gpu] = slot.ends_at if slot.HasField("ends_at") else math.inf
            held.protected_until[slot.gpu] = slot.protected_until
            held.state[slot.gpu] = slot.state

    def measure(self, seen: RateReport) -> None:
        """Add a measured rate, unless its job has ended."""
        row = self.rows.get(seen.job, NONE)
        if row == NONE:
            return
        measured = Measured(
            job=row,
            gpus=seen.gpus,
            gpu_type=seen.gpu_type,
            locality=Locality(seen.locality),
            rate=seen.rate,
            batch_size=math.nan if seen.batch_size is None else seen.batch_size,
            cpus=math.nan if seen.cpus is None else seen.cpus,
            memory_gib=math.nan if seen.memory_gib is None else seen.memory_gib,
        )
        present = measured.holds_at(float(self.jobs.live.batch_size[row]))
        kept = self.measured if present else self.measured_at_others
        kept[row] = (*kept.get(row, ()), measured)


def lay_out(cluster: Cluster, standing: Standing, made: pb.Offer, known: Known) -> Snapshot:
    """Build the snapshot of a single app: one user, the app as row 0, its jobs, and its slots."""
    own = _OwnApp(cluster)
    own.users.add(id=standing.user, weight=standing.user_weight)
    own.apps.add(
        id=standing.app,
        user=0,
        weight=standing.weight,
        arrived=standing.arrived_at,
        tuner_kind=int(standing.tuner_kind != "none"),
        divides=1,
    )
    # N_avg, the mean contention, is a value of the whole cluster, so the offer carries it.
    own.app_ledger.add(gpu_seconds=made.app_gpu_seconds, contention=made.contention)
    for view in made.jobs:
        own.add_job(view, known.jobs.get(view.job))
    own.hold(made.held)
    for seen in known.rates:
        own.measure(seen)
    states = own.jobs.live.state[: own.jobs.used]
    return Snapshot(
        now=Seconds(made.now),
        round=made.round,
        version=Version(0),
        causes=frozenset(Cause(cause) for cause in made.causes),
        cluster=cluster,
        users=own.users.view,
        apps=own.apps.view,
        jobs=own.jobs.view,
        active=np.flatnonzero((states != JobState.EMPTY) & (states != JobState.PAUSED)).astype(np.int32),
        active_apps=np.zeros(1, dtype=np.int32),
        holdings=own.holdings.view,
        reports=Reported(
            forecasts={} if known.forecast is None else {0: known.forecast},
            measured=own.measured,
            measured_at_others=own.measured_at_others,
        ),
        ledger=Ledger(jobs=own.job_ledger.view, apps=own.app_ledger.view, adaptations={}),
        memos=Memos({}),
        kinds=tuple(own.kinds),
        source=SnapshotSource(seed=made.seed),
    )


def _declared(added: JobAdded) -> dict[str, float]:
    return {
        "cpus": added.cpus_per_gpu,
        "memory_gib": added.memory_gib_per_gpu,
        "seconds_per_iteration": added.seconds_per_iteration,
        "batch_size": added.batch_size,
        "epochs": added.epochs,
        "samples_per_epoch": added.samples_per_epoch,
        "adapts": int(added.adapts),
    }


def _offer(made: pb.Offer, snapshot: Snapshot) -> Offer:
    rows = {str(name): row for row, name in enumerate(snapshot.jobs.id) if name is not None}
    candidates = [rows[name] for name in made.candidates if name in rows]
    return Offer(
        id=OfferId(made.id),
        scope=Scope.FREE if made.scope == pb.FREE else Scope.ALL,
        made_at=Seconds(made.made_at),
        gpus=np.array(made.gpus, dtype=np.int64),
        apps=np.zeros(1, dtype=np.int32),
        candidates=np.array(candidates, dtype=np.int32),
        free_gpus=made.free_gpus,
        contended=made.contended,
        retune=made.retune,
        closes_at=Seconds(made.closes_at),
        lease=Seconds(made.lease_seconds),
        capacity=np.array(made.capacity, dtype=np.int64),
        contention=np.array([made.contention]),
        named=np.array(made.named_machines, dtype=np.int64),
    )
