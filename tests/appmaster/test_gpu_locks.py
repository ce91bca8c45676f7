"""One arbiter a GPU: real `eunomia serve` processes over a library of NVML that shows GPUs that are not there."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eunomia.errors import InputError
from eunomia_appmaster.node import gpu_locks
from eunomia_appmaster.node.gpu_locks import GpuLocks

ROOT = Path(__file__).parent.parent.parent
FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
PATIENCE_SECONDS = 90.0
T = TypeVar("T")
NVML = """
import os
NVML_P2P_CAPS_INDEX_NVLINK = NVML_P2P_STATUS_OK = 0
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlShutdown(): pass
_uuids = os.environ["SHOWN_GPUS"].split(",")
def nvmlDeviceGetCount(): return len(_uuids)
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(index): return "NVIDIA A100-SXM4-80GB"
def nvmlDeviceGetUUID(index): return _uuids[index]
def nvmlDeviceGetMinorNumber(index): raise NVMLError
def nvmlDeviceGetP2PStatus(one, other, which): return 0
"""
NO_TORCH = "raise ImportError('no worker is started here, so no process prepares for one')\n"


def eventually(look: Callable[[], T], what: str = "") -> T:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (seen := look()):
        assert time.monotonic() < deadline, f"never came true: {what or look}"
        time.sleep(0.05)
    return seen


@pytest.fixture
def uuids() -> Iterator[list[str]]:
    """UUIDs of GPUs that no machine has; what is left of their locks is taken away."""
    made = [f"GPU-{uuid.uuid4()}" for _ in range(3)]
    yield made
    for base in gpu_locks.BASES:
        for name in made:
            (base / gpu_locks.FOLDER / f"gpu.{name}").unlink(missing_ok=True)


class Serves:
    """Starts `eunomia serve`, and ends what it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "nvml").mkdir()
        (folder / "nvml" / "pynvml.py").write_text(NVML)
        (folder / "nvml" / "torch.py").write_text(NO_TORCH)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, name: str, gpus: list[str], *more: str) -> subprocess.Popen[str]:
        paths = [str(self.folder / "nvml"), *(str(ROOT / floor) for floor in FLOORS)]
        kept = {key: known for key, known in os.environ.items() if not key.startswith(("EUNOMIA", "CUDA"))}
        env = {**kept, "PYTHONPATH": os.pathsep.join(paths), "SHOWN_GPUS": ",".join(gpus)}
        command = [sys.executable, "-c", "from eunomia.cli import main; main()", "serve"]
        command += ["--address", "127.0.0.1:0", "--state-dir", str(self.folder / name), *more]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        self.started.append(process)
        return process

    def ready(self, name: str, gpus: list[str], *more: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        process = self.start(name, gpus, "--json", *more)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (self.folder / f"{name}.log").read_text()
        return process, json.loads(line)

    def refused(self, name: str, gpus: list[str]) -> str:
        process = self.start(name, gpus)
        assert process.wait(PATIENCE_SECONDS) == 2
        return (self.folder / f"{name}.log").read_text().splitlines()[-1]

    def close(self) -> None:
        for process in self.started:
            process.terminate()
        for process in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30.0)
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def serves(tmp_path: Path) -> Iterator[Serves]:
    made = Serves(tmp_path)
    yield made
    made.close()


def test_a_second_serve_on_the_same_gpu_is_refused_until_the_first_has_ended(
    serves: Serves, uuids: list[str], tmp_path: Path
) -> None:
    first, said = serves.ready("one", uuids[:2])
    assert said["slots"] == 2
    refusal = serves.refused("two", uuids[1:])
    assert refusal.startswith("error: a GPU must be offered by one arbiter")
    assert f"{uuids[1]}, which process {first.pid} of user " in refusal
    assert f"(state in {tmp_path / 'one'})" in refusal
    assert serves.ready("three", uuids[2:])[1]["slots"] == 1  # another GPU of the machine

    launcher = int(json.loads((tmp_path / "one" / "launcher" / "launcher.json").read_text())["pid"])
    os.kill(launcher, signal.SIGKILL)  # its supervisor holds on
    assert "a GPU must be offered by one arbiter" in serves.refused("two", uuids[1:2])
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    eventually(lambda: free(uuids[1]), "the kernel gives the lock back")
    assert serves.ready("two", uuids[:2])[1]["slots"] == 2


