"""Searches that are given further trials after they have ended, whatever the tuner and the sampler."""

import dataclasses
import importlib.util
import json
from collections.abc import Mapping
from typing import Any

import pytest
from tuner_lab import KINDS, WHOLE, Lab, make, search

from eunomia.errors import InputError
from eunomia_appmaster.app.space import Categorical, Int
from eunomia_appmaster.tuner import Search, Speed, forecast

LEARNED = [("none", {}), ("hyperband", {"min_iterations": 16, "reduction_factor": 2})]
CASES = [
    *((kind, options, "random", failing) for kind, options in KINDS for failing in (0.0, 0.2)),
    *((kind, options, "tpe", 0.1) for kind, options in LEARNED if importlib.util.find_spec("optuna")),
]


def larger(whole: Search, more: int) -> Search:
    return dataclasses.replace(whole, trials=whole.trials + more, more_trials=(*whole.more_trials, more))


def grown(lab: Lab, kind: str, options: Mapping[str, Any], more: int) -> Lab:
    """The lab with its tuner restored as one with more trials, as an app master does."""
    kept = json.loads(json.dumps(lab.tuner.state(), allow_nan=False))
    whole = larger(lab.whole, more)
    again = Lab(make(kind, options, whole), whole, more, nan=lab.nan, failing=lab.failing)
    again.tuner.restore(kept)
    again.done, again.over, again.made = dict(lab.done), set(lab.over), lab.made
    return again


@pytest.mark.parametrize(("kind", "options", "sampler", "failing"), CASES)
def test_a_search_can_be_extended_and_its_ended_trials_are_unchanged(
    kind: str, options: Mapping[str, Any], sampler: Any, failing: float
) -> None:
    trials, more = 7, [4, 1, 9]
    whole = search(trials, sampler=sampler)
    lab = Lab(make(kind, options, whole), whole, 11, nan=0.0, failing=failing)
    while lab.step():
        pass
    for group in more:
        before, done = list(lab.tuner.trials()), dict(lab.done)
        lab = grown(lab, kind, options, group)
        assert not lab.tuner.is_done()
        restarted = lab.restart(kind, options)
        assert restarted.answers() == lab.answers()
        while lab.step():
            pass
        assert lab.tuner.trials()[: len(before)] == before, "the earlier trials are as they were"
        assert {trial: lab.done[trial] for trial in done} == done, "none of them runs again"
        assert len(lab.tuner.trials()) == len(before) + group
        if not failing and not kind.endswith("stopping"):
            assert WHOLE in [lab.done.get(trial.number) for trial in lab.tuner.trials()[len(before) :]]
    points = {json.dumps(dict(trial.parameters)) for trial in lab.tuner.trials()}
    assert len(points) == len(lab.tuner.trials()) or sampler != "random"


def test_no_random_point_of_a_finite_space_is_drawn_twice_until_all_are_drawn() -> None:
    space = {"depth": Int(low=1, high=4), "act": Categorical(choices=("relu", "tanh", "gelu"))}
    whole = dataclasses.replace(search(2), space=space)
    first = make("none", {}, whole).trials()
    trials = make("none", {}, larger(larger(whole, 5), 5)).trials()
    assert trials[:2] == first
    points, drawn = ({tuple(trial.parameters.items()) for trial in each} for each in (trials, first))
    assert len(points) == len(drawn) + 10
    assert len({trial.seed for trial in trials}) == 12
    assert len(make("none", {}, larger(whole, 30)).trials()) == 32, "then points repeat"


def test_an_extended_grid_continues_where_it_stopped_and_ends() -> None:
    whole = dataclasses.replace(search(2, sampler="grid"), space={"depth": Int(low=1, high=5)})
    trials = make("none", {}, larger(whole, 3)).trials()
    assert [trial.parameters["depth"] for trial in trials] == [1, 2, 3, 4, 5]
    with pytest.raises(InputError, match="trials must be at most the grid's 5 points"):
        make("none", {}, larger(whole, 4))


def test_added_trials_are_halved_among_themselves_at_rungs_for_their_number() -> None:
    whole = larger(search(16), 4)
    tuner = make("successive_halving", {"demand": "growing"}, whole)
    for trial in range(1, 17):
        tuner.on_failed(trial)
    runs = tuner.runs()
    assert [(run.trial, run.stop_at, run.most) for run in runs] == [(number, WHOLE // 4, 1) for number in range(17, 21)]
    for run in runs:
        tuner.on_paused(run.trial, WHOLE // 4, run.trial / 100.0)
    assert [(run.trial, run.stop_at, run.most) for run in tuner.runs()] == [(19, WHOLE // 2, 2), (20, WHOLE // 2, 2)]


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_after_an_extension_the_forecast_covers_only_the_added_trials(kind: str, options: Mapping[str, Any]) -> None:
    lab = Lab(make(kind, options, search(6)), search(6), 3, nan=0.0, failing=0.0)
    while lab.step():
        pass
    done = {trial: float(at) for trial, at in lab.done.items()}
    lab = grown(lab, kind, options, 3)
    alone = Speed(seconds_per_iteration=2.0)
    now = forecast(lab.tuner, done, {}, otherwise=alone, before=done)
    assert now is not None
    left = sum(job.iterations_left for phase in now.phases for job in phase.jobs)
    assert left > 0.0
    assert now.total_gpu_seconds == pytest.approx(2.0 * left)
    first = lab.tuner.runs()[0].trial
    later = forecast(lab.tuner, {**done, first: 2.0}, {}, otherwise=alone, before=done)
    assert later is not None
    assert later.total_gpu_seconds == pytest.approx(now.total_gpu_seconds), "what is done of them counts"
    assert now.most <= 3 * 4, "three trials of at most four GPUs"


def test_a_single_added_trial_runs_to_its_end() -> None:
    for kind, options in KINDS:
        tuner = make(kind, options, larger(search(6), 1))
        for trial in range(1, 7):
            tuner.on_failed(trial)
        (run,) = tuner.runs()
        assert (run.trial, run.stop_at) == (7, None)
