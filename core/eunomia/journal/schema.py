"""The tables of a journal, by schema version; docs/reference/journal.md describes them."""

import sqlite3
import time
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia.journal.files import MOVE_AWAY, REMEDY, reading
from eunomia.journal.sums import NOTES, add_sums, as_text, write_meta

SCHEMA: Final = 5
"""Current schema version; stored in SQLite's ``user_version``, and with its date in the table ``schema_versions``."""
OLDEST_READ: Final = 1
APPLICATION_ID: Final = 0x45554E4F
WAL_BYTES: Final = 4 * 1024 * 1024
"""Size in bytes to which SQLite truncates the write-ahead log after it grew beyond this."""
CACHE_KIB: Final = 512
"""Size of SQLite's page cache in KiB; it is small, as a journal is written at its end and read only once."""

_TABLES_1 = """
CREATE TABLE steps (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  now REAL NOT NULL, at REAL NOT NULL, events TEXT NOT NULL, decision TEXT NOT NULL
);
CREATE TABLE checkpoints (after_step INTEGER PRIMARY KEY, at REAL NOT NULL, state BLOB NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE notes (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, key));
"""
_FROM_1_TO_2 = """
ALTER TABLE steps ADD COLUMN uptime REAL;
ALTER TABLE steps ADD COLUMN crc INTEGER;
ALTER TABLE checkpoints ADD COLUMN crc INTEGER;
CREATE TABLE segments (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, at REAL NOT NULL, file TEXT);
CREATE TABLE schema_versions (version INTEGER PRIMARY KEY, at REAL NOT NULL);
"""
_FROM_2_TO_3 = """
ALTER TABLE notes ADD COLUMN crc INTEGER;
ALTER TABLE meta ADD COLUMN crc INTEGER;
ALTER TABLE segments ADD COLUMN crc INTEGER;
"""
_FROM_3_TO_4 = "ALTER TABLE steps ADD COLUMN before INTEGER;"
_SINCE: Final = {
    "steps": {1: {"id", "now", "at", "events", "decision"}, 2: {"uptime", "crc"}, 4: {"before"}},
    "checkpoints": {1: {"after_step", "at", "state"}, 2: {"crc"}},
    "meta": {1: {"key", "value"}, 3: {"crc"}},
    "notes": {1: {"kind", "key", "value"}, 3: {"crc"}},
    "segments": {2: {"first", "last", "at", "file"}, 3: {"crc"}},
    "schema_versions": {2: {"version", "at"}},
}
"""The columns of each table, by the schema version that added them."""


def version_of(database: sqlite3.Connection) -> int:
    """Return the schema version of a file; 0 if the file has no tables yet."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def check_version(database: sqlite3.Connection, path: Path, *, may_be_new: bool) -> None:
    """Check that a file is a journal of a version that can be read.

    Raises:
        InputError: it is not; the error gives a remedy.
    """
    version = version_of(database)
    (owner,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchone()
    if tables == 0 and may_be_new:
        return
    if owner != APPLICATION_ID:
        rule = f"a journal must be Eunomia's; restore a backup, or {MOVE_AWAY}"
        raise InputError(rule, value="another program's database", place=str(path))
    if not OLDEST_READ <= version <= SCHEMA:
        age, way = ("newer", "take a newer Eunomia") if version > SCHEMA else ("older", "finish it with the older one")
        rule = f"a journal must be of version {OLDEST_READ} to {SCHEMA}; this one is {age}: {way}, or {MOVE_AWAY}"
        raise InputError(rule, value=str(version), place=str(path))
    _check_columns(database, path, version)


def _check_columns(database: sqlite3.Connection, path: Path, version: int) -> None:
    """Raise an error if the tables of a file are not those of its stated version."""
    for table, since in _SINCE.items():
        known = {column for began, columns in since.items() if began <= version for column in columns}
        there = {str(name) for _, name, *_ in database.execute(f"PRAGMA table_info({table})")}
        if there != known:
            rule = f"a journal's tables must be those of its version, {version}; restore a backup, or {MOVE_AWAY}"
            raise InputError(rule, value=f"another table {table}", place=str(path))


def check_pages(database: sqlite3.Connection, path: Path) -> None:
    """Run SQLite's integrity check.

    Raises:
        InputError: pages or indexes are damaged; the error gives a remedy.
    """
    with reading(path):
        (answer,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if answer != "ok":
        raise InputError(f"a journal must be a whole SQLite file; {REMEDY}", value=str(answer)[:200], place=str(path))


def migrate(database: sqlite3.Connection) -> None:
    """Create the tables, or migrate tables of an older version, in one transaction."""
    version = version_of(database)
    if version == SCHEMA:
        return
    script = "".join((_TABLES_1, _FROM_1_TO_2, _FROM_2_TO_3, _FROM_3_TO_4)[version:])
    database.execute("BEGIN IMMEDIATE")
    try:
        for statement in filter(str.strip, script.split(";")):
            database.execute(statement)
        if version < 3:
            add_sums(database)
            (notes,) = database.execute("SELECT count(*) FROM notes").fetchone()
            write_meta(database, NOTES, str(notes))
        database.execute("INSERT OR REPLACE INTO schema_versions VALUES (?, ?)", (SCHEMA, time.time()))
        database.execute(f"PRAGMA user_version={SCHEMA}")
        database.execute(f"PRAGMA application_id={APPLICATION_ID}")
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def columns_of(version: int) -> str:
    """Return the columns of ``Row`` for a query on a file of this version."""
    more = "uptime, crc" if version > 1 else "NULL, NULL"
    return f"id, now, at, events, decision, {more}, {'before' if version > 3 else 'NULL'}"


def prepare(database: sqlite3.Connection) -> sqlite3.Connection:
    """Make a connection return undecodable text as bytes, so that the row's checksum detects the damage."""
    database.text_factory = as_text
    return database


def opened_to_read(path: Path) -> sqlite3.Connection:
    """Open a journal for reading; in a read-only folder, SQLite creates no auxiliary files."""
    try:
        database = prepare(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
        database.execute("PRAGMA query_only=1")
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return database
    except sqlite3.OperationalError:
        log_file = path.with_name(f"{path.name}-wal")
        if log_file.exists() and log_file.stat().st_size:
            raise  # its transactions would be missing
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        return prepare(sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False))
