"""Rewrites the undamaged part of a journal as a new file, for ``eunomia journal salvage``.

The steps after the first damaged one are lost, as are damaged notes and rows on damaged pages; if SQLite cannot read a
page, the table's other rows are read one by one. An arbiter that continues from the new file finds that the machines
have seen later orders than the file has, ends the processes there, and grants nothing before that is confirmed.
"""

import dataclasses
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.journal.files import MOVE_AWAY, Row, locked, reading
from eunomia.journal.journal import Journal, SavedState, read_step
from eunomia.journal.schema import check_version, columns_of, prepare, version_of
from eunomia.journal.sums import (
    NOTES,
    UNREADABLE,
    as_json,
    check_follows,
    checkpoint_sum,
    is_checkpoint_whole,
    row_sum,
    write_meta,
)
from eunomia.journal.values import META, NOTED, Note, name_of, write_notes, write_step
from eunomia_appmaster.node.system import MACHINE

NOWHERE_ELSE = ("secret", "seed", "layout")
"""Keys of the meta table that cannot be derived from other rows."""
MOST_PROBED: Final = 100_000
"""Maximum number of row numbers that are tried one by one between two damaged pages of a table."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """The result of a salvage: the steps that were kept and those that were lost.

    Attributes:
        last: number of the last good step, with which the new journal ends.
        lost: number of steps after it.
        kept_as: the damaged file's new path.
        dropped: other losses (notes, rows of meta, segments), one line each.
    """

    last: int
    lost: int
    kept_as: Path
    dropped: tuple[str, ...] = ()


def salvage(path: Path, *, check: Callable[[Path], None] | None = None) -> Salvaged:
    """Rewrite a journal from its newest undamaged checkpoint and the consecutive undamaged steps around it.

    Args:
        path: the journal's file.
        check: called with the new file before it replaces the old one; it raises if the file cannot be used.

    Raises:
        InputError: an arbiter has locked the journal, no start is undamaged, or ``check`` refuses; nothing was changed.
    """
    lock = locked(path)
    fresh = path.with_name(f"{path.name}.salvaged")
    try:
        _remove(fresh)
        with reading(path, f"restore a backup, or {MOVE_AWAY}"):
            damaged = prepare(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None))
            try:
                check_version(damaged, path, may_be_new=False)
                last, end, dropped = _copy(damaged, path, fresh)
            finally:
                damaged.close()
        if check is not None:
            check(fresh)
        return Salvaged(last=last, lost=max(0, end - last), kept_as=_swap(path, fresh), dropped=tuple(dropped))
    finally:
        _remove(fresh)
        lock.close()


def _copy(damaged: sqlite3.Connection, path: Path, fresh: Path) -> tuple[int, int, list[str]]:
    """Copy the undamaged rows; returns the last good step, the last written step, and a line per loss."""
    version = version_of(damaged)
    saved = _checkpoint(damaged, version)
    base = 0 if saved is None else saved.after_step
    after = _good(damaged, path, version, base)
    before = _good(damaged, path, version, base, backwards=True)
    rows = [*reversed(list(before)), *after]
    if saved is None and (not rows or rows[0].id != 1):
        rule = "a journal must have a whole checkpoint, or all its steps from the first on, to be saved"
        raise InputError(f"{rule}; restore a backup, or {MOVE_AWAY}", value="neither", place=str(path))
    with Journal.open(fresh) as journal:
        dropped = _write(journal, damaged, path, rows, saved)
    dropped += _lost_before(damaged, min([base + 1, *(row.id for row in rows)]))
    Path(f"{fresh}.lock").unlink(missing_ok=True)
    last = max([base, *(row.id for row in rows)])
    return last, max(last, _end(damaged)), dropped


def _lost_before(damaged: sqlite3.Connection, first: int) -> list[str]:
    """Return a line on steps before the first copied one, which the newest checkpoint replaces; else none."""
    try:
        (begun,) = damaged.execute("SELECT min(id) FROM steps WHERE typeof(id) = 'integer'").fetchone()
    except sqlite3.Error:
        begun = 1
    if begun is None or begun >= first:
        return []
    steps = f"steps {begun} to {first - 1}" if begun < first - 1 else f"step {begun}"
    return [f"{steps}, before a whole checkpoint: only reports and explanations miss them"]


def _end(damaged: sqlite3.Connection) -> int:
    """Return the number of the last step ever written; 0: there is none, or the file cannot be read."""
    query = "SELECT max(seq) FROM sqlite_sequence WHERE name = 'steps' AND typeof(seq) = 'integer'"
    try:
        (end,) = damaged.execute(query).fetchone()
    except sqlite3.Error:
        return 0
    return int(end or 0)


def _checkpoint(damaged: sqlite3.Connection, version: int) -> SavedState | None:
    crc = "crc" if version > 1 else "NULL"
    for after_step, at, state, sum_ in _rows(damaged, "checkpoints", f"after_step, at, state, {crc}", [], newest=True):
        if is_checkpoint_whole(after_step, at, state, sum_, version):
            return SavedState(after_step=after_step, at=at, state=bytes(state))
    return None


def _rows(
    damaged: sqlite3.Connection, table: str, columns: str, dropped: list[str], *, newest: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that SQLite can read, oldest or newest first; add the table to ``dropped`` if there are others."""
    numbers, whole = _numbers(damaged, table)
    for number in reversed(numbers) if newest else numbers:
        try:
            yield from damaged.execute(f"SELECT {columns} FROM {table} WHERE rowid = ?", (number,)).fetchall()
        except sqlite3.Error:
            whole = False
    if not whole:
        dropped.append(f"what SQLite cannot read of the table {table}, on damaged pages")


