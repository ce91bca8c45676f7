import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Allocation, Claims, Grants, Placement, Scores, Unit
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.random import Random, RandomOptions


def order(world: World, *, round: int = 1, **options: object) -> list[str]:
    snapshot = world.snapshot(round=round)
    answer = Random(RandomOptions.model_validate(options)).eunomia_valuation(snapshot, world.offer())
    return [str(snapshot.jobs.id[row]) for row in answer.claims.rows[answer.form(Scores).ranking()]]


def test_the_order_is_drawn_each_round_and_is_the_same_within_it() -> None:
    world = World(seed=3).jobs(20)
    assert order(world) == order(world)
    assert len({tuple(order(world, round=number)) for number in range(1, 6)}) == 5
    assert order(world) != order(World(seed=4).jobs(20))


def test_with_redraw_never_a_job_keeps_its_draw() -> None:
    world = World(seed=3).jobs(20)
    assert order(world, round=1, redraw="never") == order(world, round=2, redraw="never")
    assert order(world, redraw="never") != order(World(seed=4).jobs(20), redraw="never")


def test_fewer_candidates_do_not_change_the_order_of_the_rest() -> None:
    few = [name for name in order(World("1x2 V100").jobs(12)) if name not in ("many/3", "many/7")]
    busy = World("1x2 V100").jobs(12).holds("many/3", 0).holds("many/7", 1)
    assert order(busy) == few


def test_every_job_comes_first_in_some_rounds() -> None:
    world = World().jobs(3)
    first = [order(world, round=number)[0] for number in range(1, 200)]
    assert min(first.count(f"many/{number}") for number in range(3)) > 40


def placed(world: World, sizes: dict[str, int], *, round: int = 1) -> dict[str, list[int]]:
    snapshot = world.snapshot(round=round)
    rows = np.array([world.row(name) for name in sizes], np.int32)
    gpus = np.array(list(sizes.values()), np.int64)
    grants = Allocation(
        claims=Claims(unit=Unit.JOB, rows=rows),
        amount=Grants(gpus=gpus),
        order=np.arange(rows.size, dtype=np.int32),
    )
    menus = Fixed().eunomia_elasticity(snapshot)
    answer: Placement = Random(RandomOptions()).eunomia_placement(snapshot, menus, world.offer(), grants)
    names = list(sizes)
    return {names[claim]: answer.of(index).tolist() for index, claim in enumerate(answer.claim.tolist())}


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(1, 50))
def test_gangs_are_whole_of_one_type_and_share_no_gpu(sizes: list[int], round: int) -> None:
    world = World("2x4 V100, 1x4 P100")
    for number, size in enumerate(sizes):
        world.job(f"a/{number}", gpus=size)
    got = placed(world, {f"a/{number}": size for number, size in enumerate(sizes)}, round=round)
    used = [gpu for gpus in got.values() for gpu in gpus]
    assert len(used) == len(set(used))
    for number, size in enumerate(sizes):
        gpus = got.get(f"a/{number}", [])
        assert len(gpus) in (0, size)
        assert np.unique(world.cluster.gpu_type[gpus]).size <= 1


def test_gpus_are_drawn_in_each_round_but_a_running_job_stays() -> None:
    world = World("4x4 V100").job("a/1", gpus=4).job("b/1", gpus=2).holds("b/1", 5, 9, ends_at=0.0)
    drawn = {tuple(placed(world, {"a/1": 4, "b/1": 2}, round=number)["a/1"]) for number in range(1, 10)}
    assert len(drawn) > 5
    assert placed(world, {"a/1": 4, "b/1": 2})["b/1"] == [5, 9]


def test_a_job_is_placed_where_the_cpus_that_it_needs_are_free() -> None:
    world = World("2x4 V100 8cpu").job("a/1", gpus=4, cpus=4.0)
    for number in range(1, 10):
        gpus = placed(world, {"a/1": 4}, round=number)["a/1"]
        assert np.bincount(world.cluster.machine[gpus]).tolist() == [2, 2]
