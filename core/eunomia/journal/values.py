"""Write and read the notes, settings and segments of a journal, and verify each row."""

import dataclasses
import functools
import json
import operator
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from eunomia.contract.codec import Json
from eunomia.journal.files import Row
from eunomia.journal.schema import SCHEMA, columns_of, version_of
from eunomia.journal.sums import NOTES, UNREADABLE, as_json, row_sum, step_sum, write_meta

META: Final = ("meta", "key")
"""Name of a table, and its key columns as in a query."""
NOTED: Final = ("notes", "kind, key")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Data that a driver stores besides the arbiter's state, such as an app's submission; ``value`` is plain JSON."""

    kind: str
    key: str
    value: Json


class Reached(NamedTuple):
    """The end of a journal: number and checksum of its last step, and how many times notes were written.

    The checksum is None if there is no step; ``notes`` is None if the count is damaged.
    """

    step: int
    sum: int | None
    notes: int | None


class Counted(NamedTuple):
    """Summary of all notes, stored in ``meta``: their number, the number of writes, and the XOR of their checksums."""

    rows: int
    writes: int
    sum: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Damage outside steps and checkpoints.

    Attributes:
        notes: kind and key of each damaged note.
        missing: number of notes that are missing.
        stale: whether some notes have an older value than the one last written; which ones is not known.
        meta: keys of damaged settings.
        segments: first steps of damaged segments.
    """

    notes: tuple[tuple[str, str], ...] = ()
    missing: int = 0
    stale: bool = False
    meta: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Describe the damage, one line per kind."""
        lines = [f"the note of {kind} {key} is not as it was written" for kind, key in self.notes]
        lines += [f"{self.missing} of the notes are missing"] if self.missing else []
        lines += ["some of the notes are older than those that were written last"] if self.stale else []
        lines += [f"{key} of meta is not as it was written" for key in self.meta]
        return lines + [f"segment {first} is not as it was written" for first in self.segments]


def values(
    database: sqlite3.Connection, table: tuple[str, str], only: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Json, bool]]:
    """Yield keys and values in order of writing, and whether their checksums are valid.

    Args:
        database: connection to the journal.
        table: ``META`` or ``NOTED``.
        only: key columns of a single row to read; empty: all rows.
    """
    name, key = table
    summed = version_of(database) > 2
    where = "WHERE kind = ? AND key = ?" if only else ""
    query = f"SELECT {key}, value, {'crc' if summed else 'NULL'} FROM {name} {where} ORDER BY rowid"
    for *keys, text, crc in database.execute(query, only).fetchall():
        good = crc == row_sum(*keys, text) if summed else True
        try:
            yield tuple(keys), json.loads(text) if good else None, good
        except UNREADABLE:
            yield tuple(keys), None, False


def whole(
    database: sqlite3.Connection, table: tuple[str, str], only: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Json]]:
    """Yield keys and values of the rows with a valid checksum."""
    return ((keys, value) for keys, value, good in values(database, table, only) if good)


def segment_rows(database: sqlite3.Connection) -> list[tuple[Any, Any, Any, bool]]:
    """Return first step, last step and file of each segment, and whether its row has a valid checksum."""
    version = version_of(database)
    if version < 2:
        return []
    crc = "crc" if version > 2 else "NULL"
    found = database.execute(f"SELECT first, last, at, file, {crc} FROM segments ORDER BY first").fetchall()
    return [(row[0], row[1], row[3], version < 3 or row[4] == row_sum(*row[:4])) for row in found]


def damage_of(database: sqlite3.Connection) -> Damage:
    """Verify the rows of notes, settings and segments, and return the damage found."""
    rows, known = list(values(database, NOTED)), counted(database)
    bad = [keys for keys, _, good in rows if not good]
    return Damage(
        notes=tuple((name_of(keys[0]), _note_name(database, keys)) for keys in bad),
        missing=0 if known is None else max(0, known.rows - len(rows)),
        stale=known is not None and not bad and known.rows == len(rows) and known.sum != _sum_of_notes(database),
        meta=tuple(name_of(keys[0]) for keys, _, good in values(database, META) if not good),
        segments=tuple(name_of(first) for first, *_, good in segment_rows(database) if not good),
    )


def write_step(database: sqlite3.Connection, row: Row) -> None:
    """Write a step with its checksum."""
    places = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO steps ({columns_of(SCHEMA)}) VALUES ({places})", row._replace(crc=step_sum(row)))


def write_notes(database: sqlite3.Connection, notes: Iterable[Note]) -> None:
    """Write notes; each replaces an earlier note of the same kind and key."""
    known = counted(database)
    added = writes = changed = 0
    for note in notes:
        at, value = (note.kind, note.key), as_json(note.value)
        crc = row_sum(*at, value)
        was = database.execute("SELECT value, crc FROM notes WHERE kind = ? AND key = ?", at).fetchone()
        if was is None:
            database.execute("INSERT INTO notes VALUES (?, ?, ?, ?)", (*at, value, crc))
        else:
            database.execute("UPDATE notes SET value = ?, crc = ? WHERE kind = ? AND key = ?", (value, crc, *at))
        if was is not None and was[1] != row_sum(*at, was[0]):
            known = None if known is None else known._replace(sum=_sum_of_notes(database))  # of the present rows
            changed = 0
        else:
            changed ^= crc ^ (0 if was is None else was[1])
        added, writes = added + (was is None), writes + 1
    if writes:
        (rows,) = database.execute("SELECT count(*) FROM notes").fetchone()
        base = known or Counted(int(rows) - added, 0, _sum_of_notes(database) ^ changed)
        write_meta(database, NOTES, as_json([base.rows + added, base.writes + writes, base.sum ^ changed]))


def counted(database: sqlite3.Connection) -> Counted | None:
    """Return the summary of notes, of which version 3 has only the number; None if it is missing or damaged."""
    row = database.execute("SELECT * FROM meta WHERE key = ?", (NOTES,)).fetchone()
    if row is None or len(row) < 3 or row[2] != row_sum(NOTES, row[1]):
        return None
    known = json.loads(row[1])
    return Counted(*known) if isinstance(known, list) else Counted(known, 0, _sum_of_notes(database))


def _sum_of_notes(database: sqlite3.Connection) -> int:
    sums = (crc for (crc,) in database.execute("SELECT crc FROM notes") if isinstance(crc, int))
    return functools.reduce(operator.xor, sums, 0)


def _note_name(database: sqlite3.Connection, keys: tuple[Any, ...]) -> str:
    """Return the name of a damaged note: its key, and the key named in its value if that differs."""
    found = database.execute("SELECT value FROM notes WHERE kind IS ? AND key IS ?", keys).fetchone()
    try:
        named = json.loads(found[0])["name"]
    except UNREADABLE:
        named = keys[1]
    return name_of(keys[1]) + ("" if named == keys[1] else f" (of {name_of(named)})")


def name_of(key: object) -> str:
    """Return a key in a printable form."""
    text = key if isinstance(key, str) else repr(key)
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)[:80]
