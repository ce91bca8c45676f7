"""Reads a journal's rows one by one without changing the file, which may be written at the same time."""

import contextlib
import fcntl
import gzip
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eunomia.contract.decisions import TransitionKind
from eunomia.errors import InputError
from eunomia_appmaster.journal_check.findings import AddFinding, Finding, Rule
from eunomia_appmaster.journal_check.plain import plain

APPLICATION_ID = 0x45554E4F
VERSIONS = (1, 2, 3, 4, 5)
ATTEMPTS, PAUSE_SECONDS = 10, 0.05
"""Attempts to open a journal that is being written, and the seconds between them."""
DECIDED = ("now", "version", "round", "orders", "transitions", "renewals", "offers", "closed", "faults")
"""Fields of a decision that the check reads."""
ARCHIVED = ("id", "now", "at", "events", "decision", "uptime", "crc")
"""The columns of an archived step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStep:
    """A row of ``steps`` as plain values."""

    number: int
    now: float
    at: float
    events: list[dict[str, Any]]
    decision: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A row of ``checkpoints``: a saved state."""

    after_step: int
    state: dict[str, Any]


def kind_of(order: dict[str, Any]) -> TransitionKind:
    """Return the kind of an order in plain values.

    Raises:
        ValueError: the kind is unknown.
    """
    kind = TransitionKind.__members__.get(order["kind"])
    if kind is None:
        raise ValueError(f'there is no transition of the kind "{order["kind"]}"')
    return kind


