"""Kills this process if an exception cannot end a plugin's call in it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from eunomia_testbed.calls.clock import CPU, WALL
from eunomia_testbed.calls.limits import CallLimits, CallTooLongError, rules_of
from eunomia_testbed.calls.page import CallPage, shared_file


@contextlib.contextmanager
def guarded(limits: CallLimits, folder: Path) -> Iterator[CallPage | None]:
    """Start a guardian process that watches this one within the block; yield the page of calls (None: not on Linux).

    Args:
        limits: how long a call may take.
        folder: folder of the results, for the message.
    """
    if sys.platform != "linux":  # the guardian reads the CPU time of this process by a clock that only Linux has
        yield None
        return
    file, rules = shared_file(), rules_of(limits)
    numbers = [file, os.getpid(), limits.cpu_seconds, limits.wall_seconds]
    command = [sys.executable, "-S", "-m", "eunomia_testbed.calls.guardian", *map(str, numbers)]
    paths = os.pathsep.join(path for path in sys.path if path)
    guardian = subprocess.Popen(
        [*command, rules[CPU], rules[WALL], _end(folder)],
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": paths},
        pass_fds=[file],
    )
    try:
        yield CallPage(file)
    finally:
        guardian.kill()
        guardian.wait()
        os.close(file)


def end_process(error: CallTooLongError, folder: Path) -> None:
    """End this process at once with exit code 1, because its plugin catches every exception."""
    os.write(2, f"\nerror: {error}; {_end(folder)}\n".encode())
    os._exit(1)


def _end(folder: Path) -> str:
    return (
        "no exception ends the call, so this process is ended; without -j 1 only the policy's runs are "
        f"(--out {folder} --resume goes on)"
    )
