"""A worker on a GPU of another slot is named, and ended where that is asked for; what NVML answers is given here."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from eunomia.errors import InputError
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.foreign_gpus import ForeignGpus
from eunomia_appmaster.launcher.processes import ProcessId, read_stat
from eunomia_appmaster.node.local_machine import LocalMachine, LocalSlot
from eunomia_appmaster.protocol import launcher_pb2 as pb

SLOTS = tuple(
    LocalSlot(index=index, gpu_type="A100", uuid=f"GPU-{index}", island=0, cpus=1.0, memory_gib=1.0)
    for index in range(3)
)
MACHINE = LocalMachine(host="box7", slots=SLOTS, cpus=3.0, memory_gib=3.0)
DEAF = "import signal, time; signal.signal(signal.SIGSYS, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[tuple[Container, "subprocess.Popen[bytes]"]]:
    """A container on slot 1, of a gang on slots 0 and 1, whose worker ignores the first signal."""
    process = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    stat = read_stat(process.pid)
    assert stat is not None
    container = Container(pb.ContainerStatus(container_id="ana-1.r1.1", slot=1), tmp_path)
    container.worker = ProcessId(process.pid, stat.start_time)
    container.gang_slots = frozenset({0, 1})
    yield container, process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_worker_on_the_gpus_of_its_gang_is_not_reported(worker: tuple[Container, "subprocess.Popen[bytes]"]) -> None:
    container, process = worker
    watch = ForeignGpus(MACHINE, lambda: [container], end=True)
    watch.look({"GPU-0": [process.pid], "GPU-1": [process.pid], "GPU-2": [1], "GPU-9": [process.pid]})
    assert process.poll() is None
    assert container.status.diagnostics == ""


def test_serve_accepts_warn_or_end_for_foreign_gpus() -> None:
    options = ServeFlags(foreign_gpus="end").launcher_options
    assert options[options.index("--foreign-gpus") + 1] == "end"
    with pytest.raises(InputError, match="--foreign-gpus must be warn or end"):
        _ = ServeFlags(foreign_gpus="ask").launcher_options


def test_a_worker_on_a_foreign_gpu_is_reported_once(worker: tuple[Container, "subprocess.Popen[bytes]"]) -> None:
    container, process = worker
    watch = ForeignGpus(MACHINE, lambda: [container], end=False)
    with structlog.testing.capture_logs() as said:
        watch.look({"GPU-2": [process.pid]})
        watch.look({"GPU-2": [process.pid]})
    assert [(one["event"], one["container"], one["slot"], one["process"]) for one in said] == [
        ("gpu.foreign", "ana-1.r1.1", 2, process.pid)
    ]
    assert process.poll() is None


def test_a_worker_on_the_gpu_of_another_slot_is_killed_and_counts_as_failed(
    worker: tuple[Container, "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    container, process = worker
    other = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    stat = read_stat(other.pid)
    assert stat is not None
    plain = Container(pb.ContainerStatus(container_id="bob-1.r1.0", slot=0), tmp_path / "bob")
    plain.worker = ProcessId(other.pid, stat.start_time)
    watch = ForeignGpus(MACHINE, lambda: [container, plain], end=True)
    watch.look({"GPU-2": [process.pid, other.pid]})
    assert other.wait() == -signal.SIGSYS  # no signal of a user's: the job fails, and uses one of its retries
    assert plain.status.diagnostics == f"its process {other.pid} is on the GPU of slot 2, which is not its own"
    assert process.poll() is None
    watch.look({"GPU-2": [process.pid]})  # it ignored the signal
    assert process.wait() == -signal.SIGKILL
