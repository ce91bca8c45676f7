"""Heartbeats of a process's event loop: one byte per second through a pipe that its supervisor reads.

A process whose loop hangs stays alive, so only bytes that the loop itself sends show that it runs. A pipe needs neither
a disk nor the arbiter.
"""

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from eunomia.units import format_duration
from eunomia_appmaster.node.loop_clock import LoopClock
from eunomia_appmaster.node.stack_signal import write_stacks_on_signal
from eunomia_appmaster.node.stopped_processes import STOPPED, STOPPED_LIMITS, StoppedTime, process_state, waited_seconds
from eunomia_appmaster.node.system import MACHINE

VARIABLE: Final = "EUNOMIA_BEAT_FD"
"""Environment variable with the descriptor of the pipe's end for the process."""
STACKS: Final = "EUNOMIA_STACKS_DIR"
"""Environment variable with the folder in which the process writes its stacks on a signal."""
HANGS: Final = "EUNOMIA_HANGS"
LAST_HANG: Final = "EUNOMIA_LAST_HANG"
"""Environment variable: how many earlier processes were killed because their loop hung, and the reason for the last."""
DEFAULT_SILENCE_SECONDS: Final = 30.0
BEAT_SECONDS: Final = 1.0
START_LIMITS: Final = 4.0
"""Multiple of the limit that a process has until its first heartbeat, since it imports and adopts first."""


async def beat() -> None:
    """Send a heartbeat each second until cancelled; a process without a supervisor sends none."""
    if folder := os.environ.pop(STACKS, ""):
        Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
        write_stacks_on_signal(folder)
    given = os.environ.pop(VARIABLE, "")
    if not given.isdecimal():
        return
    fd = int(given)
    os.set_inheritable(fd, False)
    os.set_blocking(fd, False)
    while True:
        with contextlib.suppress(BlockingIOError):  # a stopped supervisor has enough bytes to read
            try:
                os.write(fd, b".")
            except OSError:  # the supervisor has ended
                return
        await asyncio.sleep(BEAT_SECONDS)


class Beats:
    """The supervisor's end of the pipe: waits for the end of a process, or for missing heartbeats.

    Args:
        limit: seconds without a heartbeat after which a loop counts as hung; ``STOPPED_LIMITS`` times as long for a
            stopped process.
        clock: returns the machine's uptime in seconds.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = MACHINE.uptime) -> None:
        self._limit = limit
        self._clock = LoopClock(clock)
        self._read, self.write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._heard_at = clock()
        self._began = False
        self._stops = StoppedTime(self._clock)
        self._waited = 0.0
        """Seconds for which the process had waited for a core until its last heartbeat."""

    def wait(self, pid: int) -> float | None:
        """Wait until a process has ended or its loop hangs; returns the seconds of silence; None: it has ended."""
        ended = os.pidfd_open(pid)
        self._waited = waited_seconds(pid)
        try:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            poll.register(self._read, select.POLLIN)
            while True:
                ready = {fd for fd, _ in poll.poll(1000.0 * BEAT_SECONDS)}
                if ended in ready:
                    return None
                if self._read in ready:
                    self._take(poll, pid)
                self._clock.tick()
                self._stops.look(process_state(pid))
                if (silent := self._overdue(pid)) is not None:
                    return silent
        finally:
            os.close(ended)

    def close(self) -> None:
        """Close both ends of the pipe."""
        os.close(self._read)
        os.close(self.write)

    def _take(self, poll: select.poll, pid: int) -> None:
        if os.read(self._read, 4096):
            self._waited = waited_seconds(pid)
            self._heard_at, self._began = self._clock.now(), True
        else:
            poll.unregister(self._read)

    def _overdue(self, pid: int) -> float | None:
        """Return the seconds without a heartbeat if the loop hangs; None: its limit is not reached.

        Time for which the process waits for a core, on a machine with too few, does not count.
        """
        heard_at = self._heard_at + waited_seconds(pid) - self._waited
        limit = self._limit if self._began else START_LIMITS * self._limit
        return self._stops.overdue(heard_at, limit, STOPPED_LIMITS * self._limit)


def end_hung(pid: int, name: str, silent: float, stacks: Path) -> str:
    """Record the stacks of a process whose loop hangs, and return a description; the caller kills it.

    Args:
        pid: pid of the process, which was not reaped yet.
        name: name of the process.
        silent: seconds without a heartbeat.
        stacks: the folder for its stacks.
    """
    from eunomia_appmaster.launcher.processes import identify
    from eunomia_appmaster.launcher.stacks import write_stacks

    stopped = process_state(pid) in STOPPED
    what = "its process was stopped" if stopped else "its loop hung"
    why = f"no turn of its loop for {format_duration(round(silent))}; {what}; stacks are in {stacks}"
    process = identify(pid)
    if process is not None:
        process.signal(signal.SIGCONT)  # a stopped process writes nothing
        with contextlib.suppress(OSError):
            write_stacks(stacks / f"{name}-{pid}.txt", stacks, [process], f"{name}: {why}")
    return why
