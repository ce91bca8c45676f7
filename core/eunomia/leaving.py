"""Leaving a process whose work is done, without taking apart what it was made of."""

import atexit
import os
import sys
import threading
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """Exit with what was put off until now done and said, and nothing freed piece by piece.

    To take thousands of modules and tables apart is a twentieth of a short command. It is for commands that have
    closed all they opened; while somebody else is at work, watches or waits, Python's own way is taken.
    """
    if not (threading.active_count() > 1 or sys.gettrace() or sys.getprofile() or sys.flags.inspect):
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            sys.exit(code)  # who reads has gone: Python says so in its own words
        os._exit(code)
    sys.exit(code)
