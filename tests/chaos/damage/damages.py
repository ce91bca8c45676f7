"""One damage to a journal's file: a letter, a type, a row, or bytes of the file."""

import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

TABLES: Final = ("steps", "checkpoints", "notes", "notes", "meta", "meta", "segments", "sqlite_sequence")
"""The two small tables that hold the most are drawn twice as often."""
MOST_BYTES: Final = 16


def damage(path: Path, seed: int) -> str:
    """Do one damage, and say which; what the tables do not take is drawn again."""
    chance = random.Random(seed)
    while True:
        kind = chance.choice(sorted(KINDS))
        table = chance.choice(TABLES)
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as database:
                where = KINDS[kind](database, table, chance) if kind != "bytes" else None
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (sqlite3.IntegrityError, LookupError):
            continue
        return f"{kind}: {where or _bytes(path, chance)}"


def _bytes(path: Path, chance: random.Random) -> str:
    content = bytearray(path.read_bytes())
    start, count = chance.randrange(len(content)), chance.randint(1, MOST_BYTES)
    content[start : start + count] = chance.randbytes(len(content[start : start + count]))
    path.write_bytes(bytes(content))
    return f"{count} bytes from {start}"


def _drawn(database: sqlite3.Connection, table: str, chance: random.Random) -> tuple[int, str, Any]:
    """Row, column and value of a cell."""
    rows = [row for (row,) in database.execute(f"SELECT rowid FROM {table}")]
    row = chance.choice(rows)
    column = chance.choice([str(name) for _, name, *_ in database.execute(f"PRAGMA table_info({table})")])
    ((value,),) = database.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,))
    return row, column, value


def _put(database: sqlite3.Connection, table: str, row: int, column: str, value: Any) -> str:
    database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))
    return f"{column} of row {row} of {table}"


def _letter(database: sqlite3.Connection, table: str, chance: random.Random) -> str:
    row, column, value = _drawn(database, table, chance)
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    at = chance.randrange(len(text))
    letter = chance.choice([one for one in '0123456789abcxyz{}[]",:' if one != text[at]])
    if isinstance(value, int | float):
        letter = chance.choice([one for one in "0123456789" if one != text[at]])
    made: Any = text[:at] + letter + text[at + 1 :]
    return _put(database, table, row, column, made.encode("latin-1") if isinstance(value, bytes) else made)


def _type(database: sqlite3.Connection, table: str, chance: random.Random) -> str:
    row, column, value = _drawn(database, table, chance)
    others = [4711, 0.25, "word", b"\xff\x00bytes", str(value).encode()]
    return _put(database, table, row, column, chance.choice([one for one in others if type(one) is not type(value)]))


def _null(database: sqlite3.Connection, table: str, chance: random.Random) -> str:
    row, column, _ = _drawn(database, table, chance)
    return _put(database, table, row, column, None)


def _cut(database: sqlite3.Connection, table: str, chance: random.Random) -> str:
    row, column, value = _drawn(database, table, chance)
    text = value if isinstance(value, bytes) else str(value)
    return _put(database, table, row, column, text[: chance.randrange(len(text))])


def _delete(database: sqlite3.Connection, table: str, chance: random.Random) -> str:
    row, *_ = _drawn(database, table, chance)
    database.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
    return f"row {row} of {table}"


def _twice(database: sqlite3.Connection, table: str, chance: random.Random) -> str:
    """A row once more, under another key where the table asks for one."""
    row, *_ = _drawn(database, table, chance)
    ((*values,),) = database.execute(f"SELECT * FROM {table} WHERE rowid = ?", (row,))
    place = 1 if table == "notes" else 0
    if table != "sqlite_sequence":
        values[place] = f"{values[place]}x" if isinstance(values[place], str) else _next(database, table)
    database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    return f"row {row} of {table}"


def _next(database: sqlite3.Connection, table: str) -> int:
    ((last,),) = database.execute(f"SELECT max(rowid) FROM {table}")
    return int(last) + 1


KINDS: Final[Mapping[str, Callable[[sqlite3.Connection, str, random.Random], str]]] = {
    "bytes": _letter,  # done to the file itself
    "cut": _cut,
    "letter": _letter,
    "null": _null,
    "row deleted": _delete,
    "row twice": _twice,
    "type": _type,
}
