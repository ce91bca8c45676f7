"""Samples how much the GPUs of a run are used, by NVML: the share of time in which kernels run, and memory."""

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import structlog

from eunomia.model.shapes import value
from eunomia_appmaster.csv_cells import csv_text
from eunomia_appmaster.node.local_machine import LocalSlot
from eunomia_testbed.replay.cells import RealRun, state_folder
from eunomia_testbed.results.writing import write_text

SAMPLE_SECONDS: Final = 1.0
"""Seconds between two samples; NVML's utilization covers up to the last second."""
NAME: Final = "gpu-use.csv"
"""File in a run's state folder, and of all runs in the replay's folder."""
GIB: Final = float(1 << 30)
COLUMNS: Final = (
    "slot",
    "gpu",
    "gpu_type",
    "samples",
    "kernels_share",
    "memory_mean_gib",
    "memory_most_gib",
    "memory_gib",
)
"""``kernels_share``: mean part of the time in which a kernel ran on the GPU; NVML counts one of any size."""


@value
class _Sample:
    kernels: float
    """Share of the last second in which a kernel ran."""
    used_gib: float
    whole_gib: float


class GpuMeter:
    """Samples GPUs in a thread within a ``with`` block, and writes ``gpu-use.csv`` at its end.

    Without GPUs, it does nothing and writes no file.

    Args:
        folder: the folder of the file.
        slots: slots that are GPUs of this machine.
    """

    def __init__(self, folder: Path, slots: Sequence[LocalSlot]) -> None:
        self._folder, self._slots = folder, tuple(slots)
        self._samples: list[list[_Sample]] = [[] for _ in self._slots]
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._slots:
            self._thread = threading.Thread(target=self._measure, name="gpu-meter", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            write_text(csv_text([COLUMNS, *self._rows()]), self._folder / NAME)

    def _measure(self) -> None:
        import pynvml  # loads the driver's library

        try:
            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByUUID(slot.uuid) for slot in self._slots]
        except pynvml.NVMLError as error:
            structlog.get_logger().warning("gpus.not_measured", error=str(error))
            return
        try:
            while not self._stop.wait(SAMPLE_SECONDS):
                for handle, samples in zip(handles, self._samples, strict=True):
                    with contextlib.suppress(pynvml.NVMLError):  # lost, or not supported
                        samples.append(_sample(pynvml, handle))
        finally:
            pynvml.nvmlShutdown()

    def _rows(self) -> list[Sequence[object]]:
        rows: list[Sequence[object]] = []
        for slot, samples in zip(self._slots, self._samples, strict=True):
            count = len(samples)
            figures: tuple[object, ...] = ("", "", "", "")
            if samples:
                figures = (
                    round(sum(each.kernels for each in samples) / count, 4),
                    round(sum(each.used_gib for each in samples) / count, 3),
                    round(max(each.used_gib for each in samples), 3),
                    round(samples[-1].whole_gib, 3),
                )
            rows.append((slot.index, slot.uuid, slot.gpu_type, count, *figures))
        return rows


def write_gpu_use(out: Path, runs: Sequence[RealRun]) -> None:
    """Write the files of all runs as one into the replay's folder; no file if no run has one."""
    lines: list[str] = []
    for run in runs:
        path = state_folder(out, run) / NAME
        if path.is_file():
            heading, *rows = path.read_text(encoding="utf-8").splitlines()
            lines = lines or [f"policy,repeat,{heading}"]
            lines += [f"{csv_text([(run.policy, run.repeat)]).strip()},{row}" for row in rows]
    if lines:
        write_text("\n".join(lines) + "\n", out / NAME)


def _sample(nvml: Any, handle: Any) -> _Sample:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    used = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
    return _Sample(kernels=used / 100.0, used_gib=memory.used / GIB, whole_gib=memory.total / GIB)
