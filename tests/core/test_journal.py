"""The journal keeps every step, knows its one writer, and says clearly what it cannot read."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eunomia.contract.decisions import Decision, Transition, TransitionKind
from eunomia.contract.events import AppArrived, JobAdded, Started
from eunomia.errors import InputError
from eunomia.journal.files import Keep, Retention
from eunomia.journal.journal import Journal, read_journal
from eunomia.journal.values import Note
from eunomia.units import Cause

ROOT = Path(__file__).parent.parent.parent


def decision(now: float, **more: object) -> Decision:
    return Decision(now=now, round=1, version=int(now), **more)  # type: ignore[arg-type]


def fill(journal: Journal, steps: int, first: int = 1) -> None:
    for number in range(first, first + steps):
        journal.append(float(number), [Started(lease=number, epoch=number)], decision(float(number)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.sqlite"


def test_steps_are_read_back_as_they_were_written(path: Path) -> None:
    order = Transition(
        kind=TransitionKind.START,
        lease=1,
        epoch=2,
        app="a",
        job=None,
        gpus=np.array([0, 1]),
        cpus=np.array([0.5, 0.5]),
        memory_gib=np.array([1.0, 1.0]),
        ends_at=float("inf"),
        protected_until=0.1,
        leaving=np.empty(0, np.int64),
        fence=1,
        after=np.empty(0, np.int64),
    )
    events = [AppArrived(app="a", user="ana"), JobAdded(job="a/1", app="a")]
    with Journal.open(path) as journal:
        number = journal.append(0.1, events, decision(0.1, transitions=(order,), causes=frozenset({Cause.ARRIVED})))
    with Journal.open(path) as journal:
        (step,), saved = journal.steps(), list(journal.checkpoints())
    assert (saved, step.number, step.now, list(step.events)) == ([], number, 0.1, events)
    assert step.decision.transitions[0].gpus.tolist() == [0, 1]
    assert step.decision.transitions[0].ends_at == float("inf")
    assert step.decision.causes == {Cause.ARRIVED}


def test_recovery_reads_the_last_checkpoint_and_the_steps_after_it(path: Path) -> None:
    with Journal.open(path) as journal:
        fill(journal, 3)
        journal.checkpoint(b"three")
        fill(journal, 2, first=4)
        journal.checkpoint(b"five")
        fill(journal, 1, first=6)
        assert [(saved.after_step, saved.state) for saved in journal.checkpoints()] == [(5, b"five"), (3, b"three")]
        assert [step.number for step in journal.steps(after=5)] == [6]
        assert [step.number for step in journal.steps()] == [1, 2, 3, 4, 5, 6]


def test_steps_before_the_retained_checkpoints_can_be_dropped(path: Path) -> None:
    with Journal.open(path, retention=Retention(keep=Keep.DROP, segment_steps=2)) as journal:
        for first in (1, 3, 5):
            fill(journal, 2, first=first)
            journal.checkpoint(str(first).encode())
        assert [step.number for step in journal.steps()] == [5, 6]
        assert next(journal.checkpoints()).state == b"5"
        assert list(journal.steps(after=6)) == []
        assert journal.append(9.0, [], decision(9.0)) == 7


def test_a_reader_misses_no_step_that_is_archived_while_it_reads(path: Path) -> None:
    with Journal.open(path, retention=Retention(keep=Keep.ARCHIVE, segment_steps=2)) as journal:
        fill(journal, 4)
        journal.checkpoint(b"a")
        fill(journal, 1, first=5)
        journal.checkpoint(b"b")  # steps 1 to 4 are needed by none of the two: in the archive
        with read_journal(path) as reader:
            steps = reader.steps()
            numbers = [next(steps).number]
            fill(journal, 4, first=6)
            journal.checkpoint(b"c")
            journal.checkpoint(b"d")
            fill(journal, 1, first=10)
            journal.checkpoint(b"e")
            journal.checkpoint(b"f")
            assert next(reader.steps(archived=False)).number > 5
            numbers += [step.number for step in steps]
    assert numbers == list(range(1, 11))


def test_notes_and_settings_are_read_back(path: Path) -> None:
    with Journal.open(path) as journal:
        journal.set_meta(seed=7, cluster=["a"])
        journal.note(Note(kind="app", key="b", value={"state": "new"}), Note(kind="app", key="a", value=1))
        journal.append(1.0, [], decision(1.0), notes=[Note(kind="app", key="b", value={"state": "old"})])
    with read_journal(path) as reader:
        assert reader.meta == {"seed": 7, "cluster": ["a"]}
        assert list(reader.notes("app").items()) == [("b", {"state": "old"}), ("a", 1)]
        assert reader.notes("other") == {}


def test_a_failed_append_writes_nothing(path: Path) -> None:
    with Journal.open(path) as journal:
        with pytest.raises(TypeError):
            journal.append(1.0, [], decision(1.0), notes=[Note(kind="app", key="a", value=object())])
        assert journal.last_step == 0
        fill(journal, 1)
        assert journal.last_step == 1


def test_readers_can_read_a_live_journal_but_not_write_it(path: Path) -> None:
    with Journal.open(path) as journal:
        fill(journal, 1)
        with read_journal(path) as reader:
            fill(journal, 1, first=2)
            assert reader.last_step == 2
            with pytest.raises(sqlite3.OperationalError):
                reader._database.execute("DELETE FROM steps")


def test_journal_files_are_readable_by_their_owner_only(path: Path) -> None:
    with Journal.open(path):
        assert path.stat().st_mode & 0o077 == 0
        assert path.parent.stat().st_mode & 0o077 == 0


HOLDER = """
import sys, time
from eunomia.journal.journal import Journal
from eunomia.contract.decisions import Decision
journal = Journal.open(sys.argv[1])
number = 0
while True:
    number += 1
    journal.append(float(number), [], Decision(now=float(number), round=0, version=0))
    print(number, flush=True)
