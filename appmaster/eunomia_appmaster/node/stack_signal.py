"""On a signal a process writes the stacks of all its threads: also with a lock held, and inside of native code."""

import faulthandler
import os
import signal
from pathlib import Path
from typing import IO, Final

STACKS_SIGNAL: Final = int(signal.SIGRTMIN) + 10
"""A real-time signal, since scripts use SIGUSR1 and SIGUSR2 themselves. Its default action ends a process, so it is
sent only to those that catch it."""
STACKS_FILE: Final = "stacks.txt"
"""Name of the file with stacks, in a container's folder."""
STACKS_FOLDER: Final = "stacks"
"""Below a job's run folder, and below an app's for its app master: the stacks of what has stalled."""
_kept: list[IO[str]] = []


def write_stacks_on_signal(folder: str | Path | None) -> None:
    """Append stacks to ``stacks.txt`` in a folder on ``STACKS_SIGNAL`` from now on, forked children too.

    A folder that cannot be written, and a thread that may not set handlers, leave the process without it.
    """
    if not folder:
        return
    try:
        file = open(os.path.join(folder, STACKS_FILE), "a", encoding="utf-8")  # noqa: SIM115, PTH118, PTH123 - stays open
        faulthandler.unregister(STACKS_SIGNAL)  # else one that a parent registered, and a shepherd reset, stays away
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True, chain=False)
    except (OSError, ValueError, RuntimeError):
        return
    _kept[:] = [file]


def catches(pid: int, number: int = STACKS_SIGNAL) -> bool:
    """Return whether a process has a handler for a signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)
