import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Allocation, Claims, Grants, Misfit, Pins, Placement, Pool, Reason, Rest, Scope, Unit
from eunomia.contract.allocations import AmountRange, TimeShares
from eunomia.errors import PluginError
from eunomia.model.leases import GpuState
from eunomia.testing.builders import World
from eunomia.units import Seconds
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.placement.packed import Packed
from eunomia_plugins.placement.planning import prefer
from eunomia_plugins.placement.spread import Spread

BOTH = pytest.mark.parametrize("plugin", [Packed(), Spread()], ids=["packed", "spread"])


def grant(world: World, sizes: dict[str, int], *, unit: Unit = Unit.JOB, **fields: object) -> Allocation:
    rows = np.array([world.row(name) for name in sizes], np.int32)
    gpus = np.array(list(sizes.values()), np.int64)
    amount = Grants(gpus=gpus, **{key: fields.pop(key) for key in list(fields) if key in _OF_GRANTS})  # type: ignore[arg-type]
    order = np.flatnonzero(gpus > 0).astype(np.int32)
    return Allocation(claims=Claims(unit=unit, rows=rows), amount=amount, **{"order": order, **fields})  # type: ignore[arg-type]


_OF_GRANTS = ("gpu_type", "cpus", "memory_gib", "pins")


def placed(
    world: World, plugin: Packed | Spread, allocation: Allocation, *, now: float = 100.0, scope: Scope = Scope.FREE
) -> tuple[dict[str, list[int]], dict[str, Reason], Placement]:
    snapshot = world.snapshot(now=now)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    placement = plugin.eunomia_placement(snapshot, menus, world.offer(now, scope=scope), allocation)
    ids = snapshot.jobs.id if allocation.claims.unit is Unit.JOB else snapshot.apps.id
    names = [str(ids[row]) for row in allocation.claims.rows]
    gpus = {names[claim]: placement.of(index).tolist() for index, claim in enumerate(placement.claim.tolist())}
    rows, reasons = placement.verdicts.rows.tolist(), placement.verdicts.reasons.tolist()
    return gpus, {str(ids[row]): Reason(code) for row, code in zip(rows, reasons, strict=True)}, placement


def machines(world: World, gpus: list[int]) -> list[int]:
    return np.unique(world.cluster.machine[gpus]).tolist()


def test_packed_takes_the_machine_that_fits_best() -> None:
    world = World("3x4 V100").jobs(1, app="x", gpus=1).job("a/1", gpus=2).job("b/1", gpus=4)
    world.holds("x/0", 0)
    gpus, _, _ = placed(world, Packed(), grant(world, {"a/1": 2, "b/1": 4}))
    assert machines(world, gpus["a/1"]) == [0]
    assert gpus["b/1"] == [4, 5, 6, 7]


def test_packed_stays_in_a_rack_and_uses_few_machines() -> None:
    from eunomia import Cluster, Machine

    sizes = {"r1": (2, 2, 2), "r2": (4, 3)}
    rows = [
        Machine(name=f"{rack}-{number}", gpu_type="V100", gpus=size, rack=rack)
        for rack, counts in sizes.items()
        for number, size in enumerate(counts)
    ]
    world = World(Cluster.build(rows)).job("a/1", gpus=6).job("b/1", gpus=5)
    gpus, _, _ = placed(world, Packed(), grant(world, {"a/1": 6, "b/1": 5}))
    assert machines(world, gpus["a/1"]) == [3, 4]  # two machines of r2, not three of r1
    assert machines(world, gpus["b/1"]) == [0, 1, 2]  # five of the six GPUs of r1: one rack, though r2 has one left


def test_spread_uses_many_machines() -> None:
    world = World("3x4 V100").job("a/1", gpus=3).job("b/1", gpus=5)
    gpus, _, _ = placed(world, Spread(), grant(world, {"a/1": 3, "b/1": 5}))
    assert machines(world, gpus["a/1"]) == [0, 1, 2]
    assert sorted(np.bincount(world.cluster.machine[gpus["b/1"]]).tolist()) == [1, 2, 2]


@BOTH
def test_a_claim_that_keeps_its_grant_stays_whatever_the_order(plugin: Packed | Spread) -> None:
    world = World("2x2 V100").job("a/1", gpus=2).job("b/1", gpus=2).holds("b/1", 0, 3, ends_at=50.0)
    gpus, _, _ = placed(world, plugin, grant(world, {"a/1": 2, "b/1": 2}))
    assert gpus == {"a/1": [1, 2], "b/1": [0, 3]}


