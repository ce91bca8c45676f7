"""Kills unmarked processes that killed shepherds leave behind, which the kernel makes children of the launcher.

The launcher is a child subreaper, as each shepherd is. So a process that a killed shepherd leaves becomes the
launcher's child, even a daemon with its own session and an empty environment. Such a process is a child of the launcher
that the launcher did not start and that has no container's mark; it is outside of the launcher's session, which
shepherds and workers leave. A process that escapes while the launcher is dead is not found this way, but by its control
group.
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
        """Kill children of this process that a killed shepherd left; returns their number.

        Args:
            own: pids of the children that this process started.
            marks: marks of live containers; processes with one of them are spared.
        """
        children = [child for child in children_outside_session() if child.pid not in own]
        strays = [child for child in children if environment_mark(child.pid) not in marks]
        kill(strays)
        return len(strays)

    def reap(self, own: Collection[int]) -> None:
        """Reap ended children that this process did not start, so that no zombies remain."""
        me, session = str(os.getpid()).encode(), str(os.getsid(0)).encode()
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields, pid = path.read_bytes().rpartition(b") ")[2].split(), int(path.parent.name)
                if fields[0] == b"Z" and fields[1] == me and fields[3] != session and pid not in own:
                    os.waitpid(pid, os.WNOHANG)
