"""A start is waited for while its processes get on, with real processes and, where it is long, virtual time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Timer

import pytest
from tests.appmaster.serving_lab import eventually, floors, supervisor  # noqa: F401 - a fixture

from eunomia.errors import EunomiaError
from eunomia_appmaster.node.patience import MOST_ENDS, Patience, StopAskedError, Wait, core_seconds
from eunomia_appmaster.node.stopped_processes import process_state
from eunomia_appmaster.node.supervisor import Child

SLEEPS = ("sleep", "600")
RUNS = (sys.executable, "-c", "while True: pass")


class Kept:
    """A process of the test, as the supervisor keeps one."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.restarts = 0
        self.process = subprocess.Popen(command)

    @property
    def pid(self) -> int | None:
        return None if self.process.poll() is not None else self.process.pid


@pytest.fixture
def kept() -> Iterator[list[Kept]]:
    """Processes that end with the test."""
    made: list[Kept] = []
    yield made
    for each in made:
        each.process.kill()
        each.process.wait()


class Virtual:
    """A wait in virtual time."""

    def __init__(self, still_seconds: float = 60.0) -> None:
        self.time = 0.0
        self.wait = Wait("it is ready", still_seconds, place="here", clock=lambda: self.time)

    def look(self, processes: Sequence[Kept], seconds: float) -> None:
        end = self.time + seconds
        while self.time < end:
            self.time += 1.0
            self.wait.look(processes)


def test_a_process_that_waits_for_a_core_counts_as_active_unlike_a_sleeping_one(kept: list[Kept]) -> None:
    kept += [Kept("runs", RUNS), Kept("sleeps", SLEEPS)]
    pids = [each.process.pid for each in kept]
    eventually(lambda: "sleep" in Path(f"/proc/{pids[1]}/comm").read_text())
    eventually(lambda: process_state(pids[1]) == "S")
    both, still = Patience(), Patience()
    both.look(pids)
    still.look(pids[1:])
    until = time.monotonic() + 0.6
    while time.monotonic() < until:
        time.sleep(0.02)
        both.look(pids)
        still.look(pids[1:])
    assert both.still_seconds < 0.3 * both.seconds
    assert still.still_seconds > 0.7 * still.seconds
    assert sum(core_seconds(pids[0])) > 0.4


def crowd(kept: list[Kept], count: int) -> int:
    """Let so many processes share one core, and return its number."""
    core = min(os.sched_getaffinity(0))
    for _ in range(count):
        kept.append(Kept("crowd", RUNS))
        os.sched_setaffinity(kept[-1].process.pid, {core})
    return core


def test_time_in_which_a_process_waits_for_a_core_does_not_count_towards_its_limit(kept: list[Kept]) -> None:
    crowd(kept, 6)
    kept.append(Kept("sleeps", SLEEPS))
    crowded, asleep = Patience(), Patience()
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        crowded.look([kept[0].process.pid])
        asleep.look([kept[-1].process.pid])
        time.sleep(0.05)
    assert crowded.unhindered_seconds < 0.6 * crowded.seconds
    assert asleep.unhindered_seconds > 0.8 * asleep.seconds


LEAVES = """
import os, pathlib, signal, sys, time
def leave(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    pathlib.Path(sys.argv[1]).write_text("left")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
os.sched_setaffinity(0, {int(sys.argv[2])})
pathlib.Path(sys.argv[1]).write_text("up")
while True:
    time.sleep(0.1)
"""


def test_a_process_that_waits_for_a_core_in_order_to_exit_is_not_killed(tmp_path: Path, kept: list[Kept]) -> None:
    core, said = crowd(kept, 10), tmp_path / "said"
    child = Child(
        "launcher",
        [sys.executable, "-c", LEAVES, str(said), str(core)],
        log_file=tmp_path / "log",
        env=dict(os.environ),
        orphaned=signal.SIGKILL,
    )
    child.start()
    eventually(lambda: said.exists() and said.read_text() == "up")
    child.stop(1.5)
    assert said.read_text() == "left"