def _numbers(damaged: sqlite3.Connection, table: str) -> tuple[list[int], bool]:
    """Return the row numbers of a table, and whether SQLite read all; numbers between damaged pages are guesses."""
    oldest, whole = _read_numbers(damaged, table, "ASC")
    if whole:
        return oldest, True
    newest, _ = _read_numbers(damaged, table, "DESC")
    last, first = max(oldest, default=0), min(newest, default=MOST_PROBED)
    between = range(last + 1, min(first, last + 1 + MOST_PROBED))
    return sorted({*oldest, *between, *newest}), False


def _read_numbers(damaged: sqlite3.Connection, table: str, order: str) -> tuple[list[int], bool]:
    found: list[int] = []
    try:
        for (number,) in damaged.execute(f"SELECT rowid FROM {table} NOT INDEXED ORDER BY rowid {order}"):
            found.append(number)
    except sqlite3.Error:
        return found, False
    return found, True


def _good(
    damaged: sqlite3.Connection, path: Path, version: int, base: int, *, backwards: bool = False
) -> Iterator[Row]:
    """Yield consecutive steps from a checkpoint, forwards or backwards, up to the first damaged step."""
    query = f"SELECT {columns_of(version)} FROM steps WHERE id = ?"
    number, last = base if backwards else base + 1, None
    while number > 0:
        try:
            found = damaged.execute(query, (number,)).fetchone()
            if found is None:
                return
            row = Row(*found)
            read_step(row, path, version)
            if last is not None:
                check_follows(*((last, row) if backwards else (row, last)), path)
        except (sqlite3.DatabaseError, InputError):
            return
        yield row
        number, last = number + (-1 if backwards else 1), row


