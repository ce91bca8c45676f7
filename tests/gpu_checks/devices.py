"""The GPU of the checks as NVML shows it, and why there is none."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from eunomia_appmaster.node import local_machine


class GpuReader(Protocol):
    """What NVML says of one GPU."""

    def used_bytes(self) -> int:
        """Return the memory in use, by all processes and the driver."""
        ...

    def process_ids(self) -> set[int]:
        """Return the processes that have a CUDA context."""
        ...

    def utilization(self) -> float:
        """Return the share of the last sampling period, at most a second, in which a kernel ran."""
        ...


class Gpu:
    """The first GPU that this process may use."""

    def __init__(self) -> None:
        import pynvml

        slot = local_machine.detect().slots[0]
        pynvml.nvmlInit()
        self.nvml: Any = pynvml
        self.handle: Any = pynvml.nvmlDeviceGetHandleByUUID(slot.uuid)
        self.gpu_type = slot.gpu_type

    def used_bytes(self) -> int:
        return int(self.nvml.nvmlDeviceGetMemoryInfo(self.handle).used)

    def process_ids(self) -> set[int]:
        return {process.pid for process in self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)}

    def utilization(self) -> float:
        return float(self.nvml.nvmlDeviceGetUtilizationRates(self.handle).gpu) / 100.0


def why_no_gpu() -> str | None:
    """Return why there is no NVIDIA GPU; None: there is one."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"NVML finds no driver ({error})"
    try:
        return None if pynvml.nvmlDeviceGetCount() else "the driver shows no GPU"
    finally:
        pynvml.nvmlShutdown()


def why_not_usable() -> str | None:
    """Return why torch cannot use the GPU that is there; None: it can."""
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA; install one with CUDA into this environment"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device (CUDA_VISIBLE_DEVICES, or a driver that is too old)"
    return None


@contextlib.contextmanager
def sampled(read: Callable[[], float], seconds: float = 0.25) -> Iterator[list[float]]:
    """Read a figure every few moments while the block runs; the list grows meanwhile."""
    samples: list[float] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(seconds):
            samples.append(read())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def wait_until(look: Callable[[], bool], what: str, limit_seconds: float = 120.0) -> None:
    """Look again and again until something is so.

    Raises:
        TimeoutError: it is not within the limit.
    """
    deadline = time.monotonic() + limit_seconds
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {limit_seconds:g} s: {what}")
        time.sleep(0.02)
