from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import JobState, Locality, Menus
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.throughput import Throughput, ThroughputOptions


def menus(world: World, **options: object) -> Menus:
    return Throughput(ThroughputOptions.model_validate(options)).eunomia_elasticity(world.snapshot())


def rates(world: World, job: str, **options: object) -> dict[int, float]:
    made = menus(world, **options)
    row = world.row(job)
    return {size: made.rate(row, size) for size in made.sizes(row).tolist()}


def test_rates_follow_the_scaling_law_from_the_declared_iteration_time() -> None:
    # σ = 0.1, κ = 0: 2 GPUs 2 / 1.1, 4 GPUs 4 / 1.3 times the 0.5 iterations a second of one.
    world = World("1x8 V100").job("a/1", gpus=(1, 4), seconds_per_iteration=2.0)
    got = rates(world, "a/1", contention=0.1, coherency=0.0)
    assert got[1] == 0.5
    assert got[2] == pytest.approx(1.0 / 1.1)
    assert got[4] == pytest.approx(2.0 / 1.3)


def test_sizes_beyond_the_peak_are_not_on_the_menu() -> None:
    # σ = 0, κ = 1/12: n / (1 + n (n - 1) / 12) peaks at sqrt(12) = 3.46: 3 gives 2, 4 gives 2 as well.
    world = World("1x8 V100").job("a/1", gpus=(1, 8), seconds_per_iteration=1.0)
    assert list(rates(world, "a/1", contention=0.0, coherency=1 / 12)) == [1, 2, 3]
    assert list(rates(World("1x8 V100").job("a/1", gpus=(6, 8)), "a/1", contention=0.0, coherency=1 / 12)) == [6]


def test_sizes_that_gain_too_little_are_left_out() -> None:
    # Amdahl with σ = 0.5: 1, 4/3, 3/2, 8/5, ...: speed 2n / (n + 1).
    world = World("1x8 V100").job("a/1", gpus=(1, 8), seconds_per_iteration=1.0)
    assert list(rates(world, "a/1", contention=0.5, coherency=0.0, least_gain=0.3)) == [1, 2, 7]
    assert list(rates(world, "a/1", contention=0.5, coherency=0.0, least_gain=0.4)) == [1, 3]


def test_measured_rates_take_precedence_and_the_law_is_fitted_through_them() -> None:
    world = World("2x4 V100").job("a/1", gpus=(1, 8), seconds_per_iteration=1.0).measures("a/1", 4, 2.0)
    got = rates(world, "a/1", contention=0.0, coherency=0.0)
    assert got == {size: pytest.approx(size / 2) for size in range(1, 9)}
    # A second point at 8: 8 is slower than 7 by the first, so it is dropped from the menu.
    world.measures("a/1", 8, 2.1)
    got = rates(world, "a/1", contention=0.0, coherency=0.0)
    assert got[5] == pytest.approx(2.5)
    assert 8 not in got


def test_rates_across_machines_are_on_the_menu_but_do_not_change_the_curve() -> None:
    world = World("2x4 V100").job("a/1", gpus=(1, 4), seconds_per_iteration=1.0)
    world.measures("a/1", 4, 4.0).measures("a/1", 4, 1.0, locality=Locality.RACK)
    made = menus(world, contention=0.0, coherency=0.0)
    assert made.rate(world.row("a/1"), 2) == pytest.approx(2.0)
    assert made.rate(world.row("a/1"), 4, Locality.RACK) == 1.0


def test_jobs_without_declared_rates_have_sizes_without_rates_and_paused_jobs_none() -> None:
    world = World("1x8 V100").job("a/1", gpus=(1, 4)).job("b/1", state=JobState.PAUSED)
    assert all(np.isnan(rate) for rate in rates(world, "a/1").values())
    assert list(rates(world, "a/1")) == [1, 2, 3, 4]
    assert menus(world).curve[world.row("b/1")] == -1
    assert menus(World()).points.gpus.size == 0


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 12), st.floats(0.1, 9.0)), min_size=1, max_size=6),
    st.floats(0.0, 0.5),
    st.floats(0.0, 0.2),
    st.floats(0.0, 0.3),
)
def test_a_menu_starts_at_the_minimum_and_every_further_size_is_faster(
    jobs: list[tuple[int, int, float]], contention: float, coherency: float, least_gain: float
) -> None:
    world = World("4x8 V100")
    for number, (least, more, seconds) in enumerate(jobs):
        world.job(f"a/{number}", gpus=(least, least + more), seconds_per_iteration=seconds)
    for number, (least, more, _) in enumerate(jobs):
        got = rates(world, f"a/{number}", contention=contention, coherency=coherency, least_gain=least_gain)
        sizes = list(got)
        assert sizes[0] == least
        assert sizes[-1] <= least + more
        values = list(got.values())
        assert all(after > before * (1 + least_gain) * (1 - 1e-12) for before, after in pairwise(values))
