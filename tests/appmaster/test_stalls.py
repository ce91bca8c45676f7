"""What hangs is ended, under real processes: its stacks are written down, and its job goes on."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.job_output import master_output
from tests.appmaster.serving_lab import activity, eventually, live, supervisor, tiny_app, went_on

from eunomia_appmaster import Client
from eunomia_appmaster.node.pulse import NAME, PulseWriter, read_pulse
from eunomia_appmaster.node.stall_watch import Phase
from eunomia_appmaster.node.supervisor import Supervisor

_floors = serving_lab.floors

QUICK = ("--no-zygote", "--stop-seconds", "1", "--restart-pause-seconds", "0.05", "--stall-grace-seconds", "1")
STALL_AFTER = "5s"


def watched_app(folder: Path, name: str, *, job: str = "", **given: Any) -> Path:
    """The file of an app of the tiny worker whose jobs stall after five seconds; ``job``: further lines of [job]."""
    file = tiny_app(folder, name, **given)
    file.write_text(file.read_text().replace("slots = 1\n", f'slots = 1\nstall_after = "{STALL_AFTER}"\n{job}'))
    return file


def stacks(made: Supervisor, app: str) -> str:
    return "\n".join(file.read_text() for file in (made.state_dir / "apps" / app).glob("*/stacks/*.txt"))


@pytest.mark.slow
def test_a_hung_worker_is_killed_with_its_stack_traces_and_its_job_resumes(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    with (
        supervisor(tmp_path, launcher_options=QUICK) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        app = arbiter.submit(watched_app(tmp_path, "ana", iterations=400, seconds=0.005, more=" --hang-at 100"))
        eventually(lambda: arbiter.app("ana").standing.stalls == 1, "the stall")
        shown = run("apps", "--state-dir", str(made.state_dir))
        assert "ana: ana/1 stalled: no progress for " in shown
        assert app.wait("60s").state == "finished"
        found = stacks(made, "ana")
        assert "no progress for" in found
        assert "hangs_in_here" in found  # faulthandler's words
        assert "system call" in found
        events = [line["event"] for line in activity(made, "ana")]
        assert events.count("stalled") == 1
        assert events.count("failed") == 1


@pytest.mark.slow  # it mostly waits
def test_a_stopped_worker_is_restarted_without_loss_of_work_or_of_a_retry(tmp_path: Path) -> None:
    with (
        supervisor(tmp_path, launcher_options=QUICK) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        app = arbiter.submit(watched_app(tmp_path, "ana", iterations=600, seconds=0.005, job="retries = 0\n"))
        eventually(lambda: went_on(made, "ana"), "steps")
        ((_, pid),) = live(made, masters=False)
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: arbiter.app("ana").standing.stalls == 1, "the stall")
        assert app.wait("60s").state == "finished"
        assert "was stopped" in master_output(made.state_dir / "apps" / "ana")
        steps = [(line["event"], line["step"]) for line in activity(made, "ana")]
        left = next(step for event, step in steps if event == "failed")
        assert next(step for event, step in steps if event == "resumed") == left > 0  # it saved as it left


@pytest.mark.slow
def test_a_hung_script_without_the_helper_is_killed_only_if_the_app_file_says_so(tmp_path: Path) -> None:
    with (
        supervisor(tmp_path, launcher_options=QUICK) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        plain: dict[str, Any] = {"iterations": 400, "seconds": 0.005, "more": " --plain --hang-at 100"}
        watched = arbiter.submit(watched_app(tmp_path, "ana", **plain))
        arbiter.submit(tiny_app(tmp_path, "bob", **plain))
        assert watched.wait("90s").state == "finished"
        assert arbiter.app("ana").standing.stalls == 1
        assert arbiter.app("bob").standing.stalls == 0
        assert arbiter.app("bob").state == "running"


SLEEPS = """
import signal, sys, time
if "eunomia_appmaster.launcher" in sys.orig_argv:
    signal.signal(signal.SIGUSR2, lambda *_: time.sleep(10_000))
"""
"""Is imported by each Python of a test: the launcher's main thread, in which its loop turns, sleeps on a signal."""


