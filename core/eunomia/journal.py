"""The arbiter's memory on disk: every step with its events and its decision, and now and then the whole state.

An SQLite file in WAL mode. A step is written in one transaction, ``synchronous=FULL``: once ``append`` returns, the
step survives the process and the machine, so an order that leaves afterwards is never unknown to the next arbiter. It
costs one fsync a step, which is what an arbiter of a few steps a second can pay.

State is the last checkpoint and the fold of the steps after it. One arbiter writes; any number of readers
(``read_journal``) may look on. Writer and readers need no clean end: SQLite drops what was half written.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from eunomia.codec import Json, decode, encode
from eunomia.decisions import Decision
from eunomia.errors import InputError
from eunomia.events import Event
from eunomia.units import Seconds

SCHEMA = 1
"""Version of the tables; kept in SQLite's ``user_version``."""
APPLICATION_ID = 0x45554E4F
CHECKPOINTS_KEPT = 2

_TABLES = """
CREATE TABLE steps (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  now REAL NOT NULL, at REAL NOT NULL, events TEXT NOT NULL, decision TEXT NOT NULL
);
CREATE TABLE checkpoints (after_step INTEGER PRIMARY KEY, at REAL NOT NULL, state BLOB NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE notes (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, key));
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One step as it was journaled.

    Attributes:
        number: counts from 1.
        now: the arbiter's clock, in seconds.
        at: Unix time.
        events: as they were folded in.
        decision: what came of it.
    """

    number: int
    now: Seconds
    at: float
    events: tuple[Event, ...]
    decision: Decision


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a driver keeps beside the arbiter's state, such as an app's submission; ``value`` is plain JSON."""

    kind: str
    key: str
    value: Json


class _Tables:
    """What readers and the writer share."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go."""
        self._database.close()

    def steps(self, after: int = 0) -> Iterator[Step]:
        """Yield the steps with larger numbers than ``after``, oldest first.

        Raises:
            InputError: a step that cannot be read; it is named.
        """
        query = "SELECT id, now, at, events, decision FROM steps WHERE id > ? ORDER BY id"
        with _reading(self.path):
            for number, now, at, events, decision in self._database.execute(query, (after,)):
                yield _step(number, now, at, events, decision, self.path)

    @property
    def last_step(self) -> int:
        """Number of the last step; 0: none yet."""
        with _reading(self.path):
            (number,) = self._database.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()
        return int(number or 0)

    @property
    def meta(self) -> dict[str, Json]:
        """What holds for the whole journal: cluster, profile, seed."""
        with _reading(self.path):
            return {key: json.loads(value) for key, value in self._database.execute("SELECT key, value FROM meta")}

    def notes(self, kind: str) -> dict[str, Json]:
        """Notes of a kind by key, in the order in which they were first made."""
        query = "SELECT key, value FROM notes WHERE kind = ? ORDER BY rowid"
        with _reading(self.path):
            return {key: json.loads(value) for key, value in self._database.execute(query, (kind,))}


class JournalReader(_Tables):
    """Looks at a journal, also while an arbiter writes it; see ``read_journal``."""


