"""Training scripts that misbehave in every way that is known, on one machine with one that does not."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.appmaster.serving_lab import supervisor
from tests.appmaster.test_profiler_bars import event, framed

from eunomia.journal.journal import read_journal
from eunomia_appmaster import Client

ROOT = Path(__file__).parent.parent.parent
FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
PATIENCE_SECONDS = 180.0
SCALARS = 100_000
T = TypeVar("T")

DEAF = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()  # out of the session that is ended
        break
with open("pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
while True:
    time.sleep(0.05)
"""
ODD = "import sys, time; time.sleep(0.2); sys.exit(75)"
FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # a disk with 4 KiB left
with open(sys.argv[1] + "/last.pt", "wb") as file:
    file.write(bytes(1_000_000))
"""
FLOOD = """
import sys, time
data = open("flood.bin", "rb").read()
with open(sys.argv[1] + "/events.out.tfevents.1800000000.box.1.0.r1", "wb", buffering=0) as file:
    for start in range(0, len(data), 50_000):
        file.write(data[start:start + 50_000])
        time.sleep(0.02)
time.sleep(1.5)
"""
GOOD = "import time; time.sleep(3)"


@pytest.fixture(autouse=True)
def _floors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / floor) for floor in FLOORS))
    for name in ("EUNOMIA_ADDRESS", "EUNOMIA_TOKEN_FILE", "EUNOMIA_STATE_DIR", "EUNOMIA_POLICY"):
        monkeypatch.delenv(name, raising=False)


def eventually(look: Callable[[], T], what: str) -> T:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (seen := look()):
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.1)
    return seen


def app(folder: Path, name: str, script: str, arguments: str = "", metric: str = "") -> Path:
    (folder / f"{name}.py").write_text(script)
    tuner = f'[tuner]\nkind = "none"\nmetric = "{metric}"\nmode = "min"\n' if metric else ""
    file = folder / f"{name}.toml"
    job = f'[job]\ncommand = "python {name}.py {arguments}"\nretries = 1\nmax_iterations = 1000000\n'
    file.write_text(f'[app]\nname = "{name}"\n{job}{tuner}')
    return file


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def damaged(count: int) -> bytes:
    """Points with NaN, steps that go back, a corrupt record in the middle, and a tail that is cut short."""
    events = [event("loss", step) for step in range(count)]
    data = bytearray(framed([*events[:50], *events[:30], *events[50:]]))
    data[len(data) // 2 + 20] ^= 0xFF
    return bytes(data[:-7])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_good_job_finishes_on_a_machine_full_of_misbehaving_scripts(tmp_path: Path) -> None:
    (tmp_path / "flood.bin").write_bytes(framed([event("loss", step) for step in range(SCALARS)]))
    flawed = FLOOD.replace("flood.bin", "flawed.bin").replace("0.02", "0.3")
    (tmp_path / "flawed.bin").write_bytes(damaged(2000))
    files = [
        app(tmp_path, "deaf", DEAF),
        app(tmp_path, "odd", ODD),
        app(tmp_path, "full", FULL, "{checkpoint_dir}"),
        app(tmp_path, "flood", FLOOD, "{log_dir}", metric="loss"),
        app(tmp_path, "flawed", flawed, "{log_dir}", metric="loss"),
        app(tmp_path, "good", GOOD),
    ]
    made = supervisor(tmp_path, slots=3, settings=("rounds.lease=2s", "rounds.suspend_grace=1s"))
    with made, Client(made.address, token_file=made.token_file) as client:
        for file in files:
            client.submit(file)
        for name in ("odd", "full", "flood", "flawed", "good"):
            eventually(lambda name=name: client.app(name).state in ("finished", "failed"), name)  # type: ignore[misc]
        told = {name: client.app(name) for name in ("odd", "full", "flood", "flawed", "good")}
        assert {name: one.state for name, one in told.items()} == {
            "odd": "failed",
            "full": "failed",
            "flood": "finished",
            "flawed": "finished",
            "good": "finished",
        }
        assert "exited with 75 without an order to leave" in told["odd"].why
        assert "File too large" in told["full"].why
        assert told["flood"].best == pytest.approx(1.0 / SCALARS), "the last of all points was read"
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        client.cancel("deaf")
        eventually(lambda: client.app("deaf").state == "cancelled", "deaf is cancelled")
        eventually(lambda: not any(map(alive, pids)), "whatever deaf had forked is gone")
        eventually(lambda: client.health().free_slots == 3, "every slot is free")
        assert list(client.health().faults) == []
        assert made.arbiter is not None
        assert made.arbiter.restarts == 0
    with read_journal(made.state_dir / "journal.sqlite") as journal:
        faults = [fault for step in journal.steps() for fault in step.decision.faults if fault.stage is not None]
    assert faults == [], "a late word about a job that is over is refused, and no fault of a stage"
    findings = (tmp_path / "state" / "apps" / "flawed").rglob("*.log")
    assert "CRC" in "".join(path.read_text(errors="replace") for path in findings)
    assert not any(map(alive, pids))
