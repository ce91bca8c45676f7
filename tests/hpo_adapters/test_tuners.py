"""Properties of every tuner, whatever its kind, its sampler, and the random results of its trials."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuner_lab import KINDS, WHOLE, Lab, make, search

from eunomia_appmaster.tuner import TUNERS, Tuner
from strength import examples

every_kind = pytest.mark.parametrize(
    ("kind", "options"), KINDS, ids=[" ".join([kind, *map(str, options)]) for kind, options in KINDS]
)
STEPS = 3000


def test_every_built_in_tuner_is_checked() -> None:
    # `external` runs what it is told to: test_external.py
    assert {kind for kind, _ in KINDS} == set(TUNERS) - {"external"}


@every_kind
def test_the_tuner_implements_the_protocol(kind: str, options: Mapping[str, Any]) -> None:
    assert isinstance(make(kind, options, search(9)), Tuner)


@every_kind
@settings(max_examples=examples(12), deadline=None)
@given(
    trials=st.integers(4, 14), seed=st.integers(0, 2**20), steps=st.integers(0, 60),
    nan=st.sampled_from([0.0, 0.2, 1.0]), failing=st.sampled_from([0.0, 0.05, 0.4]),
)  # fmt: skip
def test_every_search_ends_and_a_restart_at_any_point_changes_nothing(
    kind: str, options: Mapping[str, Any], trials: int, seed: int, steps: int, nan: float, failing: float
) -> None:
    whole = search(trials)
    lab = Lab(make(kind, options, whole), whole, seed, nan=nan, failing=failing)
    for _ in range(steps):
        if not lab.step():
            break
    again = lab.restart(kind, options)
    assert again.answers() == lab.answers()
    for each in (lab, again):
        assert any(not each.step() for _ in range(STEPS)), "it never ends"
        assert all(at <= WHOLE for at in each.done.values())
    assert again.said == lab.said
    assert again.answers() == lab.answers()
    if nan == 0.0 and failing == 0.0:
        assert lab.tuner.best() is not None
        assert WHOLE in lab.done.values(), "one trial is trained to the end"
    if nan == 1.0:
        assert lab.tuner.best() is None


@every_kind
def test_a_trial_that_is_reported_twice_or_late_does_no_harm(kind: str, options: Mapping[str, Any]) -> None:
    whole = search(6)
    tuner = make(kind, options, whole)
    for trial in range(1, 7):
        tuner.on_failed(trial)
        tuner.on_failed(trial)
        tuner.on_result(trial, 3, 0.5)
    assert tuner.is_done()
    assert sorted(tuner.ended()) == [1, 2, 3, 4, 5, 6]
