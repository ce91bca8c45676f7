"""Samplers of Optuna: trials are suggested as results arrive, and equally after a restart."""

import builtins
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tuner_lab import Lab, make, search

from eunomia.errors import InputError, InputErrors
from eunomia_appmaster.app.app_file import AppFile
from eunomia_appmaster.app.space import Categorical, Float, Int
from eunomia_hpo_adapters.optuna_samplers import Learner
from eunomia_hpo_adapters.trials import Trials

pytest.importorskip("optuna")

LATE: list[tuple[str, Mapping[str, Any]]] = [
    ("none", {}),
    ("successive_halving", {}),
    ("successive_halving", {"asynchronous": True, "min_iterations": 4}),
    ("hyperband", {"min_iterations": 16, "reduction_factor": 2}),
    ("median_stopping", {"least_trials": 2}),
    ("curve_stopping", {}),
]


@pytest.mark.parametrize(("kind", "options"), LATE, ids=[kind for kind, _ in LATE])
@pytest.mark.parametrize("steps", [0, 7, 31])
def test_every_tuner_accepts_trials_that_are_suggested_one_by_one(
    kind: str, options: Mapping[str, Any], steps: int
) -> None:
    whole = search(9, sampler="tpe")
    lab = Lab(make(kind, options, whole), whole, steps, nan=0.1, failing=0.05)
    assert len(lab.tuner.trials()) == 3
    for _ in range(steps):
        lab.step()
    again = lab.restart(kind, options)
    assert again.answers() == lab.answers()
    for each in (lab, again):
        while each.step():
            pass
        assert len(each.tuner.trials()) == 9
    assert again.answers() == lab.answers()


def objective(parameters: Mapping[str, Any]) -> float:
    return float(-((parameters["x"] - 0.3) ** 2))


def play(sampler: str, trials: int = 30) -> list[float]:
    whole = search(trials, sampler=sampler, concurrent=1)  # type: ignore[arg-type]
    import dataclasses

    made = Trials(dataclasses.replace(whole, space={"x": Float(low=-5.0, high=5.0)}))
    for number in range(1, trials + 1):
        made.tell(number, objective(made.made[number - 1].parameters))
    return [objective(trial.parameters) for trial in made.made]


def test_tpe_learns_from_results() -> None:
    costs = play("tpe")
    assert sum(costs[20:]) / 10 > 3 * sum(costs[:5]) / 5  # costs are negative: a third of the random ones
    assert play("tpe") == costs


def test_qmc_fills_the_space_and_follows_the_seed() -> None:
    costs = play("qmc", 8)
    assert len(set(costs)) == 8


def test_the_number_of_trials_without_a_result_is_limited() -> None:
    made = Trials(search(7, sampler="tpe", concurrent=2))
    assert [trial.number for trial in made.made] == [1, 2]
    assert made.waves == [2, 2, 1]
    made.tell(2, 0.5)
    made.tell(2, 0.7)  # its first result counts
    assert [trial.number for trial in made.made] == [1, 2, 3]
    made.tell(1, None)
    made.tell(3, float("nan"))
    assert len(made) == 5
    kept = json.loads(json.dumps(made.state(), allow_nan=False))
    results = [(event["trial"], event["metric"]) for event in kept["history"] if event["told"]]
    assert results == [(2, 0.5), (1, None), (3, None)]


def test_a_tuner_that_creates_all_trials_at_once_refuses_adaptive_samplers() -> None:
    with pytest.raises(
        InputError, match="sampler must be random or grid for a tuner that makes all its trials at once"
    ):
        search(3, sampler="tpe").trial(1)


def test_trials_not_yet_suggested_are_forecast_in_groups_that_run_concurrently() -> None:
    tuner = make("successive_halving", {}, search(8, sampler="tpe", concurrent=3))
    phases = [[job.trial for job in tuner.jobs_in_phase(n, {})] for n in range(tuner.num_phases())]
    assert phases == [[1, 2, 3], [None] * 3, [None] * 2, [None] * 4, [None] * 2, [None]]


