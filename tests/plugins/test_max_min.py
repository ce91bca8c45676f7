import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Allocation, Grants, InputErrors, Profile, Reason, Scope, TimeShares
from eunomia.testing.builders import World
from eunomia_plugins.allocations.max_min import MaxMin, MaxMinOptions
from eunomia_plugins.allocations.max_min_time import MaxMinTime
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.orders.fifo import Fifo


def shared(
    world: World, *, scope: Scope = Scope.ALL, powers: bool = False, time: bool = False, **options: object
) -> Allocation:
    snapshot, offer = world.snapshot(now=100.0), world.offer(100.0, scope=scope)
    elastic = Range(RangeOptions(sizes="powers_of_two" if powers else "all"))
    plugin: MaxMin | MaxMinTime = MaxMin(MaxMinOptions.model_validate(options))
    menus = elastic.eunomia_elasticity(snapshot)
    if time:
        plugin, menus = MaxMinTime(MaxMinOptions.model_validate(options)), Fixed().eunomia_elasticity(snapshot)
    return plugin.eunomia_allocation(snapshot, menus, offer, Fifo().eunomia_valuation(snapshot, menus, offer))


def sizes(world: World, **options: object) -> dict[str, int]:
    allocation = shared(world, **options)  # type: ignore[arg-type]
    assert isinstance(allocation.amount, Grants)
    ids = world.snapshot().jobs.id
    return {
        str(ids[row]): int(gpus)
        for row, gpus in zip(allocation.claims.rows, allocation.amount.gpus, strict=True)
        if gpus
    }


def times(world: World, **options: object) -> dict[str, list[float]]:
    allocation = shared(world, time=True, **options)  # type: ignore[arg-type]
    assert isinstance(allocation.amount, TimeShares)
    ids = world.snapshot().jobs.id
    return {
        str(ids[row]): share.tolist()
        for row, share in zip(allocation.claims.rows, allocation.amount.share, strict=True)
    }


def test_gpus_that_a_small_job_cannot_use_go_to_the_others() -> None:
    world = World("1x8 V100").job("a/1", gpus=(1, 2)).job("b/1", gpus=(1, 8), arrived=1)
    world.job("c/1", gpus=(1, 8), arrived=2)
    assert sizes(world) == {"a/1": 2, "b/1": 3, "c/1": 3}


def test_the_first_job_of_the_order_gets_the_remaining_gpu() -> None:
    world = World("1x4 V100").job("a/1", gpus=(1, 8)).job("b/1", gpus=(1, 8), arrived=1)
    world.job("c/1", gpus=(1, 8), arrived=2)
    assert sizes(world) == {"a/1": 2, "b/1": 1, "c/1": 1}


def test_with_more_jobs_than_gpus_the_first_ones_get_one_each() -> None:
    """AFS' own max-min: under FIFO the late ones wait (GOLDEN: 63.2 days on their trace #3)."""
    world = World("1x4 V100").jobs(9, gpus=(1, 4))
    assert sizes(world) == {f"many/{number}": 1 for number in range(4)}
    assert shared(world).verdicts.reasons.tolist() == [Reason.OUTRANKED] * 5


def test_with_time_sharing_the_jobs_with_the_fewest_turns_run_next_for_one_turn() -> None:
    world = World("1x4 V100").jobs(9, gpus=(1, 4))
    for number, seconds in enumerate((7199.9995, 7300.0, 7100.0, 14400.0)):
        world._job_ledger.live.attained[world.row(f"many/{number}")] = seconds
    assert sizes(world, when_short="time_sharing") == {f"many/{number}": 1 for number in (2, 4, 5, 6)}
    answer = shared(world, when_short="time_sharing")
    assert (answer.lease, answer.protected) == (7200.0, 7200.0)
    shorter = shared(world, when_short="time_sharing", unit="1h")
    assert shorter.lease == 3600.0
    assert [int(row) for row in shorter.claims.rows[shorter.order]] == [4, 5, 6, 7]


def test_time_sharing_changes_nothing_while_all_jobs_fit() -> None:
    world = World("1x4 V100").jobs(4, gpus=(1, 4)).job("wide/1", gpus=8)
    assert sizes(world, when_short="time_sharing") == {f"many/{number}": 1 for number in range(4)}
    assert shared(world, when_short="time_sharing").lease is None


