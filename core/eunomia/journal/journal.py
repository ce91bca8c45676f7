"""The arbiter's journal: every step with its events and decision, and from time to time the whole state.

An SQLite file in WAL mode. A step is written in one transaction, ``synchronous=FULL``: once ``append`` returns, the
step survives the process and the machine, so an order that leaves afterwards is never unknown to the next arbiter. It
costs one fsync a step, which is what an arbiter of a few steps a second can pay.

State is the last checkpoint and the fold of the steps after it (``eunomia.journal.recovery``). One arbiter writes; any
number of readers (``read_journal``) may look on. Writer and readers need no clean end: SQLite drops what was half
written.

Steps that no kept checkpoint needs leave the file a segment at a time: into an archive next to it, or for good
(``Retention``). SQLite uses their pages again, so the file stops growing and never has to be rewritten. All tables and
their columns stand in docs/reference/journal.md.
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
    bring_up,
    check_pages,
    check_version,
    columns_of,
    looking_at,
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One step as read from the journal.

    Attributes:
        number: counts from 1.
        now: the arbiter's clock, in seconds.
        at: Unix time.
        events: as they were folded in.
        decision: what came of it.
        uptime: seconds since the machine's start, whatever its clock says; None: not known.
    """

    number: int
    now: Seconds
    at: float
    events: tuple[Event, ...]
    decision: Decision
    uptime: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedState:
    """A checkpoint: ``state`` is what ``Arbiter.save`` returned after step ``after_step``; ``at``: Unix time."""

    after_step: int
    at: float
    state: bytes


class _Tables:
    """The reading methods that the reader and the writer of a journal share."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def steps(self, after: int = 0, *, archived: bool = True) -> Iterator[Step]:
        """Yield the steps with larger numbers than ``after``, oldest first.

        Args:
            after: a step's number.
            archived: whether to begin with the steps that stand in the archive.

        Raises:
            InputError: a step that cannot be read; it is named.
        """
        before = None
        with reading(self.path):
            for row in self._all_rows(after) if archived else self._rows("id > ? ORDER BY id", after):
                check_follows(row, before, self.path)
                yield _step(row, self.path)
                before = row

    @property
    def first_step(self) -> int:
        """Number of the oldest step in the archive or the file; 1 if no step was dropped."""
        with reading(self.path):
            dropped = [last for (_, last), file in self._segments() if file is None]
        return max(dropped, default=0) + 1

    @property
    def last_step(self) -> int:
        """Number of the last step; 0: the journal has no step."""
        written = "SELECT seq FROM sqlite_sequence WHERE name = 'steps' AND typeof(seq) = 'integer'"
        with reading(self.path):
            query = f"SELECT max(coalesce((SELECT max(id) FROM steps), 0), coalesce(({written}), 0))"
            (number,) = self._database.execute(query).fetchone()
        return int(number)

    @property
    def reached(self) -> Reached:
        """How far the journal is written."""
        with reading(self.path):
            noted = counted(self._database)
        return Reached(self.last_step, self.sum_of(self.last_step), None if noted is None else noted.writes)

    def sum_of(self, number: int) -> int | None:
        """Return the checksum of a step of the file; None: the step is not there."""
        with reading(self.path):
            found = None if self._version < 2 else self._database.execute(_SUM, (number,)).fetchone()
        return None if found is None else found[0]

    @property
    def meta(self) -> dict[str, Json]:
        """Return the journal's settings, such as cluster, profile and seed, without the rows that ``damage`` lists."""
        with reading(self.path):
            return {key: value for (key,), value in whole(self._database, META) if key != NOTES}

    def notes(self, kind: str) -> dict[str, Json]:
        """Return notes of a kind by key, in the order of their first writing, without those that ``damage`` lists."""
        with reading(self.path):
            return {key: value for (of, key), value in whole(self._database, NOTED) if of == kind}

    def note_of(self, kind: str, key: str) -> Json | None:
        """Return one note; None: the note is missing or damaged."""
        with reading(self.path):
            return next((value for _, value in whole(self._database, NOTED, (kind, key))), None)

    def damage(self) -> Damage:
        """Check each row of notes, settings and segments for damage."""
        with reading(self.path):
            return damage_of(self._database)

    def check_pages(self) -> None:
        """Refuse a file in which SQLite itself finds damage.

        Raises:
            InputError: with the way out.
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
        query = f"SELECT {columns_of(version)} FROM steps WHERE {where}"
        for values_of_row in self._database.execute(query, values):
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
        """Yield archived rows, then rows of the file; reads again if a segment moves to the archive meanwhile."""
        reached = after
        while True:
            for row in self._archived(reached):
                reached = row.id
                yield row
            for row in self._rows("id > ? ORDER BY id", reached):
                if row.id > reached + 1 and self._is_archived(reached + 1):
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

    def _is_archived(self, number: int) -> bool:
        return any(first <= number <= last and file is not None for (first, last), file in self._segments())


class JournalReader(_Tables):
    """Reads a journal, also while an arbiter writes it; see ``read_journal``."""

    @contextlib.contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Give all reads within the block the same state of the journal."""
        with reading(self.path):
            self._database.execute("BEGIN")
        try:
            yield
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")


