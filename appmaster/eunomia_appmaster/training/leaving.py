"""The exit of a worker that was ordered to leave."""

import multiprocessing
import os
import sys
from typing import NoReturn

LEFT_WHEN_TOLD = 75  # EX_TEMPFAIL


def end_process(why: str) -> NoReturn:
    """End the process at once with code 75, since destroying a process group regularly can deadlock (gloo's threads).

    Args:
        why: text for the standard error; empty: nothing is written.
    """
    if why:
        sys.stderr.write(f"eunomia: {why}\n")
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(LEFT_WHEN_TOLD)
