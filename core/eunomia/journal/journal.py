"""The arbiter's journal: every step with its events and decision, and periodic checkpoints of the whole state.

The journal is an SQLite file in WAL mode, which needs memory that all readers share; next to a file ``SHARED`` it has a
rollback journal. Each step is written in one transaction with ``synchronous=FULL``: once ``append`` returns, the step
survives a crash of process or machine, so a restarted arbiter recovers every order that was sent after that.

The state is the last checkpoint plus the replay of the steps after it (``eunomia.journal.recovery``). One arbiter
writes, any number of readers (``read_journal``) may read. SQLite rolls back transactions that a process did not finish.

Steps that no kept checkpoint needs are moved by segment to an archive next to the file, or deleted (``Retention``).
SQLite reuses their pages, so the file stops growing. Tables and columns are listed in docs/reference/journal.md.
"""

import contextlib
import dataclasses
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Self

import structlog

from eunomia.contract.codec import Json, decode, encode
from eunomia.contract.decisions import Decision
from eunomia.contract.event_order import expanded
from eunomia.contract.events import AppArrived, Event
from eunomia.errors import InputError
from eunomia.journal.files import (
    ARCHIVE,
    DEFAULT_RETENTION,
    SHARED,
    JournalWriteError,
    Keep,
    Retention,
    Row,
    locked,
    read_segment,
    reading,
    segment_name,
    write_segment,
    writing,
)
from eunomia.journal.schema import (
    CACHE_KIB,
    WAL_BYTES,
    check_pages,
    check_version,
    columns_of,
    migrate,
    opened_to_read,
    prepare,
    version_of,
)
from eunomia.journal.sums import (
    NOTES,
    UNREADABLE,
    as_json,
    check_follows,
    check_row,
    checkpoint_sum,
    is_checkpoint_whole,
    row_sum,
    write_meta,
)
from eunomia.journal.values import (
    META,
    NOTED,
    Damage,
    Note,
    Reached,
    counted,
    damage_of,
    name_of,
    segment_rows,
    whole,
    write_notes,
    write_step,
)
from eunomia.units import Seconds

log = structlog.get_logger()

