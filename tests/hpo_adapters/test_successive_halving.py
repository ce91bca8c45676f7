import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Search, Speed, Tuner, forecast
from eunomia_hpo_adapters.successive_halving import (
    SuccessiveHalving,
    SuccessiveHalvingOptions,
    equal_budget_rungs,
    geometric_rungs,
    phase_sizes,
)


def search(trials: int = 8, *, max_iterations: int = 80, least: int = 1, most: int = 4, mode: str = "max") -> Search:
    return Search(
        space={},
        metric="val/accuracy",
        mode="max" if mode == "max" else "min",
        trials=trials,
        sampler="random",
        seed=7,
        least=least,
        most=most,
        max_iterations=max_iterations,
    )


def halving(
    trials: int = 8, options: SuccessiveHalvingOptions | None = None, *, max_iterations: int = 80, most: int = 4
) -> SuccessiveHalving:
    whole = search(trials, max_iterations=max_iterations, most=most)
    return SuccessiveHalving.create(whole, options or SuccessiveHalvingOptions())


def test_sizes_of_phases_and_rungs_equal_those_computed_by_hand() -> None:
    assert phase_sizes(16, 2) == [16, 8, 4, 2, 1]
    assert phase_sizes(6, 2) == [6, 3, 1]
    assert phase_sizes(10, 3) == [10, 3, 1]
    assert geometric_rungs(1600, 5, 2) == [100, 200, 400, 800, 1600]
    assert equal_budget_rungs(60, 3, 2) == [8, 24, 60]


def test_the_best_half_continues_with_twice_the_gpus() -> None:
    tuner = halving(4)
    assert [(run.trial, run.stop_at, run.most) for run in tuner.runs()] == [(n, 20, 1) for n in (1, 2, 3, 4)]
    for trial, metric in {1: 0.3, 2: 0.9, 3: 0.5, 4: 0.1}.items():
        assert not tuner.ended()
        tuner.on_paused(trial, 20, metric)
    assert [(run.trial, run.stop_at, run.most) for run in tuner.runs()] == [(2, 40, 2), (3, 40, 2)]
    assert tuner.ended() == [1, 4]
    tuner.on_paused(2, 40, 0.91)
    assert [run.trial for run in tuner.runs()] == [3]
    tuner.on_paused(3, 40, 0.95)
    assert [(run.trial, run.stop_at, run.most) for run in tuner.runs()] == [(3, None, 4)]
    assert not tuner.is_done()
    tuner.on_finished(3, 80, 0.97)
    assert tuner.is_done()
    assert tuner.best() == 3
    assert [tuner.rung(trial) for trial in (1, 2, 3, 4)] == [0, 1, 2, 0]


def test_smaller_is_better_with_mode_min() -> None:
    tuner = SuccessiveHalving.create(search(2, mode="min"), SuccessiveHalvingOptions())
    tuner.on_paused(1, 40, 0.9)
    tuner.on_paused(2, 40, 0.2)
    assert [run.trial for run in tuner.runs()] == [2]


def test_failed_and_nan_trials_rank_last_and_ties_are_broken_by_number() -> None:
    tuner = halving(8)
    tuner.on_failed(1)
    for trial in (8, 7, 6, 5, 4, 3):
        tuner.on_paused(trial, 10, math.nan if trial == 3 else 0.5)
    tuner.on_paused(2, 10, None)
    assert [run.trial for run in tuner.runs()] == [4, 5, 6, 7]
    assert tuner.ended() == [1, 2, 3, 8]


def test_trials_continue_after_failures_of_others_and_a_search_without_survivors_ends() -> None:
    tuner = halving(4)
    for trial in (1, 2, 3):
        tuner.on_failed(trial)
    tuner.on_paused(4, 20, 0.1)
    assert [run.trial for run in tuner.runs()] == [4]
    tuner.on_failed(4)
    assert tuner.is_done()
    assert tuner.best() == 4

    hopeless = halving(2)
    hopeless.on_paused(1, 40, math.nan)
    hopeless.on_failed(2)
    assert hopeless.is_done()
    assert hopeless.best() is None
    assert hopeless.ended() == [1, 2]


def test_a_trial_that_finishes_before_its_rung_keeps_its_rank() -> None:
    tuner = halving(4)
    tuner.on_finished(1, 12, 0.9)
    for trial in (2, 3, 4):
        tuner.on_paused(trial, 20, trial / 10)
    assert [run.trial for run in tuner.runs()] == [4]
    tuner.on_paused(4, 40, 0.5)
    assert tuner.is_done()
    assert tuner.best() == 1


def test_rungs_less_than_an_iteration_apart_are_refused() -> None:
    with pytest.raises(InputError, match="at least one iteration to each of the 4 phases"):
        halving(8, max_iterations=3)


