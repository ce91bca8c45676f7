"""Tells a stopped process (SIGSTOP, a debugger) from a hung one: a stopped one goes on once it is continued.

A process hangs if it runs and is silent. One that is stopped cannot speak, so its silence is counted apart, with a
longer limit; once it is continued it has a whole limit again.
"""

from pathlib import Path
from typing import Final

from eunomia_appmaster.node.loop_clock import LoopClock

STOPPED: Final = frozenset("Tt")
"""States of a stopped process, as ``/proc`` has them."""
STOPPED_LIMITS: Final = 2.0
"""Limits of silence after which a process that is stopped is ended."""


def process_state(pid: int) -> str:
    """Return the state of a process, a letter as ``/proc`` has it; empty: it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return (text.rpartition(")")[2].split() or [""])[0]


def waited_seconds(pid: int) -> float:
    """Return for how long a process' first thread was ready to run and had no core; 0 where the kernel counts none."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class StoppedTime:
    """The time in which one process was stopped, as a loop has seen it that looks once a second.

    Args:
        clock: of the loop; a time in which it did not run itself counts for nothing.
    """

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._until: float | None = None

    def look(self, state: str) -> None:
        """Note the state of the process, see ``process_state``."""
        now = self._clock.now()
        if state not in STOPPED:
            self._since = None
            return
        self._until = now
        if self._since is None:
            self._since = now

    def overdue(self, heard_at: float, limit: float, stopped_limit: float | None = None) -> float | None:
        """Return the seconds of silence of a process that must be ended; None: it has time left.

        Args:
            heard_at: when it gave its last sign of life, by the loop's clock.
            limit: seconds of silence while it runs.
            stopped_limit: seconds while it is stopped; None: ``STOPPED_LIMITS`` limits.
        """
        if self._since is not None:
            silent = self._clock.silence(self._since)
            return silent if silent >= (stopped_limit or STOPPED_LIMITS * limit) else None
        silent = self._clock.silence(heard_at if self._until is None else max(heard_at, self._until))
        return silent if silent >= limit else None
