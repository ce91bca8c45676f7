"""``eunomia reproduce`` in one folder: a second process is refused while the first one runs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_testbed.reproduce.estimates import estimated, to_come
from eunomia_testbed.reproduce.run_lock import LOCK, locked

COMMAND = [sys.executable, "-m", "eunomia", "reproduce", "themis", "--only", "fig18", "--seeds", "0-4", "-j", "1"]
"""Sixty simulations of about a second: still running whenever this test looks."""


def until(happened: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    out = tmp_path / "run"
    process = subprocess.Popen([*COMMAND, "--out", str(out)], stderr=subprocess.DEVNULL, start_new_session=True)
    until(lambda: (out / "cells").is_dir() and any((out / "cells").glob("*.json")))
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def reproduced(out: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end."""
    return subprocess.run([*COMMAND, "--out", str(out), *more], capture_output=True, text=True, timeout=120)


def test_a_second_process_is_refused_until_the_first_has_ended(
    tmp_path: Path, running: subprocess.Popen[bytes]
) -> None:
    out = tmp_path / "run"
    refused = reproduced(out, "--resume")
    assert refused.returncode == 2
    told = " ".join(refused.stderr.split())
    assert "one process alone may run the simulations of a folder" in told
    assert f"process {running.pid} on " in told and out.name in told
    assert running.poll() is None and (out / LOCK).exists()
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    done = len(list((out / "cells").glob("*.json")))
    after = reproduced(out, "--resume", "--within", "0s")
    assert after.returncode == 0, after.stderr
    assert f"{done} of 60 simulations are in the folder; left: {60 - done}, about " in after.stderr
    assert f"{done} of 60 simulations done" in after.stdout
    assert not (out / LOCK).exists()


def test_an_interrupted_run_releases_its_folder(tmp_path: Path, running: subprocess.Popen[bytes]) -> None:
    os.kill(running.pid, signal.SIGINT)
    assert running.wait(60) == 130
    assert not (tmp_path / "run" / LOCK).exists()
    assert reproduced(tmp_path / "run", "--resume", "--within", "0s").returncode == 0


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    with locked(tmp_path / "new"):
        assert json.loads((tmp_path / "new" / LOCK).read_text())["pid"] == os.getpid()
        with (
            pytest.raises(InputError, match=rf"a second one while process {os.getpid()} on .*new"),
            locked(tmp_path / "new"),
        ):
            pass
    (tmp_path / "new" / LOCK).write_text("left by a process that was killed")
    with locked(tmp_path / "new"):
        pass
    assert list((tmp_path / "new").iterdir()) == []


def test_a_held_lock_with_an_unreadable_record_still_refuses_other_processes(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / LOCK).write_text("")
        with pytest.raises(InputError, match="while another process runs them"), locked(tmp_path):
            pass


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"a run's folder must be one that can be written, but got .*file"):
        locked(tmp_path / "file" / "run").__enter__()
    refused = reproduced(tmp_path / "file")
    assert refused.returncode == 2 and "--out must be a folder, but got" in refused.stderr


def test_an_estimate_states_the_number_of_cells_of_unknown_time() -> None:
    times = {"a": 1.5, "b": 20.0, "c": None}
    assert estimated(times.get, ["a", "b"]) == "about 22 s of CPU time"
    assert (
        estimated(times.get, ["a", "c", "c"]) == "about 2 s of CPU time for 1 of them, of the others no time is known"
    )
    assert estimated(times.get, ["c"]) == "CPU time not known beforehand"
    assert to_come(times.get, ["a", "b"], ["b"]) == (
        "1 of 2 simulations are in the folder; left: 1, about 20 s of CPU time"
    )
    assert to_come(times.get, ["a", "b"], []) == "2 of 2 simulations are in the folder"