def test_suggestions_of_another_optuna_version_are_kept_and_learned_from() -> None:
    whole = search(6, sampler="tpe", concurrent=1)
    made = Trials(whole)
    for number in range(1, 5):
        made.tell(number, number / 10)
    kept = made.state()
    for event in kept["history"]:
        if not event["told"]:
            event["parameters"] = {"lr": 0.5, "dropout": 0.1}
    again = Trials(whole)
    again.restore(kept)
    assert [trial.parameters for trial in again.made] == [{"lr": 0.5, "dropout": 0.1}] * 5
    assert again._learner is not None
    assert [trial.params for trial in again._learner._study.trials] == [{"lr": 0.5, "dropout": 0.1}] * 5
    again.tell(5, 0.9)
    assert len(again) == 6


def test_suggested_parameters_are_plain_values_within_the_space() -> None:
    import dataclasses

    space = {
        "lr": Float(low=1e-4, high=1.0, log=True), "dropout": Float(low=0.1, high=0.55, step=0.1),
        "width": Int(low=16, high=64, step=16), "momentum": Categorical(choices=(0.0, 0.9)),
        "nesterov": Categorical(choices=(True, False)), "layers": Categorical(choices=(1, "two")),
    }  # fmt: skip
    for sampler in ("tpe", "qmc"):
        learner = Learner(dataclasses.replace(search(9, sampler=sampler), space=space))  # type: ignore[arg-type]
        for number in range(1, 10):
            given = learner.ask(number)
            assert list(given) == list(space)
            assert given["dropout"] in (0.1, 0.2, 0.3, 0.4, 0.5)
            assert given["width"] in (16, 32, 48, 64) and type(given["width"]) is int
            assert given["nesterov"] in (True, False) and type(given["nesterov"]) is bool
            assert json.loads(json.dumps(given)) == given


def test_without_optuna_the_error_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "optuna":
            raise ImportError("No module named 'optuna'")
        return found(name, *rest)

    monkeypatch.delitem(sys.modules, "optuna", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError) as caught:
        Learner(search(3, sampler="tpe"))
    assert str(caught.value).startswith(
        'Optuna must be installed for sampler "tpe": pip install ' + "'eunomia[optuna]'"
    )


def test_a_sampler_that_needs_another_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match='cmaes must be installed for sampler "cmaes": pip install cmaes'):
        Learner(search(3, sampler="cmaes"))


APP = """
[app]
name = "late"
[job]
command = "true {args}"
max_iterations = 64
[space]
lr = { type = "float", low = 0.001, high = 1.0, log = true }
[tuner]
kind = "none"
metric = "loss"
trials = 6
"""


def test_app_files_accept_samplers_and_their_options(tmp_path: Path) -> None:
    text = APP + 'sampler = "tpe"\nmax_concurrent_trials = 2\nstartup_trials = 3\n'
    file = AppFile.parse(text, place="late.toml", folder=tmp_path)
    assert (file.search.sampler, file.search.max_concurrent_trials, file.search.startup_trials) == ("tpe", 2, 3)
    assert len(file.make_tuner().trials()) == 2
    with pytest.raises(InputErrors) as caught:
        AppFile.parse(APP + "startup_trials = 3\n", place="late.toml", folder=tmp_path)
    assert str(caught.value.errors[0]) == (
        'startup_trials must go with a sampler of Optuna: tpe, cmaes, gp, qmc, but got 3 with sampler "random" '
        "(late.toml, [tuner].startup_trials)"
    )


def test_hyperband_defaults_to_the_number_of_trials_of_the_paper(tmp_path: Path) -> None:
    text = APP.replace('kind = "none"', 'kind = "hyperband"\nmin_iterations = 16\nreduction_factor = 2')
    assert AppFile.parse(text, place="late.toml", folder=tmp_path).search.trials == 6
    text = text.replace("trials = 6\n", "")
    assert AppFile.parse(text, place="late.toml", folder=tmp_path).search.trials == 10
    with pytest.raises(InputErrors, match="min_iterations must be given"):
        AppFile.parse(text.replace("min_iterations = 16\n", ""), place="late.toml", folder=tmp_path)
