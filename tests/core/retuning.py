"""Random histories with retunes: an allocation with random sizes, and a placement with random CPUs and memory."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from assembling import assemble
from eunomia import Allocation, Contract, Feature, Menus, Offer, Placement, Snapshot, Stage, Triggers, hookimpl
from eunomia.arbiter import Arbiter
from eunomia.contract.allocations import Grants
from eunomia.contract.claims import Claims
from eunomia.contract.decisions import Decision
from eunomia.contract.events import Event
from eunomia.contract.menus import Probes
from eunomia.contract.placements import Retunes
from eunomia.contract.stages import Rounds, Stages
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.workload import JobState
from eunomia.platform.registry import default_registry
from eunomia.round.invariants import check_state
from eunomia.testing.drive import Drive
from eunomia.testing.strategies import Scenario
from eunomia.units import NONE, Cause, Ints, Reals, Rest, Seconds, Unit

History = list[tuple[float, tuple[Event, ...], Decision]]


class RandomSizes:
    """Gives random jobs random sizes of their menus, whatever they hold."""

    name = "random_sizes"
    api = 1
    contracts: ClassVar[dict[Stage, Contract]] = {}

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        return Triggers(on=frozenset(Cause), all_on=frozenset({Cause.ARRIVED, Cause.LEASE_ENDED, Cause.BOUNDARY}))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        luck = snapshot.rng(self.name)
        rows = luck.permutation(offer.candidates)[: int(luck.integers(0, offer.candidates.size + 1))]
        free, gpus = offer.free_gpus, []
        for row in rows.tolist():
            gpus.append(menus.largest_at_most(row, int(luck.integers(0, free + 1))))
            free -= gpus[-1]
        amount = Grants(gpus=np.array(gpus, dtype=np.int64))
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=rows.astype(np.int32)),
            amount=amount,
            order=np.flatnonzero(amount.gpus > 0).astype(np.int32),
            rest=Rest.KEEP if luck.random() < 0.8 else Rest.RELEASE,
        )


class RandomProbes:
    """Sizes from least to most, and random settings to be measured."""

    name = "random_probes"
    api = 1
    contracts: ClassVar[dict[Stage, Contract]] = {
        Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES, Feature.MANY_SIZES, Feature.PROBES}))
    }

    def __init__(self) -> None:
        self._range = made("range")

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        luck, jobs, cluster = snapshot.rng(self.name), snapshot.jobs, snapshot.cluster
        menus: Menus = self._range.eunomia_elasticity(snapshot)
        rows = [row for row in snapshot.active.tolist() if luck.random() < 0.5]
        counts = dict(enumerate(cluster.capacity.tolist()))
        rows = [row for row in rows if jobs.least[row] <= min(counts.values())]
        gpus = [int(luck.integers(jobs.least[row], jobs.most[row] + 1)) for row in rows]
        return dataclasses.replace(
            menus,
            probe=Probes(
                jobs=np.array(rows, np.int32),
                gpus=np.minimum(np.array(gpus, np.int64), min(counts.values())),
                cpus=np.where(luck.random(len(rows)) < 0.5, np.nan, luck.uniform(0.5, 12.0, len(rows))),
                memory_gib=np.where(luck.random(len(rows)) < 0.5, np.nan, luck.uniform(0.5, 30.0, len(rows))),
                iterations=5,
                limit=Seconds(8.0),
                again=Seconds(4.0),
            ),
        )


class RandomAmounts:
    """Places claims on their own GPUs first, then on free ones, and divides CPUs and memory of machines at random."""

    name = "random_amounts"
    api = 1
    contracts: ClassVar[dict[Stage, Contract]] = {Stage.PLACEMENT: Contract(gives=frozenset({Feature.RETUNES}))}

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        luck, held = snapshot.rng(self.name), snapshot.holdings
        placed = _placed(snapshot, offer, allocation, luck)
        gpus = np.array([gpu for _, mine in placed for gpu in mine], np.int64)
        named = set(allocation.claims.rows.tolist())
        jobs = [
            job
            for job in np.flatnonzero(snapshot.jobs.state == JobState.RUNNING).tolist()
            if job not in named
            and not _measures(snapshot, job)
            and luck.random() < 0.6
            and _is_left_alone(snapshot, offer, allocation, gpus, job)
        ]
        theirs = {job: _gpus_of(snapshot, job) for job in jobs}
        changing = np.concatenate([gpus, *theirs.values()]).astype(np.int64)
        cluster = snapshot.cluster
        cpus = _divided(snapshot, held.cpus, cluster.machine_cpus, changing, luck)
        memory_gib = _divided(snapshot, held.memory_gib, cluster.machine_memory_gib, changing, luck)
        return Placement(
            claim=np.array([claim for claim, _ in placed], np.int32),
            gpus=gpus,
            start=np.cumsum([0, *(len(mine) for _, mine in placed)]),
            cpus=cpus[gpus],
            memory_gib=memory_gib[gpus],
            retunes=None
            if not jobs
            else Retunes(
                jobs=np.array(jobs, np.int32),
                cpus=np.array([cpus[mine].min() * mine.size for mine in theirs.values()]),
                memory_gib=np.array([memory_gib[mine].min() * mine.size for mine in theirs.values()]),
            ),
        )


def _measures(snapshot: Snapshot, job: int) -> bool:
    """Whether the job's GPUs are protected, as they are while its rate is measured."""
    return bool((snapshot.holdings.protected_until[_gpus_of(snapshot, job)] > snapshot.now).any())


