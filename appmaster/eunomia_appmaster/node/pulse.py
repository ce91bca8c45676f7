"""The pulse of a worker: a memory-mapped file in its container's folder with its signs of life.

A message per step would cost more than a short step; a store to mapped memory costs a fraction of a microsecond. The
launcher reads the file once per second. It contains the number of signs of life, the start of the present phase (uptime
in seconds), and the phase.
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
    """The content of a pulse: number of signs of life, present phase, and uptime in seconds at the phase's start."""

    count: int
    phase: Phase
    since: float


class PulseWriter:
    """Writes one worker's pulse; without a writable folder it does nothing.

    Args:
        folder: the container's; None: the worker has none.
        system: provides the machine's clock.
    """

    def __init__(self, folder: Path | None, *, system: System = MACHINE) -> None:
        self._system = system
        self._count = 0
        self.phase = Phase.START
        self._memory = None if folder is None else _mapped(folder / NAME)
        self._write()

    def beat(self, phase: Phase) -> None:
        """Write a sign of life with the present phase."""
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
    """Read the pulse of a container's worker; None: there is no such file, or its content is not a pulse.

    The worker may have replaced the file by a pipe or a link: neither is read, so that the reader never waits.
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