@BOTH
def test_a_claim_that_loses_all_its_gpus_is_listed_without_gpus(plugin: Packed | Spread) -> None:
    world = World("1x2 V100").job("a/1", gpus=2).job("b/1", gpus=2).holds("b/1", 0, 1, ends_at=50.0)
    gpus, said, _ = placed(world, plugin, grant(world, {"a/1": 2, "b/1": 0}))
    assert gpus == {"a/1": [0, 1], "b/1": []}
    assert said == {}


@BOTH
def test_an_unlisted_claim_keeps_its_gpus_unless_the_rest_is_released(plugin: Packed | Spread) -> None:
    world = World("1x2 V100").job("a/1", gpus=2).job("b/1").holds("b/1", 0, ends_at=50.0)
    gpus, said, _ = placed(world, plugin, grant(world, {"a/1": 2}))
    assert gpus == {}
    assert said == {"a/1": Reason.OUTRANKED}
    gpus, said, _ = placed(world, plugin, grant(world, {"a/1": 2}, rest=Rest.RELEASE))
    assert gpus == {"a/1": [0, 1]}


@BOTH
def test_a_job_that_cannot_grow_keeps_its_gpus(plugin: Packed | Spread) -> None:
    world = World("1x4 V100").job("a/1", gpus=(1, 4)).job("b/1").holds("a/1", 0, 1, ends_at=50.0).holds("b/1", 2)
    gpus, said, _ = placed(world, plugin, grant(world, {"a/1": 4}))
    assert gpus == {"a/1": [0, 1]}
    assert said == {}


@BOTH
def test_a_job_that_cannot_grow_stays_only_at_a_size_on_its_menu(plugin: Packed | Spread) -> None:
    world = World("1x4 V100").job("a/1", gpus=(3, 4)).job("b/1").holds("a/1", 0, 1, ends_at=50.0).holds("b/1", 2)
    gpus, said, _ = placed(world, plugin, grant(world, {"a/1": 4}))
    assert gpus == {"a/1": []}
    assert said == {"a/1": Reason.OUTRANKED}


@BOTH
def test_a_job_that_shrinks_or_grows_keeps_as_many_of_its_gpus_as_possible(plugin: Packed | Spread) -> None:
    world = World("1x8 V100").job("a/1", gpus=(1, 8)).holds("a/1", 2, 3, 5, ends_at=50.0)
    smaller, _, _ = placed(world, plugin, grant(world, {"a/1": 2}))
    larger, _, _ = placed(world, plugin, grant(world, {"a/1": 5}))
    assert set(smaller["a/1"]) < {2, 3, 5} < set(larger["a/1"])


def test_packed_places_the_grant_of_an_app_where_the_app_runs() -> None:
    world = World("3x4 V100").app("a").holds("a", 5, 6).jobs(1, app="x").holds("x/0", 8, 9)
    gpus, _, _ = placed(world, Packed(), grant(world, {"a": 2}, unit=Unit.APP))
    assert machines(world, gpus["a"]) == [1]


def test_packed_honours_pins_and_spread_does_not_promise_to() -> None:
    from eunomia import Promise, Stage

    world = World("3x4 V100").app("a").app("b")
    pins = Pins(
        claim=np.array([0, 0, 1], np.int32), machine=np.array([0, 2, 2], np.int32), gpus=np.array([1, 2, 2], np.int64)
    )
    gpus, said, _ = placed(world, Packed(), grant(world, {"a": 3, "b": 2}, unit=Unit.APP, pins=pins))
    assert np.bincount(world.cluster.machine[gpus["a"]], minlength=3).tolist() == [1, 0, 2]
    assert machines(world, gpus["b"]) == [2]
    assert said == {}
    assert Promise.HONOURS_PINS in Packed.contracts[Stage.PLACEMENT].promises
    assert Promise.HONOURS_PINS not in Spread.contracts[Stage.PLACEMENT].promises


def test_a_pin_that_does_not_fit_is_rejected_and_not_moved() -> None:
    world = World("2x2 V100").app("a").jobs(1, app="x").holds("x/0", 0)
    pins = Pins(claim=np.zeros(1, np.int32), machine=np.zeros(1, np.int32), gpus=np.array([2]))
    gpus, said, _ = placed(world, Packed(), grant(world, {"a": 2}, unit=Unit.APP, pins=pins))
    assert gpus == {}
    assert said == {"a": Reason.FRAGMENTED}


