"""Estimates by kind of draw: percentiles over resamples, t over seeds, no interval for a maximum or one run."""

import math

import polars as pl
import pytest

from eunomia_testbed.evidence.draws import NO_DRAWS, DrawKind, Draws
from eunomia_testbed.evidence.evidence import Evidence
from eunomia_testbed.evidence.intervals import difference, estimate, log_ratio

SEEDS = Draws(kind=DrawKind.SEEDS, count=4)
RESAMPLES = Draws(kind=DrawKind.RESAMPLES, count=39, source="a.csv", block_apps=10)


def test_the_interval_of_39_resamples_is_from_the_least_to_the_greatest() -> None:
    found = estimate([float(each) for each in range(1, 40)], RESAMPLES, whole=17.0)
    assert found is not None
    assert (found.value, found.low, found.high, found.count) == (17.0, 1.0, 39.0, 39)


def test_fewer_than_39_resamples_give_no_interval() -> None:
    found = estimate([float(each) for each in range(38)], RESAMPLES)
    assert found is not None
    assert not found.known
    assert found.holds_zero


def test_unlike_t_intervals_percentiles_do_not_shrink_with_more_resamples() -> None:
    few, many = [float(each % 39) for each in range(39)], [float(each % 39) for each in range(3900)]
    widths = {}
    for kind in (DrawKind.RESAMPLES, DrawKind.SEEDS):
        ends = [estimate(values, Draws(kind=kind, count=len(values))) for values in (few, many)]
        widths[kind] = [
            each.high - each.low for each in ends if each and each.high is not None and each.low is not None
        ]
    assert widths[DrawKind.RESAMPLES][1] > 0.9 * widths[DrawKind.RESAMPLES][0]
    assert widths[DrawKind.SEEDS][1] < 0.11 * widths[DrawKind.SEEDS][0]


def test_ratios_are_paired_and_judged_the_same_in_both_directions() -> None:
    one, other = [1.0, 2.0, 4.0, 8.0], [1.5, 3.0, 6.0, 12.0]
    there, back = log_ratio(one, other, SEEDS), log_ratio(other, one, SEEDS)
    assert there is not None
    assert back is not None
    assert there.value == pytest.approx(math.log(1.5))
    assert back.value == pytest.approx(-math.log(1.5))
    assert not there.holds_zero
    assert log_ratio([0.0], [1.0], SEEDS) is None


def test_one_run_shows_nothing_about_chance() -> None:
    found = difference([3.0], [5.0], NO_DRAWS)
    assert found is not None
    assert (found.value, found.known, found.holds_zero) == (2.0, False, True)


def test_a_maximum_has_no_interval_over_resamples_and_is_that_of_the_trace() -> None:
    drawn = pl.DataFrame(
        {
            "policy": ["a"] * 39 + ["b"] * 39,
            "seed": [*range(39), *range(39)],
            "jct_mean_seconds": [100.0 + each for each in range(39)] + [200.0 + 2 * each for each in range(39)],
            "rho_worst": [2.0] * 78,
        }
    )
    whole = pl.DataFrame({"policy": ["a", "b"], "jct_mean_seconds": [120.0, 240.0], "rho_worst": [3.0, 1.5]})
    evidence = Evidence(draws=RESAMPLES, drawn=drawn, whole=whole)
    worst, mean = evidence.figure("a", "rho_worst"), evidence.figure("a", "jct_mean_seconds")
    assert worst is not None
    assert (worst.value, worst.known) == (3.0, False)
    assert mean is not None
    assert (mean.value, mean.low, mean.high) == (120.0, 100.0, 138.0)
    ratio, worse = evidence.ratio("a", "b", "jct_mean_seconds"), evidence.ratio("a", "b", "rho_worst")
    assert ratio is not None
    assert ratio.value == pytest.approx(math.log(2.0))
    assert ratio.low == pytest.approx(math.log(2.0))
    assert worse is not None
    assert worse.value == pytest.approx(math.log(0.5))
    assert not worse.known


def test_draws_are_read_back_from_json_as_written() -> None:
    assert Draws.from_plain(RESAMPLES.to_plain()) == RESAMPLES
