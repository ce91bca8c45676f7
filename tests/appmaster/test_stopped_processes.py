"""Stopped processes have a longer limit than hung ones, in virtual time and with real processes."""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.appmaster.serving_lab import eventually

from eunomia_appmaster.node.beats import Beats
from eunomia_appmaster.node.loop_clock import LoopClock
from eunomia_appmaster.node.stack_signal import STACKS_FILE, STACKS_SIGNAL, catches, write_stacks_on_signal
from eunomia_appmaster.node.stopped_processes import STOPPED_LIMITS, StoppedTime, process_state, waited_seconds
from eunomia_appmaster.service.watchdog import HUNG_FILE, Watchdog

LIMIT = 30.0


class Looks:
    """A process as a loop sees it each second of virtual time."""

    def __init__(self) -> None:
        self.time = 0.0
        self.clock = LoopClock(lambda: self.time)
        self.stops = StoppedTime(self.clock)

    def overdue(self, seconds: float, state: str) -> float | None:
        """Return the virtual time at which the process, silent since 0, must be ended; None: not within these."""
        end = self.time + seconds
        while self.time < end:
            self.time += 1.0
            self.clock.tick()
            self.stops.look(state)
            if self.stops.overdue(0.0, LIMIT) is not None:
                return self.time
        return None


def test_a_running_process_that_is_silent_is_killed_at_its_limit() -> None:
    assert Looks().overdue(100.0, "S") == LIMIT


@pytest.mark.parametrize("stopped", [2.0, 31.0, 45.0, 58.0])
def test_a_stop_of_up_to_two_limits_kills_nothing_and_restarts_the_limit(stopped: float) -> None:
    looks = Looks()
    looks.overdue(20.0, "S")
    assert looks.overdue(stopped, "T") is None
    assert looks.overdue(100.0, "S") == 20.0 + stopped + LIMIT


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_process_that_stays_stopped_is_killed_after_two_limits(state: str) -> None:
    looks = Looks()
    looks.overdue(20.0, "S")
    assert looks.overdue(100.0, state) == 20.0 + 1.0 + STOPPED_LIMITS * LIMIT


def test_a_pause_of_the_loop_does_not_count_as_a_stop() -> None:
    looks = Looks()
    looks.overdue(20.0, "T")
    looks.time += 100.0
    assert looks.overdue(STOPPED_LIMITS * LIMIT, "T") is None


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as made:
        yield made
        made.kill()


def test_the_state_of_a_process_is_read(sleeper: subprocess.Popen[bytes]) -> None:
    eventually(lambda: process_state(sleeper.pid) == "S")
    sleeper.send_signal(signal.SIGSTOP)
    eventually(lambda: process_state(sleeper.pid) == "T")
    assert process_state(2**22 + 1) == ""


def test_a_stopped_process_without_beats_is_reported_later_than_a_running_one(sleeper: subprocess.Popen[bytes]) -> None:
    waited = {}
    for number in (signal.SIGCONT, signal.SIGSTOP):
        sleeper.send_signal(number)
        beats = Beats(1.0)
        os.write(beats.write, b".")
        began = time.monotonic()
        assert beats.wait(sleeper.pid) is not None
        waited[number] = time.monotonic() - began
        beats.close()
    assert waited[signal.SIGCONT] >= 1.0
    assert waited[signal.SIGSTOP] >= STOPPED_LIMITS


@pytest.fixture
def crowded() -> Iterator[int]:
    """The pid of a busy process that shares one core with seven others."""
    core = min(os.sched_getaffinity(0))
    made = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    for each in made:
        os.sched_setaffinity(each.pid, {core})
    yield made[0].pid
    for each in made:
        each.kill()
        each.wait()


def test_the_time_that_a_process_waits_for_a_core_is_measured(crowded: int) -> None:
    eventually(lambda: waited_seconds(crowded) > 0.5, seconds=60.0)
    assert waited_seconds(2**22 + 1) == 0.0


@pytest.mark.slow
def test_a_process_that_waits_for_a_core_does_not_count_as_hung(crowded: int) -> None:
    beats, began = Beats(1.0), time.monotonic()
    os.write(beats.write, b".")
    assert beats.wait(crowded) is not None
    assert time.monotonic() - began > 3.0  # a second of its own takes some eight
    beats.close()


def test_a_child_whose_signal_handlers_were_reset_registers_its_stack_dump_again(tmp_path: Path) -> None:
    write_stacks_on_signal(tmp_path)
    child = os.fork()
    if child == 0:
        signal.signal(STACKS_SIGNAL, signal.SIG_DFL)  # as a shepherd does
        write_stacks_on_signal(tmp_path)
        time.sleep(60.0)
        os._exit(0)
    try:
        eventually(lambda: catches(child), seconds=10.0)
        os.kill(child, STACKS_SIGNAL)
        eventually(lambda: "most recent call first" in (tmp_path / STACKS_FILE).read_text(), seconds=10.0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        faulthandler.unregister(STACKS_SIGNAL)


STEP = """
import sys, time
from pathlib import Path
from eunomia_appmaster.service.watchdog import Watchdog
with Watchdog(Path(sys.argv[1]), 2.0).step():
    print("begun", flush=True)
    {body}
print("returned", flush=True)
"""


def step(folder: Path, body: str, stopped: float = 0.0) -> tuple[int, str]:
    """Run a step of two seconds at most in a process of its own, stopped in it; its exit code and what it printed."""
    command = [sys.executable, "-c", STEP.format(body=body), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        if stopped:
            process.send_signal(signal.SIGSTOP)
            time.sleep(stopped)
            process.send_signal(signal.SIGCONT)
        return process.wait(), process.stdout.read()


def test_a_step_during_which_the_process_was_stopped_still_completes(tmp_path: Path) -> None:
    assert step(tmp_path, "time.sleep(0.5)", stopped=2.6) == (0, "returned\n")
    assert Watchdog(tmp_path, 2.0).fault() is None


@pytest.mark.slow
def test_a_longer_stop_is_not_attributed_to_a_plugin(tmp_path: Path) -> None:
    assert step(tmp_path, "time.sleep(0.5)", stopped=12.0)[0] in (0, 1)
    assert Watchdog(tmp_path, 2.0).fault() is None


@pytest.mark.slow
@pytest.mark.parametrize("body", ["time.sleep(60)", "import ctypes; ctypes.PyDLL(None).sleep(60)"])
def test_a_step_that_never_returns_ends_its_process_even_with_the_interpreter_locked(tmp_path: Path, body: str) -> None:
    assert step(tmp_path, body) == (1, "")
    fault = Watchdog(tmp_path, 2.0).fault()
    assert fault is not None
    assert fault.what == "the step was over 2 s and abandoned, in <module> (<string>:7)"
    assert (tmp_path / HUNG_FILE).read_text().startswith("Timeout (")
