import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import DeviceShares
from eunomia.testing.builders import World
from eunomia_plugins.allocations.max_min_users import MaxMinUsers, MaxMinUsersOptions
from eunomia_plugins.elasticity.range import Range, RangeOptions


def shares(world: World, **options: object) -> dict[str, list[float]]:
    snapshot = world.snapshot()
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    plugin = MaxMinUsers(MaxMinUsersOptions.model_validate(options))
    answer = plugin.eunomia_allocation(snapshot, menus, world.offer())
    assert isinstance(answer.amount, DeviceShares)
    ids = snapshot.apps.id if plugin.options.among == "apps" else snapshot.users.id
    return {str(ids[row]): gpus.tolist() for row, gpus in zip(answer.claims.rows, answer.amount.gpus, strict=True)}


def test_users_share_equally_however_many_jobs_they_have() -> None:
    world = World("1x8 V100").app("a", user="ana").app("b", user="bo").app("c", user="bo")
    world.job("a/1", gpus=8).job("b/1", gpus=8).job("c/1", gpus=8)
    assert shares(world) == {"ana": pytest.approx([4.0]), "bo": pytest.approx([4.0])}
    assert shares(world, among="apps") == {name: pytest.approx([8 / 3]) for name in "abc"}


def test_gpus_that_a_user_cannot_use_go_to_the_others() -> None:
    world = World("1x8 V100").app("a", user="ana").app("b", user="bo").app("c", user="cy")
    world.job("a/1", gpus=1).job("b/1", gpus=8).job("c/1", gpus=8).job("a/2", gpus=9)
    assert shares(world) == {"ana": pytest.approx([1.0]), "bo": pytest.approx([3.5]), "cy": pytest.approx([3.5])}


def test_shares_among_apps_follow_their_weights() -> None:
    world = World("1x8 V100").app("a", weight=3.0).job("a/1", gpus=8).job("b/1", gpus=8)
    assert shares(world, among="apps") == {"a": pytest.approx([6.0]), "b": pytest.approx([2.0])}


def test_gpus_of_each_type_are_shared_separately() -> None:
    world = World("1x4 V100, 1x4 P100").app("a", user="ana").app("b", user="bo")
    world.job("a/1", gpus=4, gpu_type="P100").job("b/1", gpus=4)
    got = shares(world)
    assert got["ana"][1] == 0.0
    assert got["ana"][0] + got["bo"][0] == pytest.approx(4.0)
    # V100s that no other user can use are bo's too: the refiner keeps what his job can use, the fastest type first.
    assert got["bo"][1] == pytest.approx(4.0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 8)), min_size=1, max_size=12))
def test_users_without_their_full_demand_have_equal_shares(
    jobs: list[tuple[str, int]],
) -> None:
    world = World("2x4 V100")
    demand: dict[str, int] = {}
    for number, (user, size) in enumerate(jobs):
        world.app(f"app{number}", user=user).job(f"app{number}/1", gpus=size)
        demand[user] = demand.get(user, 0) + size
    got = {user: gpus[0] for user, gpus in shares(world).items()}
    assert sum(got.values()) == pytest.approx(min(8.0, sum(demand.values())))
    level = max(got.values())
    for user, gpus in got.items():
        assert gpus <= demand[user] * (1 + 1e-9)
        assert np.isclose(gpus, level) or np.isclose(gpus, demand[user])
