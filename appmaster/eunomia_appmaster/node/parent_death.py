"""Runs a command that gets a signal when its parent dies: ``python -I -S parent_death.py SIGNAL PARENT COMMAND...``.

The process requests the signal with ``prctl`` and executes the command under the same pid. A ``preexec_fn`` of
``subprocess`` would run Python between fork and exec, where gRPC's fork handlers restart threads if the parent is a
client of the arbiter: two of a hundred children then end with SIGABRT. Standard library only.

The kernel clears the request when the thread changes its rights for file accesses (``man 2 prctl``). Code that changes
them does so inside ``death_signal_kept``.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_GET_PDEATHSIG = 2


def with_death_signal(command: Sequence[str], number: signal.Signals) -> list[str]:
    """Return the command line that runs ``command`` and sends it the signal ``number`` when the calling thread dies."""
    return [sys.executable, "-I", "-S", __file__, str(int(number)), str(os.getpid()), *command]


@contextlib.contextmanager
def death_signal_kept() -> Iterator[None]:
    """Restore this thread's death signal after a change of rights; send it if the parent has died in the block."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    number, parent = ctypes.c_int(0), os.getppid()
    prctl(_PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
    try:
        yield
    finally:
        if number.value:
            prctl(_PR_SET_PDEATHSIG, number.value, 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), number.value)


def main(number: int, parent: int, command: Sequence[str]) -> NoReturn:
    """Execute the command; if the parent died before the request, send the signal at once."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