CHECKPOINTS_KEPT = 2
_SUM = "SELECT crc FROM steps WHERE id = ?"
_FIRST_AND_NEEDED = "SELECT (SELECT min(id) FROM steps), (SELECT min(after_step) FROM checkpoints)"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One step as read from the journal.

    Attributes:
        number: number of the step, from 1.
        now: the arbiter's clock, in seconds.
        at: Unix time, in seconds.
        events: the events of the step, in the order in which they were applied.
        decision: the decision that the step returned.
        uptime: seconds since the machine was booted, independent of its clock; None: not known.
    """

    number: int
    now: Seconds
    at: float
    events: tuple[Event, ...]
    decision: Decision
    uptime: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedState:
    """A checkpoint: the bytes that ``Arbiter.save`` returned after step ``after_step``, at Unix time ``at``."""

    after_step: int
    at: float
    state: bytes


class _Tables:
    """The read methods shared by the reader and the writer of a journal."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the journal's file."""
        self._database.close()

    def steps(self, after: int = 0, *, archived: bool = True) -> Iterator[Step]:
        """Yield the steps after number ``after``, oldest first.

        Args:
            after: number of a step; 0: all steps.
            archived: whether to include the steps in the archive.

        Raises:
            InputError: a step cannot be read; the error names it.
        """
        before = None
        with reading(self.path):
            for row in self._all_rows(after) if archived else self._rows("id > ? ORDER BY id", after):
                check_follows(row, before, self.path)
                yield _step(row, self.path)
                before = row

    @property
    def first_step(self) -> int:
        """Return the number of the oldest step in the archive or the file; 1 if no step was deleted."""
        with reading(self.path):
            dropped = [last for (_, last), file in self._segments() if file is None]
        return max(dropped, default=0) + 1

    @property
    def last_step(self) -> int:
        """Return the number of the last step; 0 if the journal has no steps."""
        written = "SELECT seq FROM sqlite_sequence WHERE name = 'steps' AND typeof(seq) = 'integer'"
        with reading(self.path):
            query = f"SELECT max(coalesce((SELECT max(id) FROM steps), 0), coalesce(({written}), 0))"
            (number,) = self._database.execute(query).fetchone()
        return int(number)

    @property
    def reached(self) -> Reached:
        """Return the position up to which the journal is written."""
        with reading(self.path):
            noted = counted(self._database)
        return Reached(self.last_step, self.sum_of(self.last_step), None if noted is None else noted.writes)

    def sum_of(self, number: int) -> int | None:
        """Return the checksum of a step in the file, or None if the file does not contain the step."""
        with reading(self.path):
            found = None if self._version < 2 else self._database.execute(_SUM, (number,)).fetchone()
        return None if found is None else found[0]

    @property
    def meta(self) -> dict[str, Json]:
        """Return the journal's settings, such as cluster, profile and seed, without damaged rows (see ``damage``)."""
        with reading(self.path):
            return {key: value for (key,), value in whole(self._database, META) if key != NOTES}

    def notes(self, kind: str) -> dict[str, Json]:
        """Return the notes of a kind by key, in order of first writing, without damaged ones (see ``damage``)."""
        with reading(self.path):
            return {key: value for (of, key), value in whole(self._database, NOTED) if of == kind}

    def note_of(self, kind: str, key: str) -> Json | None:
        """Return one note, or None if it is missing or damaged."""
        with reading(self.path):
            return next((value for _, value in whole(self._database, NOTED, (kind, key))), None)

    def last_notes(self, kind: str, before: int, most: int) -> list[tuple[int, str]]:
        """Return row number and key of at most ``most`` notes of a kind before row ``before``, the last row first."""
        query = "SELECT rowid, key FROM notes WHERE kind = ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"
        with reading(self.path):
            return self._database.execute(query, (kind, before, most)).fetchall()

    def damage(self) -> Damage:
        """Verify the rows of notes, settings and segments, and return the damage found."""
        with reading(self.path):
            return damage_of(self._database)

    def check_pages(self) -> None:
        """Run SQLite's own integrity check on the file.

        Raises:
            InputError: the file is damaged; the error gives a remedy.
        """
        check_pages(self._database, self.path)

    def checkpoints(self) -> Iterator[SavedState]:
        """Yield undamaged checkpoints, newest first; a damaged checkpoint is logged and skipped."""
        version = self._version
        crc = "crc" if version > 1 else "NULL"
        query = f"SELECT after_step, at, state, {crc} FROM checkpoints ORDER BY after_step DESC"
        with reading(self.path):
            for after_step, at, state, sum_ in self._database.execute(query).fetchall():
                if is_checkpoint_whole(after_step, at, state, sum_, version):
                    yield SavedState(after_step=after_step, at=at, state=bytes(state))
                else:
                    log.error("checkpoint.corrupt", after_step=after_step, journal=str(self.path))

    @property
    def _version(self) -> int:
        return version_of(self._database)

    def _rows(self, where: str, *values: int) -> Iterator[Row]:
        version = self._version
        for values_of_row in self._database.execute(f"SELECT {columns_of(version)} FROM steps WHERE {where}", values):
            row = Row(*values_of_row)
            check_row(row, self.path, version)
            yield row

    def _segments(self) -> list[tuple[tuple[int, int], str | None]]:
        for first, _, _, good in segment_rows(self._database):
            if not good:
                rule = "a journal's segments must be as they were written"
                raise InputError(rule, value=f"segment {name_of(first)}", place=str(self.path))
        return [((first, last), file) for first, last, file, _ in segment_rows(self._database)]

    def _all_rows(self, after: int) -> Iterator[Row]:
        """Yield archived rows, then rows of the file; retry if a segment is moved to the archive in between."""
        reached = after
        while True:
            for row in self._archived(reached):
                reached = row.id
                yield row
            for row in self._rows("id > ? ORDER BY id", reached):
                if row.id > reached + 1 and any(
                    file is not None and first <= reached + 1 <= last for (first, last), file in self._segments()
                ):
                    break
                reached = row.id
                yield row
            else:
                return

    def _archived(self, after: int) -> Iterator[Row]:
        for (_, last), file in self._segments():
            if last > after and file is not None:
                for row in read_segment(self.path.parent / file):
                    check_row(row, self.path, None)
                    if row.id > after:
                        yield row