"""


def test_a_journal_has_one_writer_and_only_complete_steps_after_a_kill(path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "core")}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], env=env, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    for _ in range(5):
        holder.stdout.readline()
    with pytest.raises(InputError) as refused:
        Journal.open(path)
    told = rf"a journal must have one arbiter, but process {holder.pid} on \S+ has held it since \d\d:\d\d"
    told += r" \(journal.sqlite\)"
    assert re.fullmatch(told, str(refused.value))
    holder.send_signal(signal.SIGKILL)
    seen = [int(line) for line in holder.stdout.read().split()]
    holder.wait()
    holder.stdout.close()
    with Journal.open(path) as journal:
        numbers = [step.number for step in journal.steps()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= max(seen, default=5)  # what was acknowledged is there


@pytest.mark.parametrize(("version", "told"), [(9, "is newer: take a newer"), (0, "is older: finish it")])
def test_another_version_is_refused_and_the_error_names_the_remedy(path: Path, version: int, told: str) -> None:
    Journal.open(path).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version={version}")
    database.close()
    for opening in (Journal.open, read_journal):
        with pytest.raises(InputError, match=told):
            opening(path)


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    path.parent.mkdir()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE songs (title)")
    database.close()
    with pytest.raises(InputError, match="must be Eunomia's"):
        Journal.open(path)
    with pytest.raises(InputError, match="must be Eunomia's"):
        Journal.open(path)  # the first refusal let go of the lock


def test_a_corrupt_file_is_reported(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, but long enough to be looked at" * 50)
    with pytest.raises(InputError, match=r"readable SQLite file.*journal\.sqlite"):
        Journal.open(path)


def test_a_corrupt_page_is_reported(path: Path) -> None:
    with Journal.open(path) as journal:
        fill(journal, 400)
        journal._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[4096 * 4 : 4096 * 12] = b"\xa5" * 4096 * 8
    path.write_bytes(bytes(content))
    with Journal.open(path) as journal, pytest.raises(InputError, match=r"must be (a )?readable"):
        list(journal.steps())


def test_a_step_that_no_arbiter_can_have_written_is_named(path: Path) -> None:
    with Journal.open(path) as journal:
        fill(journal, 2)
        nobody = json.dumps([{"is": "Nothing"}])
        journal._database.execute("UPDATE steps SET crc = NULL, events = ? WHERE id = 2", (nobody,))
        with pytest.raises(InputError, match="step 2"):
            list(journal.steps())


def test_a_reader_refuses_a_journal_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_journal(tmp_path / "journal.sqlite")
    assert list(tmp_path.iterdir()) == []