def free(name: str) -> bool:
    with GpuLocks() as locks:
        try:
            locks.take([name], Path("nowhere"))
        except InputError:
            return False
        return True


def test_arbiters_with_only_cpu_slots_warn_about_each_other(serves: Serves, uuids: list[str], tmp_path: Path) -> None:
    cpu_only = ("--cpu-only", "--slots", "1")
    first, _ = serves.ready("one", uuids, *cpu_only)
    _, said = serves.ready("two", uuids, *cpu_only)
    assert {"pid": first.pid, "state_dir": str(tmp_path / "one")} in said["shares_cpus_with"]
    first.terminate()
    assert first.wait(PATIENCE_SECONDS) == 0
    _, said = serves.ready("three", uuids, *cpu_only)
    assert first.pid not in [other["pid"] for other in said["shares_cpus_with"]]


@pytest.fixture
def bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders for the locks that another user may have been in before."""
    made = tmp_path / "first", tmp_path / "second"
    for base in made:
        base.mkdir()
    monkeypatch.setattr(gpu_locks, "BASES", made)
    return made


def holds(name: str) -> bool:
    return not free(name)


def test_lock_files_are_writable_by_all_users_and_name_the_holder(bases: tuple[Path, Path], tmp_path: Path) -> None:
    with GpuLocks() as locks:
        locks.take(["GPU-1", "MIG-GPU-2/1/0", ""], tmp_path)
        for base in bases:
            folder = base / gpu_locks.FOLDER
            assert folder.stat().st_mode & 0o7777 == 0o1777
            assert sorted(file.name for file in folder.iterdir()) == ["gpu.GPU-1", "gpu.MIG-GPU-2_1_0"]
            assert (folder / "gpu.GPU-1").stat().st_mode & 0o7777 == 0o666
        with (
            pytest.raises(InputError, match=f"GPU-1, which process {os.getpid()} of user") as refused,
            GpuLocks() as more,
        ):
            more.take(["GPU-0", "GPU-1"], tmp_path / "other")
        assert str(tmp_path) in str(refused.value)
        assert free("GPU-0")  # what was taken before the refusal is given back


def test_a_lock_file_that_is_a_link_of_another_user_is_not_followed(bases: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("dear")
    (tmp_path / "victims").mkdir()
    (bases[0] / gpu_locks.FOLDER).symlink_to(tmp_path / "victims")
    folder = bases[1] / gpu_locks.FOLDER
    folder.mkdir()
    (folder / "gpu.GPU-1").symlink_to(tmp_path / "victim")
    (folder / "gpu.GPU-2").hardlink_to(tmp_path / "victim")
    os.mkfifo(folder / "gpu.GPU-3")
    for name in ("GPU-1", "GPU-2", "GPU-3"):
        with pytest.raises(InputError, match="a folder that all users of this machine share"), GpuLocks() as locks:
            locks.take([name], tmp_path)
    with GpuLocks() as locks:
        locks.take(["GPU-4"], tmp_path)  # one good folder is enough
        assert holds("GPU-4")
    assert (tmp_path / "victim").read_text() == "dear"
    assert not list((tmp_path / "victims").iterdir())


def test_text_written_into_a_lock_file_by_another_user_does_not_change_the_refusal(
    bases: tuple[Path, Path], tmp_path: Path
) -> None:
    with GpuLocks() as locks:
        locks.take(["GPU-1"], tmp_path)
        file = bases[0] / gpu_locks.FOLDER / "gpu.GPU-1"
        for text in ("", "[" * 100_000, '{"pid": 1, "state_dir": "a\\u001b[2J", "user": "b", "cpus": []}', "\x00"):
            file.write_text(text)
            with pytest.raises(InputError) as refused, GpuLocks() as more:
                more.take(["GPU-1"], tmp_path)
            assert str(refused.value).isprintable()


def test_without_a_folder_for_locks_gpu_slots_are_refused_but_cpu_slots_are_not(
    bases: tuple[Path, Path], tmp_path: Path
) -> None:
    for base in bases:
        shutil.rmtree(base)
    with GpuLocks() as locks:
        assert locks.note_cpus(tmp_path) == []
        with pytest.raises(InputError, match="a folder that all users of this machine share must take the locks"):
            locks.take(["GPU-1"], tmp_path)
