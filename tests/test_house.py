"""The lists of packages that several tools keep agree, and every package is marked as typed."""

import re
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [Path(name) for name in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
ROOTS = [package.parts[0] for package in PACKAGES]
CHAOS = ROOT / "tests" / "chaos"


def test_every_list_has_the_five_roots() -> None:
    tool = PYPROJECT["tool"]
    assert len(ROOTS) == 5
    checked = [*ROOTS, CHAOS.parent.name]
    assert tool["pytest"]["ini_options"]["pythonpath"] == checked
    assert tool["mypy"]["mypy_path"].split(":") == checked
    assert tool["ruff"]["src"] == checked
    names = [package.parts[1] for package in PACKAGES]
    assert tool["mypy"]["packages"] == [*names, CHAOS.name]
    assert sorted(tool["importlinter"]["root_packages"]) == sorted(names)


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_package_is_named_after_its_folder_and_typed(package: Path) -> None:
    folder, name = package.parts
    assert name == ("eunomia" if folder == "core" else f"eunomia_{folder}")
    assert (ROOT / package / "py.typed").exists()
    assert (ROOT / package / "__init__.py").read_text().startswith('"""')


def test_the_wheel_holds_the_five_packages_and_no_chaos_tool() -> None:
    files = [Path(file.distribution_path) for file in WheelBuilder(str(ROOT)).recurse_included_files()]
    assert {file.parts[0] for file in files} == {package.name for package in PACKAGES}
    tools = {folder.name for folder in CHAOS.iterdir() if (folder / "__main__.py").exists()}
    assert tools == {"crash_points", "damage", "fuzz", "kills"}
    assert [file for file in files if {CHAOS.name, *tools} & set(file.parts)] == []


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_no_file_of_a_package_names_a_module_of_chaos(package: Path) -> None:
    named = re.compile(r"\bchaos\.(kills|fuzz|crash_points|damage)\b|^\s*(import|from) chaos\b", re.MULTILINE)
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    assert [str(file) for file in files if named.search(file.read_text())] == []
