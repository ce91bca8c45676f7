"""The journal on disks that are full, read-only or damaged; its segments; journals of version 1; what can be saved."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, JobAdded, Started
from eunomia.errors import InputError
from eunomia.journal.files import JournalWriteError, Keep, Retention
from eunomia.journal.journal import Journal, read_journal
from eunomia.journal.recovery import recover
from eunomia.journal.sums import checkpoint_sum, row_sum, step_sum
from eunomia.journal.values import Note
from eunomia.model.cluster import Cluster, Machine
from eunomia.platform.profiles import Profile
from eunomia_appmaster.service.salvage import salvage

ROOT = Path(__file__).parent.parent.parent
CLUSTER = Cluster.build([Machine(name="a", gpu_type="cpu", gpus=4)], place="test")
SMALL = Retention(segment_steps=3)


def arbiter() -> Arbiter:
    stages = Profile.fallback().stages(CLUSTER)
    return Arbiter(CLUSTER, stages, stages)


def live(journal: Journal, steps: int, checkpoint_every: int = 1000) -> Arbiter:
    """An arbiter that makes some steps; one job comes and starts."""
    made = arbiter()
    recover(made, journal)
    first = journal.last_step + 1
    for number in range(first, first + steps):
        events = [AppArrived(app="a", user="ana"), JobAdded(job="a/1", app="a")] if number == 1 else []
        if number == 3:
            events = [Started(lease=1, epoch=1)]  # type: ignore[list-item]
        decision = made.step(float(number), events)
        journal.append(float(number), events, decision)
        if number % checkpoint_every == 0:
            journal.checkpoint(made.save())
    return made


def recovered(path: Path) -> Arbiter:
    with Journal.open(path) as journal:
        made = arbiter()
        recover(made, journal)
        return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


# --- segments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", Keep)
def test_old_steps_leave_the_file_and_recovery_gives_the_same_state(path: Path, keep: Keep) -> None:
    with Journal.open(path, durable=False, retention=Retention(keep=keep, segment_steps=3)) as journal:
        made = live(journal, 20, checkpoint_every=2)
    with read_journal(path) as reader:
        in_file = [step.number for step in reader.steps(archived=False)]
        numbers = [step.number for step in reader.steps()]
        first = reader.first_step
    assert in_file == list(range(1 if keep is Keep.ALL else 19 - (18 % 3), 21))
    assert numbers == list(range(1 if keep is not Keep.DROP else first, 21))
    assert first == (in_file[0] if keep is Keep.DROP else 1)
    assert recovered(path).save() == made.save()


def test_with_old_steps_dropped_the_file_stops_growing(path: Path) -> None:
    sizes = []
    with Journal.open(path, durable=False, retention=Retention(keep=Keep.DROP, segment_steps=20)) as journal:
        for _ in range(6):
            live(journal, 60, checkpoint_every=10)
            journal._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            sizes.append(path.stat().st_size)
    assert max(sizes[2:]) == min(sizes[2:])


def test_an_archived_segment_is_read_by_its_name_and_refused_if_it_is_damaged(path: Path) -> None:
    with Journal.open(path, durable=False, retention=SMALL) as journal:
        live(journal, 9, checkpoint_every=2)
    (segment, *_) = sorted((path.parent / "journal.archive").iterdir())
    assert segment.name == "000000001-000000003.jsonl.gz"
    assert segment.stat().st_mode & 0o077 == 0
    segment.write_bytes(segment.read_bytes()[:-9])
    with read_journal(path) as reader, pytest.raises(InputError, match="archived segment of a journal must be there"):
        list(reader.steps())
    recovered(path)  # which needs none of it


def test_steps_stay_in_the_journal_while_the_archive_cannot_be_written(path: Path) -> None:
    (path.parent / "journal.archive").write_text("in the way")
    with Journal.open(path, durable=False, retention=SMALL) as journal:
        live(journal, 9, checkpoint_every=2)
        assert [step.number for step in journal.steps()] == list(range(1, 10))
        (path.parent / "journal.archive").unlink()
        live(journal, 2, checkpoint_every=2)
        assert [step.number for step in journal.steps(archived=False)] == [7, 8, 9, 10, 11]
        assert [step.number for step in journal.steps()] == list(range(1, 12))


# --- versions ---------------------------------------------------------------------------------------------------------

VERSION_1 = """
CREATE TABLE steps (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  now REAL NOT NULL, at REAL NOT NULL, events TEXT NOT NULL, decision TEXT NOT NULL
);
CREATE TABLE checkpoints (after_step INTEGER PRIMARY KEY, at REAL NOT NULL, state BLOB NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE notes (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, key));
"""


def test_a_journal_of_version_1_can_be_read_and_is_upgraded_when_written(path: Path, tmp_path: Path) -> None:
    with Journal.open(tmp_path / "new.sqlite", durable=False) as journal:
        made = live(journal, 5, checkpoint_every=3)
    old, new = sqlite3.connect(path), sqlite3.connect(tmp_path / "new.sqlite")
    old.executescript(f"{VERSION_1} PRAGMA user_version=1; PRAGMA application_id={0x45554E4F};")
    old.executemany("INSERT INTO steps VALUES (?,?,?,?,?)", new.execute("SELECT id,now,at,events,decision FROM steps"))
    old.executemany(
        "INSERT INTO checkpoints VALUES (?,?,?)", new.execute("SELECT after_step,at,state FROM checkpoints")
    )
    old.commit()
    old.close()
    new.close()
    with read_journal(path) as reader:
        again = arbiter()
        recover(again, reader)
        assert again.save() == made.save()
        assert [step.uptime for step in reader.steps()] == [None] * 5
        assert reader._version == 1
    assert recovered(path).save() == made.save()
    with read_journal(path) as reader:
        assert reader._version == 5


def test_a_journal_with_uncompressed_checkpoints_is_read_and_gets_compressed_ones(path: Path) -> None:
    with Journal.open(path, durable=False) as journal:
        made = live(journal, 5, checkpoint_every=3)
        saved = next(journal.checkpoints())
    row = (saved.after_step, saved.at, zlib.decompress(saved.state))
    old = sqlite3.connect(path)
    old.execute("INSERT OR REPLACE INTO checkpoints VALUES (?,?,?,?)", (*row, checkpoint_sum(*row)))
    old.execute("PRAGMA user_version=4")
    old.commit()
    old.close()
    with read_journal(path) as reader:
        again = arbiter()
        assert [step.number for step in recover(again, reader)] == [4, 5]
        assert again.save() == made.save()
    with Journal.open(path, durable=False) as journal:
        assert journal._version == 5
        live(journal, 3, checkpoint_every=3)
        sizes = [len(state.state) for state in journal.checkpoints()]
    assert sizes[0] < sizes[1] / 2 == len(row[2]) / 2


# --- damage -----------------------------------------------------------------------------------------------------------


def damage(path: Path, statement: str) -> None:
    database = sqlite3.connect(path)
    database.execute(statement)
    database.commit()
    database.close()


def test_a_checkpoint_that_is_damaged_or_of_another_format_is_skipped(path: Path) -> None:
    with Journal.open(path, durable=False) as journal:
        made = live(journal, 11, checkpoint_every=4)
    damage(path, "UPDATE checkpoints SET state = x'00' WHERE after_step = 8")
    assert recovered(path).save() == made.save()
    damage(path, "UPDATE checkpoints SET crc = NULL, state = CAST('{\"format\": 1}' AS BLOB) WHERE after_step = 4")
    assert recovered(path).save() == made.save()  # from the first step on


def test_without_a_checkpoint_the_journal_must_have_all_steps_from_the_first(path: Path) -> None:
    with Journal.open(path, durable=False, retention=Retention(keep=Keep.DROP, segment_steps=3)) as journal:
        live(journal, 11, checkpoint_every=4)
    damage(path, "DELETE FROM checkpoints")
    with pytest.raises(InputError, match="without its steps 1 to 3 must have a checkpoint that can be read"):
        recovered(path)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE steps SET decision = replace(decision, '\"round\":', '\"round\":1') WHERE id = 10", "step 10"),
        ("DELETE FROM steps WHERE id = 10", "step 11 after 9"),
        ("DELETE FROM steps WHERE id > 9", "must hold its last step, 12; this one ends with step 9"),
    ],
)
def test_a_damaged_step_is_refused_and_salvage_saves_the_good_steps(path: Path, statement: str, told: str) -> None:
    with Journal.open(path, durable=False) as journal:
        journal.set_meta(seed=7)
        live(journal, 9, checkpoint_every=4)
        journal.note(Note(kind="app", key="a", value=1))
        good = recovered_from(journal)
        live(journal, 3)
    damage(path, statement)
    with pytest.raises(InputError) as refused:
        recovered(path)
    assert told in str(refused.value)
    assert "eunomia journal salvage" in str(refused.value)
    before = path.read_bytes()
    done = salvage(path)
    assert (done.last, done.lost) == (9, 3)
    assert done.kept_as.read_bytes() == before
    assert recovered(path).save() == good.save()
    with Journal.open(path, durable=False) as journal:
        assert (journal.meta["seed"], journal.notes("app")) == (7, {"a": 1})
        live(journal, 1)
        assert [step.number for step in journal.steps()] == list(range(1, 11))


def recovered_from(journal: Journal) -> Arbiter:
    made = arbiter()
    recover(made, journal)
    return made


def test_each_step_stores_the_checksum_of_the_step_before_it(path: Path) -> None:
    with Journal.open(path, durable=False) as journal:
        live(journal, 4)
        first = journal.reached
        live(journal, 2)
        assert [row.before for row in journal._rows("1 ORDER BY id")] == [None, *map(journal.sum_of, range(1, 6))]
        assert (first.step, first.sum) == (4, journal.sum_of(4))
        (row,) = journal._rows("id = 3")
    other = row._replace(at=row.at + 1.0)  # a step of another history, good by itself
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE steps SET at = ?, crc = ? WHERE id = 3", (other.at, step_sum(other)))
    with pytest.raises(InputError, match=r"good up to step 3.*must follow each other, but got step 4 on another"):
        recovered(path)
    assert (salvage(path).last, salvage(path).lost) == (3, 0)


def test_a_journal_of_version_3_is_extended_and_its_next_step_is_chained(path: Path) -> None:
    with Journal.open(path, durable=False) as journal:
        journal.note(Note(kind="app", key="a", value=1))
        live(journal, 4)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        rows = database.execute("SELECT id, now, at, events, decision, uptime FROM steps").fetchall()
        for columns in rows:
            database.execute("UPDATE steps SET crc = ? WHERE id = ?", (row_sum(*columns), columns[0]))
        database.execute("ALTER TABLE steps DROP COLUMN before")
        database.execute("UPDATE meta SET value = '1', crc = ? WHERE key = 'notes'", (row_sum("notes", "1"),))
        database.execute("PRAGMA user_version = 3")
    with read_journal(path) as reader:
        assert (reader._version, len(list(reader.steps())), reader.damage().words()) == (3, 4, [])
    with Journal.open(path, durable=False) as journal:
        live(journal, 1)
        journal.note(Note(kind="app", key="b", value=1))
        assert [row.before for row in journal._rows("1 ORDER BY id")] == [None] * 4 + [journal.sum_of(4)]
        assert journal.damage().words() == []
        assert journal.reached.notes == 1


def test_notes_that_were_replaced_by_older_ones_are_detected(path: Path) -> None:
    with Journal.open(path, durable=False) as journal:
        journal.note(Note(kind="app", key="a", value=1), Note(kind="app", key="b", value=1))
        before = journal._database.execute("SELECT value, crc FROM notes WHERE key = 'a'").fetchone()
        journal.note(Note(kind="app", key="a", value=2))
        assert journal.damage().words() == []
        journal._database.execute("UPDATE notes SET value = ?, crc = ? WHERE key = 'a'", before)
        assert journal.damage().words() == ["some of the notes are older than those that were written last"]
        journal._database.execute("UPDATE notes SET value = '3' WHERE key = 'a'")
        assert journal.damage().notes == (("app", "a"),)
        journal.note(Note(kind="app", key="a", value=4))  # a damaged note that is written again is whole
        assert journal.damage().words() == []


def test_a_submission_empties_the_write_ahead_log_even_during_a_long_read(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    with Journal.open(path, durable=False) as journal:
        live(journal, 1)
        assert log.stat().st_size == 0
        live(journal, 3)
        assert log.stat().st_size > 0
        with read_journal(path) as reader, reader.at_one_moment():
            assert reader.last_step == 4
            live(journal, 1)
            journal.set_meta(seed=1)  # it is moved into the file later
            assert log.stat().st_size > 0
        journal.empty_log()
        assert log.stat().st_size == 0


def test_an_archived_segment_with_a_damaged_byte_is_refused_by_name(path: Path) -> None:
    with Journal.open(path, durable=False, retention=SMALL) as journal:
        live(journal, 12, checkpoint_every=4)
        (segment, *_) = sorted((path.parent / "journal.archive").iterdir())
    content, refused = segment.read_bytes(), 0
    with read_journal(path) as reader:
        whole = [(step.number, step.now, step.at) for step in reader.steps()]
        for at in range(len(content)):
            segment.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
            try:  # bits of the header and between the last block and the sum mean nothing
                assert [(step.number, step.now, step.at) for step in reader.steps()] == whole
            except InputError as error:
                assert "archived segment" in str(error) or "as they were written" in str(error)
                refused += 1
    assert refused >= len(content) - 12


def test_a_truncated_journal_is_refused_and_its_file_is_kept(path: Path) -> None:
    with Journal.open(path, durable=False) as journal:
        live(journal, 200, checkpoint_every=150)
        journal._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"must be a readable SQLite file|must be whole"):
        recovered(path)
    assert path.read_bytes() == content[: len(content) // 2]


def test_salvage_refuses_a_journal_that_an_arbiter_has_open(path: Path) -> None:
    with Journal.open(path), pytest.raises(InputError, match="must have one arbiter"):
        salvage(path)


# --- disks ------------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_no_partial_write_and_the_write_succeeds_later(path: Path) -> None:
    with Journal.open(path) as journal:
        made = live(journal, 5, checkpoint_every=3)
        (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
        journal._database.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(JournalWriteError) as refused:
            for number in range(6, 200):
                decision = made.step(float(number), [])
                journal.append(float(number), [], decision, notes=[Note(kind="app", key="a", value=number)])
        assert f"the journal's disk must take what is written, but got database or disk is full ({path})" == str(
            refused.value
        )
        last = journal.last_step
        assert journal.notes("app") == ({"a": last} if last > 5 else {})
        with pytest.raises(JournalWriteError):
            journal.checkpoint(made.save() * 50)
        journal._database.execute("PRAGMA max_page_count=1000000")
        assert journal.append(float(number), [], decision) == last + 1
    assert recovered(path).save() == made.save()


LIMITED = """
import resource, signal, sys
from eunomia.contract.decisions import Decision
from eunomia.journal.journal import Journal
from eunomia.journal.files import JournalWriteError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for number in range(1, 1000):
    try:
        journal.append(float(number), [], Decision(now=float(number), round=0, version=0))
    except JournalWriteError as error:
        print(number, error)
        break
