"""What nodes of slots and the searching program say of each other in files; Ray itself is not needed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_hpo_adapters import ray_node
from eunomia_hpo_adapters.ray_slots import (
    DriverBeat,
    Pulse,
    SlotBeat,
    give_token,
    slot_file,
    token_file,
    token_variables,
)


def test_a_writer_that_stops_is_silent_by_the_readers_clock() -> None:
    now = [0.0]
    pulse = Pulse(lambda: now[0])
    seen = []
    for process, beat, seconds in ((7, 1, 1.0), (7, 2, 2.0), (7, 2, 5.0), (8, 2, 6.0), (None, 0, 9.0)):
        now[0] = seconds
        seen.append(pulse.silent_seconds(None if process is None else DriverBeat(process=process, beat=beat)))
    assert seen == [0.0, 0.0, 3.0, 0.0, 3.0]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"process": "x", "beat": 1}', b"\xff"])
def test_a_damaged_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    slot_file(tmp_path, 1).write_bytes(content)
    assert SlotBeat.read(slot_file(tmp_path, 1)) is None
    assert SlotBeat.read(slot_file(tmp_path, 2)) is None
    beat = SlotBeat(process=3, beat=4, state="leaving", host="here", processes=(5, 6))
    beat.write(slot_file(tmp_path, 1))
    assert SlotBeat.read(slot_file(tmp_path, 1)) == beat
    assert [path.name for path in tmp_path.iterdir()] == ["slot-1.json"]


def test_nodes_get_the_token_of_the_cluster_and_nobody_else_does(tmp_path: Path) -> None:
    give_token(tmp_path, {})
    assert token_variables(tmp_path) == {}
    (tmp_path / "kept").write_text("secret\n")
    give_token(tmp_path, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "kept")})
    assert token_file(tmp_path).read_text() == "secret" and token_file(tmp_path).stat().st_mode & 0o777 == 0o600
    assert token_variables(tmp_path) == {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file(tmp_path))}
    with pytest.raises(OSError, match="none"):
        give_token(tmp_path, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")})


def test_a_python_without_ray_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(InputError, match="must have ray beside it: pip install"):
        ray_node.command("10.0.0.1:6379", 1, cpus=1, gpus=0, folder="/tmp/x")


def test_nodes_of_a_cluster_on_loopback_have_addresses_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "ray").touch()
    assert "--node-ip-address=127.0.0.13" in ray_node.command("127.0.0.1:6379", 3, cpus=1, gpus=0, folder="/tmp/x")
    words = ray_node.command("10.0.0.1:6379", 3, cpus=2.5, gpus=1, folder="/tmp/x")
    assert {"--num-cpus=2.5", "--num-gpus=1"} <= set(words) and not any("node-ip" in word for word in words)


SCRIPT = """#!{python}
import signal, subprocess
print("Ray runtime started.", flush=True)
worker = subprocess.Popen(["bash", "-c", "exec -a ray::train sleep 60"])
signal.signal(signal.SIGTERM, lambda *_: None)  # as Ray, which waits for what runs on the node
worker.wait()
"""


def beat(folder: Path) -> SlotBeat | None:
    return SlotBeat.read(slot_file(folder, 1))


def wait(folder: Path, state: str) -> SlotBeat:
    deadline = time.monotonic() + 30.0
    while True:
        found = beat(folder)
        if found is not None and found.state == state:
            return found
        assert time.monotonic() < deadline, f"never {state}"
        time.sleep(0.05)


def node_words(folder: Path, silent_seconds: float = 60.0) -> list[str]:
    """The command of a node whose ``ray`` is a script; its search counts as gone after some seconds of silence."""
    (folder / "python").symlink_to(sys.executable)
    fake = folder / "ray"
    fake.write_text(SCRIPT.format(python=sys.executable))
    fake.chmod(0o755)
    run = (
        "import sys, eunomia_hpo_adapters.ray_node as node; sys.executable = sys.argv.pop(1);"
        f"node.DRIVER_SILENT_SECONDS = {silent_seconds}; sys.exit(node.main())"
    )
    return [sys.executable, "-c", run, str(folder / "python"), "--head=h:1", f"--files={folder}", "--number=1"]


def test_a_node_ends_when_the_program_that_searches_is_gone(tmp_path: Path) -> None:
    DriverBeat(process=1, beat=1).write(tmp_path / "driver.json")
    with subprocess.Popen(node_words(tmp_path, silent_seconds=1.0)) as node:
        assert node.wait(30) == 0
    assert beat(tmp_path) is None


def test_a_node_that_must_leave_waits_for_its_trials_and_ends_with_its_search(tmp_path: Path) -> None:
    words = node_words(tmp_path)
    DriverBeat(process=1, beat=1).write(tmp_path / "driver.json")
    with subprocess.Popen(words) as node:
        while not (busy := list(filter(ray_node.is_busy, wait(tmp_path, "up").processes))):
            time.sleep(0.05)
        (worker,) = busy
        node.terminate()
        assert worker in wait(tmp_path, "leaving").processes
        time.sleep(2.0)
        assert node.poll() is None, "its trial has not paused"
        os.kill(worker, 9)
        assert node.wait(30) == ray_node.LEFT
    assert beat(tmp_path) is None
    with subprocess.Popen(words) as node:
        wait(tmp_path, "up")
        DriverBeat(process=1, beat=2, over=True).write(tmp_path / "driver.json")
        assert node.wait(30) == 0
