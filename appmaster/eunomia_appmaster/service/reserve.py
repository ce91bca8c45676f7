"""Disk space reserved for the journal, so that a full disk stops neither decisions nor ``cancel``.

The reserve is a file next to the journal with all of its blocks allocated. When the disk refuses a write of the
journal, a part of the reserve is truncated, and SQLite's log gets as many blocks beyond its end (``fallocate`` that
keeps the size). Both take microseconds, so that a job which fills the disk gets little of the space; the next part
compensates for that.
"""

import contextlib
import ctypes
import os
import sqlite3
from pathlib import Path
from typing import Final

import structlog

from eunomia_appmaster.node.system import MACHINE

log = structlog.get_logger()

RESERVE: Final = "journal.reserve"
"""Name of the reserve's file, next to the journal."""
DEFAULT_MIB: Final = 64
MIB: Final = 1 << 20
PART: Final = 1 * MIB
LOW: Final = 16 * MIB
"""Number of free bytes below which users are warned before the reserve is used."""
_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
"""SQLite's error codes for ENOSPC, and for a quota (EDQUOT) among others."""
_KEEP_SIZE: Final = 1
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class Reserve:
    """The reserve of one journal.

    Args:
        journal: the journal's file.
        size: in bytes; 0: no reserve.
    """

    def __init__(self, journal: Path, size: int) -> None:
        self._path = journal.with_name(RESERVE)
        self._log = journal.with_name(f"{journal.name}-wal")
        self._size = size
        self._lock = MACHINE.lock()
        self._says_missing = True

    @property
    def left(self) -> int:
        """The remaining bytes of the reserve."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    @property
    def is_whole(self) -> bool:
        """Whether no part of the reserve is used up."""
        return self.left >= self._size

    def refill(self) -> None:
        """Restore the file to its full size, if as much disk space stays free afterwards; truncate a longer file."""
        with self._lock:
            missing = self._size - self.left
            if missing < 0:
                os.truncate(self._path, self._size)
            if missing <= 0:
                return
            if _free(self._path.parent) < missing + self._size:
                if self._says_missing:
                    log.warning("reserve.missing", left=self.left, wanted=self._size)
                self._says_missing = False
                return
            with contextlib.suppress(OSError):  # the disk has filled since
                number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                try:
                    os.posix_fallocate(number, 0, self._size)
                finally:
                    os.close(number)
                self._says_missing = True

    def give(self, error: BaseException | None = None) -> bool:
        """Move a part of the reserve to the journal's log.

        Args:
            error: error of the failed write; nothing is moved if it does not mean a full disk.

        Returns:
            Whether a part was moved.
        """
        cause = None if error is None else error.__cause__
        code = getattr(cause, "sqlite_errorcode", None)
        if cause is not None and (code or 0) & 0xFF not in _FULL:
            return False
        with self._lock:
            left = self.left
            if not left:
                return False
            if left >= self._size:
                log.error("reserve.used", left=left, why="the disk is full")
            self._move(max(0, left - PART))
        return True

    def _move(self, left: int) -> None:
        """Truncate the reserve to ``left`` bytes; the next system call allocates the freed blocks to the log."""
        try:
            number = os.open(self._log, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # no log yet: the space is free
            os.truncate(self._path, left)
            return
        try:
            found = os.fstat(number)
            end = max(found.st_size, found.st_blocks * 512)
            os.truncate(self._path, left)
            _fallocate(number, _KEEP_SIZE, 0, end + PART)  # where it cannot, the space is free all the same
        finally:
            os.close(number)

    def room_to_start(self) -> None:
        """Free a little space for the start of an arbiter on a full disk."""
        left = self.left
        if left and _free(self._path.parent) < PART:
            os.truncate(self._path, max(0, left - PART))

    def words(self) -> str:
        """Return the warning for users about the disk; empty: none."""
        left, free = self.left, _free(self._path.parent)
        if left >= self._size and free >= min(LOW, self._size):
            return ""
        return (
            f"the state folder's disk is full or nearly so: {free // MIB} MiB are free, and {left // MIB} of"
            f" {self._size // MIB} MiB are in reserve for the journal; decisions, ends and `eunomia cancel` go on from"
            " it, no app is accepted; make room (docs/how-to/disks.md)"
        )


def _free(folder: Path) -> int:
    try:
        state = os.statvfs(folder)
    except OSError:
        return 0
    return state.f_bavail * state.f_frsize
