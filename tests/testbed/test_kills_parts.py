"""What runs with kills are judged by: who held a slot, and how much work a kill cost."""

import dataclasses
import json
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.kills.losses import Life, lost
from chaos.kills.runs import small_apps
from chaos.kills.victims import end_those_left, started

# --- work lost


def logged(first: int, last: int, since: float, each: float) -> dict[int, float]:
    """Unix times of steps that were logged; ``since``: when the first began."""
    return {number: since + each * (number - first + 1) for number in range(first, last + 1)}


def test_lost_seconds_count_from_the_state_of_the_last_checkpoint() -> None:
    first = Life(
        incarnation=1, reported=40, step_seconds=0.1, started=99.0, ended=104.7, logged=logged(1, 40, 100.0, 0.1)
    )
    second = Life(incarnation=2, reported=60, step_seconds=0.1, started=105.0, logged=logged(31, 60, 106.0, 0.1))
    (loss,) = lost("a/1", [first, second])
    assert (loss.job, loss.incarnation, loss.steps) == ("a/1", 1, 10)
    assert loss.seconds == pytest.approx(104.7 - 103.0)  # also what was not logged any more


def test_time_in_which_a_job_writes_a_checkpoint_is_not_lost_work() -> None:
    """Everything is logged before a checkpoint is written: the work of who is killed then ends with its log."""
    first = Life(incarnation=1, step_seconds=0.1, ended=104.7, logged=logged(1, 40, 100.0, 0.1), wrote=True)
    second = Life(incarnation=2, logged=logged(31, 60, 106.0, 0.1))
    (loss,) = lost("a/1", [first, second])
    assert loss.seconds == pytest.approx(104.0 - 103.0)


def test_an_incarnation_without_a_checkpoint_loses_only_its_own_work() -> None:
    lives = [
        Life(incarnation=1, step_seconds=0.1, ended=104.0, logged=logged(1, 30, 101.0, 0.1)),
        Life(incarnation=2, step_seconds=0.1, ended=111.5, logged=logged(31, 40, 110.0, 0.1)),
        Life(incarnation=3, step_seconds=0.1, logged=logged(31, 90, 120.0, 0.1)),
    ]
    (loss,) = lost("a/1", lives)
    assert (loss.incarnation, loss.steps) == (2, 10)
    assert loss.seconds == pytest.approx(1.5)


def test_without_logs_the_reported_progress_counts() -> None:
    lives = [
        Life(incarnation=1, reported=12, step_seconds=0.1, started=100.0, ended=109.0),
        Life(incarnation=2, logged=logged(1, 90, 120.0, 0.1)),
    ]
    (loss,) = lost("a/1", lives)
    assert loss.steps == 12
    assert loss.seconds == pytest.approx(1.2 + 1.0)  # reported a second before, at most
    lives[0] = dataclasses.replace(lives[0], ended=101.5)
    (loss,) = lost("a/1", lives)
    assert loss.seconds == pytest.approx(1.5)


def test_a_worker_that_ended_by_itself_has_no_lost_work() -> None:
    lives = [
        Life(incarnation=1, reported=30, ended=104.0, logged=logged(1, 30, 101.0, 0.1)),
        Life(incarnation=2, logged=logged(31, 90, 120.0, 0.1)),
    ]
    assert list(lost("a/1", lives)) == []


# --- the end of a run


@pytest.fixture
def runs_on(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A container of a launcher that has ended."""
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    folder = tmp_path / "launcher" / "live" / "a.1.1.0"
    folder.mkdir(parents=True)
    record = {"container_id": "a.1.1.0", "app": "a", "job": 1, "incarnation": 1, "slot": 0, "state": "RUNNING"}
    (folder / "container.json").write_text(json.dumps({**record, "status": {"hello": True}}))
    (folder / "worker.json").write_text(json.dumps({"pid": process.pid, "start_time": started(process.pid)}))
    yield process
    process.kill()
    process.wait()


def test_processes_that_outlive_the_launcher_are_named_and_killed(
    tmp_path: Path, runs_on: subprocess.Popen[bytes]
) -> None:
    assert end_those_left(tmp_path, 0.0) == ["a.1.1.0"]
    assert runs_on.wait(10.0) == -signal.SIGKILL


def test_processes_that_end_by_themselves_are_waited_for(tmp_path: Path, runs_on: subprocess.Popen[bytes]) -> None:
    runs_on.terminate()
    assert end_those_left(tmp_path, 60.0) == []


@pytest.mark.parametrize("length", [0.0, 0.36, 1.0])
def test_the_shortest_apps_have_a_metric_at_their_first_rung(length: float) -> None:
    for source in small_apps(length):
        first = tomllib.loads(source.text).get("tuner", {}).get("min_iterations", source.max_iterations // 4)
        assert first >= 15  # steps of an epoch, at whose end the accuracy is logged
