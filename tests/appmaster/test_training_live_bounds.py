"""How long the workers of a live gang wait at most: for a store that does not answer, and for peers that vanish."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster.live_lab import STORE, live_job
from tests.appmaster.training_lab import Lab

from eunomia.errors import InputError
from eunomia_appmaster.node.stall_watch import ALLOWANCES, Phase, StallLimits
from eunomia_appmaster.training.changes import Decided
from eunomia_appmaster.training.environment import Environment
from eunomia_appmaster.training.live import rendezvous
from eunomia_appmaster.training.live.bounded import BoundedCalls, NoAnswerError
from eunomia_appmaster.training.live.rendezvous import Rendezvous, StoreLostError

SCRIPT = Path(__file__).with_name("live_training_script.py")


@pytest.fixture(scope="module")
def lab() -> Any:
    return Lab.shared()


@pytest.fixture
def store(lab: Lab, tmp_path: Path) -> Iterator[tuple[int, str]]:
    """A real store: its process and its address."""
    output = tmp_path / "store"
    pid = lab.start(STORE, env={}, cwd=tmp_path, output=output)
    while not (port := output.read_text() if output.exists() else ""):
        time.sleep(0.005)
    yield pid, f"127.0.0.1:{port.strip()}"
    os.kill(pid, signal.SIGKILL)
    lab.wait(pid)


def stop(pid: int) -> None:
    """Stop a process, and wait until each of its threads stands still: the signal returns before."""
    os.kill(pid, signal.SIGSTOP)
    while any(
        stat.read_text().rpartition(")")[2].split()[0] != "T" for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ):
        time.sleep(0.005)


def test_a_question_to_a_stopped_store_ends_and_the_store_counts_as_lost_from_then_on(
    store: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "STORE_SECONDS", 2.0)
    pid, address = store
    meeting = Rendezvous(address, 30.0)
    assert meeting.decide(1, Decided.FORMED) is Decided.FORMED
    stop(pid)
    with pytest.raises(StoreLostError, match=r"the store of a live job must answer, but got no answer for .* s \(127"):
        meeting.has("fingerprint")
    with pytest.raises(StoreLostError):
        Rendezvous(address, 0.5)  # the machine accepts its connection, its process does not answer
    os.kill(pid, signal.SIGCONT)
    assert "no answer" in meeting.why_lost(), "it may have missed what was decided in between"
    assert Rendezvous(address, 30.0).decided(1) is Decided.FORMED


def test_calls_are_made_in_turn_until_one_does_not_return() -> None:
    calls, endless = BoundedCalls("test"), threading.Event()
    assert calls.make(lambda: 7, 30.0) == 7
    with pytest.raises(ZeroDivisionError):
        calls.make(lambda: 1 / 0, 30.0)
    assert calls.make(lambda: 8, 30.0) == 8
    with pytest.raises(NoAnswerError, match=r"no answer for 0\.01 s"):
        calls.make(endless.wait, 0.01)
    with pytest.raises(NoAnswerError, match=r"no answer for 0\.01 s"):
        calls.make(lambda: 9, 30.0)
    endless.set()
    calls.close()


def test_a_job_whose_store_is_stopped_trains_on_at_its_size(lab: Lab, tmp_path: Path) -> None:
    with live_job(lab, SCRIPT, tmp_path / "run", "--steps", "60", "--seconds", "0.02") as job:
        job.start(2)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        os.kill(job.store, signal.SIGSTOP)
        job.order(1)
        assert set(job.finish().values()) == {0}, job.output()
        assert len(job.said("store_lost")) == 2


@pytest.mark.slow
def test_a_newcomer_whose_store_is_stopped_ends_and_its_job_trains_on(lab: Lab, tmp_path: Path) -> None:
    with live_job(lab, SCRIPT, tmp_path / "run", "--steps", "60", "--seconds", "0.02") as job:
        job.repairs = False
        job.start(1)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        os.kill(job.store, signal.SIGSTOP)
        job.order(2)
        codes = job.finish()
        assert codes["c0"] == 0, job.output()
        assert codes["c1"] != 0
        assert "the store of a live job must answer" in job.output()


@pytest.mark.slow
def test_a_peer_that_vanishes_without_any_report_is_waited_for_as_long_as_its_app_master_says(
    lab: Lab, tmp_path: Path
) -> None:
    with live_job(lab, SCRIPT, tmp_path / "run", "--steps", "60", "--seconds", "0.02") as job:
        job.repairs = False
        job.env["EUNOMIA_PEERS_SECONDS"] = "4"
        job.start(3)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        job.kill("c1", signal.SIGSTOP)
        job.until(lambda: len(job.said("broken")) == 2, 60.0, "they wait for ever")
        job.order(2, without="c1")
        assert job.settle()["size"] == 2
        job.kill("c1")
        assert job.finish()["c0"] == 0, job.output()


def test_workers_wait_for_their_peers_longer_than_any_phase_may_take() -> None:
    assert StallLimits().peers_seconds > max(ALLOWANCES.values())
    assert StallLimits(after=7200.0).peers_seconds > 7200.0
    for phase in set(Phase) - {Phase.UNKNOWN}:
        limits = StallLimits(after=7200.0)
        assert limits.peers_seconds > (limits.seconds(phase, 1.0) or 0.0)
    assert StallLimits(off=True).peers_seconds > 7 * 86400.0
    assert Environment.read({"EUNOMIA_PEERS_SECONDS": "7260"}).peers_seconds == 7260.0
    assert Environment.read({}).peers_seconds is None
    for given in ("0", "-1", "nan", "inf", "soon"):
        with pytest.raises(InputError, match="EUNOMIA_PEERS_SECONDS must be seconds above 0"):
            Environment.read({"EUNOMIA_PEERS_SECONDS": given})
