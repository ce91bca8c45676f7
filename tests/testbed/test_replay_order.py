"""Policies in real and in simulated runs: which differ, and whether they stand in the same order."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia_testbed.evidence.draws import draws_of_seeds
from eunomia_testbed.evidence.evidence import Evidence
from eunomia_testbed.replay.order import OrderVerdict, order_verdict, rank_correlation

JCT = "jct_mean_seconds"


def _evidence(figures: dict[str, list[float]]) -> Evidence:
    rows = [
        {"policy": policy, "seed": seed, JCT: figure}
        for policy, listed in figures.items()
        for seed, figure in enumerate(listed)
    ]
    return Evidence(draws=draws_of_seeds(max(map(len, figures.values()))), drawn=pl.DataFrame(rows))


def _verdict(real: dict[str, list[float]], simulated: dict[str, list[float]]) -> OrderVerdict:
    return order_verdict(_evidence(real), _evidence(simulated), list(real), JCT)


def test_differences_are_paired_by_repeat() -> None:
    """Every repeat is slower than the one before by more than the policies differ, and las is always 10 % faster."""
    real = {"fifo": [100.0, 150.0, 220.0], "las": [90.0, 135.5, 198.0]}
    found = _verdict(real, {"fifo": [120.0], "las": [100.0]})
    (pair,) = found.pairs
    assert pair.is_clear
    assert math.exp(pair.real.value) == pytest.approx(0.901, abs=0.002)
    assert (pair.agrees, pair.needed) == (True, None)
    assert found.describe() == "jct_mean_seconds: all 1 pair that the real runs tell apart agree; rank correlation 1.00"
    assert pair.row(JCT)["simulated_ratio"] == pytest.approx(100.0 / 120.0)


def test_a_pair_in_the_wrong_order_is_named() -> None:
    real = {"fifo": [100.0, 101.0, 102.0], "las": [90.0, 91.0, 92.0], "afs": [70.0, 71.0, 72.0]}
    found = _verdict(real, {"fifo": [100.0], "las": [110.0], "afs": [70.0]})
    assert [(pair.first, pair.second) for pair in found.wrong] == [("fifo", "las")]
    assert found.describe().startswith("jct_mean_seconds: the simulated order differs for fifo and las; rank")
    assert found.correlation == pytest.approx(0.5)


def test_without_a_clear_pair_the_repeats_that_would_do_are_named() -> None:
    found = _verdict({"fifo": [100.0, 120.0, 110.0], "las": [101.0, 100.0, 104.0]}, {"fifo": [100.0], "las": [100.0]})
    (pair,) = found.pairs
    assert (pair.is_clear, pair.agrees) == (False, None)
    assert pair.needed is not None
    assert pair.needed > 3
    assert f"tell no pair of policies apart; {pair.needed} repeats would" in found.describe()


def test_one_repeat_tells_nothing_apart() -> None:
    found = _verdict({"fifo": [100.0], "las": [50.0]}, {"fifo": [100.0], "las": [50.0]})
    assert (found.clear, found.pairs[0].needed) == ((), None)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=8), st.integers(0, 3))
def test_the_rank_correlation_is_1_of_a_rising_function_and_minus_1_of_a_falling_one(
    values: list[int], shift: int
) -> None:
    one = {str(at): float(each) for at, each in enumerate(values)}
    same = 0.0 if len(set(values)) == 1 else 1.0
    assert rank_correlation(one, {name: 2.0 * each**3 + shift for name, each in one.items()}) == pytest.approx(same)
    assert rank_correlation(one, {name: -each for name, each in one.items()}) == pytest.approx(-same)
    assert rank_correlation(one, {"0": 1.0}) is None
