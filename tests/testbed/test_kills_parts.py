"""What runs with kills are judged by: who held a slot, and how much work a kill cost."""

import dataclasses
import json
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from chaos.kills.losses import Life, lost
from chaos.kills.runs import small_apps
from chaos.kills.victims import end_those_left, started
from eunomia.contract.decisions import Decision, Transition, TransitionKind
from eunomia.contract.events import (
    AppCancelled,
    AppFinished,
    Event,
    GpusReturned,
    JobFailed,
    JobFinished,
    JobPaused,
    Released,
)
from eunomia.journal.journal import Step
from eunomia.units import AppId, Epoch, JobId, LeaseId, Seconds, Version
from eunomia_testbed.demo.holdings import Holdings

SUSPEND, START = TransitionKind.SUSPEND, TransitionKind.START


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def order(kind: TransitionKind, lease: int, epoch: int, app: str, job: str, *, after: int | None = None) -> Transition:
    """About slot 0."""
    gives = kind is START
    return Transition(
        kind=kind,
        lease=LeaseId(lease),
        epoch=Epoch(epoch),
        app=AppId(app),
        job=JobId(job),
        gpus=ints(0) if gives else ints(),
        cpus=np.ones(int(gives)),
        memory_gib=np.ones(int(gives)),
        ends_at=Seconds(1000.0),
        protected_until=Seconds(0.0),
        leaving=ints() if gives else ints(0),
        fence=Epoch(epoch),
        after=ints() if after is None else ints(after),
    )


def step(number: int, *transitions: Transition, events: tuple[Event, ...] = ()) -> Step:
    now = Seconds(float(number))
    decision = Decision(now=now, round=number, version=Version(number), transitions=transitions)
    return Step(number=number, now=now, at=1000.0 + number, events=events, decision=decision)


@pytest.mark.parametrize(
    "given_up",
    [
        JobFailed(job=JobId("b/1"), again_in=Seconds(1.0)),
        JobFinished(job=JobId("b/1")),
        JobPaused(job=JobId("b/1")),
        AppFinished(app=AppId("b")),
        AppCancelled(app=AppId("b")),
        GpusReturned(app=AppId("b"), gpus=(0,)),
    ],
)
def test_a_promise_goes_with_the_job_that_had_it(given_up: Event) -> None:
    """No order says so: whoever gets the slot then is its one holder."""
    told = Holdings({})
    told.take(step(1, order(START, 1, 1, "a", "a/1")))
    told.take(step(2, order(SUSPEND, 1, 2, "a", "a/1"), order(START, 2, 3, "b", "b/1", after=0)))
    told.take(step(3, events=(given_up,)))
    told.take(step(4, events=(Released(lease=LeaseId(1), epoch=Epoch(2), gpus=(0,)),)))
    assert told.current == {}
    told.take(step(5, order(START, 3, 4, "c", "c/1")))
    assert told.twice == []
    assert {gpu: hold.lease for gpu, hold in told.current.items()} == {0: 3}


def test_a_promise_that_stands_is_kept() -> None:
    told = Holdings({})
    told.take(step(1, order(START, 1, 1, "a", "a/1")))
    told.take(step(2, order(SUSPEND, 1, 2, "a", "a/1"), order(START, 2, 3, "b", "b/1", after=0)))
    told.take(step(3, events=(JobFinished(job=JobId("c/1")), Released(lease=LeaseId(1), epoch=Epoch(2), gpus=(0,)))))
    told.take(step(4, order(START, 3, 4, "c", "c/1")))
    assert told.twice == ["slot 0: lease 3 while lease 2 held it"]


# --- work lost


def logged(first: int, last: int, since: float, each: float) -> dict[int, float]:
    """Unix times of steps that were logged; ``since``: when the first began."""
    return {number: since + each * (number - first + 1) for number in range(first, last + 1)}


def test_lost_is_the_time_since_the_state_of_the_checkpoint() -> None:
    first = Life(incarnation=1, told=40, step_seconds=0.1, started=99.0, ended=104.7, logged=logged(1, 40, 100.0, 0.1))
    second = Life(incarnation=2, told=60, step_seconds=0.1, started=105.0, logged=logged(31, 60, 106.0, 0.1))
    (loss,) = lost("a/1", [first, second])
    assert (loss.job, loss.incarnation, loss.steps) == ("a/1", 1, 10)
    assert loss.seconds == pytest.approx(104.7 - 103.0)  # also what was not logged any more


def test_writing_is_no_work() -> None:
    """Everything is logged before a checkpoint is written: the work of who is killed then ends with its log."""
    first = Life(incarnation=1, step_seconds=0.1, ended=104.7, logged=logged(1, 40, 100.0, 0.1), wrote=True)
    second = Life(incarnation=2, logged=logged(31, 60, 106.0, 0.1))
    (loss,) = lost("a/1", [first, second])
    assert loss.seconds == pytest.approx(104.0 - 103.0)


def test_without_a_checkpoint_all_of_an_incarnation_is_lost_but_not_what_was_before_it() -> None:
    lives = [
        Life(incarnation=1, step_seconds=0.1, ended=104.0, logged=logged(1, 30, 101.0, 0.1)),
        Life(incarnation=2, step_seconds=0.1, ended=111.5, logged=logged(31, 40, 110.0, 0.1)),
        Life(incarnation=3, step_seconds=0.1, logged=logged(31, 90, 120.0, 0.1)),
    ]
    (loss,) = lost("a/1", lives)
    assert (loss.incarnation, loss.steps) == (2, 10)
    assert loss.seconds == pytest.approx(1.5)


def test_what_was_told_counts_where_nothing_was_logged() -> None:
    lives = [
        Life(incarnation=1, told=12, step_seconds=0.1, started=100.0, ended=109.0),
        Life(incarnation=2, logged=logged(1, 90, 120.0, 0.1)),
    ]
    (loss,) = lost("a/1", lives)
    assert loss.steps == 12
    assert loss.seconds == pytest.approx(1.2 + 1.0)  # told a second before, at most
    lives[0] = dataclasses.replace(lives[0], ended=101.5)
    (loss,) = lost("a/1", lives)
    assert loss.seconds == pytest.approx(1.5)


def test_who_left_by_itself_lost_nothing() -> None:
    lives = [
        Life(incarnation=1, told=30, ended=104.0, logged=logged(1, 30, 101.0, 0.1)),
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


def test_what_runs_on_after_the_launcher_is_named_and_killed(tmp_path: Path, runs_on: subprocess.Popen[bytes]) -> None:
    assert end_those_left(tmp_path, 0.0) == ["a.1.1.0"]
    assert runs_on.wait(10.0) == -signal.SIGKILL


def test_what_ends_by_itself_is_waited_for(tmp_path: Path, runs_on: subprocess.Popen[bytes]) -> None:
    runs_on.terminate()
    assert end_those_left(tmp_path, 60.0) == []


@pytest.mark.parametrize("length", [0.0, 0.36, 1.0])
def test_the_shortest_apps_have_a_metric_at_their_first_rung(length: float) -> None:
    for source in small_apps(length):
        first = tomllib.loads(source.text).get("tuner", {}).get("min_iterations", source.max_iterations // 4)
        assert first >= 15  # steps of an epoch, at whose end the accuracy is logged
