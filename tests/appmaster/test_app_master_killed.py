"""App masters killed again and again while their workers do well, and failed apps that are taken up again."""

import functools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import eventually, ready, supervisor

from eunomia import cli
from eunomia_appmaster import Client
from eunomia_appmaster.node.supervisor import Supervisor

_floors = serving_lab.floors

WORKER = Path(__file__).with_name("tiny_worker.py")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in this process."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str, check: int = 0) -> str:
        capfd.readouterr()
        code = cli.run(arguments)
        said = capfd.readouterr()
        assert code == check, said.out + said.err
        return said.out if check == 0 else said.err

    return command


def app_file(folder: Path, name: str, *, iterations: int, seconds: float, searches: bool = False) -> Path:
    shutil.copy(WORKER, folder / "train.py")
    search = "[space]\nlr = {type = 'float', low = 0.1, high = 0.5}\n[tuner]\ntrials = 6\nmetric = 'val/accuracy'\n"
    command = f"{sys.executable} train.py --seconds {seconds}"
    job = f'[job]\ncommand = "{command}"\nslots = 1\nmax_iterations = {iterations}\n'
    file = folder / f"{name}.toml"
    file.write_text(f'[app]\nname = "{name}"\n{job}{search if searches else ""}')
    return file


def live(made: Supervisor, *, masters: bool) -> list[tuple[str, int]]:
    """Name and pid of the app masters, or of the workers, that run."""
    found = []
    for record in (made.state_dir / "launcher" / "live").glob("*/container.json"):
        known = json.loads(record.read_text())
        if (known["slot"] == -1) is masters and known["state"] != "COMPLETED" and known["pid"]:
            found.append((known["container_id"], known["pid"]))
    return found


def went_on(made: Supervisor, app: str) -> int:
    """Steps that the workers have logged, in bytes."""
    return sum(file.stat().st_size for file in (made.state_dir / "apps" / app).glob("*/logs/events*"))


def another(made: Supervisor, before: str) -> tuple[str, int] | None:
    """The app master that runs, if it is another attempt than the one before."""
    return next((one for one in live(made, masters=True) if one[0] != before), None)


def kills(made: Supervisor) -> Iterator[int]:
    """Kill the only app master, each time that another attempt of it runs; its pids."""
    before = ""
    while True:
        name, pid = eventually(functools.partial(another, made, before), "another attempt")
        os.kill(pid, signal.SIGKILL)
        before = name
        yield pid


def test_an_app_master_may_be_killed_any_number_of_times_while_its_workers_make_progress(tmp_path: Path) -> None:
    with supervisor(tmp_path) as made, Client(made.address, token_file=made.token_file) as arbiter:
        app = arbiter.submit(app_file(tmp_path, "ana", iterations=4000, seconds=0.005))
        eventually(lambda: live(made, masters=False), "a worker")
        killing = kills(made)
        for _ in range(6):
            before = went_on(made, "ana")
            eventually(lambda before=before: went_on(made, "ana") > before)  # type: ignore[misc]
            next(killing)
        assert app.wait("180s").state == "finished"


def failed(made: Supervisor, arbiter: Client, name: str) -> None:
    """Have an app fail: its worker stands still while its app master is killed."""
    for _, pid in live(made, masters=False):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(0.2)  # what it said before is heard
    killing = kills(made)
    for _ in range(4):
        next(killing)
    eventually(lambda: arbiter.app(name).state == "failed", "the end of the app")
    for _, pid in live(made, masters=False):
        os.kill(pid, signal.SIGCONT)  # it hears that it is to leave, and saves
    eventually(lambda: not live(made, masters=False), "the worker leaves")


def test_an_app_whose_master_ended_for_good_is_resumed(tmp_path: Path, run: Callable[..., str]) -> None:
    with supervisor(tmp_path) as made, Client(made.address, token_file=made.token_file) as arbiter:
        state = ("--state-dir", str(made.state_dir))
        arbiter.submit(app_file(tmp_path, "ana", iterations=2500, seconds=0.005))
        said = run("resume", "nobody", *state, check=2)
        assert 'no app is named "nobody"' in said
        eventually(lambda: went_on(made, "ana"), "steps")
        assert "but got one that is not over: it needs nothing" in run("resume", "ana", *state, check=2)
        failed(made, arbiter, "ana")
        why = arbiter.app("ana").why
        assert why.startswith("its app master ended before its work was done: ")
        assert why.endswith("`eunomia resume ana` takes it up again")

        checkpoints = made.state_dir / "apps" / "ana" / "1" / "checkpoints"
        (saved,) = [int(path.stem) for path in checkpoints.glob("*.json")]
        checkpoints.rename(tmp_path / "aside")
        said = run("resume", "ana", *state, check=2)
        assert "what an app goes on from must be there (put it back from a backup, or submit its file again" in said
        assert "no checkpoints of ana/1 in " in said
        (tmp_path / "aside").rename(checkpoints)

        said = run("resume", "ana", *state)
        assert "ana: taken up again; attempt 5 of its app master starts, and 1 job goes on" in said
        assert made.arbiter is not None
        assert made.arbiter.pid is not None
        os.kill(made.arbiter.pid, signal.SIGKILL)  # the journal knows that the app is taken up again
        eventually(lambda: ready(arbiter))
        eventually(lambda: arbiter.app("ana").state == "finished", "the end")
        assert saved > 0
        assert saved in {line["step"] for line in activity(made, "ana") if line["event"] == "start"}
        said = run("resume", "ana", *state, check=2)
        assert "but got one that has finished; submit its file again" in said
        run("submit", "ana.toml", *state)
        run("cancel", "ana-2", *state)
        assert "but got one that was cancelled; submit its file again" in run("resume", "ana-2", *state, check=2)
        assert run("journal", "check", str(made.state_dir), check=0)


def activity(made: Supervisor, app: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (made.state_dir / "apps" / app / "activity.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_search_whose_app_master_is_killed_20_times_30_seconds_apart_finishes(tmp_path: Path) -> None:
    options = ("--no-zygote", "--stop-seconds", "2")
    with (
        supervisor(tmp_path, launcher_options=options) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        app = arbiter.submit(app_file(tmp_path, "ana", iterations=4200, seconds=0.05, searches=True))
        eventually(lambda: went_on(made, "ana"), "steps")
        killing = kills(made)
        for _ in range(20):
            time.sleep(30.0)
            assert arbiter.app("ana").state == "running"
            next(killing)
        assert app.wait("30m").state == "finished"
