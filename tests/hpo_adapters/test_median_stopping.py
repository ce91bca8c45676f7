"""Median stopping, by hand after Golovin et al. 2017."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner_lab import make, search

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Action, Tuner
from eunomia_hpo_adapters.median_stopping import MOST_AVERAGES, _Averages


def median_stopping(trials: int = 4, **options: object) -> Tuner:
    return make("median_stopping", options, search(trials))


def tell(tuner: Tuner, trial: int, *metrics: float) -> list[Action]:
    return [tuner.on_result(trial, iteration, metric) for iteration, metric in enumerate(metrics, start=1)]


def test_a_trial_whose_best_is_below_the_median_average_of_the_others_is_stopped() -> None:
    tuner = median_stopping()
    assert set(tell(tuner, 1, 0.2, 0.4, 0.6)) == {Action.CONTINUE}  # averages 0.2, 0.3, 0.4
    assert set(tell(tuner, 2, 0.3, 0.5, 0.7)) == {Action.CONTINUE}  # 0.3, 0.4, 0.5
    assert set(tell(tuner, 3, 0.4, 0.6, 0.8)) == {Action.CONTINUE}  # 0.4, 0.5, 0.6
    # The medians of the other three are 0.3, 0.4 and 0.5.
    assert tell(tuner, 4, 0.3, 0.45, 0.1) == [Action.CONTINUE, Action.CONTINUE, Action.STOP]
    assert tuner.ended() == [4]
    assert [run.trial for run in tuner.runs()] == [1, 2, 3]


def test_a_trial_equal_to_the_median_is_not_stopped() -> None:
    tuner = median_stopping()
    for trial in (1, 2, 3):
        tell(tuner, trial, 0.5)
    assert tell(tuner, 4, 0.5) == [Action.CONTINUE]


def test_the_option_average_judges_a_trial_by_its_own_average() -> None:
    tuner = median_stopping(judged_by="average")
    for trial in (1, 2, 3):
        tell(tuner, trial, 0.5, 0.5)
    assert tell(tuner, 4, 0.6, 0.3) == [Action.CONTINUE, Action.STOP]  # the average is 0.45, the best 0.6


def test_iterations_that_a_resumed_trial_repeats_count_once() -> None:
    tuner = median_stopping(judged_by="average")
    for trial in (1, 2, 3):
        tell(tuner, trial, 0.5, 0.5, 0.5)
    tell(tuner, 4, 0.9, 0.15)
    tell(tuner, 4, 0.9, 0.15)
    assert tuner.on_result(4, 3, 0.15) is Action.STOP  # the average is 0.4; with the repeated 0.9 it would be 0.504


def test_smaller_is_better_with_mode_min() -> None:
    tuner = make("median_stopping", {}, search(4, mode="min"))
    for trial in (1, 2, 3):
        tell(tuner, trial, 1.0)
    assert tell(tuner, 4, 1.1) == [Action.STOP]


def test_no_trial_is_judged_during_its_grace_or_with_few_others_or_at_its_end() -> None:
    tuner = median_stopping(grace_iterations=3)
    for trial in (1, 2, 3):
        tell(tuner, trial, 0.9, 0.9, 0.9, 0.9)
    assert tell(tuner, 4, 0.1, 0.1, 0.1) == [Action.CONTINUE, Action.CONTINUE, Action.STOP]
    few = median_stopping()
    for trial in (1, 2):
        tell(few, trial, 0.9)
    assert tell(few, 4, 0.1) == [Action.CONTINUE]
    end = median_stopping()
    for trial in (1, 2, 3):
        end.on_result(trial, 64, 0.9)
    assert end.on_result(4, 64, 0.1) is Action.CONTINUE


def test_trials_with_fewer_points_count_up_to_their_last_point() -> None:
    tuner = median_stopping()
    for trial in (1, 2, 3):
        tell(tuner, trial, 0.9, 0.9)
    assert [tuner.on_result(4, 3, 0.1)] == [Action.CONTINUE]


def test_nan_is_no_metric_and_a_trial_with_only_nan_ranks_last() -> None:
    tuner = median_stopping()
    tell(tuner, 1, 0.2, math.nan, 0.4)
    tell(tuner, 2, 0.3, 0.3, 0.3)
    tell(tuner, 3, 0.3, 0.3, 0.3)
    assert tell(tuner, 4, math.nan) == [Action.STOP]


def test_the_rule_needs_a_metric_and_other_trials() -> None:
    with pytest.raises(InputError, match="trials must be at least 2 for median_stopping"):
        median_stopping(1)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=1500))
def test_the_average_at_the_last_point_is_exact_although_older_ones_are_thinned(costs: list[float]) -> None:
    averages = _Averages()
    for iteration, cost in enumerate(costs, start=1):
        averages.add(iteration, cost)
    assert len(averages.means) <= MOST_AVERAGES
    assert averages.until(len(costs)) == pytest.approx(sum(costs) / len(costs), abs=1e-9)
    assert averages.until(len(costs) + 1) is None
    assert averages.best == min(costs)
