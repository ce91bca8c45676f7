"""The lock of a run's folder, which prevents two processes from running the same cells twice.

It uses ``flock`` on a file, so the kernel releases it when the process ends for any reason.
"""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eunomia.errors import InputError

LOCK: Final = "run.lock"
"""The lock file, which is in a run's folder while a process runs cells for it."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder within the block; create the folder if needed, and remove the lock file afterwards.

    Raises:
        InputError: another process holds it; the error names the process and the folder.
    """
    path = folder / LOCK
    fd = _take(path)
    try:
        os.ftruncate(fd, 0)
        os.write(fd, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def _take(path: Path) -> int:
    """Return the descriptor of the locked file; if its holder has just removed it, open it again.

    Raises:
        InputError: another process holds the lock, the file system has no locks, or the folder cannot be written.
    """
    while True:
        fd = _opened(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(os.read(fd, 4096))
            os.close(fd)
            rule = "one process alone may run the simulations of a folder"
            raise InputError(rule, value=f"a second one while {owner} runs them", place=str(path.parent)) from None
        except OSError as error:
            os.close(fd)
            rule = "a run's folder must be on a file system that has locks"
            raise InputError(rule, value=str(error), place=str(path.parent)) from error
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(fd).st_ino:
                return fd
        os.close(fd)


def _opened(path: Path) -> int:
    """Open the lock file and return its descriptor; create the file and its folder if needed.

    Raises:
        InputError: the folder or the file cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        rule = "a run's folder must be one that can be written"
        raise InputError(rule, value=str(error), place=str(path.parent)) from error


def _owner(text: bytes) -> str:
    """Return as text the process that a lock file names."""
    try:
        owner = json.loads(text)
        return f"process {owner['pid']} on {owner['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
