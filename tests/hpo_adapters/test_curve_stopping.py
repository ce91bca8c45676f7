import dataclasses
import json
import math

import numpy as np
import pytest
from pydantic import ValidationError

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Action, Search, Speed, Tuner, forecast, load_tuner
from eunomia_hpo_adapters.curve_stopping import CurveStopping, CurveStoppingOptions
from eunomia_hpo_adapters.points import MOST_POINTS
from eunomia_hpo_adapters.predictions import Prediction

CURVES = {1: (0.1, 2.0, 0.6), 2: (0.9, 2.0, 0.6), 3: (0.12, 2.0, 0.6), 4: (1.5, 1.0, 0.6)}
"""By trial: asymptote, amplitude, exponent; 2 and 4 can never be good."""


def search(trials: int = 4, *, mode: str = "min", max_iterations: int = 100) -> Search:
    return Search(
        space={},
        metric="loss",
        mode="max" if mode == "max" else "min",
        trials=trials,
        sampler="random",
        seed=7,
        least=1,
        most=4,
        max_iterations=max_iterations,
    )


def tuner(trials: int = 4, *, mode: str = "min", **options: object) -> CurveStopping:
    return CurveStopping.create(search(trials, mode=mode), CurveStoppingOptions.model_validate(options))


def loss(trial: int, iteration: int) -> float:
    a, b, c = CURVES[trial]
    return a + b * (iteration + 1) ** -c


def play(made: CurveStopping, until: int, *, every: int = 5, sign: float = 1.0, start: int = 0) -> dict[int, int]:
    """Run all trials concurrently; by trial, the iteration at which it was stopped."""
    stopped: dict[int, int] = {}
    for iteration in range(start + every, until + 1, every):
        for run in list(made.runs()):
            if made.on_result(run.trial, iteration, sign * loss(run.trial, iteration)) is Action.STOP:
                stopped[run.trial] = iteration
    return stopped


@pytest.mark.parametrize(("mode", "sign"), [("min", 1.0), ("max", -1.0)])
def test_trials_that_cannot_reach_the_level_of_others_are_stopped_at_a_milestone(mode: str, sign: float) -> None:
    made = tuner(mode=mode)
    stopped = play(made, 95, sign=sign)
    assert set(stopped) == {2, 4}
    assert set(stopped.values()) <= {25, 50, 75}
    assert made.ended() == [2, 4]
    assert [run.trial for run in made.runs()] == [1, 3]
    for trial in (1, 3):
        made.on_finished(trial, 100, sign * loss(trial, 100))
    assert made.is_done() and made.best() == 1


def test_no_trial_is_judged_before_a_milestone_or_between_two() -> None:
    assert play(tuner(milestones=(0.9,)), 85) == {}
    assert set(play(tuner(milestones=(0.9,)), 95).values()) == {90}


def test_no_trial_is_judged_on_fewer_points_than_required() -> None:
    assert play(tuner(milestones=(0.5,), least_points=11), 95) == {}
    assert set(play(tuner(milestones=(0.5,), least_points=10), 95)) == {2, 4}


def test_a_trial_is_not_judged_while_it_has_the_only_curve() -> None:
    made = tuner()
    for iteration in range(5, 100, 5):
        assert made.on_result(4, iteration, loss(4, iteration)) is Action.CONTINUE
    with pytest.raises(ValidationError):
        CurveStoppingOptions(least_curves=1)


def test_no_trial_is_judged_while_there_are_too_few_curves() -> None:
    assert play(tuner(least_curves=5), 95) == {}


def test_trials_with_close_curves_are_not_stopped() -> None:
    made = tuner()
    play(made, 95)
    assert 3 in [run.trial for run in made.runs()]


def test_a_metric_that_is_not_finite_is_no_point_and_ranks_last() -> None:
    """A trial without a finite metric for as many points as a curve needs is stopped at the next milestone."""
    made = tuner(2, least_points=5)
    actions = {}
    for iteration in range(4, 100, 4):
        assert made.on_result(1, iteration, loss(1, iteration)) is Action.CONTINUE
        if 2 in [run.trial for run in made.runs()]:
            metric = math.nan if iteration > 20 else 0.01
            actions[iteration] = made.on_result(2, iteration, metric)
    assert made.best() == 1
    assert [iteration for iteration, action in actions.items() if action is Action.STOP] == [52]
    assert actions[28] is Action.CONTINUE, "after two points it may still come back"


def test_no_trial_is_stopped_if_none_has_a_finite_metric() -> None:
    made = tuner(2)
    for iteration in range(4, 100, 4):
        for trial in (1, 2):
            assert made.on_result(trial, iteration, math.nan) is Action.CONTINUE
    assert made.best() is None


def test_a_repeated_iteration_removes_the_points_after_it() -> None:
    """A script resumed from a checkpoint reports some iterations again."""
    twice, once = tuner(2), tuner(2)
    for iteration in [*range(2, 24, 2), *range(12, 24, 2)]:
        twice.on_result(1, iteration, loss(1, iteration) + (iteration > 30))
    for iteration in range(2, 24, 2):
        once.on_result(1, iteration, loss(1, iteration))
    assert twice.state() == once.state()