@BOTH
def test_a_gang_is_never_of_two_types(plugin: Packed | Spread) -> None:
    world = World("1x2 V100, 1x3 P100").job("a/1", gpus=4).job("b/1", gpus=3).job("c/1", gpus=2, gpu_type="V100")
    gpus, said, _ = placed(world, plugin, grant(world, {"a/1": 4, "b/1": 3, "c/1": 2}))
    kinds = {name: set(world.cluster.gpu_type[held].tolist()) for name, held in gpus.items()}
    assert kinds == {"b/1": {0}, "c/1": {1}}
    assert said == {"a/1": Reason.FRAGMENTED}


@BOTH
def test_jobs_are_placed_where_the_cpus_and_memory_that_they_need_are_free(plugin: Packed | Spread) -> None:
    world = World("2x4 V100 16cpu 64GiB").job("a/1", gpus=2, cpus=8.0).job("b/1", gpus=2, memory_gib=40.0)
    world.job("c/1", gpus=6, cpus=1.0).job("d/1", gpus=3, cpus=6.0)
    gpus, said, placement = placed(world, plugin, grant(world, {"b/1": 2, "a/1": 2, "d/1": 3, "c/1": 6}))
    assert len(machines(world, gpus["b/1"])) == 2  # two GPUs of 40 GiB each do not fit one machine of 64 GiB
    assert said == {"d/1": Reason.CPUS_SHORT, "c/1": Reason.OUTRANKED}
    assert placement.cpus is not None
    assert placement.memory_gib is not None
    for column, most in ((placement.cpus, 16.0), (placement.memory_gib, 64.0)):
        assert (np.bincount(world.cluster.machine[placement.gpus], weights=column) <= most + 1e-9).all()
    world.job("e/1", gpus=1, memory_gib=65.0)
    assert placed(world, plugin, grant(world, {"e/1": 1}))[1] == {"e/1": Reason.MEMORY_SHORT}


def test_cpus_that_other_jobs_hold_are_not_granted() -> None:
    world = World("1x4 V100 16cpu").job("a/1", cpus=12.0).job("b/1", cpus=8.0).holds("a/1", 0, cpus=12.0)
    assert placed(world, Packed(), grant(world, {"b/1": 1}))[1] == {"b/1": Reason.CPUS_SHORT}


def test_the_minimum_cpus_of_a_grant_are_summed_over_its_gpus() -> None:
    world = World("2x4 V100 8cpu").job("a/1", gpus=2)
    cpus = AmountRange(least=np.array([12.0]), most=np.array([16.0]))
    gpus, _, placement = placed(world, Packed(), grant(world, {"a/1": 2}, cpus=cpus))
    assert machines(world, gpus["a/1"]) == [0, 1]
    assert placement.cpus is not None
    assert placement.cpus.tolist() == [6.0, 6.0]


def test_gpus_of_a_job_are_taken_from_one_island_if_possible() -> None:
    from eunomia import Cluster, Machine

    world = World(Cluster.build([Machine(name="m", gpu_type="V100", gpus=8, island=4)])).job("x/1").holds("x/1", 0)
    world.job("a/1", gpus=4).job("b/1", gpus=3)
    assert placed(world, Packed(), grant(world, {"a/1": 4}))[0]["a/1"] == [4, 5, 6, 7]
    assert placed(world, Packed(), grant(world, {"b/1": 3}))[0]["b/1"] == [1, 2, 3]


@given(st.integers(0, 255), st.sets(st.integers(0, 15)), st.integers(1, 8))
def test_among_free_gpus_of_a_machine_those_of_the_claim_are_preferred(free: int, near: set[int], count: int) -> None:
    here = {gpu for gpu in range(8) if free >> gpu & 1}
    pool = Pool(World("2x8 V100").snapshot(), np.array(sorted(here), np.int64))
    own = sorted(near & here)[:count]
    others = sorted(here - near)[: count - len(own)]
    assert prefer(pool, np.array(sorted(near), np.int64), 0, count).tolist() == sorted(own + others)


def test_service_can_stop_at_a_misfit_and_standby_jobs_use_the_rest() -> None:
    world = World("1x4 V100").job("a/1", gpus=3).job("b/1", gpus=2).job("c/1").job("d/1")
    sizes = {"a/1": 3, "b/1": 2, "c/1": 1, "d/1": 1}
    gpus, said, _ = placed(world, Packed(), grant(world, sizes, on_misfit=Misfit.STOP))
    assert list(gpus) == ["a/1"]
    assert said == {"b/1": Reason.OUTRANKED, "c/1": Reason.OUTRANKED, "d/1": Reason.OUTRANKED}
    order, standby = np.array([0, 1], np.int32), np.array([3, 2], np.int32)
    gpus, _, _ = placed(world, Packed(), grant(world, sizes, order=order, standby=standby))
    assert list(gpus) == ["a/1", "d/1"]


