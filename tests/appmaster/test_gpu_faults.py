"""A GPU that breaks takes its slot away, and its job goes on elsewhere; a module stands in for NVML."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import SCRIPT, client, eventually, supervisor

from eunomia_appmaster.launcher.gpu_faults import OF_PROGRAMS, GpuFaults, NvmlFaults
from eunomia_appmaster.node import local_machine

_floors = serving_lab.floors
NVML = """
import os
from pathlib import Path

NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, nvmlEventTypeXidCriticalError = 1, 0, 8
NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_TIMEOUT, NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED = 3, 10, 15, 16
FOLDER = Path(os.environ["NVML_FOLDER"])


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


class Event:
    def __init__(self, device, xid):
        self.device, self.eventData = device, xid


def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetName(handle): return "NVIDIA A100-SXM4-80GB"
def nvmlDeviceGetUUID(handle): return handle
def nvmlDeviceGetHandleByUUID(uuid): return uuid
def nvmlDeviceGetMinorNumber(handle): raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
def nvmlDeviceGetComputeRunningProcesses(handle): return []
def nvmlDeviceRegisterEvents(handle, kinds, events): events.append(handle)
def nvmlEventSetCreate(): return []
def nvmlDeviceGetP2PStatus(one, other, caps): raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
NVML_P2P_CAPS_INDEX_NVLINK = 2


def nvmlDeviceGetHandleByIndex(index):
    if (FOLDER / f"GPU-{index}.lost").exists():
        raise NVMLError(NVML_ERROR_GPU_IS_LOST)
    return f"GPU-{index}"


def nvmlDeviceGetTotalEccErrors(handle, kind, counter):
    if (FOLDER / f"{handle}.lost").exists():
        raise NVMLError(NVML_ERROR_GPU_IS_LOST)
    file = FOLDER / f"{handle}.ecc"
    if not file.exists():
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return int(file.read_text())


def nvmlEventSetWait_v2(events, milliseconds):
    for handle in events:
        file = FOLDER / f"{handle}.xid"
        if file.exists():
            xid = int(file.read_text())
            file.unlink()
            return Event(handle, xid)
    raise NVMLError(NVML_ERROR_TIMEOUT)
"""


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in in front of NVML's module, here and in children; return the folder in which faults are made."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    (folder / "pynvml.py").write_text(NVML)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("NVML_FOLDER", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    return folder


def test_only_gpu_faults_that_no_program_causes_remove_a_slot(nvml: Path) -> None:
    faults = NvmlFaults(["GPU-0", "GPU-1"])
    (nvml / "GPU-0.ecc").write_text("2")
    assert faults() == {}, "errors from before the launcher's start are old"
    for xid in OF_PROGRAMS:
        (nvml / "GPU-0.xid").write_text(str(xid))
        assert faults() == {}
        assert not (nvml / "GPU-0.xid").exists()
    (nvml / "GPU-1.xid").write_text("48")
    assert faults() == {"GPU-1": "Xid 48"}
    assert faults() == {}
    (nvml / "GPU-0.ecc").write_text("5")
    assert faults() == {"GPU-0": "3 uncorrected ECC errors"}
    (nvml / "GPU-1.lost").touch()
    assert faults()["GPU-1"] == "it does not answer: error 15"


def test_a_lost_gpu_gives_no_slot_at_the_next_start(nvml: Path) -> None:
    assert [slot.uuid for slot in local_machine.detect().slots] == ["GPU-0", "GPU-1"]
    (nvml / "GPU-0.lost").touch()
    assert [slot.uuid for slot in local_machine.detect().slots] == ["GPU-1"]


def test_the_slot_of_a_broken_gpu_is_removed_once() -> None:
    lost: list[tuple[int, str]] = []
    watch = GpuFaults({"GPU-0": 4}, lambda slot, why: lost.append((slot, why)), lambda: {"GPU-0": "Xid 79", "x": "?"})
    asyncio.run(asyncio.wait_for(watch.run(), 60.0))
    assert lost == [(4, "its GPU broke: Xid 79")]


@pytest.mark.slow
def test_a_job_on_a_broken_gpu_moves_to_another_and_the_slot_is_missing(nvml: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    file = tmp_path / "ana.toml"
    file.write_text(f'[app]\nname = "ana"\n[job]\ncommand = "{sys.executable} train.py"\nslots = 1\n')
    made = supervisor(tmp_path, slots=None, cpu_only=False)
    with made, client(made) as arbiter:
        arbiter.submit(file)
        eventually(lambda: arbiter.app("ana").running == 1)
        (first,) = [slot.slot for slot in arbiter.list(slots=True).slots if slot.app == "ana"]
        (nvml / f"GPU-{first}.xid").write_text("79")
        eventually(lambda: [slot.slot for slot in arbiter.health().missing_slots] == [first], "the slot is missing")
        eventually(lambda: arbiter.app("ana").running == 1, "the job runs again")
        (second,) = [slot.slot for slot in arbiter.list(slots=True).slots if slot.app == "ana" and slot.state == "held"]
        assert second != first
        (tmp_path / "end").touch()
        eventually(lambda: arbiter.app("ana").state == "finished")
        assert made.launcher is not None and made.launcher.pid is not None
        os.kill(made.launcher.pid, signal.SIGHUP)
        eventually(lambda: not arbiter.health().missing_slots, "the next launcher finds the GPU")
