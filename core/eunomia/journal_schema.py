"""The journal's tables, by version; what they mean stands in docs/reference/journal.md."""

import sqlite3
import time
from pathlib import Path
from typing import Final

from eunomia.errors import InputError

SCHEMA: Final = 2
"""Version of the tables; kept in SQLite's ``user_version``, and with its date in the table ``schema_versions``."""
OLDEST_READ: Final = 1
APPLICATION_ID: Final = 0x45554E4F
WAL_BYTES: Final = 4 * 1024 * 1024
"""To which the write-ahead log is cut back when it had to grow beyond."""

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


def version_of(database: sqlite3.Connection) -> int:
    """Version of a file's tables; 0 where there are none yet."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def check_version(database: sqlite3.Connection, path: Path, *, may_be_new: bool) -> None:
    """Refuse a file that is no journal, or one that this version cannot read.

    Raises:
        InputError: with the way out.
    """
    version = version_of(database)
    (owner,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchone()
    if tables == 0 and may_be_new:
        return
    if owner != APPLICATION_ID:
        raise InputError("a journal must be Eunomia's", value="another program's database", place=str(path))
    if not OLDEST_READ <= version <= SCHEMA:
        age, way = ("newer", "take a newer Eunomia") if version > SCHEMA else ("older", "finish it with the older one")
        rule = f"a journal must be of version {OLDEST_READ} to {SCHEMA}; this one is {age}: {way}, or move it away to"
        raise InputError(f"{rule} begin anew", value=str(version), place=str(path))


def bring_up(database: sqlite3.Connection) -> None:
    """Make the tables, or bring those of an older version up to this one; all or nothing."""
    version = version_of(database)
    script = _TABLES_1 if version == 0 else ""
    script += _FROM_1_TO_2 if version < 2 else ""
    if script:
        told = f"INSERT INTO schema_versions VALUES ({SCHEMA}, {time.time()!r});"
        versions = f"PRAGMA user_version={SCHEMA}; PRAGMA application_id={APPLICATION_ID};"
        database.executescript(f"BEGIN; {script} {told} {versions} COMMIT;")
