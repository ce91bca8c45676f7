"""What the machine, a launcher or a signal ends never counts against an app; what ends by itself suspends it."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import activity, ended_by, eventually, live, ready, supervisor, tiny_app, went_on

from eunomia_appmaster import Client

_floors = serving_lab.floors

FAST = ("--not-durable", "--heartbeat-seconds", "0.3")
QUICK = ("--no-zygote", "--stop-seconds", "1", "--restart-pause-seconds", "0.05")
STAYS = """
import pathlib, signal, time
signal.signal(15, signal.SIG_IGN)
pathlib.Path("stays").touch()
while not pathlib.Path("end").exists():
    time.sleep(0.02)
"""
"""A worker that does not leave when it is ordered to, so that its launcher waits for it after app masters have left."""


def test_no_app_fails_when_the_launcher_gets_sigterm(tmp_path: Path) -> None:
    with (
        supervisor(tmp_path, slots=3, launcher_options=QUICK) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        (tmp_path / "stays.py").write_text(STAYS)
        command = f"{sys.executable} stays.py"
        (tmp_path / "stays.toml").write_text(f'[app]\nname = "stays"\n[job]\ncommand = "{command}"\n')
        arbiter.submit(tmp_path / "stays.toml")
        for name, more in (("ana", ""), ("plain", " --plain"), ("waits", "")):
            arbiter.submit(tiny_app(tmp_path, name, iterations=200, seconds=0.01, more=more))
        for name in ("ana", "plain"):
            eventually(lambda name=name: went_on(made, name), "steps")  # type: ignore[misc]
        eventually((tmp_path / "stays").exists, "the worker that stays")
        assert made.launcher is not None
        assert made.launcher.pid is not None
        first = made.launcher.pid
        os.kill(first, signal.SIGTERM)
        eventually(lambda: made.launcher is not None and made.launcher.pid not in (None, first), "another launcher")
        (tmp_path / "end").touch()
        for name in ("stays", "ana", "plain", "waits"):
            eventually(lambda name=name: arbiter.app(name).state in ("finished", "failed"))  # type: ignore[misc]
            assert (arbiter.app(name).state, arbiter.app(name).why) == ("finished", "")


@pytest.mark.slow
def test_restarts_of_a_killed_app_master_do_not_count_on_a_busy_machine(tmp_path: Path) -> None:
    with (
        supervisor(tmp_path, launcher_options=QUICK) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        app = arbiter.submit(tiny_app(tmp_path, "ana", iterations=400, seconds=0.005))
        eventually(lambda: went_on(made, "ana"), "steps")
        workers = [pid for _, pid in live(made, masters=False)]
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)  # so busy that no worker makes a step meanwhile
        time.sleep(0.2)  # what it said before is heard
        for number, _ in zip(range(5), ended_by(made, signal.SIGKILL), strict=False):
            assert arbiter.app("ana").state == "running", number
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        assert app.wait("120s").state == "finished"


def test_an_app_whose_app_master_fails_too_often_is_suspended_and_loses_no_work(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    with (
        supervisor(tmp_path, launcher_options=QUICK, arbiter_options=(*FAST, "--own-ends", "1")) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        state = ("--state-dir", str(made.state_dir))
        arbiter.submit(tiny_app(tmp_path, "ana", iterations=3000, seconds=0.01, more=" --plain", searches=True))
        eventually(lambda: len(live(made, masters=False)) == 2, "two workers")
        (_, pid), *_ = live(made, masters=True)
        kept = made.state_dir / "apps" / "ana" / "master" / "a1-g1" / "master.json"
        os.kill(pid, signal.SIGSTOP)
        good = kept.read_text()
        for each in (kept, kept.with_name("master.json.old")):
            each.write_text("{")
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: arbiter.app("ana").state == "suspended", "the suspension")
        workers = live(made, masters=False)
        said = run("apps", *state)
        assert "ana: its app master ended by itself 2 times in 10 min, last with exit code 3: " in said
        assert "its workers train on, and it is tried again in " in said
        assert "(at once: eunomia resume ana)" in said
        assert "ana   SUSPENDED" in run("explain", "ana", *state)
        assert made.arbiter is not None
        assert made.arbiter.pid is not None
        os.kill(made.arbiter.pid, signal.SIGKILL)  # the journal and the launcher know it
        eventually(lambda: ready(arbiter))
        assert arbiter.app("ana").state == "suspended"
        assert live(made, masters=False) == workers  # a script without the helper goes on

        os.kill(workers[0][1], signal.SIGKILL)  # a slot that its app master cannot use goes to another app
        arbiter.submit(tiny_app(tmp_path, "bob", iterations=50, seconds=0.005))
        assert arbiter.wait("bob", timeout="60s").state == "finished"
        eventually(lambda: {job.state for job in arbiter.list(app="ana", jobs=True).jobs} == {"running", "paused"})
        assert arbiter.app("ana").slots == 1

        kept.write_text(good)
        said = run("resume", "ana", *state)
        assert said.startswith("ana: taken up again; attempt 2 of its app master starts, and 6 jobs go on")
        eventually(lambda: arbiter.app("ana").state == "running", "the app goes on")
        eventually(lambda: arbiter.app("ana").slots == 2, "its waiting jobs ask for slots again")
        assert workers[1] in live(made, masters=False)
        run("cancel", "ana", *state)
        assert run("journal", "check", str(made.state_dir))


def test_a_killed_worker_and_a_lost_shepherd_use_no_retry(tmp_path: Path) -> None:
    with (
        supervisor(tmp_path, launcher_options=QUICK) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        file = tiny_app(tmp_path, "ana", iterations=100, seconds=0.02, more=" --plain")
        file.write_text(file.read_text().replace("slots = 1", "slots = 1\nretries = 0"))
        app = arbiter.submit(file)
        for number in (1, 2):
            name, pid = eventually(lambda: next(iter(live(made, masters=False)), None), f"worker {number}")
            folder = made.state_dir / "launcher" / "live" / name
            shepherd = json.loads((folder / "worker.json").read_text())["shepherd_pid"]
            os.kill(shepherd if number == 2 else pid, signal.SIGKILL)
            eventually(lambda: not live(made, masters=False), "it is gone")
        assert app.wait("120s").state == "finished"
        assert [line["event"] for line in activity(made, "ana")].count("failed") == 2
