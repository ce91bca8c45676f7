"""Placement ``reuse``: few machines, then as many jobs and GPUs as possible stay where they are (AFS §4.4)."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Allocation, Claims, Grants, Misfit, Reason, Scope, Unit
from eunomia.contract.allocations import Pins
from eunomia.model.leases import GpuState
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.placement.packed import Packed
from eunomia_plugins.placement.reuse import Reuse


def placed(
    world: World, sizes: dict[str, int], *, plugin: Reuse | Packed | None = None, **fields: object
) -> tuple[dict[str, list[int]], dict[str, Reason]]:
    rows = np.array([world.row(name) for name in sizes], np.int32)
    gpus = np.array(list(sizes.values()), np.int64)
    pins = fields.pop("pins", None)
    allocation = Allocation(
        claims=Claims(unit=Unit.JOB, rows=rows),
        amount=Grants(gpus=gpus, pins=pins),  # type: ignore[arg-type]
        order=np.flatnonzero(gpus > 0).astype(np.int32),
        **fields,  # type: ignore[arg-type]
    )
    snapshot = world.snapshot(now=100.0)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    placement = (plugin or Reuse()).eunomia_placement(snapshot, menus, world.offer(100.0, scope=Scope.ALL), allocation)
    names = list(sizes)
    found = {names[claim]: placement.of(at).tolist() for at, claim in enumerate(placement.claim.tolist())}
    rows_, reasons = placement.verdicts.rows.tolist(), placement.verdicts.reasons.tolist()
    return found, {str(snapshot.jobs.id[row]): Reason(code) for row, code in zip(rows_, reasons, strict=True)}


def test_a_small_job_moves_so_that_a_gang_has_one_machine() -> None:
    world = World("2x4 V100").job("a/1").job("b/1").job("c/1", gpus=4).holds("a/1", 0).holds("b/1", 4)
    found, _ = placed(world, {"a/1": 1, "b/1": 1, "c/1": 4})
    assert len({gpu // 4 for gpu in found["c/1"]}) == 1
    assert (found["a/1"] == [0]) is not (found["b/1"] == [4])  # one of them stays
    packed, _ = placed(world, {"a/1": 1, "b/1": 1, "c/1": 4}, plugin=Packed())
    assert len({gpu // 4 for gpu in packed["c/1"]}) == 2


def test_a_gang_displaces_as_few_jobs_as_possible() -> None:
    world = World("2x4 V100").jobs(3, app="one").job("two/1", gpus=2).job("c/1", gpus=4)
    world.holds("one/0", 0).holds("one/1", 1).holds("one/2", 2).holds("two/1", 4, 5)
    found, _ = placed(world, {"one/0": 1, "one/1": 1, "two/1": 1, "one/2": 1, "c/1": 4})
    assert found["c/1"] == [4, 5, 6, 7]
    assert [found[f"one/{number}"] for number in range(3)] == [[0], [1], [2]]
    assert found["two/1"] == [3]


def test_a_job_that_shrinks_or_grows_keeps_as_many_of_its_gpus_as_possible() -> None:
    world = World("1x8 V100").job("a/1", gpus=(1, 8)).holds("a/1", 2, 3, 5)
    assert set(placed(world, {"a/1": 2})[0]["a/1"]) < {2, 3, 5} < set(placed(world, {"a/1": 5})[0]["a/1"])


def test_a_job_that_grows_beyond_its_machine_keeps_that_machine() -> None:
    world = World("3x4 V100").job("a/1", gpus=(1, 8)).job("b/1").holds("a/1", 4, 5, 6, 7).holds("b/1", 0)
    found, _ = placed(world, {"a/1": 8, "b/1": 1})
    assert found["a/1"] == [4, 5, 6, 7, 8, 9, 10, 11]
    assert found["b/1"] == [0]


def test_gpus_reserved_for_a_job_count_as_its_own() -> None:
    world = World("1x2 V100").job("old/1").holds("old/1", 0).job("new/1").job("other/1")
    held, at = world._holdings.live, {"state": GpuState.LEAVING, "successor": 7, "next_app": 1, "next_job": 1}
    for column, item in at.items():
        getattr(held, column)[0] = item
    assert placed(world, {"other/1": 1, "new/1": 1})[0] == {"new/1": [0], "other/1": [1]}


def test_a_job_that_loses_its_gpus_is_listed_and_one_that_cannot_grow_stays() -> None:
    world = World("1x4 V100").job("a/1", gpus=(1, 4)).job("b/1", gpus=2).job("c/1").job("d/1", gpus=(1, 4))
    world.holds("a/1", 0, 1).holds("b/1", 2, 3)
    assert placed(world, {"b/1": 0, "c/1": 1})[0] == {"c/1": [2], "b/1": []}
    found, said = placed(world, {"a/1": 3, "b/1": 2, "d/1": 3})
    assert len(found["a/1"]) + len(found["b/1"]) <= 4
    assert said["d/1"] == Reason.OUTRANKED
    assert placed(world, {"a/1": 4})[0] == {"a/1": [0, 1]}


def test_a_gang_is_of_one_type_and_a_running_one_stays_on_its_own() -> None:
    world = World("1x4 P100, 1x4 V100").job("a/1", gpus=2, gpu_type="V100").job("b/1", gpus=4).job("c/1", gpus=2)
    world.holds("c/1", 4, 5)
    found, said = placed(world, {"b/1": 4, "a/1": 2, "c/1": 2})
    assert found == {"b/1": [0, 1, 2, 3], "c/1": [4, 5], "a/1": [6, 7]}
    assert said == {}


def test_pins_and_orders_that_stop_at_a_misfit_are_handled_like_in_packed() -> None:
    world = World("2x4 V100").job("a/1", gpus=2).job("b/1", gpus=9).job("c/1")
    pins = Pins(claim=np.zeros(1, np.int32), machine=np.ones(1, np.int32), gpus=np.array([2]))
    assert placed(world, {"a/1": 2}, pins=pins)[0] == {"a/1": [4, 5]}
    found, said = placed(world, {"a/1": 2, "b/1": 9, "c/1": 1}, on_misfit=Misfit.STOP)
    assert list(found) == ["a/1"]
    assert set(said) == {"b/1", "c/1"}


@st.composite
def regular(draw: st.DrawFn) -> tuple[World, dict[str, int]]:
    """Two machines of four GPUs, jobs that hold some of them, and sizes that network packing allows."""
    sizes, left = [], 8
    for _ in range(draw(st.integers(1, 5))):
        size = draw(st.sampled_from([size for size in (1, 2, 4, 8) if size <= left] or [0]))
        sizes.append(size)
        left -= size
    world = World("2x4 V100")
    free = draw(st.permutations(range(8)))
    for number in range(len(sizes)):
        world.job(f"job/{number}", gpus=(1, 8), arrived=float(number))
        held, free = free[: draw(st.integers(0, 2))], free[2:]
        if held:
            world.holds(f"job/{number}", *sorted(held))
    return world, {f"job/{number}": size for number, size in enumerate(sizes)}


def most_kept(world: World, sizes: dict[str, int]) -> tuple[int, int]:
    """By trying all divisions over two machines: most jobs that keep a GPU, then most GPUs kept."""
    held = {name: np.flatnonzero(world.snapshot().holdings.job[:8] == world.row(name)) for name in sizes}
    choices = [
        [(size - part, part) for part in range(size + 1) if size > 4 or part in (0, size)] for size in sizes.values()
    ]
    best = (0, 0)
    for split in itertools.product(*choices):
        if all(sum(parts[machine] for parts in split) <= 4 for machine in (0, 1)):
            own = [(sum(held[name] < 4), sum(held[name] >= 4)) for name in sizes]
            kept = [sum(map(min, parts, mine)) for parts, mine in zip(split, own, strict=True)]
            best = max(best, (sum(each > 0 for each in kept), sum(kept)))
    return best


@given(regular())
def test_jobs_use_the_fewest_machines_and_at_most_one_too_many_moves(
    case: tuple[World, dict[str, int]],
) -> None:
    world, sizes = case
    found, said = placed(world, sizes)
    assert said == {}
    assert all(len(found.get(name, [])) == size for name, size in sizes.items())
    assert all(len({gpu // 4 for gpu in found[name]}) == -(-size // 4) for name, size in sizes.items() if size)
    job = world.snapshot().holdings.job
    kept = [sum(job[gpu] == world.row(name) for gpu in found.get(name, [])) for name in sizes]
    assert sum(each > 0 for each in kept) >= most_kept(world, sizes)[0] - 1  # a greedy: it may miss one job


@pytest.mark.parametrize("sizes", [{"a/1": 1, "b/1": 2}, {"a/1": 2, "b/1": 4}])
def test_a_second_round_moves_no_job(sizes: dict[str, int]) -> None:
    world = World("2x4 V100").job("a/1", gpus=(1, 8)).job("b/1", gpus=(1, 8))
    found, _ = placed(world, sizes)
    for name, gpus in found.items():
        world.holds(name, *gpus)
    assert placed(world, sizes)[0] == found
