"""A journal's mark: a file of two entries with sums, and what it says that a journal has lost."""

from pathlib import Path

import pytest
import structlog

from eunomia.contract.decisions import Decision
from eunomia.errors import InputError
from eunomia.journal.journal import Journal
from eunomia.journal.values import Note
from eunomia_appmaster.node.mark_file import ENTRY_BYTES, MARK, MarkFile
from eunomia_appmaster.service.marks import ACCEPT, Mark, Marks


def written(path: Path, *texts: str) -> MarkFile:
    made = MarkFile(path)
    for text in texts:
        made.write(text)
    made.close()
    return MarkFile(path)


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_mark_file_has_the_text_that_was_written_last(tmp_path: Path) -> None:
    path = tmp_path / MARK
    assert (MarkFile(path).text, MarkFile(path).damage) == ("", "")
    assert written(path, "one").text == "one"
    assert written(path, "two", "three", "three").text == "three"
    assert path.stat().st_size == 2 * ENTRY_BYTES
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_any_damage_to_the_mark_file_is_reported_and_an_intact_entry_read(tmp_path: Path) -> None:
    path = tmp_path / MARK
    written(path, "history=1 step=6", "history=1 step=7")
    content = path.read_bytes()
    for at in range(len(content)):
        for damaged in (content[:at] + bytes([content[at] ^ 0x20]) + content[at + 1 :], content[:at]):
            path.write_bytes(damaged)
            found = MarkFile(path)
            if at >= ENTRY_BYTES or len(damaged) == len(content):
                assert found.text in ("history=1 step=6", "history=1 step=7")
            assert "entries of journal.mark are damaged" in found.damage
    path.write_bytes(content + b"x")
    assert "damaged" in MarkFile(path).damage


def test_a_damaged_mark_file_is_rewritten_and_an_invalid_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / MARK
    path.write_bytes(b"\xff" * 2000)
    made = MarkFile(path)
    assert (made.text, made.damage) == ("", "2 of the 2 entries of journal.mark are damaged; none is left")
    made.write("new")
    assert (MarkFile(path).text, MarkFile(path).damage) == ("new", "")
    for text in ("x" * 401, "naïve", "two\nlines"):
        with pytest.raises(ValueError, match="a mark must have at most 400 printable letters of ASCII"):
            made.write(text)
    made.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "history=1 step=2 sum=3",
        "history=1 step=2 sum=3 notes=x",
        "history=1 step=2 sum=3 notes=--4",
        "step=2 history=1 sum=3 notes=4",
        "history=1 step=99999999999999999999 sum=3 notes=4",
        "history=1 step=-2 sum=3 notes=4",
        "a  b =",
    ],
)
def test_an_invalid_text_gives_no_mark(text: str) -> None:
    assert Mark.of(text) is None
    assert Mark.of("history=1 step=2 sum=-1 notes=4") == Mark(history=1, step=2, sum=-1, notes=4)


# --- against a journal ------------------------------------------------------------------------------------------------


def steps(journal: Journal, marks: Marks, count: int, at: float = 0.0) -> None:
    first = journal.last_step + 1
    for number in range(first, first + count):
        decision = Decision(now=float(number), round=0, version=number)
        journal.append(float(number), [], decision, at=at + number, notes=[Note(kind="app", key="a", value=number)])
        marks.follow()


def test_a_loss_of_steps_is_reported_until_it_is_accepted(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.sqlite", durable=False) as journal:
        marks = Marks(journal, tmp_path / MARK)
        steps(journal, marks, 5)
        old = marks.present
        assert marks.lost([("the launcher of a", old)]) is None
        journal._database.execute("DELETE FROM steps WHERE id > 2")
        journal._database.execute("UPDATE sqlite_sequence SET seq = 2")
        marks.close()
        marks = Marks(journal, tmp_path / MARK)
        loss = marks.lost()
        assert loss is not None
        assert loss.words() == "3 steps are gone (the journal ends with step 2; journal.mark has step 5)"
        assert loss.words(["late"]).startswith("3 steps are gone: app late (")
        assert loss.words(["late", "b"]).startswith("3 steps are gone: apps b, late (")
        marks.accept(loss, "three steps")
        assert marks.lost([("the launcher of a", old)]) is None
        (noted,) = journal.notes("loss").values()
        assert isinstance(noted, dict)
        assert (noted["what"], noted["step"], noted["last"], noted["history"]) == ("three steps", 5, 2, 2)
        marks.close()
        marks = Marks(journal, tmp_path / MARK)
        steps(journal, marks, 1)
        assert marks.lost([("the launcher of a", old)]) is None
        assert marks.present.startswith("history=2 step=3 ")
        marks.close()


def test_a_different_last_step_or_older_history_or_notes_count_as_losses(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.sqlite", durable=False) as journal:
        marks = Marks(journal, tmp_path / MARK)
        steps(journal, marks, 3)
        here = Mark.of(marks.present)
        assert here is not None

        def said(**changed: int) -> str:
            values = {name: getattr(here, name) for name in ("history", "step", "sum", "notes")} | changed
            loss = marks.lost([("x", Mark(**values).text())])
            return "" if loss is None else loss.words()

        assert said() == ""
        assert said(step=2, sum=journal.sum_of(2) or 0) == ""
        assert said(step=2, sum=7).startswith("step 2 is another one than before (")
        assert said(history=4).startswith("the journal is older than a loss that was accepted (")
        assert said(notes=9).startswith("what was noted of apps after the last step is gone (")
        assert said(sum=-1, notes=-1) == ""
        assert marks.is_behind(here.text().replace("step=3", "step=4"))
        assert marks.is_behind(here.text().replace(f"sum={here.sum}", "sum=5"))
        assert not marks.is_behind(here.text())
        assert not marks.is_behind("none")
        marks.close()


def test_a_missing_mark_is_reported_and_an_empty_journal_with_a_mark_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal.open(path, durable=False) as journal:
        journal.set_meta(secret="5a" * 32)
        marks = Marks(journal, tmp_path / MARK)
        marks.check_begun(accepted=False)
        steps(journal, marks, 2)
        marks.close()
    path.unlink()
    with Journal.open(path, durable=False) as journal:
        marks = Marks(journal, tmp_path / MARK)
        with pytest.raises(InputError) as refused:
            marks.check_begun(accepted=False)
        rule = "a journal must hold the steps that journal.mark tells of; restore a backup, or begin a new one"
        assert f"{rule}: `{ACCEPT}`, but got an empty one, and 2 steps are gone ({path})" == str(refused.value)
        marks.check_begun(accepted=True)
    (tmp_path / MARK).unlink()
    with Journal.open(path, durable=False) as journal, structlog.testing.capture_logs() as logs:
        steps(journal, Marks(journal, tmp_path / MARK), 1)
        Marks(journal, tmp_path / "other.mark")
    assert [line["event"] for line in logs] == ["journal.mark_missing"]


def test_a_mark_file_that_cannot_be_written_does_not_stop_the_arbiter(tmp_path: Path) -> None:
    (tmp_path / MARK).mkdir()
    with Journal.open(tmp_path / "journal.sqlite", durable=False) as journal:
        with structlog.testing.capture_logs() as logs:
            marks = Marks(journal, tmp_path / MARK)
            steps(journal, marks, 3)
        assert [line["event"] for line in logs] == ["journal.mark_damaged", "journal.mark_refused"]
        assert marks.present.startswith("history=1 step=3 ")
        marks.close()
