"""Finds workers that use GPUs of other slots, by NVML; logs them, and ends them if the option is ``end``.

A machine whose control groups have the controller ``devices`` blocks such GPUs and does not need this.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from eunomia_appmaster.launcher.confinement import processes_of
from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.processes import kill
from eunomia_appmaster.node.local_machine import LocalMachine

log = structlog.get_logger()

ANSWERS = ("warn", "end")
"""Values of the option: log a warning about a worker on a GPU of another gang, or end the worker."""
PidsByGpu = Mapping[str, Sequence[int]]
"""Ids of processes with a context on a GPU, by the GPU's UUID."""
_SECONDS = 5.0


def pids_by_gpu() -> PidsByGpu:
    """Return the processes on each GPU from NVML; empty if there is no driver."""
    import pynvml  # loads the driver's library

    found: dict[str, list[int]] = {}
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            found[uuid if isinstance(uuid, str) else uuid.decode()] = [process.pid for process in running]
    return found


class ForeignGpus:
    """Checks every few seconds whether workers use GPUs of other slots.

    Args:
        machine: the machine with its slots.
        workers: returns the containers on slots.
        end: whether to end a worker on a GPU of another slot; else it is only logged.
        read: returns the processes on GPUs.
    """

    def __init__(
        self,
        machine: LocalMachine,
        workers: Callable[[], Iterable[Container]],
        *,
        end: bool,
        read: Callable[[], PidsByGpu] = pids_by_gpu,
    ) -> None:
        self._slots = {slot.uuid: slot.index for slot in machine.slots if slot.uuid}
        self._workers = workers
        self._end = end
        self._read = read
        self._named: set[tuple[str, int]] = set()

    async def run(self) -> None:
        """Check until cancelled; returns at once on a machine without GPUs."""
        while self._slots:
            await asyncio.sleep(_SECONDS)
            self.look(await asyncio.to_thread(self._read))

    def look(self, found: PidsByGpu) -> None:
        """Log workers on GPUs of other slots, and end them if ``end`` is set."""
        pids = {
            pid: slot for uuid, there in found.items() if (slot := self._slots.get(uuid)) is not None for pid in there
        }
        for container in self._workers():
            if container.completed:
                continue
            for process in processes_of(container):
                slot = pids.get(process.pid)
                if slot is not None and slot not in container.gang_slots:
                    self._foreign(container, slot, process.pid)

    def _foreign(self, container: Container, slot: int, pid: int) -> None:
        words = f"its process {pid} is on the GPU of slot {slot}, which is not its own"
        first = (container.id, slot) not in self._named
        if first:
            self._named.add((container.id, slot))
            log.warning("gpu.foreign", container=container.id, slot=slot, process=pid, ended=self._end)
        if not self._end:
            return
        container.status.diagnostics = words
        if first and container.worker is not None:  # a fault of its own, as SIGSEGV is: SIGKILL would be a user's
            container.worker.signal(signal.SIGSYS)
        else:
            kill(processes_of(container))
