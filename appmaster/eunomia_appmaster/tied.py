"""Runs a command that gets a signal when its parent dies: ``python -I -S tied.py SIGNAL PARENT COMMAND...``.

The process asks the system for it and becomes the command, under the same pid. Nothing is run between the parent's fork
and the exec, as `subprocess`'s ``preexec_fn`` is: there gRPC's own handlers begin threads anew in a parent that speaks
with an arbiter, and two of a hundred children end with SIGABRT. Standard library only.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def tied(command: Sequence[str], number: signal.Signals) -> list[str]:
    """The command that runs ``command`` tied to the thread that starts it."""
    return [sys.executable, "-I", "-S", __file__, str(int(number)), str(os.getpid()), *command]


def main(number: int, parent: int, command: Sequence[str]) -> NoReturn:
    """Become the command; a parent that has died already is heard of, too."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
