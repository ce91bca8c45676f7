"""The directives to a worker: orders of its container's socket, SIGTERM, and the clock of its checkpoints."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from eunomia_appmaster.training.orders import OrderClient

FORGETTING = 0.9
"""Factor by which the longest write so far decays at each further write."""
SAFETY = 1.5
"""Factor by which the next step and the next write may exceed recent ones."""
FIRST_WRITING = 0.125
"""Assumed duration of the first write, as a part of the interval."""
STALL_SECONDS, STALL_SHARE = 0.5, 0.125
"""Seconds allowed for a wait for a processor, and the most that this margin takes of the interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """The next actions of a worker, agreed by all workers of the gang."""

    suspend: bool = False
    checkpoint: bool = False
    stop_at: int | None = None


class CheckpointClock:
    """Decides when a periodic checkpoint must begin, so that a kill at any moment costs at most the interval.

    The interval runs from the time of the last checkpoint's state to the time at which the next one is on the disk. So
    a checkpoint begins early, by the time of a recent write, by one step, since it can begin only between steps, and by
    a margin for waits for a processor. A write that needs most of the interval still leaves half of it to the training.

    Args:
        every_seconds: the interval.
        now: when the work begins.
    """

    def __init__(self, every_seconds: float, now: float) -> None:
        self._every_seconds = every_seconds
        self._covered_until = now
        self._asked_at: float | None = None
        self._writing: float | None = None
        self._between = 0.0

    def ask(self, now: float) -> bool:
        """Return whether a checkpoint is due."""
        since = 0.0 if self._asked_at is None else now - self._asked_at
        # A pause counts half after an interval: what kept a worker from its steps once may do so again.
        self._between = max(since, self._between * 0.5 ** (since / self._every_seconds))
        self._asked_at = now
        return now - self._covered_until >= self._every_seconds - self._early

    def saved(self, captured_at: float, now: float) -> None:
        """Record that a checkpoint of the state of ``captured_at`` is on the disk; it began at the last ``ask``."""
        since = 0.0 if self._asked_at is None else now - self._asked_at
        self._writing = max(since, FORGETTING * (self._writing or 0.0))
        self._covered_until = captured_at
        self._asked_at = now

    @property
    def _early(self) -> float:
        """Return the seconds before the interval's end at which a checkpoint must begin."""
        every = self._every_seconds
        writing = FIRST_WRITING * every if self._writing is None else self._writing
        stall = min(STALL_SECONDS, STALL_SHARE * every)
        return min(SAFETY * (writing + self._between) + stall, every / 2.0)


class Commands:
    """Collects the directives to this worker.

    Args:
        client: the container's socket; None for a run without an app master.
        stop_at: the first rung, in optimizer steps.
        every_seconds: the most seconds of work that a kill may cost; None for no periodic checkpoints.
        clock: seconds that never go back.
        set_threads: called with the number of threads, once an order says it.
    """

    def __init__(
        self,
        client: OrderClient | None,
        *,
        stop_at: int | None,
        every_seconds: float | None,
        clock: Callable[[], float] = time.monotonic,
        set_threads: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._set_threads = set_threads
        self._suspend = False
        self._checkpoint = False
        self._stop_at = stop_at
        self._clock = clock
        self._due = None if every_seconds is None else CheckpointClock(every_seconds, clock())

    def obey_sigterm(self) -> None:
        """Take a SIGTERM as a suspend order; only the main thread of a process may set that."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def collect(self) -> Directive:
        """Return the directive as this worker knows it now."""
        for order in self._client.poll() if self._client is not None else []:
            self._take(order)
        due = self._due is not None and self._due.ask(self._clock())
        return Directive(suspend=self._suspend, checkpoint=self._checkpoint or due, stop_at=self._stop_at)

    @property
    def ordered(self) -> bool:
        """Whether an ordered checkpoint has not been written yet."""
        return self._checkpoint

    def saved(self, captured_at: float | None) -> None:
        """Record that the ordered checkpoint is on the disk.

        Args:
            captured_at: by the clock, when the state that was just written was that of the training; None: nothing
                had to be written, since the newest state that can be is there already.
        """
        self._checkpoint = False
        if self._due is not None and captured_at is not None:
            self._due.saved(captured_at, self._clock())

    def _take(self, message: dict[str, Any]) -> None:
        order, step, count = message.get("order"), message.get("step"), message.get("count")
        if order == "suspend":
            self._suspend = True
        elif order == "checkpoint":
            self._checkpoint = True
        elif order == "stop_at":
            self._stop_at = step if isinstance(step, int) else None
        elif order == "threads" and isinstance(count, int) and count > 0:
            self._set_threads(count)

    def _on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        self._suspend = True
