"""The reference of the app file against the models behind it, and the example that it shows."""

import re
from pathlib import Path

import pytest

from eunomia_appmaster.app.app_file import AppFile
from eunomia_appmaster.app.app_tables import DISTRIBUTIONS, AppTable, JobTable, TunerTable
from eunomia_appmaster.app.command import PLACEHOLDERS
from eunomia_appmaster.tuner import TUNERS, load_tuner

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "app-file.md").read_text()
TUNERS_PAGE = (ROOT / "docs" / "reference" / "tuners.md").read_text()


def rows(title: str, page: str = PAGE) -> set[str]:
    """First cells of the tables below a heading."""
    section = page.partition(f"{title}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE))


def test_every_key_is_documented_and_every_documented_key_exists() -> None:
    assert rows("## `[app]`") == set(AppTable.model_fields)
    assert rows("## `[job]`") == set(JobTable.model_fields)
    found = rows("## `[tuner]`") - set(load_tuner("curve_stopping").options_type.model_fields)
    assert found == set(TunerTable.model_fields)


@pytest.mark.parametrize("kind", sorted(TUNERS))
def test_every_key_of_a_tuner_is_documented_and_every_documented_key_exists(kind: str) -> None:
    own = rows(f"## {kind}", TUNERS_PAGE)
    if kind == "curve_stopping":  # its keys stand with the app file's
        own |= rows("## `[tuner]`") - set(TunerTable.model_fields)
    assert own == set(load_tuner(kind).options_type.model_fields)


@pytest.mark.parametrize("word", [*PLACEHOLDERS, *TUNERS])
def test_every_placeholder_and_kind_is_documented(word: str) -> None:
    assert f"`{{{word}}}`" in PAGE or f"`{word}`" in PAGE


def test_every_distribution_is_documented() -> None:
    assert all(f'`"{kind}"`' in PAGE for kind in DISTRIBUTIONS)


@pytest.mark.parametrize(
    "path",
    [path for path in sorted((ROOT / "docs" / "examples").glob("**/*.toml")) if "[app]" in path.read_text()],
    ids=lambda path: path.name,
)
def test_example_app_files_are_valid(path: Path) -> None:
    file = AppFile.parse(path.read_text(), place=path.name, folder=path.parent)
    assert file.make_tuner().runs()
