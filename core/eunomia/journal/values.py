"""Notes, settings and segments of a journal: writes them, and reads them with a check of each row."""

import dataclasses
import json
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final

from eunomia.contract.codec import Json
from eunomia.journal.schema import version_of
from eunomia.journal.sums import NOTES, UNREADABLE, as_json, row_sum, write_meta

META: Final = ("meta", "key")
"""A table, and its key columns."""
NOTED: Final = ("notes", "kind, key")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a driver keeps in addition to the arbiter's state, such as an app's submission; ``value`` is plain JSON."""

    kind: str
    key: str
    value: Json


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Damage outside steps and checkpoints.

    Attributes:
        notes: kind and key of those that cannot be trusted.
        missing: how many notes there were that are not there now.
        meta: keys of ``meta``.
        segments: first steps of segments.
    """

    notes: tuple[tuple[str, str], ...] = ()
    missing: int = 0
    meta: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Describe the damage, one line for each kind."""
        lines = [f"the note of {kind} {key} is not as it was written" for kind, key in self.notes]
        lines += [f"{self.missing} of the notes are missing"] if self.missing else []
        lines += [f"{key} of meta is not as it was written" for key in self.meta]
        return lines + [f"segment {first} is not as it was written" for first in self.segments]


def values(
    database: sqlite3.Connection, table: tuple[str, str], only: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Json, bool]]:
    """Yield keys and values in the order of writing, and whether their checksums are right.

    Args:
        database: the journal.
        table: ``META`` or ``NOTED``.
        only: a note's kind and key; empty: all.
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
    """Yield keys and values with a right checksum."""
    return ((keys, value) for keys, value, good in values(database, table, only) if good)


def segment_rows(database: sqlite3.Connection) -> list[tuple[Any, Any, Any, bool]]:
    """Return the first step, last step and file of each segment, and whether the row's checksum is right."""
    version = version_of(database)
    if version < 2:
        return []
    crc = "crc" if version > 2 else "NULL"
    found = database.execute(f"SELECT first, last, at, file, {crc} FROM segments ORDER BY first").fetchall()
    return [(row[0], row[1], row[3], version < 3 or row[4] == row_sum(*row[:4])) for row in found]


def damage_of(database: sqlite3.Connection) -> Damage:
    """Check each row of the three tables for damage."""
    rows = list(values(database, NOTED))
    known = dict(whole(database, META)).get((NOTES,))
    return Damage(
        notes=tuple((name_of(keys[0]), _note_name(database, keys)) for keys, _, good in rows if not good),
        missing=max(0, known - len(rows)) if isinstance(known, int) else 0,
        meta=tuple(name_of(keys[0]) for keys, _, good in values(database, META) if not good),
        segments=tuple(name_of(first) for first, *_, good in segment_rows(database) if not good),
    )


def write_notes(database: sqlite3.Connection, notes: Iterable[Note]) -> None:
    """Write notes; each replaces an earlier one of its kind and key."""
    added = 0
    for note in notes:
        value = as_json(note.value)
        crc = row_sum(note.kind, note.key, value)
        query = "UPDATE notes SET value = ?, crc = ? WHERE kind = ? AND key = ?"
        if database.execute(query, (value, crc, note.kind, note.key)).rowcount == 0:
            database.execute("INSERT INTO notes VALUES (?, ?, ?, ?)", (note.kind, note.key, value, crc))
            added += 1
    if added:
        _count(database, added)


def _count(database: sqlite3.Connection, added: int) -> None:
    """Update the count of notes from the stored one, so that an earlier loss is still detected."""
    (rows,) = database.execute("SELECT count(*) FROM notes").fetchone()
    known = database.execute("SELECT key, value, crc FROM meta WHERE key = ?", (NOTES,)).fetchone()
    good = known is not None and known[2] == row_sum(*known[:2])
    write_meta(database, NOTES, str(int(known[1]) + added if good else int(rows)))


def _note_name(database: sqlite3.Connection, keys: tuple[Any, ...]) -> str:
    """Return a damaged note's key, and the key that its value names if that differs."""
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
