"""The log of writes by fence records what processes change, and its check finds each way to break the rules."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster.cluster_lab import RECORDER
from tests.appmaster.written import Change, breaches, changes, overlaps

JOB = "ana/1"
SCRIPT = """
import os, pathlib
run = pathlib.Path("state/apps/ana/1").absolute()
(run / "checkpoints" / "a1-i2-g1").mkdir(parents=True)
data = run / "checkpoints" / "a1-i2-g1" / ".000010.pt.tmp"
data.write_bytes(b"weights")
data.rename(data.with_name("000010.pt"))
data.with_name("000010.pt").unlink()
pathlib.Path("outside").write_text("")
"""


def worker(attempt: int, incarnation: int, pid: int, node: str = "one") -> dict[str, Any]:
    who = {"app": "", "job": JOB, "attempt": str(attempt), "part": "", "incarnation": str(incarnation)}
    return who | {"node": node, "pid": pid}


def master(attempt: int, pid: int) -> dict[str, Any]:
    return worker(attempt, 0, pid) | {"app": "ana", "job": "", "incarnation": ""}


def history(*made: tuple[str, dict[str, Any], str] | tuple[str, dict[str, Any], str, str]) -> list[Change]:
    """Changes at intervals of two seconds."""
    return [Change(2.0 * at, 2.0 * at, what, tuple(paths), who) for at, (what, who, *paths) in enumerate(made)]


def folder(attempt: int, incarnation: int, generation: int = 1) -> str:
    return f"{JOB}/checkpoints/a{attempt}-i{incarnation}-g{generation}"


FIRST, SECOND = worker(1, 1, 11), worker(1, 2, 12, "two")
SAVED = (
    ("os.mkdir", FIRST, folder(1, 1)),
    ("os.rename", FIRST, f"{folder(1, 1)}/.000040.pt.tmp", f"{folder(1, 1)}/000040.pt"),
    ("os.rename", FIRST, f"{folder(1, 1)}/.000040.json.tmp", f"{folder(1, 1)}/000040.json"),
    ("open", FIRST, f"{folder(1, 1)}/.000080.pt.tmp"),
)
WENT_ON = (
    ("os.mkdir", SECOND, folder(1, 2)),
    ("os.link", SECOND, f"{folder(1, 1)}/000040.pt", f"{folder(1, 2)}/000040.pt"),
    ("os.rename", SECOND, f"{folder(1, 2)}/.000040.json.tmp", f"{folder(1, 2)}/000040.json"),
    ("open", SECOND, f"{folder(1, 2)}/.000080.pt.tmp"),
)
WENT_BACK = (
    ("os.mkdir", worker(2, 3, 14), folder(2, 3)),
    ("os.link", worker(2, 3, 14), f"{folder(1, 1)}/000040.pt", f"{folder(2, 3)}/000040.pt"),
)


def test_writers_that_stay_in_their_folders_break_no_rule() -> None:
    assert breaches(history(*SAVED, *WENT_ON)) == []
    assert breaches(history(*SAVED, *WENT_ON, ("os.remove", SECOND, f"{folder(1, 1)}/000040.json"))) == []
    parts = (("os.mkdir", master(1, 21), "ana/master/a1-g1"), ("os.mkdir", master(1, 22), "ana/master/a1-g2"))
    assert breaches(history(*parts, ("os.remove", master(1, 22), "ana/master/a1-g1/master.json"))) == []


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ((*SAVED, *WENT_ON, ("os.remove", FIRST, f"{folder(1, 2)}/000040.json")), "another fence"),
        ((*SAVED, ("open", SECOND, f"{folder(1, 1)}/000040.json")), "another fence"),
        ((*SAVED, ("os.rename", SECOND, f"{folder(1, 1)}/000040.pt", f"{folder(1, 2)}/000040.pt")), "another fence"),
        ((*SAVED, ("open", worker(1, 1, 13), f"{folder(1, 1)}/.000090.pt.tmp")), "two writers in one folder"),
        ((*SAVED, ("os.mkdir", SECOND, folder(1, 2))), "went on from None"),
        (
            (*SAVED, *WENT_ON, *WENT_BACK),
            "went on from (1, 1, 1), though (1, 2, 1)",
        ),
        ((("open", master(1, 21), "ana/activity/a2-g1.jsonl"),), "changed by another"),
        (
            (("os.mkdir", master(1, 21), "ana/master/a1-g1"), ("open", master(2, 22), "ana/master/a1-g1/master.json")),
            "another fence",
        ),
        (
            (("open", FIRST, f"{JOB}/logs/events.1.a1.r1"), ("open", worker(1, 1, 13), f"{JOB}/logs/events.1.a1.r1")),
            "changed by another",
        ),
        ((("open", FIRST, f"{JOB}/output/a1-i1-g1.two.stdout.log"),), "of node two was changed on another"),
        (
            tuple(("open", who, f"{JOB}/containers/ana.1.1.0/pulse") for who in (FIRST, worker(1, 1, 13, "two"))),
            "of node one was changed on another",
        ),
    ],
)
def test_each_broken_rule_of_a_history_is_found(made: tuple[Any, ...], said: str) -> None:
    found = breaches(history(*made))
    assert len(found) == 1
    assert said in found[0]


def test_workers_that_overlap_in_time_on_a_slot_or_for_a_job_are_found(tmp_path: Path) -> None:
    lives = {"ana.1.1.0": (0, 10.0, 20.0), "ana.1.2.0": (1, 15.0, 30.0), "ben.1.1.0": (0, 19.0, 40.0)}
    for container, (slot, since, until) in lives.items():
        app, job, _, _ = container.split(".")
        place = tmp_path / app / job / "containers" / container
        place.mkdir(parents=True)
        (place / "container.json").write_text(json.dumps({"slot": slot}))
        (place / "worker.json").write_text(json.dumps({"pid": 1, "started_at": since}))
        (place / "exit.json").write_text(json.dumps({"ended_at": until}))
    slots, jobs = overlaps(tmp_path, [], jobs=True)
    assert slots.startswith("slot 0 of ?: ")
    assert jobs.startswith("ana/1: ")
    assert overlaps(tmp_path, [], jobs=False) == [slots]


def test_the_recorder_logs_changes_below_the_apps_folder_with_their_writer(tmp_path: Path) -> None:
    recorder = tmp_path / "recorder"
    recorder.mkdir()
    (recorder / "sitecustomize.py").write_text((RECORDER / "sitecustomize.py").read_text())
    env = {**os.environ, "PYTHONPATH": str(recorder), "EUNOMIA_JOB": JOB, "EUNOMIA_ATTEMPT": "1"}
    subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=env | {"EUNOMIA_INCARNATION": "2"}, check=True, timeout=60
    )
    made = changes(recorder / "log")
    assert [(one.what, one.paths[-1].rpartition("/")[2]) for one in made][-4:] == [
        ("os.mkdir", "a1-i2-g1"),
        ("open", ".000010.pt.tmp"),
        ("os.rename", "000010.pt"),
        ("os.remove", "000010.pt"),
    ]
    assert {one.fence for one in made} == {(1, 2)}
    assert breaches(made) == []