def _gpus_of(snapshot: Snapshot, job: int) -> Ints:
    """GPUs that a job's lease holds or is promised."""
    held = snapshot.holdings
    return np.flatnonzero((held.job == job) | ((held.successor != NONE) & (held.next_job == job)))


def _is_left_alone(snapshot: Snapshot, offer: Offer, allocation: Allocation, placed: Ints, job: int) -> bool:
    mine = _gpus_of(snapshot, job)
    released = offer.gpus if allocation.rest.name == "RELEASE" else placed[:0]
    # A GPU that the job gives back is not its lease's any more.
    leaving = (snapshot.holdings.job[mine] == job) & (snapshot.holdings.state[mine] == 3)
    return not leaving.any() and not np.isin(mine, placed).any() and not np.isin(mine, released).any()


def _placed(
    snapshot: Snapshot, offer: Offer, allocation: Allocation, luck: np.random.Generator
) -> list[tuple[int, list[int]]]:
    held, left = snapshot.holdings, offer.gpus.tolist()
    luck.shuffle(left)
    placed = []
    for claim in allocation.order.tolist():
        job, count = allocation.claims.rows.item(claim), int(allocation.amount.gpus[claim])  # type: ignore[union-attr]
        kind = snapshot.jobs.gpu_type[job]
        left.sort(key=lambda gpu: (held.job[gpu] != job, held.lease[gpu] != NONE))
        fits = [gpu for gpu in left if kind in (NONE, snapshot.cluster.gpu_type[gpu])][:count]
        if len(fits) == count:
            left = [gpu for gpu in left if gpu not in fits]
            placed.append((claim, fits))
    return placed


def _divided(snapshot: Snapshot, now: Reals, limits: Reals, changing: Ints, luck: np.random.Generator) -> Reals:
    """By GPU: what it gets of what its machine has left; the GPUs of all others keep what they have."""
    cluster, held = snapshot.cluster, snapshot.holdings
    others = held.lease != NONE
    others[changing] = False
    made = np.zeros(cluster.gpus)
    for machine in set(cluster.machine[changing].tolist()):
        kept = now[: cluster.gpus][others[: cluster.gpus] & (cluster.machine == machine)].sum()
        mine = changing[cluster.machine[changing] == machine]
        parts = luck.dirichlet(np.ones(mine.size)) * luck.uniform(0.3, 1.0)
        made[mine] = parts * max(0.0, limits[machine] - kept)
    return made


def made(name: str, **options: object) -> Any:
    return default_registry().make(name, options, alias=name, place=str)


def stages(placement: Any = None, *, probes: bool = False) -> Stages:
    return assemble(
        elasticity=RandomProbes() if probes else made("range"),
        valuation=made("fifo"),
        allocation=RandomSizes(),
        placement=placement or RandomAmounts(),
        rounds=Rounds(lease=Seconds(15.0), every=Seconds(11.0), on=frozenset(Cause), suspend_grace=Seconds(2.0)),
    )


def cluster_of(scenario: Scenario) -> Cluster:
    return Cluster.build(
        [
            Machine(name=f"n{i}", gpu_type="V100", gpus=gpus, rack=f"r{i % 2}", cpus=6.0 * gpus, memory_gib=16.0 * gpus)
            for i, gpus in enumerate(scenario.machines)
        ]
    )


def played(scenario: Scenario, *, probes: bool = False) -> tuple[Arbiter, History, Cluster]:
    cluster = cluster_of(scenario)
    arbiter = Arbiter(cluster, stages(probes=probes), stages(made("packed")), seed=scenario.seed)
    arbiter.strict = True
    history: History = []
    step = arbiter.step

    def recorded(now: Seconds, events: Any = ()) -> Decision:
        decision = step(now, events)
        history.append((now, tuple(events), decision))
        return decision

    arbiter.step = recorded  # type: ignore[method-assign]

    def watch(drive: Drive, decision: Decision) -> None:
        check_state(arbiter.state)
        drive.check_machines()
        in_use = arbiter.state.holdings.live.cpus_in_use
        assert all(cpus <= in_use[gpu] + 1e-9 for gpu, (cpus, _) in drive.in_use.items())

    drive = Drive(
        arbiter, work=dict(scenario.work), delays=scenario.delays, seed=scenario.seed, watch=watch, keep=False
    )
    drive.run(scenario.script, until=150.0)
    return arbiter, history, cluster