@pytest.mark.parametrize(
    ("number", "what"),
    [
        pytest.param(signal.SIGUSR2, "its loop hung", marks=pytest.mark.slow),
        pytest.param(signal.SIGSTOP, "its process was stopped", marks=pytest.mark.slow),
    ],
)
def test_a_launcher_whose_loop_hangs_is_replaced_and_adopts_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, what: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLEEPS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    with (
        supervisor(tmp_path, launcher_options=QUICK, launcher_silence=4.0) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        app = arbiter.submit(tiny_app(tmp_path, "ana", iterations=3000, seconds=0.005))
        eventually(lambda: went_on(made, "ana"), "steps")
        workers = live(made, masters=False)
        launcher = made.launcher
        assert launcher is not None
        assert launcher.pid is not None
        os.kill(launcher.pid, number)
        (why,) = eventually(lambda: list(launcher.hangs), "the hang")
        assert what in why
        eventually(lambda: arbiter.health().nodes[0].alive)
        assert live(made, masters=False) == workers
        (found,) = (made.state_dir / "launcher" / "stacks").glob("launcher-*.txt")
        assert "most recent call first" in found.read_text()
        assert app.wait("90s").state == "finished"


def master_pid(made: Supervisor) -> int:
    ((_, pid),) = live(made, masters=True)
    return pid


@pytest.mark.slow  # it mostly waits
def test_a_hung_app_master_is_replaced_while_its_worker_trains_on(tmp_path: Path, run: Callable[..., str]) -> None:
    silence = ("--not-durable", "--heartbeat-seconds", "0.2", "--app-master-silence-seconds", "3")
    with (
        supervisor(tmp_path, launcher_options=QUICK, arbiter_options=silence) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        app = arbiter.submit(tiny_app(tmp_path, "ana", iterations=3000, seconds=0.01))
        eventually(lambda: went_on(made, "ana"), "steps")
        first, workers = master_pid(made), live(made, masters=False)
        os.kill(first, signal.SIGSTOP)
        eventually(lambda: arbiter.app("ana").app_master_stalls == 1, "the stall")
        eventually(lambda: arbiter.app("ana").part == 2, "the next start")
        assert live(made, masters=False) == workers
        assert arbiter.app("ana").state == "running"
        said = run("explain", "ana", "--state-dir", str(made.state_dir))
        assert "its app master stalled: no heartbeat for " in said
        assert "its process was stopped; stacks are in " in said
        assert "master/process.py" in (made.state_dir / "apps/ana/appmaster/stacks/1.txt").read_text()
        run("cancel", "ana", "--state-dir", str(made.state_dir))
        assert app.wait("30s").state == "cancelled"


@pytest.mark.slow
def test_a_pause_of_another_process_does_not_count_as_silence_of_a_worker(tmp_path: Path) -> None:
    """App master, launcher and arbiter are stopped for 7 s, one after another; nothing is ended.

    All limits are 5 s, and twice as long for the process that is stopped.
    """
    silence = ("--not-durable", "--heartbeat-seconds", "0.3", "--app-master-silence-seconds", "5")
    with (
        supervisor(tmp_path, launcher_options=QUICK, arbiter_options=silence, launcher_silence=5.0) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        app = arbiter.submit(watched_app(tmp_path, "ana", iterations=6000, seconds=0.005))
        eventually(lambda: went_on(made, "ana"), "steps")
        ((_, master),) = live(made, masters=True)
        ((worker, _),) = live(made, masters=False)
        assert made.launcher is not None
        assert made.arbiter is not None
        for pid in (master, made.launcher.pid, made.arbiter.pid):
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            time.sleep(7.0)
            os.kill(pid, signal.SIGCONT)
            time.sleep(1.0)
        assert made.launcher.hangs == []
        assert [one for one, _ in live(made, masters=False)] == [worker]
        assert [one[1] for one in live(made, masters=True)] == [master]
        eventually(lambda: arbiter.app("ana").done > 0.9, "its end is near")
        assert arbiter.app("ana").standing.stalls == 0
        assert app.wait("60s").state == "finished"


def test_a_heartbeat_file_is_read_as_written_and_a_forged_one_is_ignored(tmp_path: Path) -> None:
    writer = PulseWriter(tmp_path)
    writer.beat(Phase.STEPS)
    writer.beat(Phase.CHECKPOINT)
    pulse = read_pulse(tmp_path)
    assert pulse is not None
    assert (pulse.count, pulse.phase) == (2, Phase.CHECKPOINT)
    file = tmp_path / NAME
    kept = file.read_bytes()
    for damage in (b"", kept[:10], kept[:16] + b"\xff" * 8, kept[:8] + b"\xff" * 8 + kept[16:]):
        file.write_bytes(damage)
        assert read_pulse(tmp_path) is None
    file.unlink()
    os.mkfifo(file)  # reading it would wait for ever
    assert read_pulse(tmp_path) is None
    file.unlink()
    (tmp_path / "other").write_bytes(kept)
    file.symlink_to(tmp_path / "other")
    assert read_pulse(tmp_path) is None
