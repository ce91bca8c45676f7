"""``eunomia logs APP/N --events``: what belongs to one live change stands on one line."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eunomia_appmaster.explaining.activity import ActivityLog as ActivityReader
from eunomia_appmaster.explaining.activity import Line
from eunomia_appmaster.explaining.job_events import cancellation, event_lines
from eunomia_appmaster.master.files import ActivityLog
from eunomia_appmaster.master.jobs import Job

EVENTS = (
    ("start", 0, 2, ""),
    ("change", 4000, 2, "grow 2 -> 4 ordered"),
    ("change", 4700, 4, "2 newcomers ready"),
    ("resized", 4812, 4, "stood still 62 ms, 0.3 steps"),
    ("change", 5000, 3, "shrink 4 -> 3 ordered"),
    ("change", 5001, 2, "shrink 3 -> 2 ordered"),
    ("resized", 5002, 2, "stood still 3 ms, 0.0 steps"),
    ("left_out", 5003, 2, "worker 1 stalled"),
    ("change", 5003, 1, "shrink 2 -> 1 ordered: a worker is lost"),
    ("change", 5003, 1, "grow 1 -> 2 ordered: its lease has 2 slots"),
    ("resized", 5003, 1, "stood still 8 ms, 0.1 steps"),  # of the shrink, although a growth is ordered by now
    ("saved", 5500, 1, ""),
    ("change", 5600, 2, "1 newcomer ready"),
    ("resized", 5601, 2, "stood still 50 ms, 0.2 steps"),
    ("change", 5700, 2, "grow 2 -> 4 ordered: its lease has 4 slots"),
    ("suspended", 5800, 2, "its app is cancelled"),
    ("start", 5800, 4, ""),
    ("resized", 5900, 4, "stood still 2 ms"),  # not of the change before the restart
    ("finished", 6000, 0, ""),
)
WANTED = [
    "start at step 0 on 2",
    "grow 2 -> 4 ordered   2 newcomers ready   step 4,812 on 4   stood still 62 ms, 0.3 steps",
    "shrink 4 -> 3 ordered",  # the next order has replaced it
    "shrink 3 -> 2 ordered   step 5,002 on 2   stood still 3 ms, 0.0 steps",
    "left out at step 5,003 or later on 2: worker 1 stalled",
    "shrink 2 -> 1 ordered: a worker is lost   step 5,003 on 1   stood still 8 ms, 0.1 steps",
    "grow 1 -> 2 ordered: its lease has 2 slots   1 newcomer ready   step 5,601 on 2   stood still 50 ms, 0.2 steps",
    "saved at step 5,500 on 1",
    "grow 2 -> 4 ordered: its lease has 4 slots",
    "suspended at step 5,800 on 2: its app is cancelled",
    "start at step 5,800 on 4",
    "step 5,900 on 4   stood still 2 ms",
    "finished at step 6,000",
]


def test_a_change_stands_on_one_line() -> None:
    lines = [
        Line(
            at=1.8e9 + n, app="a", job="a/1", event=event, slots=tuple(range(slots)), step=step, incarnation=1, why=why
        )
        for n, (event, step, slots, why) in enumerate(EVENTS)
    ]
    day, *found = event_lines(lines)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day)
    assert [re.sub(r"\d\d:\d\d:\d\d\.\d{3}  ", "", line) for line in found] == WANTED


def test_the_command_shows_the_events_of_one_job_of_a_finished_run(tmp_path: Path, run: Callable[..., str]) -> None:
    for number in (1, 2):
        (tmp_path / "apps" / "a" / str(number)).mkdir(parents=True)
    (tmp_path / "apps" / "a" / "activity").mkdir()
    log = ActivityLog(tmp_path / "apps" / "a" / "activity" / "a1-g1.jsonl", "a")
    for number, why in ((1, "out of memory"), (2, "another's")):
        log.note("failed", Job(number=number, parameters={}, seed=1), 1.8e9, step=7, why=why)
    _, shown = run("logs", "a/1", "--events", "--run", str(tmp_path)).splitlines()
    assert shown.endswith("  failed at step 7 or later: out of memory")


def test_the_pause_of_a_live_change_is_read_as_it_was_noted(tmp_path: Path) -> None:
    (tmp_path / "activity").mkdir()
    job: Any = SimpleNamespace(number=1, step=7, incarnation=1)
    notes = ActivityLog(tmp_path / "activity" / "a1-g1.jsonl", "nets")
    notes.note("resized", job, 10.0, slots=(0, 1), why="stood still 62 ms", pause_seconds=0.0625)
    notes.note("saved", job, 11.0)
    resized, saved = ActivityReader(tmp_path, "nets").poll()
    assert (resized.pause_seconds, saved.pause_seconds) == (0.0625, None)


def test_a_cancelled_job_that_has_run_may_have_made_steps_and_one_that_never_started_has_made_none() -> None:
    started = Line(at=1.8e9, app="a", job="a/1", event="start", slots=(0,), step=0, incarnation=1)
    for events, words in (([started], "cancelled at step 0 or later"), ([], "cancelled at step 0")):
        *_, last = event_lines([*events, cancellation("a/1", 1.8e9 + 5.0, events)])
        assert last.endswith(f"  {words}")