class JournalReader(_Tables):
    """A read-only journal, which an arbiter may be writing at the same time; see ``read_journal``."""

    @contextlib.contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Let all reads within the block return one consistent snapshot of the journal."""
        with reading(self.path):
            self._database.execute("BEGIN")
        try:
            yield
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")


class Journal(_Tables):
    """A journal open for writing, by only one arbiter and one thread at a time; see ``Journal.open``."""

    def __init__(
        self, database: sqlite3.Connection, path: Path, lock: IO[str], retention: Retention = DEFAULT_RETENTION
    ) -> None:
        super().__init__(database, path)
        self._lock = lock
        self._retention = retention

    @classmethod
    def open(cls, path: Path | str, *, durable: bool = True, retention: Retention = DEFAULT_RETENTION) -> Self:
        """Open a journal for writing, or create it with mode 0600; a new folder gets mode 0700.

        Args:
            path: path of the file.
            durable: False: no fsync per step, for tests and simulations; a power failure may then lose steps, but a
                crash of the process does not.
            retention: what happens to old steps.

        Raises:
            InputError: another arbiter holds the journal, its folder is not writable, it has another version, or it
                cannot be read.
        """
        path = Path(path)
        lock = locked(path)
        try:
            with reading(path):
                path.touch(mode=0o600)
                database = prepare(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
                check_version(database, path, may_be_new=True)
                database.execute(f"PRAGMA journal_mode={'TRUNCATE' if (path.parent / SHARED).exists() else 'WAL'}")
                database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                database.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
                database.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
                migrate(database)
        except BaseException:
            lock.close()
            raise
        return cls(database, path, lock, retention)

    def close(self) -> None:
        """Close the file and release the lock, so that another arbiter can open it."""
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
        """Write a step, and notes of the driver, in one transaction.

        Args:
            now: the arbiter's clock, in seconds.
            events: the events of the step; compound events are written as the events that they combine.
            decision: the decision that ``Arbiter.step`` returned.
            at: Unix time in seconds; None: the present time.
            notes: notes to write; each replaces an earlier one of the same kind and key.

        Returns:
            The number of the step.

        Raises:
            JournalWriteError: the write failed; nothing was written, and the same call may be retried.
        """
        written_at, up = self.moment()
        texts = (as_json([encode(event) for event in expanded(events)]), as_json(encode(decision)))
        with self.transaction() as database:
            last = self.last_step
            columns = (float(now), float(written_at if at is None else at), *texts, up, None, self.sum_of(last))
            row = Row(last + 1, *columns)
            write_step(database, row)
            write_notes(database, notes)
        if any(isinstance(event, AppArrived) for event in events):
            self.empty_log()
        return row.id

    def note(self, *notes: Note) -> None:
        """Write notes without a step; raise ``JournalWriteError`` as ``append`` does."""
        with self.transaction() as database:
            write_notes(database, notes)

    def set_meta(self, **values: Json) -> None:
        """Write settings of the whole journal; raise ``JournalWriteError`` as ``append`` does."""
        with self.transaction() as database:
            for key, value in values.items():
                write_meta(database, key, as_json(value))
        self.empty_log()

    def empty_log(self) -> None:
        """Transfer SQLite's write-ahead log into the file, unless a reader or a failed write prevents it.

        A short log limits the loss: SQLite silently drops all transactions after a damaged frame of the log.
        """
        with contextlib.suppress(sqlite3.OperationalError):
            self._database.execute("PRAGMA busy_timeout=0")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._database.execute("PRAGMA busy_timeout=5000")

    def checkpoint(self, state: bytes) -> None:
        """Store the state after the last step, and remove checkpoints and steps that are no longer needed.

        Args:
            state: the bytes returned by ``Arbiter.save``.

        Raises:
            JournalWriteError: the checkpoint was not written. If only archiving fails, the old steps stay.
        """
        with self.transaction() as database:
            after_step, (at, _) = self.last_step, self.moment()
            values = (after_step, at, state, checkpoint_sum(after_step, at, state))
            database.execute("INSERT OR REPLACE INTO checkpoints (after_step, at, state, crc) VALUES (?,?,?,?)", values)
            kept = "SELECT after_step FROM checkpoints ORDER BY after_step DESC LIMIT ?"
            database.execute(f"DELETE FROM checkpoints WHERE after_step NOT IN ({kept})", (CHECKPOINTS_KEPT,))
        try:
            self._retain()
        except (JournalWriteError, OSError) as error:
            log.warning("journal.archive_failed", why=str(error))
        self.empty_log()

    def _retain(self) -> None:
        """Archive or delete the segments of steps before all kept checkpoints."""
        length = self._retention.segment_steps
        while self._retention.keep is not Keep.ALL:
            first, needed_after = self._database.execute(_FIRST_AND_NEEDED).fetchone()
            last = None if first is None else first + length - 1
            if last is None or needed_after is None or last > needed_after or last >= self.last_step:
                return  # the last step always stays: it stores the time
            self._close_segment(first, last)

    def _close_segment(self, first: int, last: int) -> None:
        file = None
        if self._retention.keep is Keep.ARCHIVE:
            file = f"{self.path.stem}{ARCHIVE}/{segment_name(first, last)}"
            write_segment(self.path.parent / file, self._rows("id BETWEEN ? AND ? ORDER BY id", first, last))
        segment = (first, last, self.moment()[0], file)
        with self.transaction() as database:
            database.execute("INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?)", (*segment, row_sum(*segment)))
            database.execute("DELETE FROM steps WHERE id BETWEEN ? AND ?", (first, last))

    def moment(self) -> tuple[float, float]:
        """Return the timestamps of the next row: Unix time, and seconds since the machine was booted.

        A journal in simulated time overrides this method.
        """
        return time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit the writes within the block atomically.

        Raises:
            JournalWriteError: the write failed.
        """
        with writing(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            finally:
                if self._database.in_transaction:  # SQLite has ended it itself after some errors
                    self._database.execute("ROLLBACK")


def read_journal(path: Path | str) -> JournalReader:
    """Open a journal for reading, whether or not an arbiter holds it.

    Raises:
        InputError: the journal does not exist, has another version, or cannot be read.
    """
    path = Path(path)
    if not os.path.isfile(path):  # noqa: PTH113 - False for an invalid name too
        raise InputError("a journal must exist to be read", value="no such file", place=str(path))
    with reading(path):
        database = opened_to_read(path)
        check_version(database, path, may_be_new=False)
    return JournalReader(database, path)


def read_step(row: Row, path: Path, version: int) -> Step:
    """Decode a row of ``steps`` from a file of a given version.

    Raises:
        InputError: the row was changed after it was written, or cannot be decoded.
    """
    check_row(row, path, version)
    return _step(row, path)


def _step(row: Row, path: Path) -> Step:
    try:
        return Step(
            number=row.id,
            now=Seconds(row.now),
            at=row.at,
            events=tuple(decode(event) for event in json.loads(row.events)),
            decision=decode(json.loads(row.decision)),
            uptime=row.uptime,
        )
    except (*UNREADABLE, InputError) as error:
        value = f"step {row.id}: {error}"
        raise InputError("a journal's steps must be readable", value=value, place=str(path)) from error
