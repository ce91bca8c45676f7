"""The pulse of a worker: a file in its container's folder, mapped into memory, in which the helper says what it does.

A message for each step would cost more than a short step itself; a store into mapped memory costs a fraction of a
microsecond. The launcher reads the file once a second. It holds the number of pulses, the uptime at which the present
phase began, in seconds, and the phase.
"""

import mmap
import os
import struct
from pathlib import Path
from typing import Final

from eunomia.model.shapes import value
from eunomia_appmaster.node.stall_watch import Phase
from eunomia_appmaster.node.system import MACHINE, System

NAME: Final = "pulse"
_LAYOUT: Final = struct.Struct("<QdI4x")


@value
class Pulse:
    """A pulse as read: the number of pulses so far, the present phase, and the uptime at which it began."""

    count: int
    phase: Phase
    since: float


class PulseWriter:
    """Writes one worker's pulse; a folder that cannot be written leaves it without one.

    Args:
        folder: the container's; None: there is none, and nothing is written.
        system: has the machine's clock.
    """

    def __init__(self, folder: Path | None, *, system: System = MACHINE) -> None:
        self._system = system
        self._count = 0
        self.phase = Phase.START
        self._memory = None if folder is None else _mapped(folder / NAME)
        self._write()

    def beat(self, phase: Phase) -> None:
        """Give a sign of life, in a phase."""
        if self._memory is None:
            return
        self._count += 1
        if phase is not self.phase:
            self.phase = phase
            self._write()
        else:
            struct.pack_into("<Q", self._memory, 0, self._count)

    def _write(self) -> None:
        if self._memory is not None:
            _LAYOUT.pack_into(self._memory, 0, self._count, self._system.uptime(), int(self.phase))


def read_pulse(folder: Path) -> Pulse | None:
    """Read the pulse of the worker of a container; None: it has none, or the file holds something else.

    The file is the worker's, which may put a pipe or a link there: neither is read, and the reader never waits.
    """
    try:
        fd = os.open(folder / NAME, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = os.pread(fd, _LAYOUT.size, 0)
    except OSError:  # a pipe
        return None
    finally:
        os.close(fd)
    if len(content) < _LAYOUT.size:
        return None
    count, since, phase = _LAYOUT.unpack_from(content)
    if phase not in (*Phase,) or not 0.0 <= since <= 1e12 or count >= 2**63:
        return None
    return Pulse(count=count, phase=Phase(phase), since=since)


def _mapped(path: Path) -> mmap.mmap | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, _LAYOUT.size)
            return mmap.mmap(fd, _LAYOUT.size)
        finally:
            os.close(fd)
    except OSError:
        return None
