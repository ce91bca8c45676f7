"""Interrupt a call that does not return; the limit is on CPU time, so that a busy machine fails no policy."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Final

WALL: Final = 10.0
"""Ratio of the wall-clock limit to the CPU-time limit, for calls that sleep or wait."""
TICKS: Final = 20
"""Number of clock checks within the limit."""


class HungError(BaseException):
    """A call did not return in time; a plugin cannot catch this error by ``except Exception``.

    Args:
        limit: the exceeded limit, in words.
    """

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``HungError`` in the main thread if the block exceeds a CPU time, or ten times as much wall-clock time.

    Other threads are not limited. A time in which the process is stopped counts as at most two intervals between clock
    checks. An interval timer in use, such as a test runner's, is restored with its remaining time.

    Args:
        seconds: the limit on the CPU time of the process, in seconds.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    tick = min(1.0, seconds / TICKS)
    clocks = _Clocks(seconds, tick)
    handler = signal.signal(signal.SIGALRM, clocks.look)
    began = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, tick, tick)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)), interval)


class _Clocks:
    def __init__(self, seconds: float, tick: float) -> None:
        self._seconds, self._tick = seconds, tick
        self._cpu_at, self._seen_at, self._waited = time.process_time(), time.monotonic(), 0.0

    def look(self, *_: object) -> None:
        """Raise ``HungError`` if a limit is exceeded, at every check, in case the plugin caught the last error."""
        now = time.monotonic()
        self._waited += min(now - self._seen_at, 2.0 * self._tick)
        self._seen_at = now
        if time.process_time() - self._cpu_at > self._seconds:
            raise HungError(f"{self._seconds:g} s of CPU time")
        if self._waited > WALL * self._seconds:
            raise HungError(f"{WALL * self._seconds:g} s")