class Rows:
    """A journal's rows at one moment; a context manager.

    Args:
        path: the journal's file.
        note: called with each finding about an unreadable row.

    Raises:
        InputError: there is no journal, or one of an unknown version.
    """

    def __init__(self, path: Path, note: AddFinding) -> None:
        if not os.path.isfile(path):  # noqa: PTH113 - also under a name that no disk takes
            raise InputError("a journal must exist to be checked", value="no such file", place=str(path))
        self._path = path
        self._note = note
        self._last: tuple[int, int | None] = (0, None)
        self._database = _opened(path)
        try:
            (owner,) = self._database.execute("PRAGMA application_id").fetchone()
            (self.version,) = self._database.execute("PRAGMA user_version").fetchone()
            self._database.execute("BEGIN")
            self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()  # pins the snapshot
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise InputError("a journal must be an SQLite file", value=str(error), place=str(path)) from error
        if owner != APPLICATION_ID or self.version not in VERSIONS:
            self._database.close()
            known = ", ".join(map(str, VERSIONS))
            rule = f"a journal must be Eunomia's, of version {known}"
            raise InputError(rule, value=f"version {self.version} of {owner:#x}", place=str(path))

    def __enter__(self) -> "Rows":
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def check_pages(self) -> None:
        """Run SQLite's own check for damaged pages."""
        try:
            (answer,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            answer = str(error)
        if answer != "ok":
            self._unreadable(f"the file is damaged: {answer}", self._path.name)

    def meta(self, key: str) -> Any:
        """Return a value of ``meta``, about the whole journal, as plain values; None if the key is missing."""
        try:
            found = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return None if found is None else plain(json.loads(found[0]))
        except (sqlite3.DatabaseError, ValueError, TypeError, AttributeError, RecursionError) as error:
            self._unreadable(str(error), f"meta {key}")
            return None

    def notes(self, kind: str) -> dict[str, Any]:
        """Return the notes of a kind as plain values, by key; unreadable ones are left out (``check_values``)."""
        found: dict[str, Any] = {}
        with contextlib.suppress(sqlite3.DatabaseError):
            for key, text in self._database.execute("SELECT key, value FROM notes WHERE kind = ?", (kind,)):
                with contextlib.suppress(ValueError, TypeError, RecursionError):
                    found[str(key)] = json.loads(text)
        return found

    @property
    def last_number(self) -> int:
        """Return the number of the last step that was ever written."""
        with contextlib.suppress(sqlite3.DatabaseError):
            found = self._database.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'steps'").fetchone()
            return found[0] if isinstance(found[0], int) else 0
        return 0

    @property
    def history(self) -> int:
        """Return the number of the journal's history: 1, or that of its last accepted loss."""
        numbers = [1]
        with contextlib.suppress(sqlite3.DatabaseError, ValueError, TypeError, KeyError):
            for (text,) in self._database.execute("SELECT value FROM notes WHERE kind = 'loss'"):
                numbers.append(int(json.loads(text)["history"]))
        return max(numbers)

    @property
    def notes_written(self) -> int:
        """Return the number of writes of notes; 0 in a journal of version 3."""
        known = self.meta("notes")
        return known[1] if isinstance(known, list) and len(known) == 3 and isinstance(known[1], int) else 0

    def sum_of(self, number: int) -> int:
        """Return the checksum of an unarchived step; -1: no such step."""
        with contextlib.suppress(sqlite3.DatabaseError):
            found = self._database.execute("SELECT crc FROM steps WHERE id = ?", (number,)).fetchone()
            return -1 if found is None or not isinstance(found[0], int) else found[0]
        return -1

    def dropped(self) -> int:
        """Return the number of the last step dropped by retention; 0 if none was."""
        return max((last for _, last, file in self._segments() if file is None), default=0)

    def steps(self) -> Iterator[JournalStep]:
        """Yield the steps in the order of their numbers, archived ones first; unreadable rows are findings."""
        try:
            for row in self._rows():
                step = self._step(row)
                if step is not None:
                    yield step
        except sqlite3.DatabaseError as error:
            self._unreadable(f"rows cannot be read any further: {error}", "table steps")

    def clock(self) -> Iterator[tuple[int, float]]:
        """Yield number and Unix time in seconds of each readable step that is not archived."""
        with contextlib.suppress(sqlite3.DatabaseError, TypeError, ValueError):
            for number, at in self._database.execute("SELECT id, at FROM steps ORDER BY id"):
                yield int(number), float(at)

    def saved(self) -> Iterator[Saved]:
        """Yield the checkpoints, oldest first."""
        crc = "crc" if self.version > 1 else "NULL"
        try:
            query = f"SELECT after_step, at, state, {crc} FROM checkpoints ORDER BY after_step"
            for after, at, state, known in self._database.execute(query):
                made = self._state(int(after), at, state, known)
                if made is not None:
                    yield made
        except sqlite3.DatabaseError as error:
            self._unreadable(f"rows cannot be read any further: {error}", "table checkpoints")

    def _state(self, after: int, at: Any, state: Any, crc: int | None) -> Saved | None:
        place = f"checkpoint after step {after}"
        if not isinstance(state, bytes) or not self._is_right(crc, (after, at), state):
            self._unreadable("its state is not as it was written", place)
            return None
        try:
            made = json.loads(state if state.startswith(b"{") else zlib.decompress(state))
        except (zlib.error, ValueError, RecursionError) as error:
            self._unreadable(f"its state is no JSON: {error}", place)
            return None
        return Saved(after_step=after, state=made)

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        for _, last, file in self._segments():
            if file is not None:
                yield from self._archived(self._path.parent / file, int(last))
        more = "uptime, crc" if self.version > 1 else "NULL, NULL"
        chained = "before" if self.version > 3 else "NULL"
        query = f"SELECT id, now, at, events, decision, {more}, {chained} FROM steps ORDER BY id"
        yield from ((*row, False) for row in self._database.execute(query))

    def _segments(self) -> list[tuple[int, int, str | None]]:
        if self.version < 2:
            return []
        rows = self._database.execute("SELECT first, last, file FROM segments ORDER BY first")
        return [row for row in rows if isinstance(row[1], int) and isinstance(row[2], str | None)]

    def _archived(self, path: Path, last: int) -> Iterator[tuple[Any, ...]]:
        try:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for line in lines:
                    row = json.loads(line)
                    yield (*(row[name] for name in ARCHIVED), row.get("before"), True)
        except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
            self._unreadable(f"the segment up to step {last} cannot be read: {error}", path.name)

    def _step(self, row: tuple[Any, ...]) -> JournalStep | None:
        *columns, crc, before, archived = row
        number, now, at, events, decision, _ = columns
        place = f"step {number}"
        self._follow(number, crc, before)
        try:
            older = crc is None or crc == zlib.crc32("\n".join((repr(now), repr(at), events, decision)).encode())
            summed = columns if before is None else [*columns, before]
            if not (crc == _sum(summed) or (older and (archived or self.version < 3))):
                self._unreadable("the row is not as it was written", place)
            decided = json.loads(decision)
            made = {name: plain(decided[name]) for name in DECIDED if name in decided}
            for order in made.get("transitions", ()):
                kind_of(order)
            return JournalStep(
                number=int(number),
                now=float(now),
                at=float(at),
                events=[plain(event) for event in json.loads(events)],
                decision=made,
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._unreadable(f"the row cannot be read: {error}", place)
            return None

    def _follow(self, number: Any, crc: int | None, before: int | None) -> None:
        """Check that a step contains the checksum of the step before it."""
        last, self._last = self._last, (number, crc)
        if before is not None and isinstance(number, int) and last[0] == number - 1 and before != last[1]:
            self._note(Finding(rule=Rule.STEPS, what="it was written after another step", place=f"step {number}"))

    def _is_right(self, crc: int | None, columns: tuple[Any, ...], state: bytes) -> bool:
        if self.version > 2:
            return crc == zlib.crc32(state, _sum(columns))
        return crc is None or crc == zlib.crc32(state)

    def check_values(self) -> None:
        """Check each row of the tables notes, meta and segments: its checksum, if there is one, and its JSON."""
        notes = self._check_table("notes", ("kind", "key", "value"))
        self._check_table("meta", ("key", "value"))
        if self.version > 2:
            self._check_table("segments", ("first", "last", "at", "file"))
            known = self.meta("notes")
            count, _, summed = known if isinstance(known, list) and len(known) == 3 else (known, 0, None)
            if isinstance(count, int) and count != notes:
                self._unreadable(f"{count} notes were written, but {notes} are there", "table notes")
            elif summed not in (None, self._sum_of_notes()):
                self._unreadable("some notes are older than those that were written last", "table notes")

    def _sum_of_notes(self) -> int:
        """Return the XOR of the checksums of all notes."""
        made = 0
        with contextlib.suppress(sqlite3.DatabaseError):
            for (crc,) in self._database.execute("SELECT crc FROM notes"):
                made ^= crc if isinstance(crc, int) else 0
        return made

    def _check_table(self, table: str, columns: tuple[str, ...]) -> int:
        count = 0
        crc = "crc" if self.version > 2 else "NULL"
        try:
            for *row, known in self._database.execute(f"SELECT {', '.join(columns)}, {crc} FROM {table}"):
                count += 1
                right = known == _sum(row) if self.version > 2 else True
                if not right or (table != "segments" and not _is_json(row[-1])):
                    self._unreadable("the row is not as it was written", f"{table[:-1]} {_words(row[:-1])}")
        except sqlite3.DatabaseError as error:
            self._unreadable(f"rows cannot be read any further: {error}", f"table {table}")
        return count

    def _unreadable(self, what: str, place: str) -> None:
        self._note(Finding(rule=Rule.UNREADABLE, what=what, place=place))


def _sum(columns: Sequence[Any]) -> int:
    """Return a row's checksum in version 3: over texts as they are, and over other values as Python formats them."""
    lines = (column if isinstance(column, str) else repr(column) for column in columns)
    return zlib.crc32("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))


def _is_json(text: Any) -> bool:
    try:
        json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return False
    return isinstance(text, str)


def _words(key: Sequence[Any]) -> str:
    text = " ".join(map(str, key))[:80]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _opened(path: Path) -> sqlite3.Connection:
    """Open a journal for reading; if its folder is not writable, as an immutable file.

    An immutable file is read without SQLite's write-ahead log, so this is done only if there is no such log. A writer
    that starts or ends may refuse a reader for a moment.
    """
    uri, why = path.resolve().as_uri(), ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        try:
            return _looking_at(f"{uri}?mode=ro", path)
        except sqlite3.OperationalError as error:
            why = str(error)
        if attempt and not _is_written_beside(path):
            with contextlib.suppress(sqlite3.OperationalError):
                return _looking_at(f"{uri}?mode=ro&immutable=1", path)
    rule = "a journal must be readable, and after a kill in a folder that can be written"
    raise InputError(rule, value=f"SQLite cannot open it: {why}", place=str(path))


def _is_written_beside(path: Path) -> bool:
    """Return whether SQLite's write-ahead log may contain steps that the journal's file lacks."""
    beside = path.with_name(f"{path.name}-wal")
    return beside.exists() and beside.stat().st_size > 0


def _looking_at(uri: str, path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(uri, uri=True, isolation_level=None)
    database.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
    try:
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        database.close()
        raise
    except sqlite3.DatabaseError as error:
        database.close()
        raise InputError("a journal must be an SQLite file", value=str(error), place=str(path)) from error
    return database


def is_held(path: Path) -> bool:
    """Return whether an arbiter holds the journal's lock now."""
    try:
        with (path.parent / f"{path.name}.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False
