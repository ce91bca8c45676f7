"""Decides how long to wait for processes to start or end, on a machine that may have too few cores.

A start may take any time: only time in which no process makes progress counts. A process makes progress while it uses a
core, waits for one or for the disk, or is stopped from outside; one that only sleeps waits for an event that never
comes. For an end, time in which the process waits for a core does not count.
"""

import contextlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Protocol

import structlog

from eunomia.errors import EunomiaError
from eunomia_appmaster.node.stopped_processes import STOPPED, process_state
from eunomia_appmaster.node.system import MACHINE

log = structlog.get_logger()

STILL_SECONDS: Final = 60.0
"""Seconds for which all processes may be idle before the wait fails."""
MOST_ENDS: Final = 8
"""Number of ends of one process during a wait, however long, after which the wait fails."""
SAY_SECONDS: Final = 10.0
"""Seconds after which the log names what is waited for; then again after twice as long, and so on."""
CALL_SECONDS: Final = (2.0, 10.0)
"""Least and most seconds in which a starting process must answer a call; between them a quarter of the wait so far."""
MOST_GAP_SECONDS: Final = 15.0
"""Most seconds between two polls that count; after a longer gap the waiting process itself did not run."""
_BUSY_STATES: Final = STOPPED | {"D"}


class StopAskedError(EunomiaError):
    """The service was asked to stop before it was ready."""


class Starting(Protocol):
    """A supervised process whose start is waited for."""

    name: str
    restarts: int

    @property
    def pid(self) -> int | None:
        """The pid of the process; None: it is about to be restarted."""
        ...


class Patience:
    """Measures for how long processes made no progress; the caller must poll several times per second.

    Args:
        clock: returns the machine's uptime in seconds.
    """

    def __init__(self, clock: Callable[[], float] = MACHINE.uptime) -> None:
        self._clock = clock
        self._looked_at = self.began = clock()
        self._known: dict[int, tuple[float, float]] = {}
        self.still_seconds = 0.0
        """Seconds in which all processes were idle."""
        self.unhindered_seconds = 0.0
        """Seconds in which no process waited for a core."""

    @property
    def seconds(self) -> float:
        """The seconds of the whole wait."""
        return self._clock() - self.began

    def look(self, pids: Collection[int]) -> None:
        """Record the processes' progress since the last call; a new process counts as having progressed throughout."""
        now = self._clock()
        passed, self._looked_at = now - self._looked_at, now
        before, self._known = self._known, {pid: core_seconds(pid) for pid in pids}
        if passed > MOST_GAP_SECONDS:
            return
        moved, hindered = [0.0], [0.0]
        for pid, (used, waited) in self._known.items():
            used_before, waited_before = before.get(pid, (-passed, waited))
            hindered.append(waited - waited_before)
            is_busy = process_state(pid) in _BUSY_STATES
            moved.append(passed if is_busy else used + waited - used_before - waited_before)
        self.still_seconds += passed - min(passed, max(moved))
        self.unhindered_seconds += passed - min(passed, max(hindered))


class Wait:
    """A wait for a condition that starting processes bring about.

    Args:
        what: the condition, as a sentence for messages.
        still_seconds: seconds for which all processes may be idle.
        place: the place in error messages.
        clock: returns the machine's uptime in seconds.
    """

    def __init__(
        self,
        what: str,
        still_seconds: float = STILL_SECONDS,
        *,
        place: str,
        clock: Callable[[], float] = MACHINE.uptime,
    ) -> None:
        self._what = what
        self._still_seconds = still_seconds
        self._place = place
        self._patience = Patience(clock)
        self._say_after = SAY_SECONDS
        self._ends: dict[str, int] = {}

    @property
    def call_seconds(self) -> float:
        """The seconds within which a call must be answered; they grow with the length of the wait."""
        least, most = CALL_SECONDS
        return min(most, max(least, self._patience.seconds / 4.0))

    def look(self, processes: Sequence[Starting]) -> None:
        """Record what the processes did, and log from time to time what is waited for.

        Raises:
            EunomiaError: they were idle for too long, or one of them ended too often.
        """
        patience = self._patience
        patience.look([each.pid for each in processes if each.pid is not None])
        if patience.still_seconds > self._still_seconds:
            rule = f"arbiter and launcher may stand still for {self._still_seconds:.0f} s at most until {self._what}"
            raise EunomiaError(rule, value="; ".join(map(_doing, processes)) or "no process", place=self._place)
        for each in processes:
            if each.restarts - self._ends.setdefault(each.name, each.restarts) > MOST_ENDS:
                rule = f"a process may end {MOST_ENDS} times at most until {self._what}"
                raise EunomiaError(rule, value=_doing(each), place=self._place)
        if patience.seconds > self._say_after:
            self._say_after *= 2.0
            with contextlib.suppress(OSError, ValueError):  # a closed output
                doing = [_doing(each) for each in processes]
                log.warning("serve.waits", until=self._what, seconds=round(patience.seconds), processes=doing)


def _doing(process: Starting) -> str:
    if process.pid is None:
        return f"{process.name}: none runs now, {process.restarts} restarts"
    used, waited = core_seconds(process.pid)
    return f"{process.name}: had a core for {used:.1f} s, waited {waited:.1f} s for one, {process.restarts} restarts"


def core_seconds(pid: int) -> tuple[float, float]:
    """Return the seconds for which a process's threads had a core, and the seconds for which they waited for one.

    Both are 0 for a process that has ended, and if the kernel counts neither.
    """
    used = waited = 0
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return 0.0, 0.0
    for thread in threads:
        try:
            words = (thread / "schedstat").read_text(encoding="ascii").split()
            used, waited = used + int(words[0]), waited + int(words[1])
        except (OSError, ValueError, IndexError):  # the thread has ended
            continue
    return used / 1e9, waited / 1e9
