"""Arbiter, launcher and app masters as processes on this machine, for tests."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eunomia.errors import UnreachableError
from eunomia_appmaster import Client
from eunomia_appmaster.node.supervisor import Serving, Supervisor

ROOT = Path(__file__).parent.parent.parent
FLOORS = ("core", "plugins", "appmaster", "hpo_adapters", "testbed")
PATIENCE_SECONDS = 90.0
T = TypeVar("T")
SCRIPT = """
import os, signal, sys, time
signal.signal(15, lambda *_: sys.exit(75))
print("up", os.environ["EUNOMIA_JOB"], flush=True)
print("careful", file=sys.stderr, flush=True)
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


def supervisor(folder: Path, **more: Any) -> Supervisor:
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
    return Supervisor(folder / "state", Serving(**values))


def client(made: Supervisor) -> Client:
    """A connection to it."""
    return Client(made.address, token_file=made.token_file)


def ready(arbiter: Client) -> bool:
    """Whether the arbiter is there and has its machine."""
    try:
        return arbiter.health().ready
    except UnreachableError:
        return False