def test_weights_of_apps_count_unless_switched_off() -> None:
    world = World("1x6 V100").app("a", weight=2.0).job("a/1", gpus=(1, 8)).job("b/1", gpus=(1, 8), arrived=1)
    assert sizes(world) == {"a/1": 4, "b/1": 2}
    assert sizes(world, weighted=False) == {"a/1": 3, "b/1": 3}


def test_sizes_stay_on_the_menu_and_running_jobs_shrink_for_new_ones() -> None:
    world = World("1x8 V100").job("a/1", gpus=(1, 8)).holds("a/1", *range(8))
    world.job("b/1", gpus=(1, 8), arrived=5).job("c/1", gpus=(1, 8), arrived=6)
    assert sizes(world, powers=True) == {"a/1": 4, "b/1": 2, "c/1": 2}
    assert sizes(world, scope=Scope.FREE) == {}


def test_a_gang_is_of_one_type() -> None:
    world = World("1x4 V100, 1x3 P100").job("a/1", gpus=(1, 8)).job("b/1", gpus=(1, 8), gpu_type="P100", arrived=1)
    assert sizes(world) == {"a/1": 4, "b/1": 3}


def test_gangs_share_time_so_that_all_have_the_same_average_of_gpus() -> None:
    # 4 GPUs, three gangs of 4: a third of the time each. A gang of 1 in addition cannot have more than all the time.
    world = World("1x4 V100").job("a/1", gpus=4).job("b/1", gpus=4, arrived=1).job("c/1", gpus=4, arrived=2)
    assert times(world)["a/1"] == pytest.approx([1 / 3])
    assert times(world.job("d/1", gpus=1)) == {
        "a/1": pytest.approx([0.25]),
        "b/1": pytest.approx([0.25]),
        "c/1": pytest.approx([0.25]),
        "d/1": pytest.approx([1.0]),
    }


def test_time_is_shared_with_running_jobs_too_and_by_weight() -> None:
    world = World("1x4 V100").app("a", weight=3.0).job("a/1", gpus=4).holds("a/1", 0, 1, 2, 3).job("b/1", gpus=4)
    assert times(world, scope=Scope.FREE) == {"a/1": pytest.approx([0.75]), "b/1": pytest.approx([0.25])}


def test_a_flexible_job_leaves_the_scarce_type_to_jobs_that_need_it() -> None:
    world = World("1x2 V100, 1x2 P100").job("a/1", gpus=2).job("p/1", gpus=2, gpu_type="P100")
    share = times(world)
    assert share["p/1"][0] == pytest.approx(1 - share["a/1"][0])
    assert sum(share["a/1"]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"stages.elasticity": "fixed", "stages.allocation": "max_min"},
            'needs rates at many sizes, but elasticity "fixed"',
        ),
        ({"stages.allocation": "max_min_time"}, "add refiner .*time_sharing"),
        ({"stages.allocation": "max_min_users"}, "add refiner .*rounding"),
        ({"stages.allocation": "isolated", "stages.placement": "spread"}, 'placement "spread" must honour pins'),
    ],
)
def test_stages_that_cannot_be_combined_are_rejected_at_load(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputErrors, match=message):
        Profile.load("default", settings=settings)


_JOBS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=12)


@given(_JOBS, st.booleans())
def test_no_job_could_be_raised_with_the_free_gpus(jobs: list[tuple[int, int]], powers: bool) -> None:
    world = World("2x4 V100")
    for number, (least, more) in enumerate(jobs):
        world.job(f"a/{number:02d}", gpus=(least, least + more), arrived=number)
    got = sizes(world, powers=powers)
    menus = Range(RangeOptions(sizes="powers_of_two" if powers else "all")).eunomia_elasticity(world.snapshot())
    free = 8 - sum(got.values())
    assert free >= 0
    for number in range(len(jobs)):
        name = f"a/{number:02d}"
        menu = menus.sizes(world.row(name)).tolist()
        has = got.get(name, 0)
        assert has == 0 or has in menu
        bigger = [size for size in menu if size > has]
        assert not bigger or bigger[0] - has > free


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12))
def test_time_shares_fit_the_cluster_and_use_it_fully(gangs: list[int]) -> None:
    world = World("2x4 V100")
    for number, size in enumerate(gangs):
        world.job(f"a/{number:02d}", gpus=size, arrived=number)
    share = np.array([times(world)[f"a/{number:02d}"][0] for number in range(len(gangs))])
    average = share * gangs
    assert average.sum() == pytest.approx(min(8.0, sum(gangs)))
    level = average.max()
    assert np.all((np.abs(average - level) < 1e-6) | (share > 1 - 1e-6))
