"""Makes a process write the stacks of all its threads on a signal, even while it holds locks or runs native code."""

import faulthandler
import os
import signal
from pathlib import Path
from typing import IO, Final

STACKS_SIGNAL: Final = int(signal.SIGRTMIN) + 10
"""A real-time signal, since scripts may use SIGUSR1 and SIGUSR2. Its default action ends a process, so it is sent only
to those with a handler."""
STACKS_FILE: Final = "stacks.txt"
"""Name of the file with stacks, in a container's folder."""
STACKS_FOLDER: Final = "stacks"
"""Name of the folder with stacks of stalled processes, below a job's run folder; an app master's, below the app's."""
_kept: list[IO[str]] = []


def write_stacks_on_signal(folder: str | Path | None) -> None:
    """Append stacks to ``stacks.txt`` in a folder whenever ``STACKS_SIGNAL`` comes, also in forked children.

    The signal is not handled if the folder is not writable, or if this thread may not set handlers.
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
