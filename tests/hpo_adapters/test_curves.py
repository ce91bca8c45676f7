import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia_hpo_adapters.curves import Curves, Doubt, Point, Seen
from eunomia_hpo_adapters.families import FAMILIES
from eunomia_hpo_adapters.predictions import Prediction
from strength import examples

PLAIN = Doubt(recency=0.0, drift=0.0, leap=0.0, floor=0.0)
"""The uncertainty of least squares only."""


def fitted(points: list[Point], seen: Seen | None = None, doubt: Doubt | None = None) -> Curves:
    curves = Curves.fit(points, seen=seen, doubt=doubt)
    assert curves is not None
    return curves


def power(a: float, b: float, c: float, iterations: range, noise: float = 0.0, seed: int = 0) -> list[Point]:
    random_numbers = np.random.default_rng(seed)
    return [Point(t, a + b * (t + 1) ** -c + noise * float(random_numbers.standard_normal())) for t in iterations]


def test_there_are_nine_families_and_no_two_draw_the_same_curve() -> None:
    """Each fitted by every other one: least squares of g against g' leave a rest."""
    x = np.linspace(0.02, 3.0, 80)
    assert len(FAMILIES) == 9
    for one, other in itertools.permutations(FAMILIES.values(), 2):
        drawn = one.at(x, np.log([[math.sqrt(shape.low * shape.high) for shape in one.shapes]]))[0]
        tried = other.at(x, other.grid())
        line = np.stack([np.ones_like(tried), tried], axis=2)
        rest = [drawn - each @ np.linalg.lstsq(each, drawn, rcond=None)[0] for each in line]
        if {one.name, other.name} not in ({"pow3", "pow4"}, {"exp3", "weibull"}):  # one holds the other
            assert min(np.abs(each).max() for each in rest) > 1e-4 * np.ptp(drawn), (one.name, other.name)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_curves_decreases(name: str) -> None:
    family = FAMILIES[name]
    g = family.at(np.linspace(0.001, 20.0, 200), family.grid())
    assert np.isfinite(g).all()
    assert (np.diff(g, axis=1) <= 1e-12).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_curve_of_a_family_is_predicted_up_to_four_times_its_length(name: str) -> None:
    family = FAMILIES[name]
    shape = np.log([[math.exp(0.5 * math.log(shape.low) + 0.5 * math.log(shape.high)) for shape in family.shapes]])
    iterations = range(10, 410, 10)

    def metric(iteration: int) -> float:
        return 3.0 + 2.0 * float(family.at(np.array([(iteration + 1) / 401]), shape)[0, 0])

    points = [Point(t, metric(t)) for t in iterations]
    spread = points[0].value - points[-1].value
    prediction = fitted(points, doubt=PLAIN).predict(1600)
    assert prediction.quantile(0.5) == pytest.approx(metric(1600), abs=0.05 * spread)


@pytest.mark.parametrize("exponent", [0.3, 0.5, 1.0, 1.7])
def test_a_power_law_is_extrapolated_from_its_first_fifth(exponent: float) -> None:
    prediction = fitted(power(0.2, 2.0, exponent, range(0, 200, 5))).predict(1000)
    low, high = prediction.interval(0.9)
    assert low <= 0.2 + 2.0 * 1001**-exponent <= high
    assert prediction.quantile(0.5) == pytest.approx(0.2 + 2.0 * 1001**-exponent, abs=0.03)


def test_noise_widens_the_predicted_interval_which_contains_the_true_curve() -> None:
    truth, inside, widths = 0.5 + 2.0 * 1001**-0.6, 0, []
    for seed in range(20):
        low, high = fitted(power(0.5, 2.0, 0.6, range(0, 300, 10), 0.02, seed)).predict(1000).interval(0.9)
        inside += low <= truth <= high
        widths.append(high - low)
    assert inside >= 18
    low, high = fitted(power(0.5, 2.0, 0.6, range(0, 300, 10), 0.002)).predict(1000).interval(0.9)
    assert high - low < 0.5 * min(widths)


def test_more_points_narrow_the_prediction() -> None:
    few, many = (fitted(power(0.5, 2.0, 0.6, range(0, end, 10), 0.02, 3)).predict(1000) for end in (80, 600))
    assert np.diff(many.interval(0.8)) < np.diff(few.interval(0.8))


