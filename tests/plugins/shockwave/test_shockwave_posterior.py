"""Posteriors of regime lengths, patterns of batch sizes, and rates at sizes that were not measured."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.contract.snapshot import Measured
from eunomia.model.adaptations import Adapts
from eunomia.units import Locality
from eunomia_plugins.shockwave.forecasts.patterns import coming_batch_sizes
from eunomia_plugins.shockwave.forecasts.posterior import Past, Rule, posterior, seconds_between
from eunomia_plugins.shockwave.forecasts.rates import exponent

RULES: tuple[Rule, ...] = ("restatement", "bayesian", "last")


@pytest.mark.parametrize("rule", ["restatement", "bayesian"])
def test_before_the_first_epoch_regimes_have_equal_parts(rule: Rule) -> None:
    prior = posterior(rule, 100.0, 4, Past((), 0.0))
    assert prior.parameters == (25.0, 25.0, 25.0, 25.0)
    assert prior.mean() == (25.0, 25.0, 25.0, 25.0)


def test_restatement_keeps_finished_epochs_and_divides_the_remaining_ones() -> None:
    """Dir(m_1, ..., m_k, S, ..., S) with S = (N - sum of m) / (K - k), §5."""
    known = posterior("restatement", 100.0, 4, Past((10.0, 30.0), 12.0))
    assert known.parameters == (10.0, 30.0, 30.0, 30.0)
    assert known.left(Past((10.0, 30.0), 12.0)) == pytest.approx((18.0, 30.0))


def test_the_standard_update_adds_epochs_to_the_prior() -> None:
    known = posterior("bayesian", 100.0, 4, Past((10.0, 30.0), 12.0))
    assert known.parameters == (35.0, 55.0, 37.0, 25.0)
    assert known.mean() == pytest.approx(tuple(100.0 * part / 152.0 for part in (35.0, 55.0, 37.0, 25.0)))


def test_the_rule_last_throughput_expects_no_other_regime() -> None:
    known = posterior("last", 100.0, 4, Past((10.0,), 5.0))
    assert known.mean() == (10.0, 90.0)
    assert known.left(Past((10.0,), 5.0)) == (85.0,)


def test_a_regime_that_outlasts_its_mean_ends_with_its_current_epoch() -> None:
    past = Past((), 60.5)
    assert posterior("restatement", 100.0, 2, past).left(past) == pytest.approx((0.5, 39.0))


def test_the_posterior_handles_more_regimes_than_expected() -> None:
    past = Past((10.0, 20.0, 30.0), 5.0)
    known = posterior("restatement", 100.0, 2, past)
    assert known.mean() == pytest.approx((10.0, 20.0, 30.0, 40.0))
    assert known.left(past) == pytest.approx((35.0,))


@given(
    rule=st.sampled_from(RULES),
    regimes=st.integers(1, 12),
    lengths=st.lists(st.floats(0.01, 300.0), min_size=1, max_size=6),
    more=st.floats(0.0, 500.0),
)
def test_epochs_of_regimes_sum_to_those_of_the_job(rule: Rule, regimes: int, lengths: list[float], more: float) -> None:
    past = Past(tuple(lengths[:-1]), lengths[-1])
    epochs = past.done + more
    known = posterior(rule, epochs, regimes, past)
    assert min(known.mean()) > 0.0
    assert sum(known.mean()) == pytest.approx(epochs)
    assert min(known.left(past)) >= 0.0
    assert sum(known.left(past)) == pytest.approx(more, abs=1e-6)


# --- the interval ----------------------------------------------------------------------------------------------------


def test_the_interval_of_two_regimes_is_that_of_a_uniform_distribution() -> None:
    """With parameters of 1 the part of each of two regimes is uniform."""
    assert seconds_between(10.0, (3.0, 1.0), (1.0, 1.0), 1.0, 0.9) == pytest.approx((11.0, 29.0))
    assert seconds_between(10.0, (2.0,), (1.0,), 1.0, 0.9) == (20.0, 20.0)


@pytest.mark.parametrize("counts", [0.5, 1.0, 20.0])
def test_an_interval_of_80_percent_contains_80_percent_of_the_draws(counts: float) -> None:
    paces = np.array([4.0, 3.0, 1.0])
    low, high = seconds_between(50.0, paces.tolist(), (1.0, 1.0, 1.0), counts, 0.8)
    drawn = np.random.default_rng(7).dirichlet(np.full(3, counts), size=20_000) @ paces * 50.0
    assert ((low <= drawn) & (drawn <= high)).mean() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("ratios", [(1.0, 2.0, 4.0), (1.0, 8.0, 1.0), (1.0, 0.125, 1.0)])
def test_an_interval_of_80_percent_contains_80_percent_of_draws_with_unknown_rates(
    ratios: tuple[float, ...],
) -> None:
    luck = np.random.default_rng(8)
    parts, powers = luck.dirichlet(np.ones(3), size=20_000), luck.uniform(0.0, 1.0, (20_000, 1))
    drawn = (parts * (3.0 / np.array(ratios) ** powers)).sum(axis=1) * 50.0
    low, high = seconds_between(50.0, (3.0, 3.0, 3.0), ratios, 1.0, 0.8)
    assert ((low <= drawn) & (drawn <= high)).mean() == pytest.approx(0.8, abs=0.06)


# --- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "seen", "largest", "coming"),
    [
        (Adapts.GNS, (32.0,), 256.0, (64.0, 128.0, 256.0)),
        (Adapts.GNS, (32.0, 64.0, 128.0), 256.0, (256.0,)),
        (Adapts.GNS, (32.0,), 100.0, (64.0,)),  # it doubles, or stays
        (Adapts.GNS, (32.0, 64.0, 512.0), 256.0, ()),  # beyond its limit
        (Adapts.GNS, (32.0, 64.0, 32.0), 256.0, ()),  # it never goes back
        (Adapts.ACCORDION, (32.0,), 256.0, (256.0, 32.0, 256.0)),
        (Adapts.ACCORDION, (32.0, 128.0), 256.0, (32.0, 128.0)),  # the size seen counts
        (Adapts.ACCORDION, (32.0, 128.0, 256.0), 256.0, ()),  # a third one
        (Adapts.ACCORDION, (256.0,), 256.0, ()),
        (Adapts.STATIC, (32.0,), 256.0, ()),
        (Adapts.OTHER, (32.0, 64.0), 256.0, ()),
    ],
)
def test_predicted_batch_sizes_follow_the_pattern_of_the_adaptation_mode(
    mode: Adapts, seen: tuple[float, ...], largest: float, coming: tuple[float, ...]
) -> None:
    assert coming_batch_sizes(mode, seen, largest, 4) == coming


def test_accordion_expects_no_regimes_beyond_the_maximum() -> None:
    seen = tuple(itertools.islice(itertools.cycle((32.0, 256.0)), 4))
    assert coming_batch_sizes(Adapts.ACCORDION, seen, 256.0, 4) == ()


# --- rates -----------------------------------------------------------------------------------------------------------


def measured(batch: float, rate: float, gpus: int = 1) -> Measured:
    return Measured(job=0, gpus=gpus, gpu_type="V100", locality=Locality.ISLAND, rate=rate, batch_size=batch)


def test_the_gain_is_computed_between_the_smallest_and_the_largest_batch() -> None:
    # 32 x 10 = 320 samples a second, 128 x 5 = 640: twice as many for four times the batch.
    assert exponent([measured(32.0, 10.0), measured(64.0, 9.0), measured(128.0, 5.0)]) == pytest.approx(0.5)
    assert math.isnan(exponent([measured(32.0, 10.0), measured(64.0, 9.0, gpus=2)]))
    assert exponent([measured(32.0, 10.0), measured(64.0, 2.0)]) == 0.0  # never below
