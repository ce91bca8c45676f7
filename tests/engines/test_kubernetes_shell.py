"""The shells under which a Job's launcher runs: exit codes after an ordered end, and the record of a pilot."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eunomia_engines.kubernetes.pods import ORDERED_END, RECORD_SUPERVISE, SUPERVISE
from eunomia_engines.pilots.records import PILOTS, end_of, pilots

EACH = pytest.mark.parametrize("is_kept", [False, True], ids=["fixed", "kept"])


def shell_of(folder: Path, *, is_kept: bool, pod: str = "pod-1") -> list[str]:
    """What stands before a launcher's command line."""
    if not is_kept:
        return ["sh", "-c", SUPERVISE, "sh"]
    (folder / PILOTS).mkdir(exist_ok=True)
    return ["sh", "-c", RECORD_SUPERVISE, f"{folder / PILOTS}/uid-7", pod, "gpu-7"]


def launcher(folder: Path, *, name: str = "a", seconds: float = 0.5) -> list[str]:
    """A launcher that lets its workers save after a SIGTERM, and ends with 0."""
    text = (
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n"
        f"    time.sleep({seconds}); pathlib.Path({str(folder / f'{name}.ended')!r}).touch(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"pathlib.Path({str(folder / f'{name}.begun')!r}).touch()\n"
        "time.sleep(60)\n"
    )
    return [sys.executable, "-c", text]


def await_file(path: Path, shell: "subprocess.Popen[bytes]") -> None:
    while not path.exists():
        assert shell.poll() is None
        time.sleep(0.02)


@EACH
@pytest.mark.parametrize("code", [0, 2, 7])
def test_the_launcher_of_a_job_that_ends_by_itself_keeps_its_exit_code(
    code: int, is_kept: bool, tmp_path: Path
) -> None:
    command = [*shell_of(tmp_path, is_kept=is_kept), "sh", "-c", f"exit {code}"]
    assert subprocess.run(command, timeout=60).returncode == code
    assert end_of(tmp_path, "uid-7") == (code if is_kept else None)


@EACH
def test_a_launcher_that_kubernetes_ends_does_not_complete_its_index(is_kept: bool, tmp_path: Path) -> None:
    with subprocess.Popen([*shell_of(tmp_path, is_kept=is_kept), *launcher(tmp_path)]) as shell:
        await_file(tmp_path / "a.begun", shell)
        shell.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        shell.send_signal(signal.SIGTERM)  # a second one does not end the wait
        assert end_of(tmp_path, "uid-7") is None, "it has not ended yet"
        assert shell.wait(timeout=60) == ORDERED_END
    assert (tmp_path / "a.ended").exists()
    assert end_of(tmp_path, "uid-7") == (0 if is_kept else None), "its own code, and not that of the shell"


def test_a_pilots_record_names_job_node_and_machine(tmp_path: Path) -> None:
    subprocess.run([*shell_of(tmp_path, is_kept=True), "true"], timeout=60, check=True)
    host = subprocess.run(["uname", "-n"], capture_output=True, text=True, check=True).stdout.strip()
    pilot = pilots(tmp_path)["uid-7"]
    assert (pilot.node, pilot.host, pilot.ended) == (host, "gpu-7", 0)
    assert abs(pilot.began_at - time.time()) < 3600.0
    assert sorted(path.name for path in (tmp_path / PILOTS).iterdir()) == ["uid-7.end", "uid-7.json"]


def test_a_pod_that_was_cut_off_notes_no_end_of_the_next_one(tmp_path: Path) -> None:
    old = [*shell_of(tmp_path, is_kept=True), *launcher(tmp_path, seconds=0.0)]
    with subprocess.Popen(old) as first:
        await_file(tmp_path / "a.begun", first)
        new = [*shell_of(tmp_path, is_kept=True, pod="pod-2"), *launcher(tmp_path, name="b", seconds=0.0)]
        with subprocess.Popen(new) as second:
            await_file(tmp_path / "b.begun", second)
            first.send_signal(signal.SIGTERM)
            assert first.wait(timeout=60) == ORDERED_END
            assert end_of(tmp_path, "uid-7") is None
            assert json.loads((tmp_path / PILOTS / "uid-7.json").read_text())["pod"] == "pod-2"
            second.send_signal(signal.SIGTERM)
            assert second.wait(timeout=60) == ORDERED_END
    assert end_of(tmp_path, "uid-7") == 0


def test_without_its_folder_a_launcher_runs_and_nothing_is_known_of_its_end(tmp_path: Path) -> None:
    command = shell_of(tmp_path, is_kept=True)
    (tmp_path / PILOTS).rmdir()
    done = subprocess.run([*command, "sh", "-c", "exit 0"], timeout=60, capture_output=True)
    assert done.returncode == 0 and end_of(tmp_path, "uid-7") is None
