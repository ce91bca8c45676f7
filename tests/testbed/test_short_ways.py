"""The short ways of a step come to what the plain ones beside them come to, in whole runs of random jobs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from simulator_lab import runs

import eunomia.contract.pools
import eunomia.fold.fold
import eunomia.round.arbiter
import eunomia.round.plan
import eunomia.round.verdict_changes
from eunomia import Claims, Cluster, Placement, Profile, Unit
from eunomia.contract.menus import Menus, curve_points
from eunomia.contract.pools import holders, owners
from eunomia.model.columns import Table
from eunomia.model.workload import Jobs, JobState
from eunomia.store.tables import JobRows
from eunomia.units import NONE
from eunomia_plugins.placement.packed import place_on_free
from eunomia_plugins.placement.packing import packed
from eunomia_plugins.placement.planning import place
from eunomia_testbed.simulator import SimulationOptions, assemble
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
    assemble(drawn(gap), Cluster.parse(cluster), Profile.load(policy), options).run()


def plain(item: Any) -> Any:
    """Equal for equal values; arrays have no ``==``."""
    if isinstance(item, np.ndarray):
        return item.dtype.str, item.tolist()
    if dataclasses.is_dataclass(item):
        return {field.name: plain(getattr(item, field.name)) for field in dataclasses.fields(item)}
    return [plain(one) for one in item] if isinstance(item, list | tuple) else item


TURNS = [("max_min_fairness", "12x1 V100"), ("min_total_duration", "2x4 V100, 3x2 P100"), ("las", "3x4 V100")]


def in_turns(policy: str, cluster: str) -> None:
    """A run in rounds, in which jobs give way to others again and again."""
    workload, site = drawn(60.0), Cluster.parse(cluster)
    assemble(
        workload, site, under_rules(Profile.load(policy)), SimulationOptions(rules=gavel_rules(workload, site))
    ).run()


@pytest.mark.parametrize(("policy", "cluster"), TURNS)
def test_the_fast_placement_of_jobs_equals_the_placement_by_columns(
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
def test_jobs_may_use_the_gpus_that_no_other_claim_owns(
    policy: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short: Callable[..., Any] = eunomia.contract.pools._usable_by_jobs
    seen = []

    def both(snapshot: Any, gpus: Any, rows: Any) -> Any:
        for some in (rows, rows[::2]):
            mine = holders(snapshot, Claims(unit=Unit.JOB, rows=some), gpus) >= 0
            owned = owners(snapshot, gpus, Unit.APP) != NONE
            assert short(snapshot, gpus, some).tolist() == gpus[~owned | mine].tolist()
            seen.append(bool(owned.any() and (owned & ~mine).any()))
        return short(snapshot, gpus, rows)

    monkeypatch.setattr(eunomia.contract.pools, "_usable_by_jobs", both)
    in_turns(policy, cluster)
    assert sum(seen) > 10


def places(placement: Placement) -> dict[int, list[int]]:
    return {claim: placement.of(index).tolist() for index, claim in enumerate(placement.claim.tolist())}


@pytest.mark.parametrize(("policy", "cluster", "gap", "costs"), RUNS[2:])
def test_the_offered_gpus_are_found_without_scanning_all_of_them(
    policy: str, cluster: str, gap: float, costs: Costs, monkeypatch: pytest.MonkeyPatch
) -> None:
    some, all_on = eunomia.round.verdict_changes.anything, eunomia.round.plan.reached
    taken = []

    def anything(state: Any, offer: Any) -> bool:
        found = some(state, offer)
        assert found == (offer.gpus.size > 0)
        taken.append(found)
        return found

    def reached(state: Any, offer: Any, gpus: list[int]) -> list[int]:
        for asked in (gpus, list(range(state.cluster.gpus))):
            assert all_on(state, offer, asked) == [gpu for gpu in asked if gpu in offer.gpus]
        return all_on(state, offer, gpus)

    monkeypatch.setattr(eunomia.round.verdict_changes, "anything", anything)
    monkeypatch.setattr(eunomia.round.plan, "reached", reached)
    simulated(policy, cluster, gap, costs)
    assert taken


def test_cells_share_the_memory_of_columns_after_the_table_grows() -> None:
    table: Table[Jobs] = Table(Jobs, capacity=2)
    rows = [table.add(id=f"a/{number}", most=number, arrived=0.5 * number) for number in range(5)]
    table.cells.done[rows[3]] += 2.5
    table.cells.state[rows[3]] = JobState.RUNNING
    assert (table.live.done[3], table.view.state[3], table.cells.id[4]) == (2.5, JobState.RUNNING, "a/4")
    assert type(table.cells.most[rows[3]]) is int
    table.live.most[rows[2]] = 9
    assert table.cells.most[rows[2]] == 9


def test_a_dropped_row_is_reset_to_default_values() -> None:
    table: Table[JobRows] = Table(JobRows, capacity=4, widths={"gpu_types": 2}, shown=Jobs)
    table.add(id="a/1", most=8, cpus=2.0, lease=3, received=np.array([1.0, 2.0]))
    table.drop(0)
    assert (table.live.id[0], table.live.most[0], table.live.lease[0], table.add(id="b/1")) == (None, 1, -1, 0)
    assert np.isnan(table.live.cpus[0])
    assert table.live.received[0].tolist() == [0.0, 0.0]


def test_stages_read_the_same_columns_after_the_table_grows() -> None:
    table: Table[JobRows] = Table(JobRows, capacity=2, widths={"gpu_types": 1}, shown=Jobs)
    shown = table.shown
    for number in range(5):
        table.add(id=f"a/{number}", most=number + 1, lease=number)
    assert type(shown) is Jobs
    assert shown is table.shown
    assert shown.most[:5].tolist() == [1, 2, 3, 4, 5]
    assert not hasattr(shown, "lease")
    with pytest.raises(ValueError, match="read-only"):
        shown.most[0] = 3
    table.live.most[0] = 7
    assert shown.most[0] == 7
    assert table.view.lease[:5].tolist() == [0, 1, 2, 3, 4]


def test_sizes_of_many_jobs_equal_those_computed_one_by_one() -> None:
    luck = np.random.default_rng(3)
    most = luck.integers(1, 5, 40)
    menus = Menus(curve=np.arange(-1, 39, dtype=np.int32), points=curve_points(np.arange(40, dtype=np.int32), most))
    jobs = list(range(1, 40))
    right = [int(most[job - 1]) for job in jobs]
    for asked in (right, [*right[:-1], 7], [0] * 39):
        for few in (3, 39):
            assert menus.have(jobs[:few], asked[:few]) == all(map(menus.has, jobs[:few], asked[:few]))
    assert not menus.have([0] * 9, right[:9])
