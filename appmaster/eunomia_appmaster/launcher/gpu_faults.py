"""Detects GPUs that break while the launcher runs: their slots are lost, and their jobs resume on other slots.

NVML reports a fault as an Xid. Xids that a program causes leave the GPU usable and are skipped. Any other Xid, an
uncorrected memory error (ECC), or a GPU that stops responding removes the slot until the launcher's next start.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

log = structlog.get_logger()

OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Xids that a program causes, as listed in NVIDIA's device plugin for Kubernetes (``health.go``)."""
FaultsByGpu = Mapping[str, str]
"""Descriptions of faults of broken GPUs, by the GPU's UUID."""
_SECONDS = 5.0


class NvmlFaults:
    """Reads from NVML the faults of GPUs since the last call; without a driver there are none.

    Args:
        uuids: UUIDs of the GPUs.
    """

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = uuids
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self._events: Any = None
        self._errors: dict[str, int] = {}

    def __call__(self) -> FaultsByGpu:
        """Return the faults since the last call."""
        if self._nvml is None:
            self._begin()
        found = {uuid: why for uuid, handle in self._handles.items() if (why := self._state(uuid, handle))}
        return self._xids() | found

    def _begin(self) -> None:
        import pynvml  # loads the driver's library

        self._nvml = pynvml
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._events = pynvml.nvmlEventSetCreate()
        for uuid in self._uuids:
            with contextlib.suppress(pynvml.NVMLError):
                self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                self._state(uuid, self._handles[uuid])
                pynvml.nvmlDeviceRegisterEvents(self._handles[uuid], pynvml.nvmlEventTypeXidCriticalError, self._events)

    def _state(self, uuid: str, handle: Any) -> str:
        """Return why a GPU is broken; empty: it works. Uncorrected errors before the first call do not count."""
        nvml = self._nvml
        try:
            kinds = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
            errors = int(nvml.nvmlDeviceGetTotalEccErrors(handle, *kinds))
        except nvml.NVMLError as error:
            gone = error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED)
            return f"it does not answer: {error}" if gone else ""  # else it has no ECC
        more = errors - self._errors.setdefault(uuid, errors)
        return f"{more} uncorrected ECC errors" if more > 0 else ""

    def _xids(self) -> dict[str, str]:
        nvml, found = self._nvml, {}
        with contextlib.suppress(nvml.NVMLError):  # no further event
            while self._events is not None:
                event = nvml.nvmlEventSetWait_v2(self._events, 1)
                xid = int(event.eventData)
                if xid not in OF_PROGRAMS:
                    uuid = nvml.nvmlDeviceGetUUID(event.device)
                    found[uuid if isinstance(uuid, str) else uuid.decode()] = f"Xid {xid}"
        return found


class GpuFaults:
    """Checks every few seconds for broken GPUs.

    Args:
        slots: numbers of the slots, by the UUID of their GPU.
        lose: called with a lost slot and the reason.
        read: returns new faults.
    """

    def __init__(self, slots: Mapping[str, int], lose: Callable[[int, str], None], read: Callable[[], FaultsByGpu]):
        self._slots = dict(slots)
        self._lose = lose
        self._read = read

    async def run(self) -> None:
        """Check until cancelled; returns once no GPU is left."""
        while self._slots:
            for uuid, why in (await asyncio.to_thread(self._read)).items():
                slot = self._slots.pop(uuid, None)
                if slot is not None:
                    log.error("gpu.lost", slot=slot, gpu=uuid, why=why)
                    self._lose(slot, f"its GPU broke: {why}")
            await asyncio.sleep(_SECONDS)
