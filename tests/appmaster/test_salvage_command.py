"""``eunomia journal salvage`` refuses before it changes a folder, where no arbiter could begin with what is good."""

import sqlite3
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import supervisor

from eunomia import cli
from eunomia.errors import InputError
from eunomia.journal.journal import Journal
from eunomia.journal.values import Note
from eunomia_appmaster.node.mark_file import MARK
from eunomia_appmaster.service.marks import Marks
from eunomia_appmaster.service.salvage import salvage

_floors = serving_lab.floors


def _content(folder: Path) -> dict[str, bytes]:
    """Files of the folder, without those that SQLite and the lock rewrite at any look."""
    files = (path for path in folder.iterdir() if path.is_file() and not path.name.endswith(("-shm", "-wal", ".lock")))
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.parametrize("key", ["secret", "seed", "layout"])
def test_salvage_leaves_a_journal_unchanged_if_a_required_row_of_meta_is_missing(
    key: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with supervisor(tmp_path, slots=1) as made:
        path = made.state_dir / "journal.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM meta WHERE key = ?", (key,))
        assert database.total_changes == 1
    database.close()
    before = _content(path.parent)
    capfd.readouterr()
    assert cli.run(("journal", "salvage", str(path.parent))) == 2
    said = capfd.readouterr().err
    assert f"a journal's {key} must be as written" in said
    assert "restore a backup" in said
    assert _content(path.parent) == before
    with pytest.raises(InputError, match=f"a journal's {key} must be as written"):
        salvage(path)
    assert _content(path.parent) == before


def test_salvage_without_a_loss_says_so_and_records_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with supervisor(tmp_path, slots=1) as made:
        path = made.state_dir / "journal.sqlite"
    with Journal.open(path) as journal:
        for value in range(3):  # the new file counts a note that was written three times as one
            journal.note(Note(kind="other", key="a", value=value))
        marks = Marks(journal, path.with_name(MARK))
        marks.follow()
        marks.close()
    capfd.readouterr()
    assert cli.run(("journal", "salvage", str(path.parent))) == 0
    said = capfd.readouterr()
    assert "no step after it was lost" in said.out
    assert "loss_accepted" not in said.out + said.err
