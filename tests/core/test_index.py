"""The index of a snapshot: what the arbiter keeps equals what is made anew from the tables and from the columns."""

import math
from typing import Any

import numpy as np
import pytest

from eunomia import Cluster, Facts, Linear, Profile, Snapshot, Unit
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.contract.index import QUEUES_KEPT, Index, Queue, index_of
from eunomia.contract.keys import LinearKeyError, line_of
from eunomia.contract.menus import Menus
from eunomia.platform.registry import default_registry
from eunomia.round.answers import StageFaultError
from eunomia.round.show import _StateIndex
from eunomia.testing.builders import World
from eunomia.testing.drive import Delays, Drive
from eunomia.units import AppId, JobId, Seconds, UserId


def script(cluster: str, count: int = 60) -> tuple[list[tuple[float, Event]], dict[JobId, float]]:
    luck, events, work = np.random.default_rng(2), list[tuple[float, Event]](), {}
    for number in range(count):
        app, job = AppId(f"a{number}"), JobId(f"a{number}/0")
        gpus, seconds = int(luck.choice([1, 2, 4])), float(luck.integers(100, 1200))
        kind = luck.choice([None, None, *Cluster.parse(cluster).gpu_types])
        events.append((20.0 * number, AppArrived(app=app, user=UserId("ana"), divides=False)))
        facts: dict[str, Any] = {"iterations": seconds, "seconds_per_iteration": float(gpus)}
        events.append((20.0 * number, JobAdded(job=job, app=app, least=gpus, most=gpus, gpu_type=kind, **facts)))
        work[job] = seconds
    return events, work


