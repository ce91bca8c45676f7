"""How much GPUs are used in a replay; a module stands in for NVML, since no GPU is here."""

import csv
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.local_machine import FoundGpu
from eunomia_testbed.replay import gpu_meter
from eunomia_testbed.replay.cells import RealRun, cleared
from eunomia_testbed.replay.gpu_meter import GIB, NAME, GpuMeter, write_gpu_use
from eunomia_testbed.replay.slots import slots_of

GPUS = tuple(FoundGpu(gpu_type="A100", uuid=f"GPU-{number}", island=0) for number in range(2))


class NvmlError(Exception):
    """NVML's error."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a stand-in in the place of NVML: GPU-0 runs kernels in half of the time, GPU-1 is lost after one sample."""
    made: Any = ModuleType("pynvml")
    given = {"GPU-0": [20, 80], "GPU-1": [50]}

    def rates(handle: str) -> Any:
        if not given[handle]:
            raise NvmlError("lost")
        return SimpleNamespace(gpu=given[handle].pop(0))

    made.NVMLError, made.nvmlInit, made.nvmlShutdown = NvmlError, lambda: None, lambda: None
    made.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    made.nvmlDeviceGetUtilizationRates = rates
    made.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(used=(3 - len(given[handle])) * GIB, total=80 * GIB)
    made.given = given
    monkeypatch.setitem(sys.modules, "pynvml", made)
    monkeypatch.setattr(gpu_meter, "SAMPLE_SECONDS", 0.01)
    return made


def slots(gpus: tuple[FoundGpu, ...], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(local_machine, "find_gpus", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return slots_of("gpus" if gpus else "2x cpu").gpus_here


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_use_of_each_gpu_is_the_mean_of_its_samples(nvml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RealRun(policy="las, mine", repeat=1, seed=3)
    folder = cleared(tmp_path, run)
    with GpuMeter(folder, slots(GPUS, monkeypatch)):
        deadline = time.monotonic() + 10.0
        while any(nvml.given.values()) and time.monotonic() < deadline:
            time.sleep(0.01)
    one, other = rows(folder / NAME)
    assert (one["gpu"], one["samples"], one["kernels_share"]) == ("GPU-0", "2", "0.5")
    assert (one["memory_mean_gib"], one["memory_most_gib"], one["memory_gib"]) == ("1.5", "2.0", "80.0")
    assert (other["samples"], other["kernels_share"]) == ("1", "0.5"), "what it had before it was lost"
    write_gpu_use(tmp_path, (run, RealRun(policy="fifo", repeat=0, seed=0)))
    assert [(each["policy"], each["repeat"], each["slot"]) for each in rows(tmp_path / NAME)] == [
        ("las, mine", "1", "0"),
        ("las, mine", "1", "1"),
    ]


def test_a_gpu_without_nvml_has_no_figures(nvml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise NvmlError("no driver")

    nvml.nvmlInit = fails
    with GpuMeter(tmp_path, slots(GPUS, monkeypatch)):
        pass
    assert [(each["samples"], each["kernels_share"]) for each in rows(tmp_path / NAME)] == [("0", ""), ("0", "")]


def test_cpu_slots_have_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with GpuMeter(tmp_path, slots((), monkeypatch)):
        pass
    write_gpu_use(tmp_path, (RealRun(policy="fifo", repeat=0, seed=0),))
    assert list(tmp_path.iterdir()) == []
