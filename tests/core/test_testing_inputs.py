"""Inputs of a stage that are built by hand are those that stages make."""

import numpy as np

from eunomia import BySize, SizeUnit
from eunomia.testing.builders import World
from eunomia.testing.inputs import MenuPoint, grants_to, menus_of, values_by_size
from eunomia_plugins.allocations.marginal_gain import MarginalGain
from eunomia_plugins.placement.packed import Packed


def town() -> World:
    return World("1x4 V100").job("a/1", gpus=(1, 2)).job("b/1", gpus=(1, 4))


def test_menus_built_by_hand_have_the_given_points() -> None:
    menus = menus_of(town(), {"b/1": [MenuPoint(2, 3.0), MenuPoint(1, 1.0, cpus=2.0), MenuPoint(1, 1.5, cpus=4.0)]})
    assert menus.sizes(0).size == 0
    assert menus.sizes(1).tolist() == [1, 2]
    assert [menus.rate(1, 1, cpus=cpus) for cpus in (2.0, 4.0)] == [1.0, 1.5]
    assert menus.full_rate(np.array([1])).tolist() == [3.0]


def test_an_allocation_accepts_values_built_by_hand() -> None:
    world = World("1x3 V100").job("a/1", gpus=(1, 2)).job("b/1", gpus=(1, 4))
    menus = menus_of(
        world, {"a/1": [MenuPoint(1, 1.0), MenuPoint(2, 2.0)], "b/1": [MenuPoint(1, 1.0), MenuPoint(2, 2.0)]}
    )
    values = values_by_size(
        world, {"a/1": {1: -60.0, 2: -50.0}, "b/1": {1: -90.0, 2: -40.0}}, unit=SizeUnit.SECONDS_LEFT
    )
    assert values.form(BySize).unit is SizeUnit.SECONDS_LEFT
    answer = MarginalGain().eunomia_allocation(world.snapshot(), menus, world.offer(), values)
    assert answer.amount.gpus.tolist() == [1, 2]  # type: ignore[union-attr]


def test_a_placement_serves_grants_built_by_hand_before_standby_claims() -> None:
    world = town().job("c/1", gpus=3)
    grants = grants_to(world, {"c/1": 3, "b/1": 2, "a/1": 1}, standby=["b/1", "a/1"])
    menus = menus_of(world, {"a/1": [MenuPoint(1, 1.0)], "b/1": [MenuPoint(2, 1.0)], "c/1": [MenuPoint(3, 1.0)]})
    placement = Packed().eunomia_placement(world.snapshot(), menus, world.offer(), grants)
    sizes = {claim: placement.of(at).size for at, claim in enumerate(placement.claim.tolist())}
    assert {claim: size for claim, size in sizes.items() if size} == {0: 3, 2: 1}
