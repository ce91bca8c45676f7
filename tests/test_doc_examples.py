"""Examples of the documents: Python blocks run, page by page; TOML blocks parse as profiles or app files.

A block whose fence says `python sketch` shows a shape only.
"""

import re
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from companions import companions
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry
from eunomia.testing import scenes
from eunomia.testing.bench import Bench
from eunomia_appmaster.app.app_file import AppFile
from eunomia_testbed import write_example

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^( *)```(python|toml)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
STAGE_PAGES = [
    ROOT / "docs" / "how-to" / f"write-{name}.md"
    for name in ("an-elasticity", "a-valuation", "an-allocation", "a-refiner", "a-placement")
]
PACKAGES = sorted({file.parent for file in ROOT.glob("docs/examples/*/pyproject.toml")})


def blocks(page: Path, language: str) -> list[str]:
    return [textwrap.dedent(text) for _, kind, text in BLOCK.findall(page.read_text()) if kind == language]


def having(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], dict[str, Any]]:
    """Runs the Python of a page in a folder with the files of ``eunomia example`` and returns its names."""
    monkeypatch.chdir(tmp_path)
    write_example()
    for package in PACKAGES:
        monkeypatch.syspath_prepend(package)

    def all_blocks(page: Path) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "example"}
        for number, text in enumerate(blocks(page, "python")):
            exec(compile(text, f"{page.name}, Python block {number + 1}", "exec"), names)
        return names

    return all_blocks


@pytest.mark.parametrize("page", having("python"), ids=ids)
def test_python_examples_of_a_page_run(page: Path, run: Callable[[Path], dict[str, Any]]) -> None:
    run(page)


@pytest.mark.parametrize("page", STAGE_PAGES, ids=ids)
def test_plugins_defined_on_a_page_can_serve_a_cluster(page: Path, run: Callable[[Path], dict[str, Any]]) -> None:
    kinds = [
        item
        for item in run(page).values()
        if getattr(item, "__module__", "") == "example" and getattr(item, "api", 0) == 1
    ]
    assert kinds
    for kind in kinds:
        registry = Registry.find(installed=False).adding(kind)
        ran = Bench(kind, profile=companions(kind.name, registry), registry=registry).run(scenes.town())
        assert ran.problems == {}
        assert ran.started


@pytest.mark.parametrize("page", having("toml"), ids=ids)
def test_toml_examples_of_a_page_parse(page: Path) -> None:
    for text in blocks(page, "toml"):
        tree = tomllib.loads(text)
        if "stages" in tree or "extends" in tree:
            Profile.parse(text, name=page.stem)
        if "app" in tree:
            AppFile.parse(text, place=page.name, folder=ROOT / "docs" / "examples" / "digits")
