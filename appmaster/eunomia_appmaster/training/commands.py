"""The directives to a worker: orders from its container's socket, SIGTERM, and the clock of its checkpoints."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

FORGETTING = 0.9
"""Factor by which the longest write time so far decays with each write."""
SAFETY = 1.5
"""Factor by which the next step and the next write may take longer than recent ones."""
FIRST_WRITING = 0.125
"""Assumed duration of the first write, as a fraction of the interval."""
STALL_SECONDS, STALL_SHARE = 0.5, 0.125
"""Seconds allowed for waits for a processor, and the largest fraction of the interval that they may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """The next actions of a worker, which all workers of the gang agree on."""

    suspend: bool = False
    checkpoint: bool = False
    stop_at: int | None = None
    generation: int = 0
    """Newest generation of the gang that all workers know."""


class OrderSource(Protocol):
    """A source of orders to a worker; a protocol."""

    def poll(self) -> list[dict[str, Any]]:
        """Return the orders since the last call, oldest first."""
        ...


class CheckpointClock:
    """Decides when a periodic checkpoint must begin, so that a kill at any moment costs at most the interval.

    The interval lasts from the time of the last checkpoint's state until the next checkpoint is on the disk. So a
    checkpoint begins early: by the time of a recent write, by one step (since it can begin only between steps), and by
    a margin for waits for a processor. Even if a write needs most of the interval, half of it is left to training.

    Args:
        every_seconds: the interval in seconds.
        now: time in seconds at which the work begins.
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
        # The longest pause between calls decays by half per interval, since what caused it may recur.
        self._between = max(since, self._between * 0.5 ** (since / self._every_seconds))
        self._asked_at = now
        return now - self._covered_until >= self._every_seconds - self._early

    def saved(self, captured_at: float, now: float) -> None:
        """Record that a checkpoint of the state at ``captured_at`` is on the disk, begun at the last ``ask``."""
        since = 0.0 if self._asked_at is None else now - self._asked_at
        self._writing = max(since, FORGETTING * (self._writing or 0.0))
        self._covered_until = captured_at
        self._asked_at = now

    @property
    def _early(self) -> float:
        """Return by how many seconds before the interval's end a checkpoint must begin."""
        every = self._every_seconds
        writing = FIRST_WRITING * every if self._writing is None else self._writing
        stall = min(STALL_SECONDS, STALL_SHARE * every)
        return min(SAFETY * (writing + self._between) + stall, every / 2.0)


class Commands:
    """Collects the directives to this worker.

    Args:
        client: the client of the container's socket; None: the run has no app master.
        stop_at: the first rung, in optimizer steps.
        every_seconds: most seconds of work that a kill may cost; None: no periodic checkpoints.
        clock: returns seconds of a monotonic clock.
        set_threads: called with the number of threads in an order.
    """

    def __init__(
        self,
        client: OrderSource | None,
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
        """Treat SIGTERM as a suspend order; must be called in the process's main thread."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def collect(self) -> Directive:
        """Return the directive of this worker alone, before the gang agrees."""
        for order in self._client.poll() if self._client is not None else []:
            self._take(order)
        due = self._due is not None and self._due.ask(self._clock())
        return Directive(suspend=self._suspend, checkpoint=self._checkpoint or due, stop_at=self._stop_at)

    @property
    def leaving(self) -> bool:
        """Whether an order or SIGTERM has requested that this worker suspend."""
        return self._suspend

    @property
    def ordered(self) -> bool:
        """Whether a checkpoint was ordered and is not written yet."""
        return self._checkpoint

    def saved(self, captured_at: float | None) -> None:
        """Record that the ordered checkpoint is on the disk.

        Args:
            captured_at: time by the clock at which the written state was captured; None: nothing had to be written,
                since the newest possible state was saved already.
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