@pytest.mark.parametrize("cluster", ["2x4 V100", "2x4 V100, 2x2 P100"])
@pytest.mark.parametrize(("policy", "delays"), [("srtf", Delays()), ("las", Delays(start=1.5, release=2.0))])
def test_a_queue_updated_incrementally_equals_one_built_from_scratch(
    policy: str, delays: Delays, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, kept = list[int](), Index.queue

    def both(self: Any, key: Any, menus: Menus, **how: Any) -> Queue:
        queue = kept(self, key, menus, **how)
        if self.kept:
            state = self._state
            rebuilt = _StateIndex(state, state.free_of(), state.waiting_jobs.rebuild().rows, kept=False)
            assert queue.same(kept(rebuilt, key, menus, **how))
            asked.append(len(queue.buckets))
        return queue

    monkeypatch.setattr(Index, "queue", both)
    site = Cluster.parse(cluster)
    stages = Profile.load(policy).stages(site)
    events, work = script(cluster)
    Drive(Arbiter(site, stages, stages), work=work, delays=delays).run(events, until=80_000.0)
    assert len(asked) > 60
    assert max(asked) > 1


@pytest.mark.parametrize("forgets", [False, True])
def test_strict_plugins_compare_a_queue_with_one_rebuilt_from_all_rows(
    forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EUNOMIA_STRICT_PLUGINS", "1")
    site = Cluster.parse("2x4 V100")
    stages = Profile.load("srtf").stages(site)
    events, work = script("2x4 V100")
    drive, update = Drive(Arbiter(site, stages, stages), work=work), Queue.update
    assert drive.arbiter.strict

    def forgetful(queue: Queue, facts: Facts, rows: list[int]) -> None:
        is_new = "facts" not in vars(queue)
        update(queue, facts, rows if is_new else [])

    if not forgets:
        drive.run(events, until=80_000.0)
        return
    monkeypatch.setattr(Queue, "update", forgetful)
    with pytest.raises(StageFaultError, match="a queue must equal one that is made from all rows"):
        drive.run(events, until=80_000.0)


@pytest.mark.parametrize("plain", [False, True])
def test_the_index_that_the_arbiter_updates_equals_one_built_from_the_columns(plain: bool) -> None:
    site = Cluster.parse("2x4 V100, 2x2 P100")
    stages, seen = Profile.load("srtf").stages(site), list[bool]()
    arbiter = Arbiter(site, stages, stages, plain=plain)

    def compare(snapshot: Snapshot) -> None:
        own, made = snapshot.index, index_of(snapshot)
        assert own.kept is not plain
        assert own.free.same(made.free)
        assert set(own.waiting) == set(made.waiting)
        assert (own.settled, own.none_overdue, own.overdue) == (made.settled, made.none_overdue, made.overdue)
        for row in snapshot.active.tolist():
            assert own.gpus_of(row) == own.gpus_of(np.int32(row)) == made.gpus_of(row) == made.gpus_of(np.int64(row))
            for one, other in zip(own._attained, made._attained, strict=True):
                assert one(row) == pytest.approx(other(row))
            if own.settled:
                assert own.protected_until(row) == made.protected_until(row)
                assert own.protected_until(np.int32(row)) == made.protected_until(np.int64(row))
        seen.append(own.settled)

    step = arbiter.step

    def watched(now: Seconds, given: Any = ()) -> Any:
        decision = step(now, given)
        compare(arbiter.snapshot())
        return decision

    arbiter.step = watched  # type: ignore[method-assign]
    events, work = script("2x4 V100, 2x2 P100")
    Drive(arbiter, work=work, delays=Delays(start=1.5, release=2.0)).run(events, until=80_000.0)
    assert {True, False} == set(seen)


def town() -> tuple[World, Menus]:
    made = World("1x4 V100, 1x2 P100").job("a/0", gpus=1).job("b/0", gpus=3, arrived=1.0).job("c/0", gpus=2)
    made = made.holds("c/0", 0, 1, protected_until=9.0)
    menus: Menus = default_registry().load("fixed")().eunomia_elasticity(made.snapshot())
    return made, menus


def arrival(facts: Facts, job: int) -> Linear:
    return Linear(facts.jobs.arrived[job])


def test_a_snapshot_made_by_hand_has_an_index_too() -> None:
    made, menus = town()
    snapshot = made.snapshot(5.0)
    a, b, c = (made.row(f"{name}/0") for name in "abc")
    index = snapshot.index
    assert index is snapshot.index
    assert (index.free.free, index.waiting, index.gpus_of(c)) == ([2, 2], {a, b}, [0, 1])
    assert (index.protected_until(c), index.protected_until(a)) == (9.0, -math.inf)
    assert list(index.queue(arrival, menus, running=True).in_order()) == [a, b]
    assert list(index.queue(arrival, menus, running=True, protected=True).in_order()) == [a, c, b]
    assert list(index.queue(arrival, menus, running=True, protected=True).in_order(waiting=False)) == [c]
    assert list(index.queue(arrival, menus, running=False).in_order()) == [a, b]


def test_a_queue_of_apps_is_ordered_by_its_own_key() -> None:
    made, menus = town()

    def by_name(facts: Facts, app: int) -> Linear:
        return Linear(-float(ord(facts.apps.id[app])))

    apps = made.snapshot().index.queue(by_name, menus, running=False, of=Unit.APP)
    assert [made.snapshot().apps.id[app] for app in apps.in_order()] == ["c", "b", "a"]


def test_the_number_of_cached_queues_is_limited_and_an_owner_has_one() -> None:
    site = Cluster.parse("1x4 V100")
    stages = Profile.load("srtf").stages(site)
    index, (_, menus) = Arbiter(site, stages, stages).snapshot().index, town()
    first = index.queue(arrival, menus, running=False)
    assert index.queue(arrival, menus, running=False) is first
    assert index.queue(arrival, menus, running=True) is not first
    owned = [index.queue(lambda facts, job: Linear(1.0), menus, running=False, owner="me") for _ in range(2)]
    assert owned[0] is owned[1]
    for _ in range(QUEUES_KEPT):
        index.queue(lambda facts, job: Linear(1.0), menus, running=False)
    assert len(index._queues) == QUEUES_KEPT
    assert index.queue(arrival, menus, running=False) is not first


def test_an_index_built_for_one_snapshot_reads_all_rows_each_time() -> None:
    made, menus = town()
    index = made.snapshot().index
    first = index.queue(arrival, menus, running=True)
    assert (again := index.queue(arrival, menus, running=True)) is not first
    assert again.same(first)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: 1.0, "Linear expected, float returned"),
        (lambda: [1.0, 0.0, 2.0], "Linear expected, list returned"),
        (lambda: (1.0, 0.0), "not enough values to unpack"),
        (lambda: Linear("first"), "TypeError"),  # type: ignore[arg-type]
        (lambda: Linear(None), "TypeError"),  # type: ignore[arg-type]
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: Linear(np.zeros(3)), "(Value|Type)Error"),  # type: ignore[arg-type]
    ],
)
def test_a_key_that_is_not_a_linear_function_is_refused(answer: Any, message: str) -> None:
    made, menus = town()
    with pytest.raises(LinearKeyError, match=message):
        line_of(lambda facts, job: answer(), made.snapshot(1.0).index.facts(menus), 0)


def test_a_job_whose_key_is_nan_is_served_last() -> None:
    made, menus = town()
    facts = made.snapshot(1.0).index.facts(menus)
    assert line_of(lambda facts, job: Linear(math.nan, 2.0), facts, 0) == Linear(math.inf)
    assert line_of(lambda facts, job: Linear(2.0, math.nan), facts, 0) == Linear(math.inf)


def test_the_facts_of_a_job_equal_its_menu_and_its_columns() -> None:
    made = World("1x4 V100").job("a/0", gpus=(1, 2), iterations=60, seconds_per_iteration=2.0).job("b/0")
    menus = default_registry().make("range", {}, alias="range", place=".".join).eunomia_elasticity(made.snapshot())
    facts, row = made.snapshot().index.facts(menus), made.row("a/0")
    assert (facts.largest(row), facts.smallest(row)) == ((2, 1.0), (1, 0.5))
    assert (type(facts.jobs.iterations[row]), facts.jobs.iterations[row]) == (float, 60.0)
    with pytest.raises(TypeError, match="read-only"):
        facts.jobs.iterations[row] = 1.0
    none = Menus(curve=np.full(menus.curve.size, -1, np.int32), points=menus.points)
    nothing = made.snapshot().index.facts(none)
    for size, rate in (nothing.largest(row), nothing.smallest(row)):
        assert (size, math.isnan(rate)) == (0, True)
