"""What the events of a job say of a live change of its gang."""

import dataclasses

import pytest

from eunomia_appmaster.master.change_words import pause_words
from eunomia_appmaster.runtimes.runtime import Entered

ENTERED = Entered(generation=2, size=1, step=40, join_seconds=0.0, pause_seconds=0.35, at=1.7e9)


@pytest.mark.parametrize(
    ("at_least", "step_seconds", "words"),
    [
        (False, None, "stood still 350 ms"),
        (False, 0.1, "stood still 350 ms, 3.5 steps"),
        (True, 0.1, "stood still at least 350 ms, 3.5 steps"),
    ],
)
def test_a_job_that_may_have_stood_still_for_longer_stood_still_at_least(
    at_least: bool, step_seconds: float | None, words: str
) -> None:
    assert pause_words(dataclasses.replace(ENTERED, at_least=at_least), step_seconds) == words