def test_the_example_of_the_paper_has_the_phases_that_the_paper_names() -> None:
    """Themis §4.3.3: 16 GPUs, jobs of 80, 100, 100 and 120 s an iteration, 8, 16 and 36 iterations, at most 8 GPUs."""
    options = SuccessiveHalvingOptions(rungs="equal_budget", demand="full")
    tuner = halving(4, options, max_iterations=60, most=8)
    speeds = {number: Speed(seconds_per_iteration=s) for number, s in enumerate((80.0, 100.0, 100.0, 120.0), start=1)}
    known = forecast(tuner, {}, speeds, otherwise=Speed(seconds_per_iteration=1.0))
    assert known is not None
    assert [
        [(job.iterations_left, job.seconds_per_iteration, job.most) for job in phase.jobs] for phase in known.phases
    ] == [
        [(8, 80, 8), (8, 100, 8), (8, 100, 8), (8, 120, 8)],
        [(16, 100, 8), (16, 100, 8)],
        [(36, 100, 8)],
    ]
    assert known.total_gpu_seconds == 10_000
    assert known.most == 32


def test_the_forecast_is_revised_when_the_slower_trials_are_promoted() -> None:
    """§4.3.3, last paragraph: jobs of 120 and 100 s chosen; 1920 s for phase 2 where the paper prints 3200 (GOLDEN)."""
    options = SuccessiveHalvingOptions(rungs="equal_budget", demand="full")
    tuner = halving(4, options, max_iterations=60, most=8)
    speeds = {number: Speed(seconds_per_iteration=s) for number, s in enumerate((80.0, 100.0, 100.0, 120.0), start=1)}
    for trial, metric in {1: 0.1, 2: 0.2, 3: 0.8, 4: 0.9}.items():
        tuner.on_paused(trial, 8, metric)
    done = dict.fromkeys(speeds, 8.0)
    known = forecast(tuner, done, speeds, otherwise=Speed(seconds_per_iteration=1.0))
    assert known is not None
    assert [[job.iterations_left * job.seconds_per_iteration for job in phase.jobs] for phase in known.phases] == [
        [1600, 1920],
        [4320],
    ]
    assert known.total_gpu_seconds == 3200 + 3520 + 4320


def test_completed_iterations_shorten_the_current_phase_only() -> None:
    tuner = halving(4)
    speeds = {1: Speed(seconds_per_iteration=2.0)}
    known = forecast(tuner, {1: 15.0, 2: 99.0}, speeds, otherwise=Speed(seconds_per_iteration=1.0))
    assert known is not None
    assert [job.iterations_left for job in known.phases[0].jobs] == [5.0, 0.0, 20.0, 20.0]
    assert [job.iterations_left for job in known.phases[1].jobs] == [20.0, 20.0]
    assert {job.seconds_per_iteration for phase in known.phases for job in phase.jobs} == {2.0}
    assert known.most == 4


def play(tuner: Tuner, metrics: list[float], failing: set[int], steps: int) -> None:
    """Drive a tuner as an app master would: the first in line arrives at its rung, ends, or fails."""
    for _ in range(steps):
        runs = tuner.runs()
        if not runs:
            return
        trial = runs[0].trial
        if trial in failing:
            tuner.on_failed(trial)
        elif runs[0].stop_at is None:
            tuner.on_finished(trial, 160, metrics[trial - 1])
        else:
            tuner.on_paused(trial, runs[0].stop_at, metrics[trial - 1])


finite_or_nan = st.floats(0, 1) | st.just(math.nan)


@given(
    st.lists(finite_or_nan, min_size=2, max_size=12), st.sets(st.integers(1, 12)), st.integers(2, 4), st.integers(0, 30)
)
def test_every_search_ends_and_a_restart_changes_nothing(
    metrics: list[float], failing: set[int], factor: int, steps: int
) -> None:
    options = SuccessiveHalvingOptions(reduction_factor=factor)
    tuner = halving(len(metrics), options, max_iterations=160)
    play(tuner, metrics, failing, steps)
    again = halving(len(metrics), options, max_iterations=160)
    again.restore(json.loads(json.dumps(tuner.state(), allow_nan=False)))
    assert [again.runs(), again.ended(), again.num_phases()] == [tuner.runs(), tuner.ended(), tuner.num_phases()]
    for each in (tuner, again):
        play(each, metrics, failing, 100)
        assert each.is_done()
        assert sorted(each.ended()) == list(range(1, len(metrics) + 1))
        assert each.num_phases() == 0
    assert again.best() == tuner.best()
    fit = [n for n, metric in enumerate(metrics, start=1) if n not in failing and math.isfinite(metric)]
    if fit:
        top = min(fit, key=lambda n: (-metrics[n - 1], n))
        assert tuner.best() == top
        assert tuner.rung(top) == len(phase_sizes(len(metrics), factor)) - 1
