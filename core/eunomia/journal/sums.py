"""Checksums of a journal's rows, which detect rows that were changed after they were written.

A checksum covers all columns of a row, including its key, so that it detects changed values as well as swapped keys.
Invalid UTF-8 and columns of the wrong type raise no error; they merely lead to another checksum.
"""

import json
import sqlite3
import zlib
from pathlib import Path
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.journal.files import Row

NOTES: Final = "notes"
"""Key of the setting with the summary of all notes (``Counted``), from which missing notes are detected."""
UNREADABLE: Final = (
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    IndexError,
    OverflowError,
    zlib.error,
    RecursionError,
    ArithmeticError,
)
"""Exceptions that damaged text can raise when it is parsed as JSON and decoded."""


def as_text(content: bytes) -> str:
    """Decode the text of a column; invalid UTF-8 bytes are preserved, so that the checksum covers them."""
    return content.decode("utf-8", "surrogateescape")


def row_sum(*columns: object) -> int:
    """Return the CRC-32 of a row's columns, one line each: text unchanged, other values as Python's ``repr``."""
    made = 0
    for column in columns:
        text = column if isinstance(column, str) else repr(column)
        made = zlib.crc32(text.encode("utf-8", "surrogatepass") + b"\n", made)
    return made


def step_sum(row: Row) -> int:
    """Return the checksum of a row of ``steps``; it includes the previous step's checksum if the row has it."""
    chained = () if row.before is None else (row.before,)
    return row_sum(row.id, row.now, row.at, row.events, row.decision, row.uptime, *chained)


def old_step_sum(row: Row) -> int | None:
    """Return the version 2 checksum of a row of ``steps``, or None if a column has the wrong type."""
    if not (isinstance(row.events, str) and isinstance(row.decision, str)):
        return None
    text = "\n".join((repr(row.now), repr(row.at), row.events, row.decision))
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def is_step_whole(row: Row, version: int) -> bool:
    """Return whether a row of ``steps`` has a valid checksum for a version; versions before 2 have none."""
    if version > 2:
        return row.crc == step_sum(row)
    return row.crc is None or row.crc == old_step_sum(row)


def is_archived_whole(row: Row) -> bool:
    """Return whether an archived row has a valid checksum for any version; no checksum is valid too."""
    return row.crc is None or row.crc in (step_sum(row), old_step_sum(row))


def check_row(row: Row, path: Path, version: int | None) -> None:
    """Raise ``InputError`` if a step has a wrong checksum; ``version`` is that of the file, None for archives."""
    if not (is_archived_whole(row) if version is None else is_step_whole(row, version)):
        raise InputError("a journal's steps must be as they were written", value=f"step {row.id}", place=str(path))


def check_follows(row: Row, before: Row | None, path: Path) -> None:
    """Raise ``InputError`` if a step does not carry the checksum of the step before it."""
    if before is not None and row.id == before.id + 1 and row.before not in (None, before.crc):
        raise InputError("a journal's steps must follow each other", value=f"step {row.id} on another", place=str(path))


def checkpoint_sum(after_step: int, at: float, state: bytes) -> int:
    """Return the checksum of a row of ``checkpoints``."""
    return zlib.crc32(state, row_sum(after_step, at))


def is_checkpoint_whole(after_step: Any, at: Any, state: Any, crc: Any, version: int) -> bool:
    """Return whether a row of ``checkpoints`` has a valid checksum for a version."""
    if not isinstance(state, bytes) or not isinstance(after_step, int):
        return False
    if version > 2:
        return bool(crc == checkpoint_sum(after_step, at, state))
    return crc is None or crc == zlib.crc32(state)


def is_json(text: object) -> bool:
    """Return whether a column is text that can be parsed as JSON."""
    try:
        json.loads(text if isinstance(text, str) else "")
    except (ValueError, RecursionError):
        return False
    return True


def add_sums(database: sqlite3.Connection) -> None:
    """Add a version 3 checksum to each row; -1 if the row is not JSON or its older checksum is wrong."""
    for values in database.execute("SELECT id, now, at, events, decision, uptime, crc FROM steps").fetchall():
        row = Row(*values)
        if is_step_whole(row, 2) and is_json(row.events) and is_json(row.decision):
            database.execute("UPDATE steps SET crc = ? WHERE id = ?", (step_sum(row), row.id))
        else:
            database.execute("UPDATE steps SET crc = -1 WHERE id = ?", (row.id,))
    for after_step, at, state, crc in database.execute("SELECT after_step, at, state, crc FROM checkpoints").fetchall():
        whole = is_checkpoint_whole(after_step, at, state, crc, 2)
        made = checkpoint_sum(after_step, at, state) if whole else -1
        database.execute("UPDATE checkpoints SET crc = ? WHERE after_step = ?", (made, after_step))
    for rowid, *columns in database.execute("SELECT rowid, kind, key, value FROM notes").fetchall():
        _sum(database, "notes", rowid, columns)
    for rowid, *columns in database.execute("SELECT rowid, key, value FROM meta").fetchall():
        _sum(database, "meta", rowid, columns)
    for rowid, *columns in database.execute("SELECT rowid, first, last, at, file FROM segments").fetchall():
        database.execute("UPDATE segments SET crc = ? WHERE rowid = ?", (row_sum(*columns), rowid))


def _sum(database: sqlite3.Connection, table: str, rowid: int, columns: list[Any]) -> None:
    if is_json(columns[-1]):
        database.execute(f"UPDATE {table} SET crc = ? WHERE rowid = ?", (row_sum(*columns), rowid))


def write_meta(database: sqlite3.Connection, key: str, value: str) -> None:
    """Write a row of ``meta`` with its checksum."""
    database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (key, value, row_sum(key, value)))


def as_json(value: object) -> str:
    """Return a value as the text of a JSON column."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