"""


def test_a_file_size_limit_is_reported_as_a_full_disk(path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "core")}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    number, _, told = done.stdout.partition(" ")
    assert told.startswith("the journal's disk must take what is written, but got ")
    with Journal.open(path) as journal:
        assert [step.number for step in journal.steps()] == list(range(1, int(number)))


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that an ordinary user can read, and nobody but its owner write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with Journal.open(Path(folder) / "journal.sqlite") as journal:
            journal.append(1.0, [], Decision(now=1.0, round=0, version=0))
        (Path(folder) / "journal.sqlite").chmod(0o644)
        (Path(folder) / "journal.sqlite.lock").unlink()
        Path(folder).chmod(0o555)
        yield Path(folder)
        Path(folder).chmod(0o755)


ORDINARY = """
import os, sys
from eunomia.errors import InputError
from eunomia.journal.journal import Journal, read_journal
if os.geteuid() == 0:
    os.setuid(65534)
with read_journal(sys.argv[1] + "/journal.sqlite") as reader:
    print([step.number for step in reader.steps()])
try:
    Journal.open(sys.argv[1] + "/journal.sqlite")
except InputError as error:
    print(error)
"""


def test_a_journal_in_a_read_only_folder_can_be_read_but_not_written(read_only: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "core")}
    done = subprocess.run(
        [sys.executable, "-c", ORDINARY, str(read_only)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "PermissionError" in done.stderr or "ModuleNotFoundError" in done.stderr:
        pytest.skip("an ordinary user cannot read this project here")
    told = done.stdout.splitlines()
    assert told == ["[1]", f"a journal's folder must be writable, but got Permission denied ({read_only})"], done.stderr


# --- damaged pages ----------------------------------------------------------------------------------------------------


def _paged(path: Path) -> tuple[list[int], dict[int, str], Arbiter]:
    """A journal with rows on several pages; its pages, the table or index whose root a page is, and its state."""
    with Journal.open(path, durable=False) as journal:
        journal.set_meta(seed=7)
        journal.note(*(Note(kind="app", key=f"a{number}", value="x" * 400) for number in range(40)))
        live(journal, 30, checkpoint_every=10)
        state = recovered_from(journal)
        journal._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with closing(sqlite3.connect(path)) as database:
        (count,) = database.execute("PRAGMA page_count").fetchone()
        roots = dict(database.execute("SELECT rootpage, name FROM sqlite_master WHERE rootpage > 0"))
    return list(range(1, count + 1)), roots, state


def test_salvage_succeeds_despite_a_damaged_page_of_any_table_that_is_not_needed(path: Path) -> None:
    pages, roots, whole = _paged(path)
    content = path.read_bytes()
    size = len(content) // len(pages)
    saved = dict[int, list[str]]()
    for page in pages:
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        flipped = bytearray(content)
        for at in (
            *range((page - 1) * size, (page - 1) * size + 16),
            *range((page - 1) * size + size // 2, page * size),
        ):
            flipped[at] ^= 0xFF
        path.write_bytes(flipped)
        with pytest.raises(InputError) as refused, Journal.open(path, durable=False) as journal:
            journal.check_pages()
        assert "eunomia journal salvage" in str(refused.value), page
        try:
            done = salvage(path)
        except InputError as error:
            assert "move it away to begin a new one" in str(error), page
            continue
        assert recovered(path).save() == whole.save() or done.lost, page
        with Journal.open(path, durable=False) as journal:
            journal.check_pages()
            notes = len(journal.notes("app"))
        assert notes == 40 or any("of the table notes" in line for line in done.dropped), page
        saved[page] = list(done.dropped)
    refused_pages = set(pages) - set(saved)
    assert 1 in refused_pages
    assert {roots.get(page) for page in refused_pages} <= {"meta", "steps", "checkpoints", None, "sqlite_schema"}
    for page, name in roots.items():
        if name in ("segments", "notes", "schema_versions") or name.startswith("sqlite_"):
            assert page in saved, name
    lost = {line for lines in saved.values() for line in lines}
    assert "what SQLite cannot read of the table segments, on damaged pages" in lost


def test_salvage_names_a_damaged_step_before_the_checkpoint(path: Path) -> None:
    with Journal.open(path, durable=False) as journal:
        live(journal, 9, checkpoint_every=4)
    damage(path, "UPDATE steps SET events = 5 WHERE id = 3")
    recovered(path)  # no step before the checkpoint is read
    assert salvage(path).dropped == (
        "steps 1 to 3, before a whole checkpoint: only reports and explanations miss them",
    )
