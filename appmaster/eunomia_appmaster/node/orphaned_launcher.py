"""Ends a launcher that a killed ``eunomia serve`` left running, so that the next one can start its own.

A launcher gets SIGHUP when its supervisor dies (``parent_death``). One that was stopped, or missed the signal, still
holds the node's lock and its GPUs' locks. It gets SIGHUP once more, on which it exits and leaves its workers running.
"""

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Final

import structlog

from eunomia_appmaster.node.patience import Patience

log = structlog.get_logger()

LOCK: Final = "lock"
"""Name of the lock file in a node's folder; the launcher that holds the lock has written its pid there."""
END_SECONDS: Final = 20.0
"""Seconds for the launcher's exit, not counting waits for a core."""


def end_orphaned(folder: Path) -> None:
    """End the launcher that holds the lock of a node's folder, if there is one; its workers keep running.

    It must be called while no arbiter holds the journal. A launcher that does not exit in time is left to the next
    launcher, whose error names it.

    Args:
        folder: folder of the node's own files.
    """
    pid = _holder(folder / LOCK)
    if pid is None:
        return
    log.warning("launcher.orphaned", pid=pid, what="its eunomia serve is gone; it ends, and its workers stay")
    patience = Patience()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGHUP)
        os.kill(pid, signal.SIGCONT)  # a stopped one acts on no signal
        while _holder(folder / LOCK) == pid and patience.unhindered_seconds < END_SECONDS:
            time.sleep(0.05)
            patience.look([pid])


def _holder(lock: Path) -> int | None:
    """Return the pid of the process that holds a launcher's lock; None: the lock is free, or its holder is unknown."""
    try:
        with lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        pass
    except OSError:  # no launcher has run here
        return None
    with contextlib.suppress(OSError, ValueError):
        pid = int(lock.read_text())
        if any(_is_same(open_file, lock) for open_file in Path(f"/proc/{pid}/fd").iterdir()):
            return pid
    return None


def _is_same(open_file: Path, lock: Path) -> bool:
    with contextlib.suppress(OSError):
        return open_file.samefile(lock)
    return False