class Journal(_Tables):
    """Writes a journal; only one arbiter may hold it, and only one thread may use it. See ``Journal.open``."""

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
            path: the file.
            durable: False spares the fsync of each step: a step may be lost with the machine's power, never with the
                process. For tests and simulations.
            retention: what becomes of old steps.

        Raises:
            InputError: another arbiter holds it, its folder cannot be written, it is of another version, or it is no
                readable journal.
        """
        path = Path(path)
        lock = locked(path)
        try:
            with reading(path):
                path.touch(mode=0o600)
                database = prepare(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
                check_version(database, path, may_be_new=True)
                database.execute("PRAGMA journal_mode=WAL")
                database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                database.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
                database.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
                bring_up(database)
        except BaseException:
            lock.close()
            raise
        return cls(database, path, lock, retention)

    def close(self) -> None:
        """Close the file, so that the next arbiter can open it."""
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
            events: that were folded in; compound events are written as the events that they stand for.
            decision: as ``Arbiter.step`` returned it.
            at: Unix time; None: of this moment.
            notes: each replaces an earlier one of its kind and key.

        Returns:
            The step's number.

        Raises:
            JournalWriteError: the disk refuses; nothing was written, and the same call may be made again.
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
        """Write notes without a step."""
        with self.transaction() as database:
            write_notes(database, notes)

    def set_meta(self, **values: Json) -> None:
        """Write settings of the whole journal."""
        with self.transaction() as database:
            for key, value in values.items():
                write_meta(database, key, as_json(value))
        self.empty_log()

    def empty_log(self) -> None:
        """Move SQLite's write-ahead log into the file, unless a reader or the disk prevents that.

        A damaged frame of the log ends it for SQLite, which drops the transactions after it without an error.
        """
        with contextlib.suppress(sqlite3.OperationalError):
            self._database.execute("PRAGMA busy_timeout=0")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._database.execute("PRAGMA busy_timeout=5000")

    def checkpoint(self, state: bytes) -> None:
        """Store the state after the last step, and delete checkpoints and steps that are no longer needed.

        Args:
            state: of ``Arbiter.save``.

        Raises:
            JournalWriteError: the disk refuses the checkpoint. Where it refuses the archive, the steps stay.
        """
        with self.transaction() as database:
            after_step, (at, _) = self.last_step, self.moment()
            values = (after_step, at, state, checkpoint_sum(after_step, at, state))
            database.execute(
                "INSERT OR REPLACE INTO checkpoints (after_step, at, state, crc) VALUES (?, ?, ?, ?)", values
            )
            kept = "SELECT after_step FROM checkpoints ORDER BY after_step DESC LIMIT ?"
            database.execute(f"DELETE FROM checkpoints WHERE after_step NOT IN ({kept})", (CHECKPOINTS_KEPT,))
        try:
            self._retain()
        except (JournalWriteError, OSError) as error:
            log.warning("journal.archive_failed", why=str(error))
        self.empty_log()

    def _retain(self) -> None:
        """Archive or delete segments of steps that lie before all kept checkpoints."""
        length = self._retention.segment_steps
        while self._retention.keep is not Keep.ALL:
            query = "SELECT (SELECT min(id) FROM steps), (SELECT min(after_step) FROM checkpoints)"
            first, needed_after = self._database.execute(query).fetchone()
            last = None if first is None else first + length - 1
            if last is None or needed_after is None or last > needed_after or last >= self.last_step:
                return  # the last step stays in any case: it holds the time
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
        """Return Unix time and seconds since the machine's start, as timestamps of the next row.

        A journal in simulated time overrides it.
        """
        return time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit everything written within the block, or nothing.

        Raises:
            JournalWriteError: the disk refuses.
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
        InputError: there is none, it is of another version, or it cannot be read.
    """
    path = Path(path)
    if not os.path.isfile(path):  # noqa: PTH113 - also under a name that no disk takes
        raise InputError("a journal must exist to be read", value="no such file", place=str(path))
    with reading(path):
        database = looking_at(path)
        check_version(database, path, may_be_new=False)
    return JournalReader(database, path)


def read_step(row: Row, path: Path, version: int) -> Step:
    """Decode a step of a file of this version.

    Raises:
        InputError: it is not as it was written, or cannot be read.
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
