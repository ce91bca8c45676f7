"""The page of the house names every room of every package, and nothing that is not there."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "explanation" / "the-house.md").read_text()
PACKAGES = ("core/eunomia", "plugins/eunomia_plugins", "appmaster/eunomia_appmaster", "testbed/eunomia_testbed")


def rooms_of(package: str) -> set[str]:
    return {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}


def rooms_on_page(package: str) -> set[str]:
    table = PAGE.partition(f"| Room of `{package}` |")[2].partition("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_lists_every_subpackage_of_a_package(package: str) -> None:
    assert rooms_on_page(package) == rooms_of(package)


def test_the_subpackages_of_the_core_are_listed_in_the_order_of_their_imports() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["name"].startswith("Rooms of the core"))
    table = PAGE.partition("| Room of `core/eunomia` |")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert [name for name in named if f"eunomia.{name}" in layers] == [
        layer.rpartition(".")[2] for layer in reversed(layers)
    ]


def test_files_that_the_page_names_exist() -> None:
    named = {path for path in re.findall(r"`([\w/]+\.(?:py|toml))`", PAGE) if "/" in path}
    assert len(named) >= 6
    places = (ROOT, ROOT / "core" / "eunomia")
    assert {path for path in named if not any((place / path).exists() for place in places)} == set()


def test_processes_that_the_page_names_are_modules() -> None:
    named = re.findall(r"python -m (eunomia_appmaster[\w.]*)", PAGE)
    assert len(named) == 2
    for module in named:
        assert (ROOT / "appmaster" / Path(*module.split(".")) / "__main__.py").exists()