def test_a_placement_refuses_shares() -> None:
    world = World().job("a/1")
    claims = Claims(unit=Unit.JOB, rows=np.zeros(1, np.int32))
    shares = TimeShares(share=np.ones((1, 1)), since=Seconds(0.0))
    allocation = Allocation(claims=claims, amount=shares, order=np.zeros(1, np.int32))
    with pytest.raises(PluginError, match="a placement must get whole GPUs, but got TimeShares"):
        menus = Range(RangeOptions()).eunomia_elasticity(world.snapshot())
        Packed().eunomia_placement(world.snapshot(), menus, world.offer(), allocation)


def test_a_gpu_reserved_for_a_successor_is_not_given_to_another_job() -> None:
    world = World("1x2 V100").job("old/1").holds("old/1", 0).job("new/1").job("other/1")
    held = world._holdings.live
    for column, item in (("state", GpuState.LEAVING), ("successor", 7), ("next_app", 1), ("next_job", 1)):
        getattr(held, column)[0] = item
    allowed = grant(world, {"other/1": 1, "new/1": 1})
    gpus, _, _ = placed(world, Packed(), allowed, scope=Scope.ALL)
    assert gpus == {"new/1": [0], "other/1": [1]}
    gpus, _, _ = placed(world, Packed(), grant(world, {"other/1": 2}), scope=Scope.ALL)
    assert gpus == {}


_SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=12)


@BOTH
@given(sizes=_SIZES, busy=st.sets(st.integers(0, 15)), asks=st.lists(st.sampled_from([np.nan, 1.0, 3.0]), min_size=12))
def test_gangs_run_whole_on_gpus_of_the_offer_and_nothing_is_overcommitted(
    plugin: Packed | Spread, sizes: list[int], busy: set[int], asks: list[float]
) -> None:
    world = World("4x4 V100 8cpu").jobs(1, app="busy").holds("busy/0", *sorted(busy))
    for number, size in enumerate(sizes):
        world.job(f"a/{number}", gpus=size, cpus=asks[number])
    granted = {f"a/{number}": size for number, size in enumerate(sizes)}
    gpus, said, placement = placed(world, plugin, grant(world, granted))
    taken = np.concatenate([np.array(held, np.int64) for held in gpus.values()]) if gpus else np.empty(0, np.int64)
    assert np.unique(taken).size == taken.size
    assert not busy & set(taken.tolist())
    assert all(len(held) == granted[name] for name, held in gpus.items())
    assert set(gpus) | set(said) == set(granted)
    if placement.cpus is not None:
        assert (np.bincount(world.cluster.machine[placement.gpus], weights=placement.cpus) <= 8.0 + 1e-9).all()
    # What is left over would take none of those turned down for lack of GPUs.
    left = 16 - len(busy) - taken.size
    assert all(granted[name] > left for name, reason in said.items() if reason is Reason.OUTRANKED)


@given(st.lists(st.integers(0, 15), unique=True), st.integers(1, 16))
def test_packed_uses_the_fewest_machines(busy: list[int], size: int) -> None:
    world = World("4x4 V100").job("a/1", gpus=size)
    if busy:
        world.jobs(1, app="busy").holds("busy/0", *busy)
    gpus, _, _ = placed(world, Packed(), grant(world, {"a/1": size}))
    free = sorted(np.bincount(world.cluster.machine[np.setdiff1d(np.arange(16), busy)], minlength=4), reverse=True)
    if sum(free) < size:
        assert gpus == {}
    else:
        fewest = next(count for count in range(1, 5) if sum(free[:count]) >= size)
        assert len(machines(world, gpus["a/1"])) == fewest


def test_a_pool_counts_gpus_that_were_taken_as_used() -> None:
    world = World("2x4 V100 8cpu")
    pool = Pool(world.snapshot(), np.arange(6))
    pool.take(np.array([0, 1]))
    pool.spend(np.array([0, 1]), np.array([2.0, 2.0]), np.zeros(2))
    assert (pool.gpus, pool.free.tolist(), pool.cpus.tolist()) == (4, [2, 2], [4.0, 8.0])
    assert pool.room(cpus=3.0).tolist() == [1, 2]
    assert pool.choose(1, 1).tolist() == [4]
