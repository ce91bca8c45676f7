"""The rule of verdicts: every effect with its interval and printed value has exactly one, also at each border."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia_testbed.reproduce.rule import (
    FAVOUR,
    ClaimKind,
    EffectEstimate,
    estimate,
    is_beyond,
    judged_estimate,
    least_favourable,
    verdict_on,
)
from eunomia_testbed.reproduce.verdicts import Verdict

P = math.log(1.4)
BORDERS = (0.0, 0.5 * P, 0.8 * P, P, 1.5 * P)
NEAR = sorted({border + step for border in BORDERS for step in (-1e-9, 0.0, 1e-9)} | {-P, 2.0 * P, -math.inf, math.inf})
CASES = [(e, low, high) for low, e, high in itertools.combinations_with_replacement(NEAR, 3) if math.isfinite(e)]


def of_gain(e: float, low: float, high: float, p: float) -> list[Verdict]:
    """The verdicts whose sentence is true of a gain, each sentence by itself."""
    holds = e >= 0.8 * p and low > 0.5 * p
    sentences = {
        Verdict.HOLDS: holds,
        Verdict.DIRECTION: not holds and low > 0.0,
        Verdict.FAILS: low <= 0.0 and high < 0.5 * p,
        Verdict.UNDECIDED: low <= 0.0 and high >= 0.5 * p,
    }
    return [verdict for verdict, true in sentences.items() if true]


def of_least(low: float, high: float, p: float) -> list[Verdict]:
    sentences = {
        Verdict.HOLDS: low >= p,
        Verdict.FAILS: high < p,
        Verdict.UNDECIDED: low < p <= high,
    }
    return [verdict for verdict, true in sentences.items() if true]


def of_level(low: float, high: float, p: float, margin: float) -> list[Verdict]:
    inside = low >= p - margin and high <= p + margin
    outside = high < p - margin or low > p + margin
    sentences = {
        Verdict.HOLDS: inside,
        Verdict.FAILS: outside,
        Verdict.UNDECIDED: not inside and not outside,
    }
    return [verdict for verdict, true in sentences.items() if true]


def test_effects_at_the_border_between_two_cases_have_one_verdict() -> None:
    for case in CASES:
        e, low, high = case
        assert of_gain(e, low, high, P) == [verdict_on(ClaimKind.GAIN, e, low, high, P)], case
        for printed in (0.0, P):
            assert of_least(low, high, printed) == [verdict_on(ClaimKind.AT_LEAST, e, low, high, printed)], case
            for margin in (0.0, 0.5 * P):
                found = verdict_on(ClaimKind.WITHIN, e, low, high, printed, margin)
                assert of_level(low, high, printed, margin) == [found], case


@given(
    three=st.lists(st.floats(-10.0, 10.0), min_size=3, max_size=3).map(sorted),
    printed=st.floats(1e-6, 10.0),
    margin=st.floats(0.0, 5.0),
)
def test_every_effect_has_exactly_one_verdict(three: list[float], printed: float, margin: float) -> None:
    low, e, high = three
    assert of_gain(e, low, high, printed) == [verdict_on(ClaimKind.GAIN, e, low, high, printed)]
    assert of_least(low, high, printed) == [verdict_on(ClaimKind.AT_LEAST, e, low, high, printed)]
    assert of_level(low, high, printed, margin) == [verdict_on(ClaimKind.WITHIN, e, low, high, printed, margin)]


@pytest.mark.parametrize(
    ("here", "paper"), [(1.13, 1.24), (1.19, 1.30), (1.002, 1.081), (1.10, 1.15)], ids=["+13", "+19", "+0.2", "+10"]
)
def test_a_gain_much_smaller_than_printed_has_only_the_right_direction(here: float, paper: float) -> None:
    e = math.log(here)
    assert verdict_on(ClaimKind.GAIN, e, e, e, math.log(paper)) is Verdict.DIRECTION


def test_a_gain_is_judged_like_the_equivalent_loss_of_the_other_policy() -> None:
    for here in (1.0, 1.2, 1.33, 1.4, 2.0):
        more, less = math.log(here), -math.log(1.0 / here)
        assert verdict_on(ClaimKind.GAIN, more, more, more, math.log(1.4)) is verdict_on(
            ClaimKind.GAIN, less, less, less, -math.log(1.0 - 0.4 / 1.4)
        )


def test_fewer_than_five_seeds_are_at_most_undecided_unless_nothing_is_random() -> None:
    four, five = ([P, P + 0.01, P - 0.01, P, P][:count] for count in (4, 5))
    assert judged_estimate(ClaimKind.GAIN, estimate(four, drawn=True), P) is Verdict.UNDECIDED
    assert judged_estimate(ClaimKind.GAIN, estimate(five, drawn=True), P) is Verdict.HOLDS
    assert judged_estimate(ClaimKind.GAIN, estimate([P], drawn=False), P) is Verdict.HOLDS
    assert judged_estimate(ClaimKind.GAIN, estimate([P], drawn=True), P) is Verdict.UNDECIDED
    assert judged_estimate(ClaimKind.GAIN, estimate([-1.0, -1.1], drawn=True), P) is Verdict.FAILS


def test_an_estimate_is_a_mean_with_its_t_interval() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0], drawn=True)
    assert (found.effect, found.seeds) == (3.0, 5)
    half = 2.7764451 * math.sqrt(2.5 / 5.0)
    assert (found.low, found.high) == pytest.approx((3.0 - half, 3.0 + half))
    assert found.negated() == EffectEstimate(effect=-3.0, low=-found.high, high=-found.low, seeds=5, drawn=True)
    one = estimate([0.5], drawn=False)
    assert (one.low, one.effect, one.high) == (0.5, 0.5, 0.5)
    with pytest.raises(InputError, match="an estimate must have a value"):
        estimate([], drawn=True)


def test_a_claim_of_at_most_is_judged_like_at_least_with_reversed_signs() -> None:
    below, above = (estimate([value], drawn=False).negated() for value in (1.0, 2.0))
    assert judged_estimate(ClaimKind.AT_LEAST, below, -1.5) is Verdict.HOLDS
    assert judged_estimate(ClaimKind.AT_LEAST, above, -1.5) is Verdict.FAILS


def test_a_gain_counts_as_beyond_above_1_5_times_the_printed_gain() -> None:
    assert is_beyond(ClaimKind.GAIN, 1.51 * P, P)
    assert not is_beyond(ClaimKind.GAIN, 1.5 * P, P)
    assert not is_beyond(ClaimKind.AT_LEAST, 9.0 * P, P)


def test_of_several_comparisons_the_least_favourable_counts() -> None:
    assert least_favourable([Verdict.HOLDS, Verdict.DIRECTION]) is Verdict.DIRECTION
    assert least_favourable([Verdict.UNDECIDED, Verdict.DIRECTION]) is Verdict.UNDECIDED
    assert least_favourable([Verdict.FAILS, Verdict.UNDECIDED]) is Verdict.FAILS
    assert least_favourable([Verdict.HOLDS]) is Verdict.HOLDS
    assert set(FAVOUR) == set(Verdict) and len(FAVOUR) == len(Verdict)


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(InputError, match="an interval must hold its effect"):
        verdict_on(ClaimKind.GAIN, 1.0, 1.1, 1.2, P)
    with pytest.raises(InputError, match="an interval must hold its effect"):
        verdict_on(ClaimKind.GAIN, math.nan, 1.1, 1.2, P)
    for printed in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="a printed gain must be a positive number"):
            verdict_on(ClaimKind.GAIN, 1.0, 1.0, 1.0, printed)
    with pytest.raises(InputError, match="a margin must not be negative"):
        verdict_on(ClaimKind.WITHIN, 1.0, 1.0, 1.0, 1.0, -0.1)
