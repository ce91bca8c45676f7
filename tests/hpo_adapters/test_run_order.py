"""The order of runs is kept from report to report, and equals one that is made from all trials at each."""

from collections.abc import Mapping
from typing import Any

import pytest
from tuner_lab import KINDS, WHOLE, Lab, make, search

from eunomia_hpo_adapters.halving import Halving

HALVINGS = [(kind, options) for kind, options in KINDS if kind in ("successive_halving", "hyperband")]


def sorted_runs(tuner: Halving) -> list[int]:
    """The trials that run, those at higher rungs first, then by number, from a look at all of them."""
    wanted = [
        (-bracket.level(trial), trial)
        for bracket in tuner._brackets
        for trial in bracket.members
        if trial <= len(tuner.trials()) and bracket.is_active(trial)
    ]
    return [trial for _, trial in sorted(wanted)]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.parametrize(("kind", "options"), HALVINGS)
def test_the_order_updated_incrementally_equals_a_sort_of_all_trials(
    kind: str, options: Mapping[str, Any], sampler: Any
) -> None:
    if sampler == "tpe":
        pytest.importorskip("optuna")
    for seed in range(3):
        whole = search(24, sampler=sampler)
        tuner = make(kind, options, whole)
        assert isinstance(tuner, Halving)
        lab = Lab(tuner, whole, seed)
        while lab.step():
            assert [run.trial for run in tuner.runs()] == sorted_runs(tuner)


def test_one_report_among_thousands_of_trials_recomputes_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = make("hyperband", {"min_iterations": 4}, search(3000))
    assert isinstance(tuner, Halving)
    assert len(tuner.runs()) == 3000
    made: list[int] = []
    make_run = Halving._run
    monkeypatch.setattr(Halving, "_run", lambda self, trial: made.append(trial) or make_run(self, trial))
    for _ in range(50):
        run = tuner.runs()[0]
        tuner.on_paused(run.trial, run.stop_at or WHOLE, 0.5)
    assert len(tuner.runs()) == 2950
    assert len(made) <= 50
