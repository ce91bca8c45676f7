"""A simulated gang: its workers make steps, log, save and leave all together, in virtual time."""

import asyncio
import contextlib
import math
import struct
from pathlib import Path
from typing import Any

from chaos.crash_points.virtual import EPOCH_SECONDS
from eunomia_appmaster.app.job_checkpoints import JobCheckpoints
from eunomia_appmaster.profiler.crc32c import crc32c, masked

START_SECONDS = 0.1
STEP_SECONDS = 0.1
"""Of one slot; two are twice as fast."""
SAVE_SECONDS = 0.05
STEPS_PER_SAVE = 6
STEPS_PER_POINT = 3
SUSPENDED = 75
METRIC = "val/accuracy"


class Gang:
    """The workers of one incarnation, which do all together.

    Args:
        folder: of the job's runs.
        env: of its first worker.
    """

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.ranks: list[tuple[Any, Any]] = []
        """Those that have begun, with the node of each."""
        self.whole = asyncio.Event()
        """Set once all have."""
        self.size = int(env["WORLD_SIZE"])
        self.stop_at = int(env["EUNOMIA_STOP_AT"]) if "EUNOMIA_STOP_AT" in env else None
        self.suspended = asyncio.Event()
        self.killed = False
        self._incarnation = int(env["EUNOMIA_INCARNATION"])
        self._most = int(env["EUNOMIA_MAX_ITERATIONS"])
        self._seed = int(env["EUNOMIA_SEED"])
        self._store = JobCheckpoints(folder / "checkpoints")
        self._log = folder / "logs" / f"events.out.tfevents.{1000 + self._incarnation}.box.1.0.r{self._incarnation}"
        found = self._store.begin(int(env["EUNOMIA_ATTEMPT"]), self._incarnation)
        self._saved = None if found is None else found.step
        self.step = 0 if found is None else found.step

    async def run(self, tell: Any) -> int:
        """Work until done, suspended or at the rung; return the exit code."""
        await asyncio.sleep(START_SECONDS)
        while not (self.whole.is_set() or self.suspended.is_set() or self.killed):
            await asyncio.sleep(STEP_SECONDS)
        self._write_event(b"\x1a\x0dbrain.Event:2")
        tell("hello", {})
        while not self.killed:
            if self.step >= self._most:
                await self._save(tell)
                return 0
            if not self.whole.is_set():  # it was ordered to leave before it had begun
                return SUSPENDED
            if self.suspended.is_set() or (self.stop_at is not None and self.step >= self.stop_at):
                await self._save(tell)
                tell("suspended", {"step": self.step})
                return SUSPENDED
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.suspended.wait(), STEP_SECONDS / self.size)
            self.step += 1
            if self.step % STEPS_PER_POINT == 0:
                self._log_point()
                tell("progress", {"step": self.step, "seconds_per_step": STEP_SECONDS / self.size})
            if self.step % STEPS_PER_SAVE == 0:
                await self._save(tell)
        return 1

    async def _save(self, tell: Any) -> None:
        if self._saved == self.step:
            return
        await asyncio.sleep(SAVE_SECONDS)
        if self.killed:
            return
        step = self.step

        def write(path: Path) -> None:
            path.write_text(f"state after {step}")

        self._store.save(step, write, incarnation=self._incarnation)
        self._saved = step
        tell("saved", {"step": step})

    def _log_point(self) -> None:
        value = 1.0 - math.exp(-self.step * (1 + self._seed % 7) / 60.0)
        summary = b"\x0a" + _sized(b"\x0a" + _sized(METRIC.encode()) + b"\x15" + struct.pack("<f", value))
        self._write_event(b"\x10" + _varint(self.step) + b"\x2a" + _sized(summary))

    def _write_event(self, fields: bytes) -> None:
        seconds = EPOCH_SECONDS + asyncio.get_running_loop().time()
        data = b"\x09" + struct.pack("<d", seconds) + fields
        length = struct.pack("<Q", len(data))
        record = length + struct.pack("<I", masked(crc32c(length))) + data + struct.pack("<I", masked(crc32c(data)))
        with self._log.open("ab") as file:
            file.write(record)


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data
