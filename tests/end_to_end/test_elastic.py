"""A trial that takes one slot, then more, then fewer, as its app wins them: real workers under DDP, one checkpoint."""

import time
from pathlib import Path

import pytest

from eunomia_testbed.demo.apps_of_demo import app_sources
from eunomia_testbed.live_runs.app_source import AppSource
from eunomia_testbed.live_runs.live_run import LiveRun
from eunomia_testbed.live_runs.outcome import outcome_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LIMIT_SECONDS = 800.0

ELASTIC = """
[app]
name = "elastic"
[job]
command = "python cnn.py --lr=0.05 --channels=16"
slots = { min = 1, max = 4 }
max_iterations = 2000
checkpoint_every = "5s"
[tuner]
metric = "val/accuracy"
"""
GANG = """
[app]
name = "NAME"
[job]
command = "python cnn.py --lr=0.05 --channels=16"
slots = 3
max_iterations = 60
[tuner]
metric = "val/accuracy"
"""


def app(name: str) -> AppSource:
    text = ELASTIC if name == "elastic" else GANG.replace("NAME", name)
    return AppSource(path=app_sources()[0].path.with_name(f"{name}.toml"), text=text)


class Story:
    """Two gangs of three come to a machine of four slots, each when the elastic trial has grown."""

    def __init__(self, run: LiveRun) -> None:
        self.run = run
        self.to_come = ["first", "second"]

    @property
    def sizes(self) -> list[int]:
        """Slots of each start of the elastic trial."""
        lines = self.run.record.lines
        return [len(line.slots) for line in lines if line.app == "elastic" and line.event == "start"]

    def look(self) -> None:
        self.run.look()
        events = [line.event for line in self.run.record.lines if line.app == "elastic"]
        has_grown = self.sizes[-1:] >= [2] and events[-1] != "start"
        if has_grown and self.to_come and (len(self.to_come) == 2 or 1 in self.sizes):
            gang = app(self.to_come.pop(0))
            self.run.names.append(self.run.client.submit(gang.path, text=gang.text).name)

    @property
    def is_over(self) -> bool:
        return not self.to_come and len(self.run.record.apps) == 3 and self.run.is_over


def test_a_trial_shrinks_and_grows_with_the_slots_that_its_app_wins(tmp_path: Path) -> None:
    # Only the worst-off app sees an offer, so a gang gets its slots as soon as a lease ends.
    settings = ["plugins.themis.fairness_knob=0.9"]
    run = LiveRun(tmp_path / "run", [app("elastic")], settings=settings, slots=4, seed=7, cpu_only=True)
    story, deadline = Story(run), time.monotonic() + LIMIT_SECONDS
    with run:
        run.submit()
        while not story.is_over:
            assert time.monotonic() < deadline, story.sizes
            story.look()
            time.sleep(0.3)
    outcome, sizes = outcome_of(run.record), story.sizes
    down = sizes.index(1)
    assert sizes[0] >= 2 and max(sizes[down:]) >= 2, "it shrinks to one slot and grows again"
    again = next(index for index in range(down, len(sizes)) if sizes[index] >= 2)
    assert 1 in sizes[again:], "and shrinks once more"
    assert {each.app: each.state for each in outcome.apps} == dict.fromkeys(("elastic", "first", "second"), "finished")
    assert outcome.held_twice == ()
    assert outcome.twice_at_most == 0, "it goes on where its checkpoint stood"
    steps = {
        event: [line.step for line in run.record.lines if line.app == "elastic" and line.event == event]
        for event in ("saved", "start", "suspended", "resumed")
    }
    assert steps["start"][1:] == steps["suspended"]
    assert steps["resumed"] and set(steps["resumed"]) <= set(steps["saved"])
    (found,) = (each for each in outcome.apps if each.app == "elastic")
    assert found.best is not None and found.best > 0.9
