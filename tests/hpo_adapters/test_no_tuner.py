import json
import math
from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia.platform.registry import Registry
from eunomia_appmaster.app.space import Categorical
from eunomia_appmaster.tuner import TUNERS, Search, Speed, Tuner, forecast, load_tuner, tuner_kinds
from eunomia_hpo_adapters.none import NoTuner, NoTunerOptions


def make(trials: int = 3, max_iterations: int | None = 100) -> NoTuner:
    space = {"lr": Categorical(choices=(0.1, 0.2, 0.3))}
    search = Search(
        space=space,
        metric="loss",
        mode="min",
        trials=trials,
        sampler="grid",
        seed=0,
        least=1,
        most=2,
        max_iterations=max_iterations,
    )
    return NoTuner.create(search, NoTunerOptions())


def test_all_trials_run_to_their_end() -> None:
    tuner = make()
    assert [(run.trial, run.stop_at, run.least, run.most) for run in tuner.runs()] == [
        (n, None, 1, 2) for n in (1, 2, 3)
    ]
    tuner.on_result(1, 10, 0.5)
    tuner.on_finished(1, 100, 0.4)
    tuner.on_failed(2)
    tuner.on_result(3, 10, math.nan)
    assert [run.trial for run in tuner.runs()] == [3]
    again = make()
    again.restore(json.loads(json.dumps(tuner.state(), allow_nan=False)))
    assert again.ended() == [1, 2]
    again.on_finished(3, 100, 0.1)
    assert again.is_done()
    assert again.best() == 3


def test_the_forecast_is_one_phase_with_the_remaining_work() -> None:
    tuner = make()
    tuner.on_finished(2, 100, 1.0)
    known = forecast(
        tuner, {1: 40.0, 2: 100.0}, {1: Speed(seconds_per_iteration=0.5)}, otherwise=Speed(seconds_per_iteration=9.0)
    )
    assert known is not None
    (phase,) = known.phases
    assert [job.iterations_left for job in phase.jobs] == [60.0, 100.0]
    assert known.total_gpu_seconds == 0.5 * (40 + 100 + 60 + 100)
    assert known.most == 4


def test_built_in_tuners_can_be_loaded_and_implement_the_protocol() -> None:
    for kind in TUNERS:
        assert isinstance(load_tuner(kind), type)
    assert isinstance(make(), Tuner)


def test_plugins_can_add_tuners(tmp_path: Path) -> None:
    plugin = tmp_path / "curious.py"
    plugin.write_text(
        "from eunomia import hookimpl\n"
        "class Curious:\n"
        "    name, api = 'curious', 1\n"
        "    @hookimpl\n"
        "    def eunomia_tuners(self):\n"
        "        return {'mine': 'eunomia_hpo_adapters.none:NoTuner', 'none': 'elsewhere:Other'}\n"
    )
    kinds = tuner_kinds(Registry.find(paths=[plugin], installed=False))
    assert load_tuner("mine", kinds) is NoTuner
    assert kinds["none"] == TUNERS["none"]
    with pytest.raises(
        InputError, match=r'kind must name a tuner: .*mine, none, .* but got "mien"; did you mean "mine"'
    ):
        load_tuner("mien", kinds)
    with pytest.raises(InputError, match='tuner "gone" must be importable'):
        load_tuner("gone", {"gone": "no_such_module:Tuner"})
