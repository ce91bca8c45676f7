"""Kills unmarked processes of killed shepherds: the kernel makes them children of the launcher.

The launcher is a child subreaper, as each shepherd is. So what a killed shepherd leaves becomes the launcher's child, a
daemon with a session of its own and an emptied environment too. A child of the launcher that is neither its own nor
marked as of a container is such a process; shepherds and workers leave the launcher's session, so what is in it is a
program that the launcher runs. One that escapes while the launcher is dead is not found: only a control
group holds it.
"""

import contextlib
import ctypes
import os
from collections.abc import Collection
from pathlib import Path

from eunomia_appmaster.launcher.processes import children_outside_session, environment_mark, kill

_PR_SET_CHILD_SUBREAPER = 36


class Orphans:
    """Makes this process the parent of orphaned descendants, and kills those that belong to no container."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def kill(self, own: Collection[int], marks: Collection[str]) -> int:
        """Kill children of this process that a killed shepherd left; returns how many there were.

        Args:
            own: pids of the children that this process started.
            marks: of containers that are not over; their processes are found by them.
        """
        children = [child for child in children_outside_session() if child.pid not in own]
        strays = [child for child in children if environment_mark(child.pid) not in marks]
        kill(strays)
        return len(strays)

    def reap(self, own: Collection[int]) -> None:
        """Wait for children that this process did not start and that have ended, so that no zombies remain."""
        me, session = str(os.getpid()).encode(), str(os.getsid(0)).encode()
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields, pid = path.read_bytes().rpartition(b") ")[2].split(), int(path.parent.name)
                if fields[0] == b"Z" and fields[1] == me and fields[3] != session and pid not in own:
                    os.waitpid(pid, os.WNOHANG)
