"""Speedups, weights and clusters that OEF cannot use: an error that names the claim, or an answer."""

import math

import numpy as np
import pytest

from eunomia import Allocation, ByType, Claims, DeviceShares, Unit, Valuations
from eunomia.errors import PluginError
from eunomia.testing.builders import World
from eunomia_plugins.oef.allocations import OefCooperative, OefEfficient, OefNoncooperative, OefOptions
from eunomia_plugins.oef.cooperative import solve_cooperative
from eunomia_plugins.oef.groups import Groups

PLUGINS = (OefCooperative, OefNoncooperative, OefEfficient)
TWO = "1x4 K80, 1x4 V100"


def shares(
    plugin: type[OefCooperative] | type[OefNoncooperative] | type[OefEfficient],
    speedups: list[list[float]],
    weights: list[float] | None = None,
    cluster: str = TWO,
) -> list[list[float]]:
    """[user, type] GPUs of users u0, u1, ... with one job each."""
    world = World(cluster)
    for number in range(len(speedups)):
        world.app(f"a{number}", user=f"u{number}").job(f"a{number}/1")
    users = np.arange(len(speedups), dtype=np.int32)
    weight = None if weights is None else np.array(weights)
    claims = Claims(unit=Unit.USER, rows=users, weight=weight)
    valuations = Valuations(claims=claims, forms=(ByType(speedup=np.array(speedups)),))
    made: Allocation = plugin(OefOptions()).eunomia_allocation(world.snapshot(), world.offer(), valuations)
    assert isinstance(made.amount, DeviceShares)
    found: list[list[float]] = made.amount.gpus.round(9).tolist()
    return found


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize(
    ("speedups", "weights", "message"),
    [
        ([[1.0, 2.0], [1.0, -2.0]], None, "a speedup must be a number of 0 or more, but got -2.0 (u1 on V100)"),
        ([[1.0, math.nan], [1.0, 2.0]], None, "a speedup must be a number of 0 or more, but got nan (u0 on V100)"),
        ([[1.0, 2.0], [math.inf, 2.0]], None, "a speedup must be a number of 0 or more, but got inf (u1 on K80)"),
        ([[1.0, 2.0], [1.0, 3.0]], [1.0, 0.0], "a weight must be a number above 0, but got 0.0 (u1)"),
        ([[1.0, 2.0], [1.0, 3.0]], [math.nan, 1.0], "a weight must be a number above 0, but got nan (u0)"),
    ],
)
def test_values_that_are_not_numbers_are_refused_with_the_claim(
    plugin: type[OefCooperative], speedups: list[list[float]], weights: list[float] | None, message: str
) -> None:
    with pytest.raises(PluginError) as caught:
        shares(plugin, speedups, weights)
    assert str(caught.value) == message


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_user_without_a_usable_type_leaves_all_gpus_to_the_others(plugin: type[OefCooperative]) -> None:
    alone = shares(plugin, [[1.0, 2.0], [1.0, 4.0]])
    with_one_more = shares(plugin, [[1.0, 2.0], [0.0, 0.0], [1.0, 4.0]])
    assert with_one_more[1] == [0.0, 0.0]
    assert [with_one_more[0], with_one_more[2]] == alone
    assert np.sum(alone) == pytest.approx(8.0)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_users_without_a_usable_type_get_nothing(plugin: type[OefCooperative]) -> None:
    assert shares(plugin, [[0.0, 0.0], [0.0, 0.0]]) == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_with_one_gpu_type_shares_are_equal_by_weight(plugin: type[OefCooperative]) -> None:
    found = shares(plugin, [[1.0], [1.0], [1.0]], [1.0, 2.0, 1.0], cluster="2x4 V100")
    assert np.array(found) == pytest.approx(np.array([[2.0], [4.0], [2.0]]))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_ten_thousand_users_of_forty_kinds_get_equal_shares_within_a_kind(plugin: type[OefCooperative]) -> None:
    luck = np.random.default_rng(1)
    kinds = np.cumprod(1.0 + luck.random((40, 2)), axis=1)
    of = np.arange(10_000) % 40
    found = np.array(shares(plugin, kinds[of].tolist(), cluster="100x8 K80, 100x8 V100"))
    assert found.sum(axis=0) == pytest.approx([800.0, 800.0], rel=1e-6)
    assert found[:40] == pytest.approx(found[40:80])


@pytest.mark.slow
def test_a_thousand_different_claims_get_an_answer_with_its_certificate() -> None:
    luck = np.random.default_rng(1)
    of = Groups(speedup=luck.uniform(1.0, 8.0, (1000, 6)), weight=np.ones(1000), gpus=np.full(6, 100.0))
    answer = solve_cooperative(of)
    assert answer.envy <= 0.0201
    assert answer.shortfall <= 0.02
    assert answer.objective <= answer.bound
