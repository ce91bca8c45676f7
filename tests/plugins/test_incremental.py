"""A queue that is kept serves as ranking all jobs each round does: decision by decision, in random runs."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assembling import assemble
from eunomia import Allocation, Menus, Offer, Placement, Scores, Snapshot, Valuations, hookimpl
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.contract.stages import Rounds
from eunomia.model.cluster import Cluster
from eunomia.model.space import Space
from eunomia.platform.registry import default_registry
from eunomia.testing.drive import Delays, Drive
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_plugins.allocations import ordered, ranking
from eunomia_plugins.elasticity.fixed import Fixed, menus_of
from eunomia_plugins.placement.packed import Packed
from eunomia_plugins.placement.packing import packed
from eunomia_plugins.placement.planning import place
from strength import examples


class PlainFixed(Fixed):
    """The menus of every row, rebuilt each round."""

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        return dataclasses.replace(menus_of(snapshot), one_size=False)


class PlainPacked(Packed):
    """The packing rule, computed on columns."""

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        cluster = snapshot.cluster
        return place(snapshot, menus, offer, allocation, lambda pool, ask: packed(cluster, pool, ask), pins=True)


class PlainOrder:
    """An order with columns of scores and without keys."""

    api = 1

    def __init__(self, order: Any) -> None:
        self.order, self.name, self.contracts = order, order.name, order.contracts

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        call = self.order.eunomia_valuation
        given = {"snapshot": snapshot, "menus": menus, "offer": offer}
        names = call.__func__.__code__.co_varnames[1 : call.__func__.__code__.co_argcount]
        answer: Valuations = call(**{name: given[name] for name in names})
        return dataclasses.replace(answer, forms=(Scores(score=answer.form(Scores).score),))


def made(name: str, **options: object) -> Any:
    return default_registry().make(name, options, alias=name, place=str)


def arbiter(case: "Case", *, plain: bool) -> Arbiter:
    order = made(case.order, **({"queues": (30.0, 100.0)} if case.order == "las" else {}))
    stages = assemble(
        elasticity=PlainFixed() if plain else Fixed(),
        valuation=PlainOrder(order) if plain else order,
        allocation=made("ordered", preemptive=case.preemptive, on_misfit=case.on_misfit),
        placement=PlainPacked() if plain else Packed(),
        rounds=Rounds(lease=case.lease, protected=case.protected, suspend_grace=Seconds(5.0)),
    )
    arbiter = Arbiter(Cluster.parse(case.cluster), stages, stages)
    arbiter.strict = True
    return arbiter


@dataclasses.dataclass(frozen=True)
class Case:
    """One run."""

    order: str
    preemptive: bool
    on_misfit: str
    lease: Seconds | None
    protected: Seconds | None
    cluster: str
    delays: Delays
    jobs: tuple[tuple[float, int, float, str | None], ...]
    """Arrival, GPUs, seconds of work, GPU type."""


def script(case: Case) -> tuple[list[tuple[float, Event]], dict[JobId, float]]:
    events: list[tuple[float, Event]] = []
    work: dict[JobId, float] = {}
    for number, (time, gpus, seconds, kind) in enumerate(case.jobs):
        app, job = AppId(f"a{number}"), JobId(f"a{number}/0")
        events.append((time, AppArrived(app=app, user=UserId("ana"), divides=False)))
        declared = {"iterations": seconds * gpus, "seconds_per_iteration": 1.0} if number % 5 else {}
        events.append((time, JobAdded(job=job, app=app, least=gpus, most=gpus, gpu_type=kind, **declared)))  # type: ignore[arg-type]
        work[job] = seconds * gpus
    return events, work


def comparable(decision: Decision) -> tuple[object, ...]:
    orders = [
        (order.kind.value, order.job, tuple(order.gpus.tolist()), tuple(order.after.tolist()), order.lease, order.epoch)
        for order in decision.transitions
    ]
    waiting = sorted((one.job, one.reason, one.plugin) for one in decision.waiting)
    renewed = sorted((one.lease, one.ends_at) for one in decision.renewals)
    terms = decision.wake_at, decision.starts_at
    return decision.now, decision.round, orders, waiting, renewed, terms, decision.faults


def run(case: Case, *, plain: bool) -> list[tuple[object, ...]]:
    events, work = script(case)
    drive = Drive(arbiter(case, plain=plain), work=work, delays=case.delays, seed=3)
    return [comparable(decision) for decision in drive.run(events, until=4000.0).decisions]


jobs = st.lists(
    st.tuples(
        st.integers(0, 200).map(lambda quarter: quarter / 4.0),
        st.sampled_from([1, 1, 1, 2, 3, 4, 8, 12, 64]),
        st.integers(1, 60).map(float),
        st.sampled_from([None, None, None, "V100", "P100"]),
    ),
    min_size=1,
    max_size=24,
).map(tuple)
cases = st.builds(
    Case,
    order=st.sampled_from(["fifo", "srtf", "srsf", "las", "edf"]),
    preemptive=st.booleans(),
    on_misfit=st.sampled_from(["skip", "skip", "stop"]),
    lease=st.sampled_from([None, Seconds(15.0)]),
    protected=st.sampled_from([None, Seconds(10.0)]),
    cluster=st.sampled_from(["2x2 V100, 1x8 V100", "5x4 V100", "2x4 V100, 2x4 P100", "3x2 V100, 1x8 P100, 1x4 K80"]),
    delays=st.sampled_from([Delays(), Delays(order=0.5, start=2.0, release=3.0)]),
    jobs=jobs,
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases)
def test_a_queue_serves_the_same_jobs_as_a_ranking_of_all_jobs(case: Case) -> None:
    incremental, ranked = run(case, plain=False), run(case, plain=True)
    for one, other in zip(incremental, ranked, strict=False):
        assert one == other
    assert len(incremental) == len(ranked)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases)
def test_gaps_are_filled_from_queues_as_by_a_ranking_of_all_jobs(case: Case) -> None:
    easy = dataclasses.replace(case, on_misfit="easy", preemptive=False, protected=None)
    assert run(easy, plain=False) == run(easy, plain=True)


def test_most_rounds_of_easy_read_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    from_queue, ranked = [], []
    fill, serve_sizes = ordered.fill_gaps, ordered.serve_sizes
    monkeypatch.setattr(ordered, "fill_gaps", lambda *a: from_queue.append(1) or fill(*a))
    monkeypatch.setattr(ordered, "serve_sizes", lambda *a: ranked.append(1) or serve_sizes(*a))
    random = np.random.default_rng(4)
    many = tuple((float(n), int(random.choice([1, 2, 4])), float(random.integers(5, 60)), None) for n in range(40))
    decisions = run(Case("fifo", False, "easy", None, None, "2x4 V100", Delays(), many), plain=False)
    assert len(from_queue) > 40
    assert len(ranked) < len(from_queue)
    assert any(starts for *_, (_, starts), _ in decisions)


@pytest.mark.parametrize("order", ["fifo", "srtf", "las"])
def test_most_rounds_of_the_random_runs_update_the_queue_incrementally(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs above would prove nothing if all jobs were ranked in each of their rounds."""
    from_queue, ranked = [], []
    preempt, serve_sizes = ordered.preempt, ordered.serve_sizes
    monkeypatch.setattr(ordered, "preempt", lambda *a: from_queue.append(1) or preempt(*a))
    monkeypatch.setattr(ordered, "serve_sizes", lambda *a: ranked.append(1) or serve_sizes(*a))
    random = np.random.default_rng(4)
    many = tuple((float(n), int(random.choice([1, 2, 4])), float(random.integers(5, 60)), None) for n in range(40))
    run(Case(order, True, "skip", None, None, "2x4 V100", Delays(), many), plain=False)
    assert len(from_queue) > 40
    assert len(ranked) < len(from_queue)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.sampled_from([math.nan] * 9 + [2.0])), max_size=6),
    st.booleans(),
)
def test_served_jobs_choose_gpus_in_the_same_order_as_a_ranking_of_columns(
    asks: list[tuple[int, int, float]], stop: bool
) -> None:
    gpus, order, cpus = np.array(asks, dtype=float).reshape(-1, 3).T
    table = SimpleNamespace(cpus=cpus, memory_gib=np.full(len(asks), math.nan), arrived=order)
    world: Any = SimpleNamespace(jobs=table, arrivals=None, index=SimpleNamespace(proportional=np.isnan(cpus).all()))
    grants = [(row, 0, int(gpus[row]), order[row]) for row in range(len(asks))]
    one = ordered._in_turn(world, grants, 0, stop=stop)
    rows = np.arange(len(asks), dtype=np.int32)
    other = ranking.in_turn(world, rows, gpus.astype(np.int64), np.arange(len(asks)), stop=stop)
    assert one == other.tolist()
    assert ordered._in_turn(world, grants, 3, stop=stop) == [3 + at for at in other.tolist()]


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 19), max_size=6)), max_size=30))
def test_bit_sets_of_free_gpus_follow_each_grant_and_release(changes: list[tuple[bool, set[int]]]) -> None:
    cluster = Cluster.parse("2x2 V100, 2x8 V100")
    free = np.ones(cluster.gpus, dtype=bool)
    space = Space(cluster, free)
    for gives, gpus in changes:
        (space.give if gives else space.take)(sorted(gpus))
        free[sorted(gpus)] = gives
        assert space.same(Space(cluster, free))
        assert space.gpus().tolist() == np.flatnonzero(free).tolist()
        room = np.bincount(cluster.machine[free], minlength=4)
        for size in range(1, 9):
            fits = np.flatnonzero(room >= size)
            best = int(fits[np.argmin(room[fits])]) if fits.size else -1
            assert space.best(0, size) == best
            assert space.fit(0, size) == (space.first(best, size) if best >= 0 else [])
    assert space.copy().same(space)
