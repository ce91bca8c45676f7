"""Trials that failed for good: the arbiter keeps their last errors, and every screen of an app shows them."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.commands import apps, explain
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.app_record import App

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
WHY = "exited with code 1: ValueError: learning rate 0.715 diverged"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path) as made:
        yield made.ready()


def search(lab: Any, trials: int = 4) -> Any:
    master = lab.master("ana", "1")
    master.register()
    master.beat(jobs_added=[pb.JobAdded(job=f"ana/{number}", least=1, most=1) for number in range(1, trials + 1)])
    return master


def failed(number: int, why: str = WHY) -> pb.JobFailed:
    return pb.JobFailed(job=f"ana/{number}", why=why)


def log_of(lab: Any, number: int) -> str:
    return str(lab.folder / "state" / "apps" / "ana" / str(number) / "output")


def test_a_finished_app_shows_its_failed_trial_on_every_screen(lab: Any) -> None:
    master = search(lab)
    master.beat(jobs_failed=[failed(2)])
    said = f"ana: 1 of 4 trials failed: ana/2: {WHY} (log {log_of(lab, 2)})"
    assert apps.lines(lab.seen())[-1] == said
    master.beat(jobs_finished=["ana/1", "ana/3", "ana/4"])
    master.finish()
    seen = lab.seen()
    assert (seen.apps[0].state, apps.lines(seen)[-1]) == ("finished", said)
    (shown,) = json.loads(json.dumps(apps.facts(seen)))["apps"]
    assert (shown["failed"], shown["failures"]) == (1, [{"job": "ana/2", "why": WHY, "log": log_of(lab, 2)}])


def test_explain_prints_the_last_error_and_the_path_of_the_log(lab: Any) -> None:
    master = search(lab)
    master.beat(jobs_failed=[failed(2)])
    client = lab.client()
    (one,) = client.Explain(pb.ExplainRequest(job="ana/2"), metadata=lab.operator).explanations
    assert explain.screen([one], {}) == [
        "ana/2   FAILED    app ana, user ana",
        f"           {WHY}",
        f"Log        {log_of(lab, 2)}",
    ]
    assert (explain.facts(one)["text"], explain.facts(one)["log"]) == (WHY, log_of(lab, 2))
    master.beat(jobs_failed=[failed(3, "exited with code 9")])
    every = client.Explain(pb.ExplainRequest(job="ana"), metadata=lab.operator).explanations
    shown = explain.screen(every, {})
    assert shown[-4] == "ana   2 jobs FAILED"
    assert [line.split()[0] for line in shown[-2:]] == ["ana/2", "ana/3"]
    assert "exited with code 9" in shown[-1]


def test_a_trial_that_fails_when_its_app_ends_is_recorded_too(lab: Any) -> None:
    master = search(lab)
    master.beat(jobs_finished=["ana/1", "ana/2", "ana/3"])
    master.finish(jobs_failed=[failed(4), pb.JobFailed(job="bob/1", why="not its own")])
    app = lab.app("ana")
    assert (app.state, app.failed, [one.job for one in app.failures]) == ("finished", 1, ["ana/4"])
    lab.quiet()
    lab.restart()
    lab.ready()
    assert lab.app("ana").failures[0].why == WHY


def test_the_apps_command_shows_why_an_app_without_failed_trials_failed(lab: Any) -> None:
    master = search(lab)
    master.finish(final_application_status=pb.FAILED, diagnostics="metric must be finite")
    assert apps.lines(lab.seen())[-1] == "ana: metric must be finite"


def test_all_failed_trials_are_counted_and_the_last_ones_listed() -> None:
    app = App(
        name="ana", user="ana", weight=1.0, tuner="none", trials=900, least=1, most=1, submitted_at=0.0, arrived_at=0.0
    )
    for number in range(900):
        app.job_failed(f"ana/{number}", "x" * 10_000)
    assert app.failed == 900
    assert list(app.failures)[-1] == "ana/899"
    assert len(str(app.note().value)) < 100_000
