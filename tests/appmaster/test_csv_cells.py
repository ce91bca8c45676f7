"""Text of a CSV that a spreadsheet would compute stands behind an apostrophe, and is read back to the same text."""

import ast
import csv
import io
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia_appmaster.csv_cells import csv_rows, csv_text, frame_csv, plain_cell, plain_frame, quoted_cell
from eunomia_appmaster.explaining.outcomes import trial_rows
from eunomia_appmaster.master.files import TrialsFile
from eunomia_appmaster.master.job_index import JobIndex
from eunomia_appmaster.master.jobs import Job
from eunomia_testbed.live_runs.logged import read_trials

ROOT = Path(__file__).parent.parent.parent
HOSTILE = ["=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(A1)", "\t=1", "'=1", "''@x", "'", "'quoted'", "plain", "", "a=b"]
ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.sampled_from(HOSTILE)


@given(ANY)
def test_no_quoted_cell_begins_like_a_formula_and_reading_undoes_the_quoting(text: str) -> None:
    assert quoted_cell(text)[:1] not in tuple("=+-@\t\r")
    assert plain_cell(quoted_cell(text)) == text


@given(st.lists(st.tuples(ANY, st.floats(allow_nan=False)), max_size=5))
def test_rows_are_read_back_with_numbers_as_numbers(rows: list[tuple[str, float]]) -> None:
    text = csv_text([("=name", "metric"), *rows])
    for given_row, (name, metric) in zip(list(csv.reader(io.StringIO(text, newline="")))[1:], rows, strict=True):
        assert given_row == [quoted_cell(name), repr(metric)]
    assert [dict(row) for row in csv_rows(io.StringIO(text, newline=""))] == [
        {"=name": name, "metric": repr(metric)} for name, metric in rows
    ]


def test_a_data_frame_is_read_back_unchanged() -> None:
    frame = pl.DataFrame({"user": HOSTILE, "value": [-1.5] * len(HOSTILE), "+n": [-3] * len(HOSTILE)})
    text = frame_csv(frame)
    assert text.splitlines()[:2] == ["user,value,'+n", "'=1+1,-1.5,-3"]
    back = plain_frame(pl.read_csv(text.encode())).with_columns(pl.col("user").fill_null(""))
    assert back.equals(frame)
    kinds = frame.select(pl.col("user").cast(pl.Categorical))
    assert frame_csv(kinds).splitlines()[1] == "'=1+1"


def test_both_readers_read_the_trials_of_an_app(tmp_path: Path) -> None:
    job = Job(number=0, seed=1, parameters={"lr": -0.5}, metric=-0.25, why="=HYPERLINK(1)")
    TrialsFile(tmp_path / "trials.csv", "=app", JobIndex([job])).write()
    assert "\n'=app/0," in (tmp_path / "trials.csv").read_text()
    assert ",-0.25," in (tmp_path / "trials.csv").read_text()
    (row,) = trial_rows(tmp_path)
    assert (row["job"], row["why"], float(row["metric"])) == ("=app/0", "=HYPERLINK(1)", -0.25)
    (trial,) = read_trials(tmp_path)
    assert (trial.job, trial.why) == ("=app/0", "=HYPERLINK(1)")


@pytest.mark.parametrize("root", ["core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed", "market"])
def test_only_the_module_csv_cells_writes_csv_files(root: str) -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in (ROOT / root).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and (node.attr == "write_csv" or (ast.unparse(node) in ("csv.writer", "csv.DictWriter")))
        and path.name != "csv_cells.py"
    ]
    assert found == []