STAYS = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: None)
pathlib.Path(sys.argv[1]).write_text("up")
time.sleep(600)
"""


def test_a_process_that_does_not_exit_is_killed(tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = [sys.executable, "-c", STAYS, str(said)]
    child = Child("launcher", command, log_file=None, env=dict(os.environ), orphaned=signal.SIGKILL)
    child.start()
    eventually(said.exists)
    process = child.process
    child.stop(0.5)
    assert process is not None
    assert process.wait(10) == -signal.SIGKILL


def test_a_start_may_take_an_hour_if_its_process_is_stopped_from_outside(kept: list[Kept]) -> None:
    kept.append(Kept("arbiter", SLEEPS))
    os.kill(kept[0].process.pid, signal.SIGSTOP)
    eventually(lambda: process_state(kept[0].process.pid) == "T")
    Virtual().look(kept, 3600.0)


def test_a_start_without_progress_fails_and_the_error_shows_the_state_of_each_process(kept: list[Kept]) -> None:
    kept += [Kept("arbiter", SLEEPS), Kept("launcher", SLEEPS)]
    virtual = Virtual()
    for each in kept:
        eventually(lambda each=each: process_state(each.process.pid) == "S")  # type: ignore[misc]
    virtual.look(kept, 50.0)
    with pytest.raises(EunomiaError) as given_up:
        virtual.look(kept, 30.0)
    assert virtual.time <= 65.0
    assert "may stand still for 60 s at most until it is ready, but got arbiter: had a core for " in str(given_up.value)
    assert "launcher: had a core for" in str(given_up.value)


def test_a_pause_of_the_waiting_process_itself_does_not_count_towards_the_limit(kept: list[Kept]) -> None:
    kept.append(Kept("arbiter", SLEEPS))
    virtual = Virtual()
    for _ in range(20):
        virtual.time += 600.0
        virtual.wait.look(kept)


def test_a_process_that_is_restarted_too_often_is_given_up(kept: list[Kept]) -> None:
    kept.append(Kept("arbiter", SLEEPS))
    os.kill(kept[0].process.pid, signal.SIGSTOP)
    eventually(lambda: process_state(kept[0].process.pid) == "T")
    virtual = Virtual()
    virtual.look(kept, 40.0)
    kept[0].restarts = MOST_ENDS
    virtual.look(kept, 40.0)
    kept[0].restarts += 1
    with pytest.raises(EunomiaError, match="a process may end 8 times at most until it is ready"):
        virtual.look(kept, 40.0)


def test_the_time_limit_of_a_call_grows_with_the_wait(kept: list[Kept]) -> None:
    kept.append(Kept("arbiter", RUNS))
    virtual, limits = Virtual(1e9), []
    for _ in range(3):
        limits.append(virtual.wait.call_seconds)
        virtual.look(kept, 30.0)
    assert limits == [2.0, 7.5, 10.0]


def test_a_service_that_is_asked_to_stop_during_its_start_leaves_no_process(tmp_path: Path) -> None:
    made = supervisor(tmp_path, stop_asked=lambda: made.launcher is not None or made.arbiter is not None)
    with pytest.raises(StopAskedError, match="the service was asked to stop"):
        made.start()
    assert made.arbiter is not None
    assert made.arbiter.pid is None


@pytest.mark.slow
def test_a_service_starts_although_its_arbiter_was_stopped_for_longer_than_the_limit(tmp_path: Path) -> None:
    made = supervisor(tmp_path)

    def hold_up() -> None:
        arbiter = eventually(lambda: made.arbiter and made.arbiter.pid)
        os.kill(arbiter, signal.SIGSTOP)
        Timer(12.0, lambda: os.kill(arbiter, signal.SIGCONT)).start()

    Timer(0.0, hold_up).start()
    began = time.monotonic()
    made.start(still_seconds=10.0)
    try:
        assert time.monotonic() - began > 12.0
    finally:
        made.stop()
