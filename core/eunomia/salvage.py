"""``python -m eunomia.salvage JOURNAL``: what is good of a damaged journal, into a new file; the old one is kept.

Steps after the first damaged one are lost. The arbiter that goes on from the new file finds that the machines have seen
later orders than it knows, ends what runs there, and grants nothing before that is confirmed.
"""

import argparse
import dataclasses
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from eunomia.errors import EunomiaError, InputError
from eunomia.journal import Journal, SavedState, check_row
from eunomia.journal_files import Row, locked, reading
from eunomia.journal_schema import check_version, version_of

TABLES = ("meta", "notes", "segments")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What was saved.

    Attributes:
        last: the last good step, with which the new journal ends.
        lost: steps after it.
        kept_as: where the damaged file is now.
    """

    last: int
    lost: int
    kept_as: Path


def salvage(path: Path) -> Salvaged:
    """Write a journal anew from its newest whole checkpoint and the good steps around it.

    Raises:
        InputError: an arbiter holds it, or there is nothing to go on from; nothing was changed.
    """
    lock = locked(path)
    fresh = path.with_name(f"{path.name}.salvaged")
    try:
        _remove(fresh)
        with reading(path):
            damaged = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
            check_version(damaged, path, may_be_new=False)
            try:
                last, end = _copy(damaged, path, fresh)
            finally:
                damaged.close()
        return Salvaged(last=last, lost=max(0, end - last), kept_as=_swap(path, fresh))
    finally:
        _remove(fresh)
        lock.close()


def _copy(damaged: sqlite3.Connection, path: Path, fresh: Path) -> tuple[int, int]:
    """Return the last good step, and the last there was."""
    version = version_of(damaged)
    saved = _checkpoint(damaged, version)
    base = 0 if saved is None else saved.after_step
    after = _good(damaged, path, version, base)
    before = _good(damaged, path, version, base, backwards=True)
    rows = [*reversed(list(before)), *after]
    if saved is None and (not rows or rows[0].id != 1):
        rule = "a journal must have a whole checkpoint, or all its steps from the first on, to be saved"
        raise InputError(f"{rule}; restore a backup, or move it away to begin anew", value="neither", place=str(path))
    (end,) = damaged.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()
    with Journal.open(fresh) as journal:
        _write(journal, damaged, version, rows, saved)
    Path(f"{fresh}.lock").unlink(missing_ok=True)
    return max([base, *(row.id for row in rows)]), int(end or 0)


def _checkpoint(damaged: sqlite3.Connection, version: int) -> SavedState | None:
    crc = "crc" if version > 1 else "NULL"
    (count,) = damaged.execute("SELECT count(*) FROM checkpoints").fetchone()
    for place in range(count):
        query = f"SELECT after_step, at, state, {crc} FROM checkpoints ORDER BY after_step DESC LIMIT 1 OFFSET {place}"
        try:
            after_step, at, state, sum_ = damaged.execute(query).fetchone()
        except sqlite3.DatabaseError:
            continue
        if sum_ is None or sum_ == zlib.crc32(state):
            return SavedState(after_step=after_step, at=at, state=bytes(state))
    return None


def _good(
    damaged: sqlite3.Connection, path: Path, version: int, base: int, *, backwards: bool = False
) -> Iterator[Row]:
    """Yield steps one after the other, from a checkpoint away, up to the first that is not good."""
    more = "uptime, crc" if version > 1 else "NULL, NULL"
    query = f"SELECT id, now, at, events, decision, {more} FROM steps WHERE id = ?"
    number = base if backwards else base + 1
    while number > 0:
        try:
            found = damaged.execute(query, (number,)).fetchone()
            if found is None:
                return
            check_row(Row(*found), path)
        except (sqlite3.DatabaseError, InputError):
            return
        yield Row(*found)
        number += -1 if backwards else 1


def _write(
    journal: Journal, damaged: sqlite3.Connection, version: int, rows: list[Row], saved: SavedState | None
) -> None:
    with journal.transaction() as database:
        for table in TABLES if version > 1 else TABLES[:2]:
            for values in damaged.execute(f"SELECT * FROM {table}"):
                marks = ", ".join("?" * len(values))
                database.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)
        columns = "(id, now, at, events, decision, uptime, crc)"
        database.executemany(f"INSERT INTO steps {columns} VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        if saved is not None:
            values = (saved.after_step, saved.at, saved.state, zlib.crc32(saved.state))
            database.execute("INSERT INTO checkpoints (after_step, at, state, crc) VALUES (?, ?, ?, ?)", values)
            if not rows:  # the next step has the number that follows the checkpoint's
                database.execute("INSERT INTO sqlite_sequence VALUES ('steps', ?)", (saved.after_step,))


def _swap(path: Path, fresh: Path) -> Path:
    """Put the new file in the damaged one's place, which keeps its own files under another name."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    kept = path.with_name(f"{path.stem}.damaged-{stamp}{path.suffix}")
    for end in ("-wal", "-shm", ""):
        beside = path.with_name(path.name + end)
        if beside.exists():
            beside.rename(kept.with_name(kept.name + end))
    fresh.rename(path)
    return kept


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm", ".lock"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def main() -> int:
    """Save what is good."""
    options = argparse.ArgumentParser(prog="python -m eunomia.salvage", description=__doc__)
    options.add_argument("journal", type=Path)
    path: Path = options.parse_args().journal
    try:
        done = salvage(path)
    except EunomiaError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    lost = f"{done.lost} steps after it are lost" if done.lost else "nothing after it was lost"
    sys.stdout.write(f"{path} is good up to step {done.last}; {lost}. The old file is kept as {done.kept_as}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