class Journal(_Tables):
    """The journal of the one arbiter that may write it; see ``Journal.open``. Not for several threads at once."""

    def __init__(self, database: sqlite3.Connection, path: Path, lock: IO[str]) -> None:
        super().__init__(database, path)
        self._lock = lock

    @classmethod
    def open(cls, path: Path | str, *, durable: bool = True) -> Self:
        """Open a journal for writing, or make it: mode 0600, in a folder of mode 0700 if that has to be made.

        Args:
            path: the file.
            durable: False spares the fsync of each step: a step may be lost with the machine's power, never with the
                process. For tests and simulations.

        Raises:
            InputError: another arbiter holds it, it is of another version, or it is no readable journal.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = _locked(path)
        try:
            with _reading(path):
                path.touch(mode=0o600)
                database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                database.execute("PRAGMA journal_mode=WAL")
                database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                _check_version(database, path, may_be_new=True)
        except BaseException:
            lock.close()
            raise
        return cls(database, path, lock)

    def close(self) -> None:
        """Let the file go, for the next arbiter."""
        super().close()
        self._lock.close()

    def append(
        self,
        now: Seconds,
        events: Sequence[Event],
        decision: Decision,
        *,
        at: float | None = None,
        notes: Iterable[Note] = (),
    ) -> int:
        """Write a step, and what the driver notes with it, in one transaction.

        Args:
            now: the arbiter's clock.
            events: that were folded in.
            decision: as ``Arbiter.step`` returned it.
            at: Unix time; None: of this moment.
            notes: each replaces an earlier one of its kind and key.

        Returns:
            The step's number.
        """
        written = (
            float(now),
            time.time() if at is None else at,
            _dumps([encode(event) for event in events]),
            _dumps(encode(decision)),
        )
        with self._transaction() as database:
            made = database.execute("INSERT INTO steps (now, at, events, decision) VALUES (?, ?, ?, ?)", written)
            _write_notes(database, notes)
        return int(made.lastrowid or 0)

    def note(self, *notes: Note) -> None:
        """Write notes alone."""
        with self._transaction() as database:
            _write_notes(database, notes)

    def set_meta(self, **values: Json) -> None:
        """Write what holds for the whole journal."""
        rows = [(key, _dumps(value)) for key, value in values.items()]
        with self._transaction() as database:
            database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def checkpoint(self, state: bytes, *, drop_steps: bool = False) -> None:
        """Keep the state after the last step; the ones before the last but one are dropped.

        Args:
            state: of ``Arbiter.save``.
            drop_steps: whether to drop the steps that no kept checkpoint needs; reports then lack them.
        """
        with self._transaction() as database:
            values = (self.last_step, time.time(), state)
            database.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", values)
            kept = "SELECT after_step FROM checkpoints ORDER BY after_step DESC LIMIT ?"
            database.execute(f"DELETE FROM checkpoints WHERE after_step NOT IN ({kept})", (CHECKPOINTS_KEPT,))
            if drop_steps:
                database.execute("DELETE FROM steps WHERE id <= (SELECT min(after_step) FROM checkpoints)")

    def recover(self) -> tuple[bytes | None, list[Step]]:
        """The last checkpoint, if there is one, and the steps after it: all that the state follows from."""
        with _reading(self.path):
            query = "SELECT after_step, state FROM checkpoints ORDER BY after_step DESC LIMIT 1"
            found = self._database.execute(query).fetchone()
        if found is None:
            return None, list(self.steps())
        return bytes(found[1]), list(self.steps(after=int(found[0])))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


def read_journal(path: Path | str) -> JournalReader:
    """Open a journal for reading, whether or not an arbiter holds it.

    Raises:
        InputError: there is none, it is of another version, or it cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("a journal must exist to be read", value="no such file", place=str(path))
    with _reading(path):
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA query_only=1")
        _check_version(database, path, may_be_new=False)
    return JournalReader(database, path)


def _dumps(value: Json) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _step(number: int, now: float, at: float, events: str, decision: str, path: Path) -> Step:
    try:
        return Step(
            number=number,
            now=Seconds(now),
            at=at,
            events=tuple(decode(event) for event in json.loads(events)),
            decision=decode(json.loads(decision)),
        )
    except (ValueError, InputError) as error:
        raise InputError(
            "a journal's steps must be readable", value=f"step {number}: {error}", place=str(path)
        ) from error


def _write_notes(database: sqlite3.Connection, notes: Iterable[Note]) -> None:
    database.executemany(
        "INSERT INTO notes VALUES (?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value",
        [(note.kind, note.key, _dumps(note.value)) for note in notes],
    )


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say of SQLite's errors which file they are about."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        rule = "a journal must be a readable SQLite file; move it away to begin anew"
        raise InputError(rule, value=str(error), place=str(path)) from error


def _check_version(database: sqlite3.Connection, path: Path, *, may_be_new: bool) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (owner,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchone()
    if tables == 0 and may_be_new:
        script = f"PRAGMA user_version={SCHEMA}; PRAGMA application_id={APPLICATION_ID};"
        database.executescript(f"BEGIN; {_TABLES} {script} COMMIT;")
        return
    if owner != APPLICATION_ID:
        raise InputError("a journal must be Eunomia's", value="another program's database", place=str(path))
    if version != SCHEMA:
        age, way = ("newer", "take a newer Eunomia") if version > SCHEMA else ("older", "finish it with the older one")
        rule = f"a journal must be of version {SCHEMA}; this one is {age}: {way}, or move it away to begin anew"
        raise InputError(rule, value=str(version), place=str(path))


def _locked(path: Path) -> IO[str]:
    """Hold the journal's lock for as long as the returned file is open; the system lets go of a dead process' one.

    Raises:
        InputError: another process holds it.
    """
    lock = (path.parent / f"{path.name}.lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = _owner(lock.read())
        lock.close()
        raise InputError(f"a journal must have one arbiter, but {owner}", place=path.name) from error
    lock.seek(0)
    lock.truncate()
    json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}, lock)
    lock.flush()
    return lock


def _owner(text: str) -> str:
    try:
        owner: Mapping[str, Any] = json.loads(text)
        since = time.strftime("%H:%M", time.localtime(owner["since"]))
        return f"process {owner['pid']} on {owner['host']} has held it since {since}"
    except (ValueError, KeyError, TypeError):
        return "another process holds it"
