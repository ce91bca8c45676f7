"""The report on paper: whole tables, with every row and column, and nothing that scrolls or is cut off."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.testbed.test_report import data_of
from tests.testbed.test_report_browser import needs_browser, opened

from eunomia_testbed.report import picture, render
from eunomia_testbed.results import RunData

needs_reader = pytest.mark.skipif(shutil.which("pdftotext") is None, reason="no pdftotext (package poppler-utils)")


def laid_out(run: RunData, folder: Path) -> Any:
    page = folder / "report.html"
    page.write_text(render(run), encoding="utf-8")
    found = opened(page, script="use_paper.js")
    assert found["errors"] == []
    return found


@needs_browser
@pytest.mark.parametrize("which", ["sample", "simulated"])
def test_tables_are_printed_completely(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    found = laid_out(request.getfixturevalue(which), tmp_path)
    assert len(found["tables"]) > 5
    for each in found["tables"]:
        rows, columns = each["expected"]
        assert each["rows"] == [rows], each["title"]
        assert each["columns"] == columns, each["title"]
        assert each["firsts"] == 1, each["title"]
        assert (each["wider"], each["cut"], each["scrolls"]) == (False, [], False), each["title"]
    assert any(each["expected"][0] > 50 for each in found["tables"])
    assert any(each["parts"] > 1 for each in found["tables"])


@needs_browser
def test_folded_parts_are_opened_for_printing_and_folded_again(simulated: RunData, tmp_path: Path) -> None:
    found = laid_out(simulated, tmp_path)
    folded, left = found["folded"]
    assert folded > left == 0
    assert found["again"] == [folded, 0]


@needs_browser
def test_apps_with_colours_have_their_names_in_print(sample: RunData, tmp_path: Path) -> None:
    names = laid_out(sample, tmp_path)["names"]
    assert [name for name, display in names if display != "none"] == ["curves", "halving", "hyperband", "single"]


@needs_browser
@needs_reader
def test_the_printed_page_has_every_row_and_column(simulated: RunData, tmp_path: Path) -> None:
    page, printed = tmp_path / "report.html", tmp_path / "report.pdf"
    page.write_text(render(simulated), encoding="utf-8")
    picture.browse(page, f"--print-to-pdf={printed}", "--no-pdf-header-footer")
    text = subprocess.run(
        ["pdftotext", "-layout", str(printed), "-"], capture_output=True, text=True, check=True
    ).stdout
    data = data_of(page.read_text(encoding="utf-8"))
    tables = [
        table
        for part in data["parts"].values()
        for table in (part["views"][0 if part["ofAll"] else data["first"]] or {"tables": []})["tables"]
    ]
    words = set(re.findall(r"[\w-]+", text))
    for table in tables:
        for column in table["columns"]:
            assert set(re.findall(r"[\w-]{2,}", column["label"])) <= words, (table["title"], column["label"])
        for row in table["rows"]:
            assert set(re.findall(r"[\w-]+", str(row[0]))) <= words, (table["title"], row[0])
    assert "Show all" not in text
    assert "scroll sideways" not in text
