"""A journal that is damaged at random is refused with a remedy, begun with as it was, or costs one app by name."""

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from chaos.damage.__main__ import BAD, run
from chaos.damage.outcome import End, begin, judge
from chaos.damage.world import JOURNAL, backup, build, build_killed
from eunomia.journal.journal import Journal, read_journal
from eunomia_appmaster.node.mark_file import MARK


@pytest.mark.parametrize("damages,seed", [(20, 20_000), pytest.param(300, 1000, marks=pytest.mark.slow)])
def test_random_damage_is_either_harmless_or_reported_and_never_a_crash(damages: int, seed: int) -> None:
    found = list(run(damages, seed))
    assert [one for one in found if one[2].end in BAD] == []
    assert {outcome.end for _, _, outcome in found} >= {End.REFUSED, End.ASKED, End.HARMLESS, End.ONE_APP}


def test_a_damaged_wal_frame_that_sqlite_ignores_makes_the_arbiter_ask_the_operator(tmp_path: Path) -> None:
    build_killed(tmp_path / "state", tmp_path / "earlier")
    shutil.copytree(tmp_path / "state", tmp_path / "whole")
    backup(tmp_path / "earlier", tmp_path / "backup.sqlite")
    log = tmp_path / "state" / f"{JOURNAL}-wal"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    shutil.copytree(tmp_path / "state", tmp_path / "unmarked")
    (tmp_path / "unmarked" / MARK).unlink()
    whole = begin(tmp_path / "whole")
    outcome = judge(tmp_path / "state", whole, tmp_path / "backup.sqlite")
    assert outcome.end is End.ASKED, outcome.what
    assert "steps are gone" in outcome.what
    assert judge(tmp_path / "unmarked", whole, tmp_path / "backup.sqlite").end is End.SILENT


DAMAGES = {
    "a letter of a live app's note": (
        "UPDATE notes SET value = replace(value, 'user-cy', 'user-cx') WHERE key = 'cy'",
        End.ONE_APP,
        "the note of app cy is not as it was written",
    ),
    "a note that is no JSON": ("UPDATE notes SET value = '{' WHERE key = 'cy'", End.ONE_APP, "the note of app cy"),
    "a live app's note is gone": ("DELETE FROM notes WHERE key = 'cy'", End.ONE_APP, "1 of the notes are missing"),
    "the note of an app that is over is gone": (
        "DELETE FROM notes WHERE key = 'ana'",
        End.ONE_APP,
        "folders of apps without a note: ana",
    ),
    "a note under another name": ("UPDATE notes SET key = 'an' WHERE key = 'ana'", End.ONE_APP, r"app an \(of ana\)"),
    "the policy": ("UPDATE meta SET value = '\"las\"' WHERE key = 'policy'", End.HARMLESS, "policy of meta"),
    "the cluster's names": ("UPDATE meta SET value = 7 WHERE key = 'cluster'", End.HARMLESS, "cluster of meta"),
    "the secret": (
        "UPDATE meta SET value = replace(value, '5a5a', '5a5b') WHERE key = 'secret'",
        End.REFUSED,
        "a journal must hold its secret, which nothing else holds: restore a backup, or move it away",
    ),
    "the secret is gone": ("DELETE FROM meta WHERE key = 'secret'", End.REFUSED, "must hold its secret"),
    "the seed is gone": ("DELETE FROM meta WHERE key = 'seed'", End.REFUSED, "must hold its seed"),
    "the layout": ("UPDATE meta SET value = x'00' WHERE key = 'layout'", End.REFUSED, "must hold its layout"),
    "a step's type": ("UPDATE steps SET events = 5 WHERE id = 31", End.REFUSED, "journal salvage"),
    "the last step twice": (
        "INSERT INTO steps SELECT id + 1, now, at, events, decision, uptime, crc, before FROM steps WHERE id = 31",
        End.REFUSED,
        "step 32",
    ),
    "a checkpoint of another step": ("UPDATE checkpoints SET after_step = 30 WHERE after_step > 20", End.HARMLESS, ""),
    "a segment": ("UPDATE segments SET last = 4", End.HARMLESS, "segment 1 is not as it was written"),
    "the last number": ("UPDATE sqlite_sequence SET seq = 3", End.HARMLESS, ""),
    "the version": ("PRAGMA user_version = 2", End.REFUSED, "tables must be those of its version, 2"),
}


@pytest.mark.parametrize("statement,end,said", DAMAGES.values(), ids=DAMAGES)
def test_each_kind_of_damage_has_its_expected_outcome(statement: str, end: End, said: str, tmp_path: Path) -> None:
    build(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "state")
    backup(tmp_path / "whole", tmp_path / "backup.sqlite")
    whole = begin(tmp_path / "whole")
    with closing(sqlite3.connect(tmp_path / "state" / "journal.sqlite", isolation_level=None)) as database:
        database.execute(statement)
    outcome = judge(tmp_path / "state", whole, tmp_path / "backup.sqlite")
    assert outcome.end is end, outcome.what
    assert re.search(said, outcome.what), outcome.what


def test_a_journal_of_version_2_gets_checksums_and_its_invalid_note_is_named(tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / MARK).unlink()
    path = tmp_path / JOURNAL
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for table in ("notes", "meta", "segments"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN crc")
        database.execute("ALTER TABLE steps DROP COLUMN before")
        database.execute("UPDATE steps SET crc = NULL")
        database.execute("UPDATE checkpoints SET crc = NULL")
        database.execute("DELETE FROM meta WHERE key = 'notes'")
        database.execute("UPDATE notes SET value = '{' WHERE key = 'cy'")
        database.execute("PRAGMA user_version = 2")
    with read_journal(path) as reader:  # as it is
        assert set(reader.notes("app")) == {"ana", "bob", "dora", "eve", "fay"}
        assert reader.damage().notes == (("app", "cy"),)
    with Journal.open(path, durable=False) as journal:
        assert journal.damage().words() == ["the note of app cy is not as it was written"]
        assert len(list(journal.steps())) == journal.last_step
    begun = begin(tmp_path)
    assert any("app.lost" in line and "'cy'" in line for line in begun.said)
