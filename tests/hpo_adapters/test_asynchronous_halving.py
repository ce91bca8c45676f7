"""Asynchronous successive halving (ASHA): promoted by quantile, without waiting."""

import math

import pytest
from tuner_lab import make, search

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Tuner

ASHA = {"asynchronous": True, "min_iterations": 1, "reduction_factor": 3}


def asha(trials: int = 9, **options: object) -> Tuner:
    return make("successive_halving", ASHA | options, search(trials, max_iterations=9))


def wanted(tuner: Tuner) -> list[tuple[int, int | None]]:
    return [(run.trial, run.stop_at) for run in tuner.runs()]


def test_rungs_are_minimum_iterations_times_powers_of_eta() -> None:
    tuner = make("successive_halving", ASHA | {"min_iterations": 2}, search(81, max_iterations=50))
    assert tuner._brackets[0].ends == (2, 6, 18, 50)  # type: ignore[attr-defined]


def test_a_trial_is_promoted_as_soon_as_it_is_in_the_best_third_of_its_rung() -> None:
    tuner = asha()
    tuner.on_paused(1, 1, 0.5)
    tuner.on_paused(2, 1, 0.9)
    assert wanted(tuner) == [(n, 1) for n in range(3, 10)]  # a third of two trials is less than one
    tuner.on_paused(3, 1, 0.2)
    assert wanted(tuner) == [(2, 3), *((n, 1) for n in range(4, 10))]  # the promoted goes first
    tuner.on_paused(2, 3, 0.95)
    tuner.on_paused(4, 1, 0.8)
    assert [run.trial for run in tuner.runs()] == [5, 6, 7, 8, 9]  # one place in four, which was given to 2
    tuner.on_paused(5, 1, 0.99)
    assert wanted(tuner)[0] == (5, 3)  # the best of five, though others were promoted before
    assert tuner.ended() == []  # 1, 3 and 4 may yet be among the best third


def test_a_trial_that_was_promoted_too_early_stays_promoted() -> None:
    tuner = asha(6)
    for trial, metric in enumerate((0.3, 0.2, 0.1, 0.9, 0.8, 0.7), start=1):
        tuner.on_paused(trial, 1, metric)
    # 1 went on with the first three; 4 and 5 are the best two of six.
    assert [run.trial for run in tuner.runs()] == [1, 4, 5]
    assert tuner.ended() == [2, 3, 6]  # no trial can arrive there any more


def test_a_slow_trial_does_not_delay_the_others() -> None:
    tuner = asha(9)
    for trial in range(2, 10):
        tuner.on_paused(trial, 1, trial / 10)
    assert 1 in [run.trial for run in tuner.runs()]
    promoted = [run.trial for run in tuner.runs() if run.stop_at == 3]
    assert promoted == [4, 7, 9] or len(promoted) >= 2
    for trial in promoted:
        tuner.on_paused(trial, 3, trial / 10)
    assert any(run.stop_at is None for run in tuner.runs())  # one is at its last rung while 1 is at the first


def test_at_least_the_best_trial_of_a_complete_rung_is_promoted() -> None:
    tuner = asha(2, reduction_factor=4)
    assert wanted(tuner) == [(1, None), (2, None)]  # two trials in one phase
    few = make("successive_halving", ASHA | {"reduction_factor": 2}, search(3, max_iterations=9))
    few.on_paused(1, 1, math.nan)
    few.on_failed(2)
    few.on_paused(3, 1, 0.4)
    assert wanted(few) == [(3, None)]
    assert few.ended() == [1, 2]


def test_the_forecast_expects_a_third_of_each_rung_to_be_promoted() -> None:
    tuner = asha(9, demand="full")
    assert [[job.iterations_left for job in tuner.jobs_in_phase(n, {})] for n in range(tuner.num_phases())] == [
        [1] * 9, [2] * 3, [6],
    ]  # fmt: skip
    for trial in (1, 2, 3):
        tuner.on_paused(trial, 1, trial / 10)
    done = {1: 1.0, 2: 1.0, 3: 1.0}
    now = [(job.trial, job.iterations_left) for job in tuner.jobs_in_phase(0, done)]
    assert (3, 2.0) in now and (1, 0.0) in now and (4, 1.0) in now
    assert [job.iterations_left for job in tuner.jobs_in_phase(1, done)] == [2, 2]


def test_rungs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="min_iterations must be below max_iterations, 64, but got 64"):
        make("successive_halving", {"min_iterations": 64}, search(4))
    with pytest.raises(InputError, match="min_iterations must go with geometric rungs"):
        make("successive_halving", {"min_iterations": 4, "rungs": "equal_budget"}, search(4))
