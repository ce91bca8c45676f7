"""The journal's lock, the archive of older steps, and the error for failed writes."""

import contextlib
import dataclasses
import fcntl
import gzip
import json
import os
import socket
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from eunomia.errors import EunomiaError, InputError

ARCHIVE: Final = ".archive"
"""Suffix of the archive: the archive of ``journal.sqlite`` is the folder ``journal.archive`` next to it."""
SHARED: Final = "journal.shared"  # marks, next to a journal, storage shared by machines
MOVE_AWAY: Final = "move it away to begin a new one"
REMEDY: Final = (
    "restore a backup, or go on from what is good: `eunomia journal salvage FOLDER` writes it to a new file and keeps "
    "this one (docs/how-to/after-a-fault.md)"
)
LOCK_ATTEMPTS, LOCK_PAUSE_SECONDS = 5, 0.01


class JournalWriteError(EunomiaError):
    """A write to the journal failed, such as on a full disk. Nothing was written, so the same write may be retried."""


class Keep(Enum):
    """What happens to steps that no kept checkpoint needs."""

    ARCHIVE = "archive"
    """Old steps are moved to compressed files next to the journal; reports and explanations still read them."""
    DROP = "drop"
    """Old steps are deleted; reports and explanations start at the oldest checkpoint."""
    ALL = "all"
    """Old steps stay in the file, which grows without bound."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The number of steps per segment, and what happens to segments older than all kept checkpoints.

    Raises:
        InputError: the number of steps per segment is not positive.
    """

    keep: Keep = Keep.ARCHIVE
    segment_steps: int = 2000

    def __post_init__(self) -> None:
        if self.segment_steps < 1:
            raise InputError("a journal's segment must have at least 1 step", value=str(self.segment_steps))


DEFAULT_RETENTION: Final = Retention()


class Row(NamedTuple):
    """A row of the table ``steps``; ``uptime`` and ``crc`` are None in files of version 1.

    ``before`` is the ``crc`` of the previous step; None for the first step and in files older than version 4.
    """

    id: int
    now: float
    at: float
    events: str
    decision: str
    uptime: float | None
    crc: int | None
    before: int | None = None


# --- segments --------------------------------------------------------------------------------------------------------


def segment_name(first: int, last: int) -> str:
    """Return the file name of the segment with these steps."""
    return f"{first:09d}-{last:09d}.jsonl.gz"


def write_segment(path: Path, rows: Iterable[Row]) -> None:
    """Write a segment atomically; writing it again produces the same file.

    Raises:
        OSError: the write failed.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        with unfinished.open("wb") as raw:
            os.fchmod(raw.fileno(), 0o600)
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=3, mtime=0) as packed:
                for row in rows:
                    packed.write(json.dumps(row._asdict(), ensure_ascii=False).encode() + b"\n")
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the cause
            unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def read_segment(path: Path) -> Iterator[Row]:
    """Yield the steps of a segment.

    Raises:
        InputError: the segment is missing or damaged.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield Row(**json.loads(line))
    except (OSError, EOFError, ValueError, TypeError, RecursionError, zlib.error) as error:
        rule = "an archived segment of a journal must be there, and as it was written"
        raise InputError(rule, value=str(error) or type(error).__name__, place=str(path)) from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- errors of SQLite -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def reading(path: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Convert SQLite errors within the block to ``InputError`` with the file and a remedy."""
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            rule = "a journal's file and folder must be writable, and its disk must have room"
            raise InputError(rule, value=str(error), place=str(path)) from error
        rule = f"a journal must be a readable SQLite file; {remedy}"
        raise InputError(rule, value=str(error), place=str(path)) from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert failed writes within the block to ``JournalWriteError``, and damage of the file to ``InputError``."""
    try:
        yield
    except sqlite3.OperationalError as error:
        rule = "the journal's disk must take what is written"
        raise JournalWriteError(rule, value=str(error), place=str(path)) from error
    except sqlite3.DatabaseError as error:
        rule = f"a journal must be a readable SQLite file; {REMEDY}"
        raise InputError(rule, value=str(error), place=str(path)) from error


# --- the lock ---------------------------------------------------------------------------------------------------------


def locked(path: Path) -> IO[str]:
    """Lock a journal until the returned file is closed; the lock of a dead process is released by the system.

    Raises:
        InputError: another process holds the lock, or the folder is not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (path.parent / f"{path.name}.lock").open("a+")
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError("a journal's folder must be writable", value=why, place=str(path.parent)) from error
    try:
        _take(lock)
    except OSError as error:
        lock.seek(0)
        owner = _owner(lock.read())
        lock.close()
        raise InputError(f"a journal must have one arbiter, but {owner}", place=path.name) from error
    with contextlib.suppress(OSError):  # on a full disk the lock is held even if its owner cannot be written
        lock.seek(0)
        lock.truncate()
        json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}, lock)
        lock.flush()
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a process holds a journal's lock, by taking it for an instant; nothing is written."""
    try:
        with (path.parent / f"{path.name}.lock").open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _take(lock: IO[str]) -> None:
    """Acquire the lock, with retries because a process that only tests the lock holds it for an instant.

    Raises:
        OSError: another process holds the lock.
    """
    for attempt in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if attempt == LOCK_ATTEMPTS - 1:
                raise
        time.sleep(LOCK_PAUSE_SECONDS)


def _owner(text: str) -> str:
    try:
        owner: Mapping[str, Any] = json.loads(text)
        since = time.strftime("%H:%M", time.localtime(owner["since"]))
        return f"process {owner['pid']} on {owner['host']} has held it since {since}"
    except (ValueError, KeyError, TypeError):
        return "another process holds it"
