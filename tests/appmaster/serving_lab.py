"""Arbiter, launcher and app masters as processes on this machine, for tests."""

import functools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eunomia.errors import UnreachableError
from eunomia_appmaster import Client
from eunomia_appmaster.app.master_folders import activity_files
from eunomia_appmaster.node.supervisor import Serving, Supervisor

ROOT = Path(__file__).parent.parent.parent
FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
WORKER = Path(__file__).with_name("tiny_worker.py")
PATIENCE_SECONDS = 90.0
T = TypeVar("T")
SCRIPT = """
import os, signal, sys, time
signal.signal(15, lambda *_: sys.exit(75))
print(f"up {os.environ['EUNOMIA_JOB']}", flush=True)
sys.stderr.write("careful\\n")
while not os.path.exists("end"):
    time.sleep(0.02)
"""
"""A worker that leaves when it is ordered to, and ends once the file ``end`` is in its folder."""


@pytest.fixture(autouse=True)
def floors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find the packages as this process does, and no other arbiter; a module that takes it is served so."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / floor) for floor in FLOORS))
    for name in ("EUNOMIA_ADDRESS", "EUNOMIA_TOKEN_FILE", "EUNOMIA_STATE_DIR", "EUNOMIA_POLICY"):
        monkeypatch.delenv(name, raising=False)


def eventually(look: Callable[[], T], what: str = "", seconds: float = PATIENCE_SECONDS) -> T:
    """Look again and again until there is something to see; a failure after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"never came true: {what or look}"
        time.sleep(0.03)
    return seen


def supervisor(folder: Path, *, stop_asked: Callable[[], bool] = lambda: False, **more: Any) -> Supervisor:
    """An arbiter and a launcher of two CPU slots with their state in ``folder/state``; ``more`` is of ``Serving``."""
    values: dict[str, Any] = {
        "slots": 2,
        "cpu_only": True,
        "address": "127.0.0.1:0",
        "log_dir": folder / "log",
        "launcher_options": ("--no-zygote", "--stop-seconds", "2"),
        "arbiter_options": ("--not-durable", "--heartbeat-seconds", "0.3"),
        **more,
    }
    return Supervisor(folder / "state", Serving(**values), stop_asked=stop_asked)


def client(made: Supervisor) -> Client:
    """A connection to it."""
    return Client(made.address, token_file=made.token_file)


def ready(arbiter: Client) -> bool:
    """Whether the arbiter is there and has its machine."""
    try:
        return arbiter.health().ready
    except UnreachableError:
        return False


def tiny_app(
    folder: Path, name: str, *, iterations: int, seconds: float, more: str = "", searches: bool = False
) -> Path:
    """Write the file of an app of ``tiny_worker.py``, one job or six trials; ``more``: further arguments of it."""
    shutil.copy(WORKER, folder / "train.py")
    search = "[space]\nlr = {type = 'float', low = 0.1, high = 0.5}\n[tuner]\ntrials = 6\nmetric = 'val/accuracy'\n"
    command = f"{sys.executable} train.py --seconds {seconds}{more}"
    job = f'[job]\ncommand = "{command}"\nslots = 1\nmax_iterations = {iterations}\n'
    file = folder / f"{name}.toml"
    file.write_text(f'[app]\nname = "{name}"\n{job}{search if searches else ""}')
    return file


def live(made: Supervisor, *, masters: bool) -> list[tuple[str, int]]:
    """Container id and pid of the app masters, or of the workers, that run."""
    found = []
    for record in (made.state_dir / "launcher" / "live").glob("*/container.json"):
        known = json.loads(record.read_text())
        if (known["slot"] == -1) is masters and known["state"] != "COMPLETED" and known["pid"]:
            found.append((known["container_id"], known["pid"]))
    return found


def went_on(made: Supervisor, app: str) -> int:
    """Steps that the workers of an app have logged, in bytes."""
    return sum(file.stat().st_size for file in (made.state_dir / "apps" / app).glob("*/logs/events*"))


def activity(made: Supervisor, app: str) -> list[dict[str, Any]]:
    """The events of an app."""
    files = [path for path in activity_files(made.state_dir / "apps" / app) if path.exists()]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def another(made: Supervisor, before: str) -> tuple[str, int] | None:
    """The app master that runs, if it is another attempt than the one before."""
    return next((one for one in live(made, masters=True) if one[0] != before), None)


def ended_by(made: Supervisor, number: signal.Signals) -> Iterator[str]:
    """End the only app master with a signal, each time that another attempt of it runs; the attempts' ids."""
    before = ""
    while True:
        found = eventually(functools.partial(another, made, before), "another attempt")
        assert found is not None
        before, pid = found
        os.kill(pid, number)
        yield before
