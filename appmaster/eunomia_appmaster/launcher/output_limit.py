"""Bounds the output of jobs (stdout, stderr): frees the disk space of the oldest part of a file that is too long.

A worker appends to its file through its own descriptor, so the file can be neither renamed nor truncated without losing
lines. But the kernel can punch a hole in it (``fallocate``): the worker continues to append at the same offset, the
kept lines stay where they are, and the part before them takes no space and reads as zeros.
"""

import asyncio
import contextlib
import ctypes
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from eunomia_appmaster.app.outputs import STDERR, STDOUT, output_files
from eunomia_appmaster.node.file_rights import as_owner

log = structlog.get_logger()

LOOK_SECONDS: Final = 1.0
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_LONGEST_LINE: Final = 1 << 16
_NOTE: Final = "[eunomia: {removed} bytes of earlier output were removed here, since a file may take {most} bytes]\n"
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


async def watch_output(folders: Callable[[], Mapping[Path, Path]], node: str, limit: Callable[[], int]) -> None:
    """Keep the output of running jobs within its bound until cancelled.

    Args:
        folders: returns the run folders of running jobs, each with its app's folder; files are changed with the rights
            of that folder's owner.
        node: name of this node, whose files are shortened; files of older starts are deleted as a whole.
        limit: returns the bound of each stream of a job, in bytes; 0: no bound.
    """
    before: Mapping[Path, Path] = {}
    refused: set[Path] = set()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        most, now = limit(), folders()
        if not most:
            continue
        for folder, owned in {**before, **now}.items():
            for path, why in await asyncio.to_thread(_bound_as_owner, owned, folder, node, most):
                if path not in refused:
                    log.warning("output.unbounded", file=str(path), why=why)
                    refused.add(path)
        before = now  # one more pass after a job's end, for the output of its last second


def _bound_as_owner(owned: Path, folder: Path, node: str, most: int) -> list[tuple[Path, str]]:
    """Bound both streams of a job, with the owner's rights; returns files that could not be bounded, with reasons."""
    refused = []
    with as_owner(owned):
        for stream in (STDOUT, STDERR):
            files = output_files(folder, stream)
            path = next((each for each in reversed(files) if each.name.endswith(f".{node}.{stream}")), files[0])
            try:
                removed = shorten(path, most)
                if removed:
                    log.info("output.shortened", file=str(path), removed=removed)
            except OSError as error:
                if not isinstance(error, FileNotFoundError):
                    refused.append((path, str(error)))
            if path.name.partition(".")[0] == files[-1].name.partition(".")[0]:  # no newer start has begun elsewhere
                remove_oldest(files, most)
    return refused


def remove_oldest(files: Sequence[Path], most: int) -> None:
    """Delete the files of a job's oldest starts until all files of the stream take at most ``most``.

    The file of the newest start stays, whatever its size.

    Args:
        files: files of one stream, the oldest start first.
        most: maximum number of bytes.
    """
    taken = {}
    for path in files:
        with contextlib.suppress(OSError):
            taken[path] = os.lstat(path).st_blocks * 512
    for path in [*taken][:-1]:
        if sum(taken.values()) <= most:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        del taken[path]


def shorten(path: Path, most: int) -> int:
    """Free the oldest part of a file of more than ``most`` bytes on disk, and keep about the last ``most / 2``.

    The file keeps its length, and reads as zeros up to a line about the removed part. A link is not followed.

    Returns:
        Number of bytes that this call freed.

    Raises:
        OSError: there is no such file, it is not a regular file, or the file system has no holes.
    """
    with contextlib.closing(_Opened(path)) as file:
        taken = file.state.st_blocks * 512
        if not stat.S_ISREG(file.state.st_mode) or taken <= most:
            return 0
        size = file.state.st_size
        cut = file.line_start(max(0, size - most // 2))
        start = first_byte(file.number)
        note = _NOTE.format(removed=cut, most=most).encode()
        if cut - start <= len(note):
            return 0
        _punch(file.number, cut)
        os.pwrite(file.number, note, cut - len(note))
        return cut - start


def first_byte(number: int) -> int:
    """Return the offset at which the content of an open file begins, after a hole if there is one."""
    try:
        place = os.lseek(number, 0, os.SEEK_DATA)
    except OSError:  # the file is only a hole, or its file system cannot report holes
        return 0
    if place == 0 and os.pread(number, 1, 0) != b"\0":
        return 0
    while chunk := os.pread(number, _LONGEST_LINE, place):
        rest = chunk.lstrip(b"\0")
        if rest:
            return place + len(chunk) - len(rest)
        place += len(chunk)
    return place


class _Opened:
    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        self.state = os.fstat(self.number)

    def close(self) -> None:
        os.close(self.number)

    def line_start(self, place: int) -> int:
        """Return the offset of the next line after ``place``, or ``place`` itself if none begins within 64 KiB."""
        after = place + os.pread(self.number, _LONGEST_LINE, place).find(b"\n") + 1
        return after if place < after < self.state.st_size else place


def _punch(number: int, end: int) -> None:
    if _fallocate(number, _KEEP_SIZE | _PUNCH_HOLE, 0, end):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
