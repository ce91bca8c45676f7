"""The house: the lists of packages that several tools keep must agree, and every package says that it is typed."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [Path(name) for name in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
ROOTS = [package.parts[0] for package in PACKAGES]


def test_five_roots_stand_in_every_list() -> None:
    tool = PYPROJECT["tool"]
    assert len(ROOTS) == 5
    assert tool["pytest"]["ini_options"]["pythonpath"] == ROOTS
    assert tool["mypy"]["mypy_path"].split(":") == ROOTS
    assert tool["ruff"]["src"] == ROOTS
    names = [package.parts[1] for package in PACKAGES]
    assert tool["mypy"]["packages"] == names
    assert sorted(tool["importlinter"]["root_packages"]) == sorted(names)


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_package_is_named_after_its_folder_and_typed(package: Path) -> None:
    folder, name = package.parts
    assert name == ("eunomia" if folder == "core" else f"eunomia_{folder}")
    assert (ROOT / package / "py.typed").exists()
    assert (ROOT / package / "__init__.py").read_text().startswith('"""')