def _write(
    journal: Journal, damaged: sqlite3.Connection, path: Path, rows: list[Row], saved: SavedState | None
) -> list[str]:
    """Fill the new file; returns descriptions of the rows that were left out."""
    dropped: list[str] = []
    with journal.transaction() as database:
        _copy_meta(database, damaged, path, dropped)
        _copy_notes(database, damaged, dropped)
        _copy_segments(database, damaged, dropped)
        for row in rows:
            write_step(database, row)
        if saved is not None:
            state = (saved.after_step, saved.at, saved.state)
            query = "INSERT INTO checkpoints (after_step, at, state, crc) VALUES (?, ?, ?, ?)"
            database.execute(query, (*state, checkpoint_sum(*state)))
            if not rows:  # the next step has the number that follows the checkpoint's
                database.execute("INSERT INTO sqlite_sequence VALUES ('steps', ?)", (saved.after_step,))
    return dropped


def _copy_meta(database: sqlite3.Connection, damaged: sqlite3.Connection, path: Path, dropped: list[str]) -> None:
    bad, kept = [], set[str]()
    for key, content, good in _values(damaged, META, dropped):
        if good and key != NOTES:
            write_meta(database, key, as_json(content))
            kept.add(key)
        elif not good:
            bad.append(name_of(key))
    served = not kept.isdisjoint(("secret", "layout"))  # else no service wrote this journal
    needed = [key for key in NOWHERE_ELSE if served and (key != "layout" or _end(damaged) > 0)]
    lost = [key for key in NOWHERE_ELSE if key in bad or (key in needed and key not in kept)]
    if lost:
        rule = f"a journal's {' and '.join(lost)} must be as written, since nothing else holds it: restore a backup, or"
        raise InputError(f"{rule} {MOVE_AWAY}", value="a damaged or missing row of meta", place=str(path))
    dropped += [f"{key} of meta" for key in bad if key != NOTES]


def _copy_notes(database: sqlite3.Connection, damaged: sqlite3.Connection, dropped: list[str]) -> None:
    for kind, key, content, good in _values(damaged, NOTED, dropped):
        if good and isinstance(kind, str) and isinstance(key, str):
            write_notes(database, [Note(kind=kind, key=key, value=content)])
        else:
            dropped.append(f"the note of {name_of(kind)} {name_of(key)}")


def _values(damaged: sqlite3.Connection, table: tuple[str, str], dropped: list[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the keys and the value of each readable row, and whether its checksum is right."""
    name, keys = table
    summed = version_of(damaged) > 2
    for *known, text, crc in _rows(damaged, name, f"{keys}, value, {'crc' if summed else 'NULL'}", dropped):
        try:
            good = not summed or crc == row_sum(*known, text)
            yield (*known, json.loads(text) if good else None, good)
        except UNREADABLE:
            yield (*known, None, False)


def _copy_segments(database: sqlite3.Connection, damaged: sqlite3.Connection, dropped: list[str]) -> None:
    version = version_of(damaged)
    if version < 2:
        return
    crc = "crc" if version > 2 else "NULL"
    for first, last, at, file, sum_ in _rows(damaged, "segments", f"first, last, at, file, {crc}", dropped):
        if version < 3 or sum_ == row_sum(first, last, at, file):
            segment = (first, last, MACHINE.unix_time(), file)
            database.execute("INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?)", (*segment, row_sum(*segment)))
        else:
            dropped.append(f"segment {name_of(first)}")


def _swap(path: Path, fresh: Path) -> Path:
    """Rename the damaged file and its log files, returning its new path, and put the new file in its place."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(MACHINE.unix_time()))
    kept = path.with_name(f"{path.stem}.damaged-{stamp}{path.suffix}")
    for end in ("-wal", "-shm", ""):
        part = path.with_name(path.name + end)
        if part.exists():
            part.rename(kept.with_name(kept.name + end))
    fresh.rename(path)
    return kept


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm", ".lock"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def lines(path: Path, done: Salvaged) -> list[str]:
    """Return lines on the result: what was saved and what was lost."""
    lost = f"{done.lost} steps after it are lost" if done.lost else "no step after it was lost"
    made = [f"{path} is good up to step {done.last}; {lost}. The old file is kept as {done.kept_as}"]
    return made + [f"lost: {what}" for what in done.dropped]
