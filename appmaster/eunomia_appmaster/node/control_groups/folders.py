"""Functions on the files of control groups that versions 1 and 2 share."""

import contextlib
import errno
import os
import signal
from collections.abc import Iterable
from pathlib import Path

PROCESSES = "cgroup.procs"
_GONE = frozenset({errno.ENOENT, errno.ENODEV})  # ENODEV: the folder was removed while its file was open


def read(path: Path) -> str | None:
    """Return the text of a file; None: the group is gone, or has no such file."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise


def number(path: Path) -> int | None:
    """Return the number in a file; None: no file, or "max"."""
    text = read(path)
    return int(text) if text is not None and text.isdecimal() else None


def counted(path: Path, *names: str) -> int | None:
    """Return the sum of the named counters in a file of names and numbers; None: it has none of them."""
    lines = [line.split() for line in (read(path) or "").splitlines()]
    found = [int(line[1]) for line in lines if len(line) == 2 and line[0] in names]
    return sum(found) if found else None


def stalled_seconds(path: Path) -> float | None:
    """Return the total of line "full" of a pressure file in seconds (kernel: ``accounting/psi``); None: not counted."""
    for line in (read(path) or "").splitlines():
        if line.startswith("full "):
            return int(line.rpartition("total=")[2]) / 1e6
    return None


def write(path: Path, value: object) -> None:
    """Write a value with one system call, as the kernel requires.

    Raises:
        OSError: the write failed; the error names the file and the value.
    """
    try:
        fd = os.open(path, os.O_WRONLY)  # never makes a file
        try:
            os.write(fd, str(value).encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, f"{os.strerror(error.errno or 0)}, writing {value}", str(path)) from None


def pids(folders: Iterable[Path]) -> list[int]:
    """Return the pids of the processes in groups and in all groups below them."""
    found: set[int] = set()
    for folder in folders:
        for inner in below(folder):
            found.update(pids_of(inner))
    return sorted(found)


def pids_of(folder: Path) -> list[int]:
    """Return the pids of the processes in one group, without the groups below it."""
    return sorted({int(line) for line in (read(folder / PROCESSES) or "").split()})


def below(folder: Path) -> list[Path]:
    """Return a group and all groups below it, innermost first; empty if it is gone."""
    return [Path(path) for path, _, _ in os.walk(folder, topdown=False)]


def remove(folder: Path) -> None:
    """Remove a group and the groups below it, except those that are not empty."""
    for inner in below(folder):
        with contextlib.suppress(OSError):
            inner.rmdir()


def kill_each(processes: Iterable[int]) -> None:
    """Send SIGKILL to processes that were members of a group a moment ago."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def inside(folder: Path) -> list[Path]:
    """Return the groups directly below a folder; empty if it is missing."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(entry for entry in folder.iterdir() if entry.is_dir())
    return []