def test_a_metric_that_gets_worse_is_predicted_as_constant() -> None:
    prediction = fitted([Point(t, 1.0 + t) for t in range(6)], doubt=PLAIN).predict(100)
    assert prediction.quantile(0.5) == pytest.approx(3.5, abs=0.01)
    assert fitted([Point(t, 1.0 + t) for t in range(6)]).convergence(100, part=0.1, probability=0.95) == 0.0


def test_a_constant_trial_may_still_reach_the_level_of_another() -> None:
    still = [Point(t, 2.3 + 1e-3 * (t % 2)) for t in range(10, 100, 10)]
    alone = fitted(still).predict(400)
    with_others = fitted(still, seen=Seen(best=0.1, spread=2.2)).predict(400)
    assert alone.below(1.5) < 0.01 < 0.2 < with_others.below(1.5) < 0.4
    assert with_others.below(0.1) < 0.03, "but hardly past it"
    assert "leap" not in with_others.below_by_family(1.5), "and no family says so"
    late = fitted([Point(10 * t, value) for t, (_, value) in enumerate(still, 31)], seen=Seen(best=0.1, spread=2.2))
    assert late.predict(400).below(1.5) < 0.02, "when most of its work is done"


def test_too_few_points_give_no_curve() -> None:
    assert Curves.fit([Point(0, 1.0), Point(1, 0.5), Point(2, 0.4)]) is None
    assert Curves.fit([Point(0, 1.0), Point(1, math.nan), Point(2, 0.4), Point(3, math.inf), Point(3, 0.3)]) is None
    assert Curves.fit([Point(5, 1.0)] * 9) is None


def test_the_predicted_convergence_follows_the_slowest_plausible_curve() -> None:
    points = [Point(t, 1.0 + 3.0 * math.exp(-0.02 * t)) for t in range(0, 300, 5)]
    truth = -math.log(0.01) / 0.02
    curves = fitted(points, doubt=Doubt(floor=0.0))
    times = [curves.convergence(1000, part=0.01, probability=each) for each in (0.5, 0.95)]
    assert times[0] == pytest.approx(truth, rel=0.15)
    assert times[0] <= times[1] <= 1000
    few = fitted(points[:5], doubt=Doubt(floor=0.02)).convergence(1000, part=0.01, probability=0.95)
    assert few > times[1], "less is known, so it may go on for longer"


def test_the_same_points_give_the_same_curves() -> None:
    points = power(0.5, 2.0, 0.6, range(0, 300, 10), 0.02)
    assert fitted(points).predict(900).interval(0.9) == fitted(points).predict(900).interval(0.9)


def test_a_mixture_of_curves_equals_one_computed_by_hand() -> None:
    """Two parts of ten thousand degrees of freedom are normal: 1 below their quarter points."""
    parts = Prediction(
        families=["one", "other"],
        family=np.array([0, 1]),
        weight=np.array([0.5, 0.5]),
        centre=np.array([0.0, 100.0]),
        scale=np.array([1.0, 1.0]),
        freedom=np.array([1e4, 1e4]),
    )
    assert parts.below(50.0) == pytest.approx(0.5)
    assert parts.quantile(0.25) == pytest.approx(0.0, abs=1e-6)
    assert parts.interval(0.8) == pytest.approx((-0.8416, 100.8416), abs=1e-3)
    assert parts.below_by_family(0.0) == pytest.approx({"one": 0.5, "other": 0.0})


@settings(max_examples=examples(12), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(-1e6, 1e6)), min_size=4, max_size=30))
def test_any_points_give_finite_and_ordered_predictions(points: list[tuple[int, float]]) -> None:
    curves = Curves.fit([Point(*point) for point in points])
    if curves is not None:
        prediction = curves.predict(20_000)
        quantiles = [prediction.quantile(each) for each in (0.05, 0.5, 0.95)]
        assert np.isfinite(quantiles).all() and quantiles == sorted(quantiles)
        assert sum(curves.weights.values()) == pytest.approx(1.0)
        assert 0.0 <= curves.convergence(20_000, part=0.05, probability=0.95) <= 20_000
