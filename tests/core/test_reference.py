"""The reference is that of the code, and what strangers rely on is there."""

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

import eunomia
import eunomia.arbiter
from eunomia.hookspecs import STAGE_HOOKS, Hooks

TESTS = Path(__file__).parents[1]
REFERENCE = TESTS.parent / "docs" / "reference"


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", TESTS / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_hook_is_documented_with_its_exact_signature(made: ModuleType) -> None:
    text = (REFERENCE / "hooks.md").read_text()
    assert text == made.hooks_page(), "make it anew: python tests/make_reference.py"
    for name, spec in vars(Hooks).items():
        if name.startswith("eunomia_"):
            given = ", ".join(inspect.signature(spec).parameters)
            said = text.partition(f"def {name}(")[2].partition("```")[0]
            names = [part.partition(":")[0].strip() for part in said.partition(") ->")[0].split(",")]
            assert ", ".join(name for name in names if name) == given
            assert (inspect.getdoc(spec) or "").split("\n")[0] in text
    assert set(STAGE_HOOKS) <= set(vars(Hooks))


def test_every_public_name_is_documented_with_its_current_signature(made: ModuleType) -> None:
    text = (REFERENCE / "api.md").read_text()
    assert text == made.api_page(), "make it anew: python tests/make_reference.py"
    for name in eunomia.__all__:
        assert name == "__version__" or f"\n### {name}\n" in text, name


def test_the_page_of_the_view_equals_the_one_made_from_the_code(made: ModuleType) -> None:
    text = (REFERENCE / "cluster-view.md").read_text()
    assert text == made.view_page(), "python tests/make_reference.py"
    assert set(made.VIEWS) == set(eunomia.arbiter.__all__) - {"Arbiter"}


def test_the_page_of_keys_equals_the_one_made_from_the_papers(made: ModuleType) -> None:
    assert (REFERENCE / "reproduce-keys.md").read_text() == made.keys_page(), "python tests/make_reference.py"


def test_every_public_name_can_be_imported() -> None:
    for name in eunomia.__all__:
        assert getattr(eunomia, name) is not None
    assert {*eunomia._HOME, "__version__"} == set(eunomia.__all__)


def test_every_name_that_the_page_on_stability_promises_exists(made: ModuleType) -> None:
    promised = made.promised((REFERENCE / "stability.md").read_text())
    now = made.stable()
    gone = {name for name in promised if name not in now}
    gone |= {f"{name}.{part}" for name, parts in promised.items() for part in parts if part not in now.get(name, parts)}
    assert gone == set(), "strangers depend on it"
    for hook in set(promised) & set(vars(Hooks)):
        assert now[hook][: len(promised[hook])] == promised[hook], "arguments keep their order"


def test_every_new_public_name_is_on_the_list_of_promised_names(made: ModuleType) -> None:
    page = REFERENCE / "stability.md"
    assert page.read_text() == made.stability_page(made.promised(page.read_text())), "python tests/make_reference.py"
