"""Faults of a replay on real processes: each one hits a process of the run, known by its pid and start time."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eunomia_appmaster.launcher.processes import ProcessId, identify
from eunomia_testbed.live_runs.live_run import LiveRun
from eunomia_testbed.replay.faults.carrying import FaultCarrier
from eunomia_testbed.replay.faults.plan import Fault, FaultKind, FaultPlan

LIMIT_SECONDS = 60.0
Start = Callable[..., ProcessId]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes that do nothing, with the files that a launcher keeps of a container."""
    made: list[subprocess.Popen[bytes]] = []

    def started(name: str, *, slot: int = 0, job: int = 0, later: int = 0, hello: bool = True) -> ProcessId:
        made.append(subprocess.Popen(["sleep", "600"]))
        process = identify(made[-1].pid)
        assert process is not None
        folder = tmp_path / "launcher" / "live" / name
        folder.mkdir(parents=True)
        record: dict[str, Any] = {"container_id": name, "app": "a", "job": job, "slot": slot, "status": {}}
        record["status"] = {"hello": True} if hello else {}
        (folder / "container.json").write_text(json.dumps(record))
        known = {"pid": process.pid, "start_time": process.start_time + later}
        shepherd = {f"shepherd_{key}": item for key, item in known.items()}
        (folder / "worker.json").write_text(json.dumps(known | shepherd))
        return process

    yield started
    for each in made:
        each.kill()
        each.wait()


def run_of(folder: Path) -> LiveRun:
    """What a carrier reads of a run: its folder, and a supervisor whose children are being restarted."""
    return SimpleNamespace(folder=folder, supervisor=SimpleNamespace(arbiter=None, launcher=None))  # type: ignore[return-value]


def plan_of(*faults: Fault) -> FaultPlan:
    return FaultPlan(seed=0, within_seconds=10.0, faults=faults)


def state_of(process: ProcessId) -> str:
    """The state letter of a process: T is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_kill_hits_the_worker_that_its_draw_chooses_and_no_other(tmp_path: Path, start: Start) -> None:
    first, second = start("a.0.1.0", job=0), start("a.1.1.0", job=1, slot=1)
    master, starting = start("appmaster:a:1", slot=-1), start("a.2.1.0", job=2, slot=2, hello=False)
    fault = Fault(number=1, at_seconds=0.0, kind=FaultKind.WORKER, draw=0.6)
    with FaultCarrier(run_of(tmp_path), plan_of(fault)) as carrier:
        until(lambda: len(carrier.hits) == 1)
    (hit,) = carrier.hits
    assert (hit.target, hit.job, hit.pid, hit.start_time) == ("a.1.1.0", "a/1", second.pid, second.start_time)
    until(lambda: not second.alive)
    assert first.alive
    assert master.alive
    assert starting.alive


def test_a_process_of_another_start_time_is_not_touched(tmp_path: Path, start: Start) -> None:
    """A launcher's file names a pid that another process has by now."""
    other = start("a.0.1.0", later=1)
    fault = Fault(number=1, at_seconds=0.0, kind=FaultKind.WORKER, draw=0.0)
    with FaultCarrier(run_of(tmp_path), plan_of(fault)) as carrier:
        time.sleep(0.5)
        assert not carrier.hits
        mine = start("a.1.1.0", job=1, slot=1)  # a fault waits for its target
        until(lambda: len(carrier.hits) == 1)
    assert carrier.hits[0].pid == mine.pid
    assert other.alive


def test_a_stopped_worker_goes_on(tmp_path: Path, start: Start) -> None:
    worker = start("a.0.1.0")
    fault = Fault(number=1, at_seconds=0.0, kind=FaultKind.STOP, draw=0.0, lasts_seconds=0.5)
    with FaultCarrier(run_of(tmp_path), plan_of(fault)) as carrier:
        until(lambda: state_of(worker) == "T")
        until(lambda: len(carrier.hits) == 1)
    until(lambda: state_of(worker) != "T")
    assert carrier.hits[0].until - carrier.hits[0].at >= 0.5


def test_what_is_stopped_when_the_run_ends_goes_on(tmp_path: Path, start: Start) -> None:
    worker = start("a.0.1.0")
    fault = Fault(number=1, at_seconds=0.0, kind=FaultKind.STOP, draw=0.0, lasts_seconds=600.0)
    with FaultCarrier(run_of(tmp_path), plan_of(fault)) as carrier:
        until(lambda: state_of(worker) == "T")
    until(lambda: state_of(worker) != "T")
    assert len(carrier.hits) == 1


def test_an_app_master_is_chosen_among_app_masters(tmp_path: Path, start: Start) -> None:
    worker, master = start("a.0.1.0"), start("appmaster:a:1", slot=-1)
    fault = Fault(number=1, at_seconds=0.0, kind=FaultKind.APP_MASTER, draw=0.0)
    with FaultCarrier(run_of(tmp_path), plan_of(fault)) as carrier:
        until(lambda: len(carrier.hits) == 1)
    assert (carrier.hits[0].pid, carrier.hits[0].job) == (master.pid, "a")
    assert worker.alive


def test_a_job_has_at_most_three_faults_of_its_workers(tmp_path: Path, start: Start) -> None:
    start("a.0.1.0")
    faults = [
        Fault(number=number, at_seconds=0.0, kind=FaultKind.STOP, draw=0.0, lasts_seconds=0.05) for number in range(5)
    ]
    with FaultCarrier(run_of(tmp_path), plan_of(*faults)) as carrier:
        until(lambda: len(carrier.hits) == 3)
        time.sleep(0.5)
    assert len(carrier.hits) == 3
