"""What a worker has been told to do: orders of its container's socket, SIGTERM, and the clock of its checkpoints."""

import signal
import threading
import time
from dataclasses import dataclass
from types import FrameType

from eunomia_appmaster.training.orders import OrderClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is to be done, as all workers of the gang have agreed."""

    suspend: bool = False
    checkpoint: bool = False
    stop_at: int | None = None


class Commands:
    """Collects what this worker is told.

    Args:
        client: the container's socket; None for a run without an app master.
        stop_at: the first rung, in optimizer steps.
        every_seconds: time between periodic checkpoints; None for none.
    """

    def __init__(self, client: OrderClient | None, *, stop_at: int | None, every_seconds: float | None) -> None:
        self._client = client
        self._suspend = False
        self._checkpoint = False
        self._stop_at = stop_at
        self._every_seconds = every_seconds
        self._saved_at = time.monotonic()

    def obey_sigterm(self) -> None:
        """Take a SIGTERM as a suspend order; only the main thread of a process may set that."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def collect(self) -> Told:
        """Return what this worker knows by now."""
        for order in self._client.poll() if self._client is not None else []:
            self._take(order.get("order"), order.get("step"))
        return Told(suspend=self._suspend, checkpoint=self._checkpoint or self._is_due(), stop_at=self._stop_at)

    def saved(self) -> None:
        """A checkpoint was just written."""
        self._checkpoint = False
        self._saved_at = time.monotonic()

    def _take(self, order: object, step: object) -> None:
        if order == "suspend":
            self._suspend = True
        elif order == "checkpoint":
            self._checkpoint = True
        elif order == "stop_at":
            self._stop_at = step if isinstance(step, int) else None

    def _is_due(self) -> bool:
        return self._every_seconds is not None and time.monotonic() - self._saved_at >= self._every_seconds

    def _on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        self._suspend = True
