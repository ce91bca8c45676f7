"""The short ways of a step come to what the plain ones beside them come to, in whole runs of random jobs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from simulator_lab import runs

import eunomia.answers
import eunomia.arbiter
import eunomia.fold
import eunomia.invariants
import eunomia.plan
import eunomia.pools
from eunomia import Claims, Cluster, Placement, Profile, Unit
from eunomia.columns import Table, drop_row, take_row
from eunomia.decisions import TransitionKind
from eunomia.errors import EunomiaError
from eunomia.folding import Folded, Folding
from eunomia.invariants import check_allocation, check_placement
from eunomia.menus import Menus, curve_points
from eunomia.pools import holders, owners
from eunomia.saving import load_state, save_state
from eunomia.standing import Standing
from eunomia.units import NONE, Seconds
from eunomia.workload import Jobs, JobState
from eunomia_plugins.placement.on_free import place_on_free
from eunomia_plugins.placement.packing import packed
from eunomia_plugins.placement.planning import place
from eunomia_testbed.simulator import Engine, SimulationOptions
from eunomia_testbed.simulator.gavel_rules import gavel_rules, under_rules
from eunomia_testbed.simulator.options import Costs
from eunomia_testbed.workload import Workload

NO_ROWS = np.empty(0, np.int32)
RUNS = [
    ("fifo", "6x4 V100", 300.0, Costs()),  # hardly anybody waits
    ("fifo", "3x2 V100, 2x4 P100", 60.0, Costs(release=3.0)),
    ("srtf", "3x4 V100", 60.0, Costs()),
    ("las", "3x4 V100", 60.0, Costs(start=2.0, checkpoint=1.0)),
]


def drawn(gap_seconds: float) -> Workload:
    luck = np.random.default_rng(7)
    arrivals = np.cumsum(luck.exponential(gap_seconds, 120)).round(1)
    rows = zip(arrivals, luck.choice([1, 1, 2, 4], 120), luck.uniform(5.0, 900.0, 120).round(1), strict=True)
    return runs([(float(at), int(gpus), float(seconds)) for at, gpus, seconds in rows])


def simulated(policy: str, cluster: str, gap: float, costs: Costs) -> None:
    options = SimulationOptions(costs=costs)
    Engine(drawn(gap), Cluster.parse(cluster), Profile.load(policy), options).run()


def plain(item: Any) -> Any:
    """Equal for equal values; arrays have no ``==``."""
    if isinstance(item, np.ndarray):
        return item.dtype.str, item.tolist()
    if dataclasses.is_dataclass(item):
        return {field.name: plain(getattr(item, field.name)) for field in dataclasses.fields(item)}
    return [plain(one) for one in item] if isinstance(item, list | tuple) else item


@pytest.mark.parametrize(("policy", "cluster", "gap", "costs"), RUNS)
def test_starts_on_free_gpus_are_planned_as_any_plan(
    policy: str, cluster: str, gap: float, costs: Costs, monkeypatch: pytest.MonkeyPatch
) -> None:
    short: Callable[..., Any] = eunomia.plan._starts
    taken = []

    def both(*given: Any) -> Any:
        made = short(*given)
        if made is not None:
            assert plain(made) == plain(eunomia.plan._Planner(*given).run())
            taken.append(len(made.transitions))
        return made

    monkeypatch.setattr(eunomia.arbiter, "lone_grant", lambda *_: NONE)
    monkeypatch.setattr(eunomia.plan, "_starts", both)
    simulated(policy, cluster, gap, costs)
    assert sum(taken) > 30


TURNS = [("max_min_fairness", "12x1 V100"), ("min_total_duration", "2x4 V100, 3x2 P100"), ("las", "3x4 V100")]


def in_turns(policy: str, cluster: str) -> None:
    """A run in rounds, in which jobs give way to others again and again."""
    workload, site = drawn(60.0), Cluster.parse(cluster)
    Engine(
        workload, site, under_rules(Profile.load(policy)), SimulationOptions(rules=gavel_rules(workload, site))
    ).run()


@pytest.mark.parametrize(("policy", "cluster"), TURNS)
def test_jobs_that_change_places_are_planned_as_any_plan(
    policy: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short: Callable[..., Any] = eunomia.plan._exchanges
    taken = list[TransitionKind]()

    def both(*given: Any) -> Any:
        made = short(*given)
        if made is not None:
            assert plain(made) == plain(eunomia.plan._Planner(*given).run())
            taken.extend(order.kind for order in made.transitions)
        return made

    monkeypatch.setattr(eunomia.plan, "_exchanges", both)
    in_turns(policy, cluster)
    assert taken.count(TransitionKind.SUSPEND) > 10
    assert taken.count(TransitionKind.START) > 10


@pytest.mark.parametrize(("policy", "cluster"), TURNS)
def test_who_stays_leaves_or_starts_is_placed_as_by_the_rule_on_columns(
    policy: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def both(snapshot: Any, offer: Any, allocation: Any) -> Any:
        made = place_on_free(snapshot, offer, allocation)
        if made is not None:
            site, none = (
                snapshot.cluster,
                Menus(curve=np.empty(0, np.int32), points=curve_points(NO_ROWS, np.empty(0, np.int64))),
            )
            other = place(snapshot, none, offer, allocation, lambda pool, ask: packed(site, pool, ask), pins=True)
            assert places(made) == places(other)
            assert plain(made.verdicts) == plain(other.verdicts)
            taken.append(len(places(made)))
        return made

    monkeypatch.setattr("eunomia_plugins.placement.packed.place_on_free", both)
    in_turns(policy, cluster)
    assert sum(taken) > 100


@pytest.mark.parametrize(("policy", "cluster"), TURNS[:2])
def test_what_jobs_may_use_is_what_nobody_else_owns(policy: str, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short: Callable[..., Any] = eunomia.pools._usable_by_jobs
    seen = []

    def both(snapshot: Any, gpus: Any, rows: Any) -> Any:
        for some in (rows, rows[::2]):
            mine = holders(snapshot, Claims(unit=Unit.JOB, rows=some), gpus) >= 0
            owned = owners(snapshot, gpus, Unit.APP) != NONE
            assert short(snapshot, gpus, some).tolist() == gpus[~owned | mine].tolist()
            seen.append(bool(owned.any() and (owned & ~mine).any()))
        return short(snapshot, gpus, rows)

    monkeypatch.setattr(eunomia.pools, "_usable_by_jobs", both)
    in_turns(policy, cluster)
    assert sum(seen) > 10


def places(placement: Placement) -> dict[int, list[int]]:
    return {claim: placement.of(index).tolist() for index, claim in enumerate(placement.claim.tolist())}


@pytest.mark.parametrize(("policy", "cluster", "gap", "costs"), RUNS[2:])
def test_what_is_on_offer_is_found_without_looking_at_all_of_it(
    policy: str, cluster: str, gap: float, costs: Costs, monkeypatch: pytest.MonkeyPatch
) -> None:
    some, all_on = eunomia.answers.anything, eunomia.invariants._on_offer
    taken = []

    def anything(state: Any, offer: Any) -> bool:
        found = some(state, offer)
        assert found == (offer.gpus.size > 0)
        taken.append(found)
        return found

    def on_offer(state: Any, offer: Any, gpus: Any, numbers: Any) -> bool:
        for asked in (gpus, np.arange(state.cluster.gpus)):
            assert all_on(state, offer, asked, asked.tolist()) == np.isin(asked, offer.gpus).all()
        return all_on(state, offer, gpus, numbers)

    monkeypatch.setattr(eunomia.answers, "anything", anything)
    monkeypatch.setattr(eunomia.invariants, "_on_offer", on_offer)
    simulated(policy, cluster, gap, costs)
    assert taken


@pytest.mark.parametrize(("policy", "cluster", "gap", "costs"), RUNS)
def test_nobody_is_told_anything_where_all_who_are_new_start(
    policy: str, cluster: str, gap: float, costs: Costs, monkeypatch: pytest.MonkeyPatch
) -> None:
    short: Callable[..., bool] = eunomia.answers._all_start
    taken = []

    def both(state: Any, offer: Any, answers: Any, plan: Any) -> bool:
        all_start = short(state, offer, answers, plan)
        if all_start:
            kept = state.standing.standard
            assert eunomia.answers._few_verdicts(state, offer, answers, plan) == ()
            assert eunomia.answers._all_verdicts(state, offer, answers, plan, opened=False, fault=None) == ()
            assert state.standing.standard == kept
            taken.append(True)
        return all_start

    monkeypatch.setattr(eunomia.answers, "_all_start", both)
    simulated(policy, cluster, gap, costs)
    assert len(taken) > 10


@pytest.mark.parametrize(("policy", "cluster", "gap", "costs"), RUNS)
def test_what_starts_one_job_alone_is_checked_and_planned_as_any_plan(
    policy: str, cluster: str, gap: float, costs: Costs, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted, started = eunomia.arbiter.lone_grant, eunomia.arbiter.lone_start
    menus_of: list[Menus] = []
    taken = []

    def checked(state: Any, menus: Menus, allocation: Any) -> int:
        row = granted(state, menus, allocation)
        if row != NONE:
            assert allocation.claims.rows.tolist() == [row]
            offer = eunomia.arbiter.make_offer(state, eunomia.arbiter.Scope.FREE, Seconds(1.0))
            check_allocation(state, menus, offer, allocation)
            menus_of[:] = [menus]
        return row

    def both(state: Any, row: int, offer: Any, allocation: Any, placement: Any, rounds: Any) -> Any:
        made = started(state, row, offer, allocation, placement, rounds)
        if made is not None:
            check_placement(state, menus_of[0], offer, allocation, placement)
            assert plain(made) == plain(eunomia.plan._Planner(state, offer, allocation, placement, rounds).run())
            taken.append(len(made.transitions))
        return made

    monkeypatch.setattr(eunomia.arbiter, "lone_grant", checked)
    monkeypatch.setattr(eunomia.arbiter, "lone_start", both)
    simulated(policy, cluster, gap, costs)
    assert sum(taken) > 10


def broken(placement: Any) -> list[Any]:
    """What is wrong with a placement of one claim, each in its way."""
    gpus, change = placement.gpus, dataclasses.replace
    part = [change(placement, gpus=gpus[:-1], start=np.array([0, gpus.size - 1]))] if gpus.size > 1 else []
    return [
        *part,
        change(placement, claim=np.array([1], np.int32)),
        change(placement, start=np.array([0, gpus.size + 1])),
        change(placement, gpus=gpus[:-1]),
        change(placement, gpus=np.append(gpus[:-1], -1)),
        change(placement, gpus=np.append(gpus[:-1], 999)),
        change(placement, gpus=np.repeat(gpus[:1], gpus.size + 1), start=np.array([0, gpus.size + 1])),
    ]


def test_a_broken_placement_of_one_job_is_left_to_the_checks_that_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started, refused = eunomia.arbiter.lone_start, []

    def tried(state: Any, row: int, offer: Any, allocation: Any, placement: Any, rounds: Any) -> Any:
        taken = next((gpu for gpu, holder in enumerate(state.holdings.live.lease) if holder != NONE), None)
        worse = broken(placement)
        if taken is not None:
            worse.append(dataclasses.replace(placement, gpus=np.append(placement.gpus[:-1], taken)))
        for wrong in worse:
            assert started(state, row, offer, allocation, wrong, rounds) is None
            with pytest.raises(EunomiaError):
                check_placement(state, menus_of(allocation), offer, allocation, wrong)
            refused.append(wrong)
        return started(state, row, offer, allocation, placement, rounds)

    def menus_of(allocation: Any) -> Menus:
        most = np.arange(1 + int(allocation.claims.rows.max()), dtype=np.int32)
        sizes = np.full(most.size, int(allocation.amount.gpus[0]))
        return Menus(curve=most, points=curve_points(most, sizes))

    monkeypatch.setattr(eunomia.arbiter, "lone_start", tried)
    simulated("fifo", "6x4 V100", 300.0, Costs())
    assert len(refused) > 200


def told_in_full(state: Any) -> tuple[Any, ...]:
    """Everything that a state holds; saving writes the ledger, which is no part of what was decided."""
    saved = save_state(state)
    assert state.standing.same(Standing.of(state))
    return saved, [free for table in ("apps", "jobs") for free in state.table(table)._free]


@pytest.mark.parametrize(("policy", "cluster", "gap", "costs"), RUNS)
def test_an_app_that_ends_with_its_only_job_is_folded_as_its_events_one_by_one(
    policy: str, cluster: str, gap: float, costs: Costs, monkeypatch: pytest.MonkeyPatch
) -> None:
    short: Callable[..., bool] = eunomia.fold.ends_whole
    taken = []

    def both(state: Any, *events: Any) -> bool:
        other = load_state(save_state(state), state.cluster, {})
        whole = short(state, *events)
        if whole:
            folding = Folding(other, Folded([], []), Seconds(0.0), events)
            assert other.standing is not None
            for event in events:
                eunomia.fold.FOLDS[type(event)](folding, event)
            assert told_in_full(state) == told_in_full(other)
            assert folding.folded == Folded([], [])
            taken.append(whole)
        return whole

    monkeypatch.setattr(eunomia.fold, "ends_whole", both)
    simulated(policy, cluster, gap, costs)
    at_once = costs.release == costs.checkpoint == 0.0  # else GPUs come back after their job has ended
    assert len(taken) > 30 if at_once else not taken


def test_cells_are_the_memory_of_the_columns_whatever_grows() -> None:
    table: Table[Jobs] = Table(Jobs, capacity=2)
    rows = [table.add(id=f"a/{number}", most=number, arrived=0.5 * number) for number in range(5)]
    table.cells.done[rows[3]] += 2.5
    table.cells.state[rows[3]] = JobState.RUNNING
    assert (table.live.done[3], table.view.state[3], table.cells.id[4]) == (2.5, JobState.RUNNING, "a/4")
    assert type(table.cells.most[rows[3]]) is int
    table.live.most[rows[2]] = 9
    assert table.cells.most[rows[2]] == 9


def test_a_row_given_back_holds_what_an_empty_one_holds_in_every_table() -> None:
    tables = (Table(Jobs, capacity=4), Table(Jobs, capacity=4))
    for table in tables:
        table.add(id="a/1", most=8, cpus=2.0)
    drop_row(tables, 0)
    for table in tables:
        assert (table.live.id[0], table.live.most[0], table.add(id="b/1")) == (None, 1, 0)
        assert np.isnan(table.live.cpus[0])


def test_tables_that_go_together_give_and_take_the_same_rows_as_each_alone() -> None:
    luck = np.random.default_rng(5)
    tables, alone = (Table(Jobs, capacity=2), Table(Jobs, capacity=2)), Table(Jobs, capacity=2)
    taken: list[int] = []
    for _ in range(60):
        if taken and luck.random() < 0.4:
            row = taken.pop(int(luck.integers(len(taken))))
            drop_row(tables, row)
            alone.drop(row)
        else:
            row = take_row(tables)
            assert row == alone.add()
            taken.append(row)
            for table in (*tables, alone):
                table.cells.most[row], table.cells.id[row], table.cells.done[row] = row, f"a/{row}", 0.5
    for table in tables:
        assert repr(table.state()) == repr(alone.state())


def test_many_jobs_have_their_sizes_as_each_has_its_own() -> None:
    luck = np.random.default_rng(3)
    most = luck.integers(1, 5, 40)
    menus = Menus(curve=np.arange(-1, 39, dtype=np.int32), points=curve_points(np.arange(40, dtype=np.int32), most))
    jobs = list(range(1, 40))
    right = [int(most[job - 1]) for job in jobs]
    for asked in (right, [*right[:-1], 7], [0] * 39):
        for few in (3, 39):
            assert menus.have(jobs[:few], asked[:few]) == all(map(menus.has, jobs[:few], asked[:few]))
    assert not menus.have([0] * 9, right[:9])
