import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia_hpo_adapters.curves import Curves, Point


def power(a: float, b: float, c: float, iterations: range, noise: float = 0.0, seed: int = 0) -> list[Point]:
    luck = np.random.default_rng(seed)
    return [Point(t, a + b * (t + 1) ** -c + noise * float(luck.standard_normal())) for t in iterations]


def exponential(a: float, b: float, c: float, iterations: range) -> list[Point]:
    return [Point(t, a + b * math.exp(-c * t)) for t in iterations]


@pytest.mark.parametrize("exponent", [0.3, 0.5, 1.0, 1.7])
def test_a_power_law_is_extrapolated_from_its_first_fifth(exponent: float) -> None:
    curves = Curves.fit(power(0.2, 2.0, exponent, range(0, 200, 5)))
    assert curves is not None and curves.shapes.power[0]
    assert curves.expected(1000) == pytest.approx(0.2 + 2.0 * 1001**-exponent, abs=0.02)


@pytest.mark.parametrize("rate", [0.005, 0.02, 0.1])
def test_an_exponential_is_told_from_a_power_law(rate: float) -> None:
    curves = Curves.fit(exponential(1.0, 3.0, rate, range(0, 200, 5)))
    assert curves is not None and not curves.shapes.power[0]
    assert curves.expected(1000) == pytest.approx(1.0, abs=0.05)


def test_noise_widens_what_is_plausible_and_the_truth_stays_within() -> None:
    truth = 0.5 + 2.0 * 1001**-0.6
    inside = 0
    for seed in range(40):
        curves = Curves.fit(power(0.5, 2.0, 0.6, range(0, 300, 10), 0.02, seed))
        assert curves is not None and curves.optimistic(1000) < curves.pessimistic(1000)
        inside += curves.optimistic(1000) <= truth <= curves.pessimistic(1000)
    assert inside >= 36  # two standard deviations, and no less


def test_more_points_tell_more() -> None:
    few, many = (Curves.fit(power(0.5, 2.0, 0.6, range(0, end, 10), 0.02, 3)) for end in (60, 600))
    assert few is not None and many is not None
    assert many.pessimistic(1000) - many.optimistic(1000) < few.pessimistic(1000) - few.optimistic(1000)


def test_a_metric_that_gets_worse_is_taken_to_stand_still() -> None:
    curves = Curves.fit([Point(t, 1.0 + t) for t in range(6)])
    assert curves is not None
    assert curves.expected(100) == pytest.approx(3.5)
    assert curves.last_to_converge(0.1) == 0.0


def test_too_few_points_make_no_curve() -> None:
    assert Curves.fit([Point(0, 1.0), Point(1, 0.5), Point(2, 0.4)]) is None
    assert Curves.fit([Point(0, 1.0), Point(1, math.nan), Point(2, 0.4), Point(3, math.inf), Point(3, 0.3)]) is None
    assert Curves.fit([Point(5, 1.0)] * 9) is None


def test_convergence_is_where_only_a_part_of_the_way_is_left() -> None:
    curves = Curves.fit(exponential(1.0, 3.0, 0.02, range(0, 200, 5)))
    assert curves is not None
    assert curves.last_to_converge(0.01) == pytest.approx(-math.log(0.01) / 0.02, rel=0.1)
    assert math.isinf(curves.last_to_converge(0.0))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(-1e6, 1e6)), min_size=4, max_size=40))
def test_any_points_make_finite_curves_in_order(points: list[tuple[int, float]]) -> None:
    curves = Curves.fit([Point(*point) for point in points])
    if curves is not None:
        assert np.isfinite(curves.at(20_000)).all()
        assert curves.optimistic(20_000) <= curves.expected(20_000) <= curves.pessimistic(20_000)
        assert curves.expected(20_000) <= curves.expected(0) + 1e-6 * (1 + abs(curves.expected(0)))
