"""Distinguishes a stopped process (SIGSTOP, a debugger) from a hung one: a stopped one continues on SIGCONT.

A process hangs if it runs and is silent. A stopped process cannot report, so its silence is counted separately, with a
longer limit; once it continues, its limit starts again.
"""

from pathlib import Path
from typing import Final

from eunomia_appmaster.node.loop_clock import LoopClock

STOPPED: Final = frozenset("Tt")
"""States of a stopped process in ``/proc``."""
STOPPED_LIMITS: Final = 2.0
"""Multiple of the limit on silence after which a stopped process is ended."""


def process_state(pid: int) -> str:
    """Return the state of a process, a letter as in ``/proc``; empty: it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return (text.rpartition(")")[2].split() or [""])[0]


def waited_seconds(pid: int) -> float:
    """Return the seconds for which a process's main thread was ready but had no core; 0: the kernel does not count."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class StoppedTime:
    """Measures for how long one process was stopped; its caller's loop polls once per second.

    Args:
        clock: clock of the loop; time in which the loop itself did not run does not count.
    """

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._until: float | None = None

    def look(self, state: str) -> None:
        """Record the state of the process, see ``process_state``."""
        now = self._clock.now()
        if state not in STOPPED:
            self._since = None
            return
        self._until = now
        if self._since is None:
            self._since = now

    @property
    def seconds(self) -> float:
        """Seconds for which the process has been stopped; 0: it runs."""
        return 0.0 if self._since is None else self._clock.silence(self._since)

    def overdue(self, heard_at: float, limit: float, stopped_limit: float | None = None) -> float | None:
        """Return the seconds of silence of a process that must be ended; None: its limit is not reached.

        Args:
            heard_at: time of its last sign of life, by the loop's clock.
            limit: seconds of silence while it runs.
            stopped_limit: seconds while it is stopped; None: ``STOPPED_LIMITS`` limits.
        """
        if self._since is not None:
            silent = self._clock.silence(self._since)
            return silent if silent >= (stopped_limit or STOPPED_LIMITS * limit) else None
        silent = self._clock.silence(heard_at if self._until is None else max(heard_at, self._until))
        return silent if silent >= limit else None