def test_an_earlier_peak_of_another_trial_stops_no_trial() -> None:
    made = tuner(2, tolerance=0.0)
    for iteration in range(4, 100, 4):
        made.on_result(2, iteration, 1e-6 if iteration == 16 else 3.0)
        assert made.on_result(1, iteration, loss(1, iteration)) is Action.CONTINUE


def test_no_trial_is_stopped_during_the_grace_period() -> None:
    assert set(play(tuner(grace=60), 95).values()) == {75}
    dropping = dataclasses.replace(search(), milestones=(10, 60))
    assert set(play(CurveStopping.create(dropping, CurveStoppingOptions()), 95).values()) == {75}
    with pytest.raises(InputError, match="grace must be below max_iterations 100, but got 100"):
        tuner(grace=100)


def test_only_a_grace_period_saves_a_trial_whose_loss_drops_suddenly() -> None:
    """A case that no curve predicts: a constant loss that falls to a tenth at iteration 60."""

    def judged(**options: object) -> list[int]:
        made = tuner(2, **options)
        stopped = []
        for iteration in range(4, 100, 4):
            made.on_result(1, iteration, loss(1, iteration))
            still = 1.0 + 0.3 * (iteration + 1) ** -0.5
            if made.on_result(2, iteration, still if iteration < 60 else 0.1) is Action.STOP:
                stopped.append(iteration)
                break
        return stopped

    assert judged() == [52]
    assert judged(grace=60) == []


def test_no_trial_is_stopped_because_of_a_single_family_of_curves() -> None:
    made = tuner(2)
    prediction = Prediction(
        families=["one", "other"],
        family=np.array([0, 1]),
        weight=np.array([0.999, 0.001]),
        centre=np.array([5.0, 0.0]),
        scale=np.array([0.1, 0.1]),
        freedom=np.array([9.0, 9.0]),
    )
    assert prediction.below(1.0) < 0.05
    assert not made.is_unlikely(prediction, 1.0)
    assert made.is_unlikely(prediction._replace(centre=np.array([5.0, 4.0])), 1.0)


def test_a_converged_trial_ends_at_the_next_milestone_as_its_forecast_expects() -> None:
    made = tuner(2, converged=0.2, milestones=(0.25, 0.5, 0.75))
    assert [info.iterations_left for info in made.jobs_remaining({})] == [100.0, 100.0]
    play(made, 20, every=2)
    ahead = {info.trial: info.iterations_left for info in made.jobs_remaining({1: 20.0, 2: 20.0})}
    assert ahead[1] + 20.0 in (25.0, 50.0, 75.0)
    stopped = play(made, 96, every=2, start=20)
    # A fifth of the way of (t + 1)^-0.6 to 100 is left after 9 iterations: the first milestone is late enough.
    assert stopped[1] in (26, 50)
    assert {25.0: 26, 50.0: 50, 75.0: 76}[20.0 + ahead[1]] >= stopped[1], "over-estimated, as the paper wants it"


def test_forecasts_have_one_phase_with_the_remaining_trials() -> None:
    made = tuner()
    play(made, 95)
    predicted = forecast(made, {1: 95.0, 2: 50.0, 3: 95.0, 4: 50.0}, {}, otherwise=Speed(seconds_per_iteration=2.0))
    assert predicted is not None
    assert [job.iterations_left for job in predicted.phases[0].jobs] == [5.0, 5.0]
    assert predicted.total_gpu_seconds == (95 + 50 + 95 + 50 + 5 + 5) * 2.0


def test_the_rule_continues_from_its_saved_state() -> None:
    made, other = tuner(), tuner()
    play(made, 40)
    made.on_result(3, 41, math.nan)
    other.restore(json.loads(json.dumps(made.state(), allow_nan=False)))
    assert other.state() == made.state()
    assert play(other, 95, start=40) == play(made, 95, start=40)


def test_old_points_are_thinned_and_the_first_and_last_kept() -> None:
    made = tuner(2)
    for iteration in range(1, 99):
        made.on_result(1, iteration, loss(1, iteration))
    points = made.state()["points"]["1"]
    assert len(points) <= MOST_POINTS and points[0][0] == 1 and points[-1][0] == 98


def test_a_search_without_the_required_options_is_refused() -> None:
    with pytest.raises(InputError, match="trials must be at least 2 for curve_stopping"):
        tuner(1)
    with pytest.raises(ValidationError, match="ascending"):
        CurveStoppingOptions(milestones=(0.5, 0.25))
    assert issubclass(load_tuner("curve_stopping"), CurveStopping)
    assert isinstance(tuner(), Tuner)


def test_failed_trials_are_not_run_again() -> None:
    made = tuner(2)
    made.on_failed(1)
    made.on_paused(2, 3, 0.5)
    assert made.ended() == [1] and made.rung(2) is None and made.num_phases() == 1
