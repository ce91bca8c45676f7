"""A search that has ended goes on with further trials: arbiter, launcher, app masters and workers as processes."""

import csv
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster.serving_lab import client, eventually, floors, ready, supervisor
from tests.appmaster.test_app_master_killed import live

from eunomia import cli
from eunomia.errors import InputError
from eunomia_appmaster import Client
from eunomia_appmaster.app.master_folders import trials_file
from eunomia_appmaster.node.supervisor import Supervisor
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_testbed.live_runs.record import LiveRecord

__all__ = ["floors"]
WORKER = Path(__file__).parent.parent / "appmaster" / "tiny_worker.py"
SEARCH = """
[app]
name = "lrs"
[job]
command = "COMMAND"
slots = 1
max_iterations = 40
[space]
lr = { type = "float", low = 0.1, high = 0.5 }
[tuner]
kind = "successive_halving"
metric = "val/accuracy"
trials = 4
seed = 3
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in this process; what it wrote to stdout, or to stderr where it is to fail."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(WORKER, tmp_path / "train.py")

    def command(*arguments: str, check: int = 0) -> str:
        capfd.readouterr()
        code = cli.run((*arguments, "--state-dir", str(tmp_path / "state")))
        said = capfd.readouterr()
        assert code == check, said.out + said.err
        return said.out if check in (0, 1) else said.err

    return command


@contextmanager
def served(folder: Path, **more: Any) -> Iterator[tuple[Supervisor, Client]]:
    with supervisor(folder, **more) as made, client(made) as arbiter:
        yield made, arbiter


def app_file(folder: Path, text: str = SEARCH, *, seconds: float = 0.005) -> str:
    path = folder / "app.toml"
    path.write_text(text.replace("COMMAND", f"{sys.executable} train.py {{args}} --seconds {seconds}"))
    return str(path)


def trials(folder: Path, app: str = "lrs") -> list[dict[str, str]]:
    with trials_file(folder / "state" / "apps" / app).open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_finished_search_continues_with_more_trials_also_after_a_kill_of_the_arbiter(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    with served(tmp_path) as (made, arbiter):
        app = arbiter.submit(app_file(tmp_path))
        first = app.wait("2m")
        assert first.state == "finished"
        before = trials(tmp_path)
        said = run("submit", "--more-trials", "3", "lrs")
        assert said.startswith("lrs: goes on with 3 more trials; 7 in all")
        assert made.arbiter is not None
        assert made.arbiter.pid is not None
        os.kill(made.arbiter.pid, signal.SIGKILL)  # the journal knows that the app goes on
        eventually(lambda: ready(arbiter))
        assert "an app must have ended to get more trials" in run("submit", "--more-trials", "1", "lrs", check=2)
        ended = app.wait("2m")
        rows = trials(tmp_path)
        assert ended.state == "finished"
        assert rows[:4] == before, "what has run stays"
        assert [row["job"] for row in rows] == [f"lrs/{number}" for number in range(1, 8)]
        assert len({row["parameters"] for row in rows}) == 7, "no point is drawn twice"
        assert "40" in [row["iterations"] for row in rows[4:]], "one of the new trials runs to its end"
        metrics = {row["job"]: float(row["best"]) for row in rows}
        assert ended.best is not None
        assert metrics[ended.best.job] == max(metrics.values()), "the best of all"
        said = run("submit", "--more-trials", "1", "lrs", "--wait", "--json")
        record = json.loads(said)
        assert (record["schema"], record["trials"], record["state"]) == ("eunomia/more_trials@1", 8, "finished")
        assert (trials(tmp_path)[7]["iterations"], record["best"]) == ("40", _best_of(run))
        listed = json.loads(run("apps", "--all", "--json"))["apps"][0]
        assert listed["trials"] == {"ended": 8, "all": 8}
        request = pb.MoreTrialsRequest(app="lrs", trials=1, request_id="once")
        first_answer, second_answer = (arbiter._call(arbiter._stub.MoreTrials, request) for _ in range(2))
        assert (first_answer.trials, second_answer.trials) == (9, 9), "a lost answer that is asked for again"
        arbiter.cancel("lrs")
    assert cli.run(["journal", "check", str(tmp_path / "state")]) == 0
    seen = LiveRecord(tmp_path / "state")
    seen.poll()
    seen.close()
    life = seen.apps["lrs"]
    assert (life.state, life.again_at is not None) == ("cancelled", True)
    assert life.jct_seconds is not None
    assert life.ended_at is not None
    assert 0.0 < life.jct_seconds <= life.ended_at - life.arrived_at - life.away_seconds


def _best_of(run: Callable[..., str]) -> Any:
    return json.loads(run("best", "lrs", "--json"))["best"]


@pytest.mark.slow
def test_a_cancelled_search_that_the_arbiter_forgot_continues_with_its_remaining_trials(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    options = ("--not-durable", "--heartbeat-seconds", "0.3", "--keep-apps", "0")
    with served(tmp_path, arbiter_options=options) as (made, arbiter):
        text = SEARCH.replace('kind = "successive_halving"', 'kind = "none"').replace("40", "120")
        app = arbiter.submit(app_file(tmp_path, text, seconds=0.02))
        eventually(lambda: arbiter.app("lrs").HasField("best"), "a metric")
        arbiter.cancel("lrs")
        eventually(lambda: not arbiter.app("lrs").app_master or arbiter.app("lrs").app_master == "unknown")
        answer = app.more_trials(2)
        assert (answer.trials, answer.attempt) == (6, 2)
        ((_, pid),) = eventually(lambda: live(made, masters=True), "its app master")
        os.kill(pid, signal.SIGKILL)  # the launcher starts the next attempt with the same order
        assert app.wait("2m").state == "finished"
        assert [row["iterations"] for row in trials(tmp_path)] == ["120"] * 6


def test_more_trials_are_refused_for_apps_that_cannot_continue_and_nothing_changes(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    with served(tmp_path) as (_, arbiter):
        grid = SEARCH.replace("high = 0.5", "high = 0.3, step = 0.1").replace("trials = 4", 'sampler = "grid"')
        apps = [
            arbiter.submit(app_file(tmp_path, grid.replace("lrs", "grid"))),
            arbiter.submit(app_file(tmp_path, SEARCH.partition("[space]")[0].replace("lrs", "single"))),
            arbiter.submit(app_file(tmp_path, SEARCH.replace("lrs", "gone"))),
        ]
        assert [app.wait("2m").state for app in apps] == ["finished"] * 3
        more = ("submit", "--more-trials")
        assert "trials must be at most the grid's 3 points, but got 4" in run(*more, "1", "grid", check=2)
        said = run(*more, "1", "single", check=2)
        assert "an app must be a search to get more trials" in said
        assert "but got a single job" in said
        shutil.rmtree(tmp_path / "state" / "apps" / "gone")
        said = run(*more, "1", "gone", check=2)
        assert "what an app goes on from must be there" in said
        assert "submission.json" in said
        assert "submission.json" in said
        assert '; did you mean "gone"?' in run(*more, "1", "gon", check=2)
        assert "at most 10000 trials in all, but got 10003" in run(*more, "10000", "grid", check=2)
        assert "a number must be from 1 to 10000" in run(*more, "2000000000", "grid", check=2)
        for wrong in ("0", "-3", "two"):
            assert "Invalid value" in run(*more, wrong, "grid", check=2)
        with pytest.raises(InputError, match="at least 1"):
            arbiter.more_trials("grid", 0)
        assert {app.app: (app.state, app.trials) for app in arbiter.list().apps} == {
            "grid": ("finished", 3), "single": ("finished", 1), "gone": ("finished", 4),
        }  # fmt: skip
