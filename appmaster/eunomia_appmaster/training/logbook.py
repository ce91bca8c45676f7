"""The logs of a run in TensorBoard's event files: rank 0's scalars, and the step time."""

import socket
import statistics
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import torch

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = structlog.get_logger()

STEP_SECONDS_TAG = "eunomia/step_seconds"
FLUSH_SECONDS = 5
PAUSE_SECONDS = 30.0
"""Seconds for which nothing is logged after a failed write."""
_WINDOW_SECONDS = 0.25
_WINDOWS = 9


class Logbook:
    """Event files of one incarnation in ``folder``, opened at the first scalar.

    Args:
        folder: folder of the event files.
        suffix: end of the file's name, ``.a3.r2`` for the second incarnation, started by attempt 3 of the app master.
        active: False on all ranks except 0, which write nothing.
    """

    def __init__(self, folder: Path, *, suffix: str, active: bool) -> None:
        self.folder = folder
        self.purge_step: int | None = None
        self._suffix = suffix
        self._active = active
        self._writer: SummaryWriter | None = None
        self._again_at = 0.0

    def take_over(self, suffix: str, purge_step: int) -> None:
        """Begin to write, in a new file, as a new rank 0; later readers drop older points from ``purge_step`` on."""
        self.close()
        self._suffix, self.purge_step, self._active = suffix, purge_step, True

    def stop(self) -> None:
        """Stop writing, since another worker writes from now on."""
        self.close()
        self._active = False

    @property
    def is_open(self) -> bool:
        """Whether an event file is open."""
        return self._writer is not None

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Write scalars at ``step``; NaN and infinity are written as such."""
        if not self._active:
            return
        if time.monotonic() < self._again_at:
            return
        with self._lenient():
            writer = self._opened()
            for tag, value in values.items():
                writer.add_scalar(tag, value, step)

    def flush(self) -> None:
        """Flush written data to the disk."""
        if self._writer is not None:
            with self._lenient():
                self._writer.flush()

    def close(self) -> None:
        """Flush and close; a later ``write`` opens a new file."""
        if self._writer is not None:
            with self._lenient():
                self._writer.close()
        self._writer = None

    @contextmanager
    def _lenient(self) -> Iterator[None]:
        """Drop the file on a disk error, and open a new one after a pause, so that training continues."""
        try:
            yield
        except OSError as error:
            self._writer, self._again_at = None, time.monotonic() + PAUSE_SECONDS
            log.warning("logs.refused", folder=str(self.folder), why=str(error))

    def _opened(self) -> "SummaryWriter":
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(
                str(self.folder), purge_step=self.purge_step, filename_suffix=self._suffix, flush_secs=FLUSH_SECONDS
            )
        return self._writer


class Mean:
    """Means over the micro-batches of one global batch, weighted by their samples."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}

    def add(self, values: Mapping[str, float], weight: float) -> None:
        """Add the values of one micro-batch, with the weight of its samples."""
        for tag, value in values.items():
            total, weights = self._sums.get(tag, (0.0, 0.0))
            self._sums[tag] = (total + weight * value if weight else total, weights + weight)

    def take(self, tags: Mapping[str, float]) -> dict[str, float]:
        """Return the means of these tags, and drop all values."""
        means = {tag: self._mean(tag, fallback=value) for tag, value in tags.items()}
        self._sums.clear()
        return means

    def clear(self) -> None:
        """Drop the values of an incomplete global batch."""
        self._sums.clear()

    def _mean(self, tag: str, *, fallback: float) -> float:
        total, weights = self._sums.get(tag, (0.0, 0.0))
        return total / weights if weights else fallback


class StepClock:
    """Measures seconds per step inside loops, with a synchronised device at the ends of short windows.

    Time between loops, such as evaluations, is not counted.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._windows: deque[float] = deque(maxlen=_WINDOWS)
        self._started: float | None = None
        self._seconds = 0.0
        self._steps = 0

    @property
    def step_seconds(self) -> float | None:
        """The median seconds per step over the recent windows; None before the first window has ended."""
        return statistics.median(self._windows) if self._windows else None

    def start(self) -> None:
        """Start timing: a loop begins or continues."""
        self._synchronise()
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Stop timing: a loop ends or pauses."""
        if self._started is not None:
            self._synchronise()
            self._seconds += time.perf_counter() - self._started
        self._started = None

    def tick(self) -> bool:
        """Count a step; returns whether it ends a window."""
        if self._started is None:
            return False
        self._steps += 1
        if self._seconds + time.perf_counter() - self._started < _WINDOW_SECONDS:
            return False
        self.stop()
        self._windows.append(self._seconds / self._steps)
        self._seconds, self._steps, self._started = 0.0, 0, time.perf_counter()
        return True

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def ordinary_log_dir() -> Path:
    """Return a new folder for the logs of a run without an app master and without a ``run_dir``."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return Path("runs") / f"{now}_{socket.gethostname()}"


def as_number(value: Any) -> float:
    """Return a number, tensor or array of one element as a Python float."""
    return float(value.detach()) if isinstance(value, torch.Tensor) else float(value)
