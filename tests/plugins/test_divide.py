import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Allocation, Claims, Grants, Pins, PluginError, Reason, Seconds, TimeShares, Unit
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.refine.divide import Divide, DivideOptions, quotas


def grants(rows: list[int], gpus: list[int], unit: Unit, **fields: object) -> Allocation:
    return Allocation(
        claims=Claims(unit=unit, rows=np.array(rows, np.int32)),
        amount=Grants(gpus=np.array(gpus, np.int64), pins=fields.get("pins")),  # type: ignore[arg-type]
        order=np.arange(len(rows), dtype=np.int32),
        lease=fields.get("lease"),  # type: ignore[arg-type]
    )


def divided(world: World, allocation: Allocation, *, by: str = "longest_waiting") -> tuple[dict[str, int], Allocation]:
    snapshot = world.snapshot(now=100.0)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    plugin = Divide(DivideOptions.model_validate({"by": by}))
    answer = plugin.eunomia_refine(snapshot, menus, world.offer(100.0), allocation)
    assert isinstance(answer.amount, Grants)
    assert answer.claims.unit is Unit.JOB
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    return {names[claim]: int(answer.amount.gpus[claim]) for claim in answer.order.tolist()}, answer


def test_the_job_that_has_not_run_for_longest_comes_first() -> None:
    world = World("2x4 V100").job("a/1", gpus=(1, 3)).job("a/2", gpus=2).job("a/3", gpus=2).job("b/1")
    world._job_ledger.live.last_ran[world.row("a/1")] = 50.0
    got, answer = divided(world, grants([world.row("a")], [4], Unit.APP))
    assert got == {"a/2": 2, "a/3": 2}
    assert answer.verdicts.rows.tolist() == [world.row("a/1")]
    assert answer.verdicts.reasons.tolist() == [Reason.OUTRANKED]


def test_gpus_that_no_job_of_a_claim_can_use_stay_free() -> None:
    world = World("2x4 V100").job("a/1", gpus=3).job("b/1")
    assert divided(world, grants([world.row("a"), world.row("b")], [2, 2], Unit.APP))[0] == {"b/1": 1}


def test_users_divide_among_apps_by_weight_or_by_arrival() -> None:
    world = World("2x4 V100").app("a", weight=3.0).app("b")
    world.job("a/1", gpus=(1, 8)).job("b/1", gpus=(1, 8), arrived=1.0)
    whole = grants([0], [8], Unit.USER)
    assert divided(world, whole, by="weight")[0] == {"a/1": 6, "b/1": 2}
    assert divided(world, whole)[0] == {"a/1": 8}
    world = World("2x4 V100").app("a", weight=3.0).app("b").job("a/1", gpus=2).job("b/1", gpus=4, arrived=1.0)
    assert divided(world, whole, by="weight")[0] == {"a/1": 2, "b/1": 4}


def test_the_gpus_of_a_group_go_to_jobs_of_its_user_and_kind() -> None:
    world = World("2x4 V100").job("a/1", kind="vgg").job("a/2", kind="lstm").job("a/3", kind="vgg")
    allocation = Allocation(
        claims=Claims(unit=Unit.GROUP, rows=np.zeros(2, np.int32), job_kind=np.array([0, 1], np.int32)),
        amount=Grants(gpus=np.array([1, 1])),
        order=np.arange(2, dtype=np.int32),
    )
    assert divided(world, allocation)[0] == {"a/1": 1, "a/2": 1}


def test_pins_are_divided_with_the_gpus() -> None:
    world = World("2x4 V100").job("a/1", gpus=3).job("a/2", gpus=2)
    pins = Pins(claim=np.zeros(2, np.int32), machine=np.array([0, 1], np.int32), gpus=np.array([4, 1]))
    got, answer = divided(world, grants([world.row("a")], [5], Unit.APP, pins=pins))
    assert got == {"a/1": 3, "a/2": 2}
    assert isinstance(answer.amount, Grants)
    assert answer.amount.pins is not None
    columns = (answer.amount.pins.claim, answer.amount.pins.machine, answer.amount.pins.gpus)
    assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == [(0, 0, 3), (1, 0, 1), (1, 1, 1)]


def test_leases_by_claim_become_leases_by_job() -> None:
    world = World("2x4 V100").job("a/1").job("b/1").job("a/2")
    allocation = grants([world.row("b"), world.row("a")], [1, 2], Unit.APP, lease=np.array([7.0, 9.0]))
    _, answer = divided(world, allocation)
    assert isinstance(answer.lease, np.ndarray)
    jobs = [world.row(name) for name in ("a/1", "b/1", "a/2")]
    lease = dict(zip(answer.claims.rows.tolist(), answer.lease.tolist(), strict=True))
    assert [lease[job] for job in jobs] == [9.0, 7.0, 9.0]


def test_grants_of_jobs_are_passed_through_and_shares_are_refused() -> None:
    world = World().job("a/1")
    assert divided(world, grants([world.row("a/1")], [1], Unit.JOB))[0] == {"a/1": 1}
    shares = Allocation(
        claims=Claims(unit=Unit.APP, rows=np.zeros(1, np.int32)),
        amount=TimeShares(share=np.ones((1, 1)), since=Seconds(0.0)),
        order=np.zeros(1, np.int32),
    )
    with pytest.raises(PluginError, match="divide must get whole GPUs"):
        divided(world, shares)


@given(st.integers(0, 50), st.lists(st.floats(0.1, 9.0), min_size=1, max_size=8))
def test_quotas_are_whole_add_up_and_deviate_by_less_than_one(gpus: int, weights: list[float]) -> None:
    column = np.array(weights)
    parts = quotas(gpus, column)
    assert parts.sum() == gpus
    assert np.all(np.abs(parts - gpus * column / column.sum()) < 1.0)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=8), st.integers(0, 8), st.booleans()
)
def test_a_claim_divides_at_most_its_gpus_at_sizes_on_menus(
    jobs: list[tuple[int, int]], gpus: int, weighted: bool
) -> None:
    world = World("2x4 V100")
    for number, (least, more) in enumerate(jobs):
        world.job(f"a/{number}", gpus=(least, least + more))
    got, _ = divided(world, grants([world.row("a")], [gpus], Unit.APP), by="weight" if weighted else "longest_waiting")
    assert sum(got.values()) <= gpus
    for number, (least, more) in enumerate(jobs):
        assert got.get(f"a/{number}", least) in range(least, least + more + 1)
    left = gpus - sum(got.values())
    assert all(least > left for number, (least, _) in enumerate(jobs) if f"a/{number}" not in got)
