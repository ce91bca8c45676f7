"""Ends a plugin's call in this process by an exception when the call exceeds a limit."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from eunomia_testbed.calls.clock import CallClock
from eunomia_testbed.calls.limits import CallLimits, CallTooLongError, too_long
from eunomia_testbed.calls.notes import CallNotes

TRIES: Final = 5
"""Number of exceptions that a plugin may suppress before ``unreachable`` is called."""


class OverLimitError(BaseException):
    """Raised within a plugin's call that exceeds its limit; ``except Exception`` does not catch it."""


class CallWatch:
    """A watch on the plugin calls of one simulation, by a timer of this process.

    Timers exist only in the main thread; calls in other threads have no limit.

    Args:
        limits: time limits of a call.
        notes: the simulation's record of its calls.
        unreachable: called when the plugin has caught the exception more than ``TRIES`` times; it ends the process.
            None: another process does so.
    """

    def __init__(
        self, limits: CallLimits, notes: CallNotes, unreachable: Callable[[CallTooLongError], None] | None = None
    ) -> None:
        self.notes = notes
        self._limits, self._unreachable = limits, unreachable
        self._clock = CallClock(limits.cpu_seconds, limits.wall_seconds)
        self._error: CallTooLongError | None = None
        self._tries = 0

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Apply the limits to plugin calls within the block.

        Raises:
            CallTooLongError: a call took longer.
        """
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
            yield
            return
        before = signal.signal(signal.SIGALRM, self._look)
        began, tick = time.monotonic(), self._clock.tick
        left, interval = signal.setitimer(signal.ITIMER_REAL, tick, tick)
        try:
            yield
        except (Exception, OverLimitError):  # a plugin may raise another error instead
            if self._error is None:
                raise
        finally:
            self.notes.numbers[0] = 0
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
            if left:  # restore a timer that was set before, such as by a test runner
                signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)), interval)
        if self._error is not None:
            raise self._error

    def _look(self, _: int, frame: FrameType | None) -> None:
        if self._error is None:
            exceeded = self._clock.look(self.notes.numbers[0], time.process_time(), time.monotonic())
            if exceeded is None:
                return
            self._error = too_long(self._limits, exceeded, self.notes.page, line=_line(frame))
        self._tries += 1
        if self._tries > TRIES and self._unreachable is not None:
            self._unreachable(self._error)
        raise OverLimitError(str(self._error))


def _line(frame: FrameType | None) -> str:
    """Return the innermost line in the plugin's own folder, such as `` at half.py:12``."""
    frames: list[tuple[str, str, int]] = []
    while frame is not None:
        frames.append((str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    frames = frames[: next((at for at, each in enumerate(frames) if each[0].startswith(_CALLERS)), None)]
    theirs = [(file, line) for module, file, line in frames if not module.startswith(_OURS)]
    if not theirs:
        return ""
    called = Path(theirs[-1][0])
    file, line = next((Path(file), line) for file, line in theirs if Path(file).parent == called.parent)
    return f" at {file.name}:{line}"


_CALLERS: Final = ("eunomia.round.", "eunomia_testbed.")
_OURS: Final = ("eunomia.", "pluggy", "numpy")
