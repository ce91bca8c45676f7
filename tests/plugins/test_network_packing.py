"""AFS §4.4 and Appendix E: sizes that take network sharing away, and the two propositions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Allocation, Claims, Cluster, Grants, InputErrors, PluginError, Profile, Seconds, TimeShares, Unit
from eunomia.contract.allocations import Pins
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.placement.reuse import Reuse
from eunomia_plugins.refine.network_packing import NetworkPacking, packed_sizes


def allowed(machine: int, most: int) -> list[int]:
    return [size for size in range(1, most + 1) if size % machine == 0 or (size < machine and size & (size - 1) == 0)]


@st.composite
def full_clusters(draw: st.DrawFn) -> tuple[int, int, list[int]]:
    """k, the number of machines with 2^k GPUs, and grants that together fill them."""
    k, machines = draw(st.integers(0, 3)), draw(st.integers(1, 5))
    total = machines << k
    cuts = sorted(draw(st.lists(st.integers(0, total), max_size=7)))
    return k, machines, np.diff([0, *cuts, total]).tolist()


def world_of(k: int, machines: int, granted: list[int]) -> World:
    world = World(f"{machines}x{1 << k} V100")
    for number in range(len(granted)):
        world.job(f"job/{number}", gpus=(1, machines << k), arrived=float(number))
    return world


def refined(world: World, granted: list[int], **fields: object) -> Allocation:
    snapshot, rows = world.snapshot(), np.arange(len(granted), dtype=np.int32)
    gpus = np.array(granted, np.int64)
    allocation = Allocation(
        claims=Claims(unit=Unit.JOB, rows=rows),
        amount=Grants(gpus=gpus, **fields),  # type: ignore[arg-type]
        order=np.flatnonzero(gpus > 0).astype(np.int32),
    )
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    return NetworkPacking().eunomia_refine(snapshot, menus, world.offer(), allocation)


@given(full_clusters())
def test_by_proposition_2_no_gpu_is_lost_and_no_size_falls_below_its_bound(case: tuple[int, int, list[int]]) -> None:
    k, machines, granted = case
    machine = 1 << k
    sizes = packed_sizes(granted, [allowed(machine, machines << k)] * len(granted))
    assert sum(sizes) == machines << k
    for size, grant in zip(sizes, granted, strict=True):
        assert size == 0 or size % machine == 0 or (size < machine and size & (size - 1) == 0)
        bound = grant // machine * machine if grant > machine else 1 << (grant.bit_length() - 1) if grant else 0
        assert size >= bound
        assert (size == 0) == (grant == 0)


@given(full_clusters())
def test_by_proposition_1_at_most_one_job_of_a_machine_uses_another_machine(case: tuple[int, int, list[int]]) -> None:
    k, machines, granted = case
    world = world_of(k, machines, granted)
    allocation = refined(world, granted)
    menus = Range(RangeOptions()).eunomia_elasticity(world.snapshot())
    placement = Reuse().eunomia_placement(world.snapshot(), menus, world.offer(), allocation)
    assert isinstance(allocation.amount, Grants)
    assert placement.gpus.size == allocation.amount.gpus.sum()
    spanning = np.zeros(machines, int)
    for at in range(placement.claim.size):
        gpus = placement.of(at)
        used = np.unique(world.cluster.machine[gpus])
        assert used.size == -(-gpus.size // (1 << k))
        if used.size > 1:
            spanning[used] += 1
    assert spanning.max() <= 1


@given(full_clusters(), st.integers(1, 8))
def test_packed_sizes_are_on_the_menu_and_use_no_more_than_granted(case: tuple[int, int, list[int]], most: int) -> None:
    k, machines, granted = case
    menu = allowed(1 << k, min(most, machines << k))
    within = [min(grant, menu[-1]) for grant in granted]
    sizes = packed_sizes(within, [menu] * len(within))
    assert sum(sizes) <= sum(within)
    assert {size for size in sizes if size} <= set(menu)


def test_packed_sizes_on_machines_of_four_equal_those_of_the_paper() -> None:
    assert packed_sizes([3, 5], [allowed(4, 8)] * 2) == [4, 4]
    assert packed_sizes([3, 3, 2], [allowed(4, 8)] * 3) == [4, 2, 2]
    assert packed_sizes([6, 1, 1], [allowed(4, 8)] * 3) == [4, 2, 2]
    assert packed_sizes([7, 9], [allowed(4, 16)] * 2) == [8, 8]


def test_a_job_without_a_packed_size_keeps_its_grant() -> None:
    assert packed_sizes([3, 5], [[], [1, 2, 4, 8]]) == [3, 4]
    world = World("2x4 V100").job("odd/0", gpus=3).job("b/0", gpus=(1, 8), arrived=1.0)
    allocation = refined(world, [3, 5])
    assert isinstance(allocation.amount, Grants)
    assert allocation.amount.gpus.tolist() == [3, 4]


def test_packed_sizes_keep_their_sum_and_jobs_without_gpus_wait() -> None:
    world = world_of(2, 2, [1, 5, 0])
    allocation = refined(world, [1, 7, 0])
    assert isinstance(allocation.amount, Grants)
    assert allocation.amount.gpus.tolist() == [4, 4, 0]
    assert sorted(allocation.order.tolist()) == [0, 1]
    assert refined(world, [2, 6, 0]).order.tolist()[0] in (0, 1)


def test_pinned_grants_are_unchanged_and_shares_are_a_fault() -> None:
    world = world_of(2, 2, [3, 0])
    pins = Pins(claim=np.zeros(1, np.int32), machine=np.zeros(1, np.int32), gpus=np.array([3]))
    allocation = refined(world, [3, 0], pins=pins)
    assert isinstance(allocation.amount, Grants)
    assert allocation.amount.gpus.tolist() == [3, 0]
    claims = Claims(unit=Unit.JOB, rows=np.zeros(1, np.int32))
    shares = TimeShares(share=np.ones((1, 1)), since=Seconds(0.0))
    shared = Allocation(claims=claims, amount=shares, order=np.zeros(1, np.int32))
    menus = Range(RangeOptions()).eunomia_elasticity(world.snapshot())
    with pytest.raises(PluginError, match="network_packing must get whole GPUs, but got TimeShares"):
        NetworkPacking().eunomia_refine(world.snapshot(), menus, world.offer(), shared)


PROFILE = {"stages.refiners": ["network_packing"]}


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ("1x4 V100, 1x4 P100", 'refiner "network_packing" needs one GPU type, but got P100 and V100'),
        ("1x4 V100, 1x8 V100", 'refiner "network_packing" needs machines of one size, but got machines of 4 to 8 GPUs'),
    ],
)
def test_a_cluster_of_two_types_or_unequal_machines_is_refused(cluster: str, message: str) -> None:
    with pytest.raises(InputErrors) as refused:
        Profile.load("max_min", settings=PROFILE).stages(Cluster.parse(cluster))
    assert message in str(refused.value)


def test_menus_with_one_size_per_job_are_refused() -> None:
    with pytest.raises(
        InputErrors, match='refiner "network_packing" needs rates at many sizes, but elasticity "fixed"'
    ):
        Profile.load("fifo", settings={"stages.refiners": ["network_packing"]})
