"""Lists of packages agree, every package is typed, and figures of the source keep their limits."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import eunomia
import house

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [Path(name) for name in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
ROOTS = [package.parts[0] for package in PACKAGES]
MARKET = Path("market") / "eunomia_market"
"""A package of its own, which the extra ``market`` installs."""
TESTS = ROOT / "tests"
TOOLS = ("chaos", "combinations", "curves", "gpu_checks")
"""Packages in tests with commands of their own."""
# Known exceptions to the limits of `house.py`. The list only shrinks: an entry that is no longer needed fails the test.
EXCEPTIONS = {
    house.long_functions: set(),
    house.wide_functions: set(),
    house.long_modules: set(),
    house.shared_class_names: set(),
    house.modules_in_cycles: set(),
}


def test_every_configured_list_has_the_seven_packages_and_the_market() -> None:
    tool = PYPROJECT["tool"]
    assert len(ROOTS) == 7
    checked = [*ROOTS, MARKET.parts[0], TESTS.name]
    assert tool["pytest"]["ini_options"]["pythonpath"] == checked
    assert tool["mypy"]["mypy_path"].split(":") == checked
    assert tool["ruff"]["src"] == checked
    names = [package.parts[1] for package in [*PACKAGES, MARKET]]
    assert tool["mypy"]["packages"] == [*names, *TOOLS]
    assert sorted(tool["importlinter"]["root_packages"]) == sorted(names)


@pytest.mark.parametrize("package", [*PACKAGES, MARKET], ids=str)
def test_a_package_is_named_after_its_folder_and_typed(package: Path) -> None:
    folder, name = package.parts
    assert name == ("eunomia" if folder == "core" else f"eunomia_{folder}")
    assert (ROOT / package / "py.typed").exists()
    assert (ROOT / package / "__init__.py").read_text().startswith('"""')


def test_the_wheel_contains_the_seven_packages_and_no_test_tools() -> None:
    files = [Path(file.distribution_path) for file in WheelBuilder(str(ROOT)).recurse_included_files()]
    assert {file.parts[0] for file in files} == {package.name for package in PACKAGES}
    tools = {folder.name for folder in (TESTS / "chaos").iterdir() if (folder / "__main__.py").exists()}
    assert tools == {"crash_points", "damage", "fuzz", "histories", "kills", "soak", "storms"}
    packages = {folder.name for folder in TESTS.iterdir() if any(folder.rglob("__main__.py"))} | {"curves"}
    assert packages == set(TOOLS)
    assert [file for file in files if {*TOOLS, *tools} & set(file.parts[:-1])] == []


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_no_file_of_a_package_names_a_tool_of_tests(package: Path) -> None:
    tools = "|".join(TOOLS)
    named = re.compile(
        rf"\bchaos\.(kills|fuzz|crash_points|damage|soak|storms)\b|^\s*(import|from) ({tools})\b", re.MULTILINE
    )
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    assert [str(file) for file in files if named.search(file.read_text())] == []


@pytest.mark.parametrize("title", house.FIGURES)
def test_the_source_breaks_no_limit_beyond_the_known_exceptions(title: str) -> None:
    measure = house.FIGURES[title]
    found, known = measure(), EXCEPTIONS.get(measure, set())
    assert found - known == set(), "the limit is in tests/house.py"
    assert known - found == set(), "take these entries out of EXCEPTIONS"


SOURCE = {
    "core/a/first.py": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from a.second import Thing\n",
    "core/a/second.py": "class Thing:\n    def work(self):\n        from a import third\n",
    "core/a/third.py": "import a.first\n",
    "core/a/__init__.py": "from a.first import *\n",
    "core/a/fourth.py": "from a import Thing\n\n\nclass Thing: ...\n",
    "core/b/wide.py": f"class Thing:\n    def fits(self, {', '.join('abcdefgh')}): ...\n",
    "plugins/c/wide.py": f"class Thing: ...\n\n\ndef too_wide({', '.join('abcdefg')}, *, h, i): ...\n",
    "testbed/d/long.py": "def fits():\n" + "    0\n" * 59 + "def too_long():\n" + "    0\n" * 60 + "0\n" * 400,
}


def test_each_source_check_finds_a_planted_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in SOURCE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(house, "ROOT", tmp_path)
    planted = {path: ast.parse((tmp_path / path).read_text()) for path in house.source_files()}
    monkeypatch.setattr(house, "trees", lambda: planted)  # the trees of the source stay for the other tests
    measured = {measure: measure() for measure in EXCEPTIONS}
    assert measured == {
        house.long_functions: {"testbed/d/long.py:too_long"},
        house.wide_functions: {"plugins/c/wide.py:too_wide"},
        house.long_modules: {"testbed/d/long.py"},
        house.shared_class_names: {"Thing"},
        house.modules_in_cycles: {"a.first", "a.second", "a.third"},
    }


def test_built_in_plugins_import_public_names_as_the_guides_teach() -> None:
    """``from eunomia import Snapshot``, not from the module in which it is defined."""
    found = [
        f"{path}: from {node.module} import {alias.name}"
        for path, tree in house.trees().items()
        if path.parts[0] == "plugins"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("eunomia.")
        for alias in node.names
        if alias.name in eunomia.__all__ and eunomia._HOME.get(alias.name) == node.module
    ]
    assert found == []


def test_no_package_outside_of_core_reads_the_state_of_an_arbiter() -> None:
    """``arbiter.view`` shows it, read only; an import contract keeps the store's own modules out."""
    found = [
        f"{path}:{node.lineno}"
        for path, tree in house.trees().items()
        if path.parts[0] != "core"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and (_last_name(node.value), node.attr) in STATES
    ]
    assert found == [], "look through arbiter.view"


STATES = {("arbiter", "state"), ("view", "_state")}


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Call(func=ast.Attribute(attr=name)):
            return name.strip("_")
        case _:
            return ""


def test_every_form_of_reading_the_state_of_an_arbiter_is_found() -> None:
    forms = (
        "arbiter.state.now",
        "self._arbiter().state",
        "sim.arbiter.state",
        "arbiter.view._state",
        "self._view._state",
    )
    for text in forms:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
        assert any((_last_name(node.value), node.attr) in STATES for node in nodes), text
