import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pluggy
import pytest

from eunomia import Contract, Stage, hookimpl
from eunomia.errors import InputError, PluginError
from eunomia.hookspecs import STAGE_HOOKS, Hooks
from eunomia.platform.checking import SPECS, bind, check_plugin
from eunomia.platform.registry import DEFAULT_PLUGINS, Found, Registry, Status

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(body: str, *, name: str = "stranger.py") -> Path:
        path = tmp_path / name
        path.write_text("from eunomia import *\nfrom eunomia import hookimpl\n" + dedent(body))
        return path

    return to_file


GOOD = """
    class Lottery:
        name = "lottery"
        api = 1
        contracts = {Stage.ALLOCATION: Contract()}

        @hookimpl
        def eunomia_allocation(self, snapshot, offer):
            return None
"""


def test_built_in_plugins_load_and_pass_the_same_checks_as_installed_ones() -> None:
    registry = Registry.find(installed=False)
    listed = {item.found.name: item for item in registry.all()}
    assert set(DEFAULT_PLUGINS) <= set(listed)
    assert [item.error for item in listed.values()] == [None] * len(listed)
    assert listed["ordered"].stages == (Stage.ALLOCATION,)


def test_finding_plugins_imports_none_of_them() -> None:
    script = "import sys; from eunomia.platform.registry import Registry; r = Registry.find(); r.names; r.presets();"
    script += "print([name for name in sys.modules if name.startswith('eunomia_plugins.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=_env())
    assert done.stdout.strip() == "[]"


def test_a_plugin_in_a_file_is_found_by_its_class(write: Write) -> None:
    registry = Registry.find(paths=[write(GOOD)], installed=False)
    assert "lottery" in registry
    assert registry.listed("lottery").found.origin == "stranger.py"
    assert registry.load("lottery").__name__ == "Lottery"


@pytest.mark.parametrize(
    "body", ["1 / 0", "def f(:", "x = 1", "import sys; sys.exit(3)"], ids=["raises", "syntax", "no plugin", "exits"]
)
def test_a_file_without_a_plugin_is_refused(write: Write, body: str) -> None:
    with pytest.raises(InputError, match="--plugin-path"):
        Registry.find(paths=[write(body)], installed=False)


def test_a_class_with_hooks_but_no_name_is_refused_by_its_name(write: Write) -> None:
    unnamed = GOOD + GOOD.replace("Lottery", "Unnamed").replace('name = "lottery"', "weight = 1")
    with pytest.raises(InputError, match=r"must have the attributes name and api.*got Unnamed"):
        Registry.find(paths=[write(unnamed)], installed=False)


def test_a_private_class_with_hooks_needs_no_name(write: Write) -> None:
    base = GOOD + GOOD.replace("Lottery", "_Base").replace('name = "lottery"', "weight = 1")
    assert "lottery" in Registry.find(paths=[write(base)], installed=False)


def test_a_broken_plugin_is_listed_and_does_not_affect_others() -> None:
    broken = Found(name="curvy", target="nowhere_to_be_found:Curvy", origin="eunomia-curvy", version="0.3.0")
    registry = Registry({"curvy": broken, "fifo": Found(name="fifo", target=DEFAULT_PLUGINS["fifo"])})
    assert registry.listed("curvy").status is Status.BROKEN
    assert "No module named 'nowhere_to_be_found'" in (registry.listed("curvy").error or "")
    assert registry.listed("fifo").status is Status.OK
    with pytest.raises(PluginError, match='plugin "curvy" must load'):
        registry.load("curvy")


def test_a_plugin_of_another_api_version_is_listed_with_the_supported_version(write: Write) -> None:
    registry = Registry.find(paths=[write(GOOD.replace("api = 1", "api = 0"))], installed=False)
    assert registry.listed("lottery").status is Status.INCOMPATIBLE
    assert "api must be 1, but got 0" in (registry.listed("lottery").error or "")


DATACLASS = """
    import dataclasses
    @dataclasses.dataclass
    class Lottery:"""


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('name = "lottery"', 'name = "Lottery"', "name must be lower-case letters"),
        ("eunomia_allocation", "eunomia_alocation", 'did you mean "eunomia_allocation"?'),
        ("snapshot, offer", "snapshot, offers", 'did you mean "offer"?'),
        ("snapshot, offer", "snapshot, *, offer", "must be plain"),
        ("snapshot, offer", "*args", "must be plain"),
        ("        @hookimpl\n", "", "a hook must be marked @hookimpl"),
        ("        @hookimpl\n", "        @hookimpl(wrapper=True)\n", "answered, not wrapped"),
        ("return None", "yield None", "a stage must be a plain function"),
        ("Stage.ALLOCATION: Contract()", "'allocation': Contract()", "contracts must map stages to contracts"),
        ("Stage.ALLOCATION", "Stage.PLACEMENT", "contracts must be of stages that the plugin answers"),
        (
            "    class Lottery:",
            "    import dataclasses\n    @dataclasses.dataclass\n    class Lottery:",
            "equal to itself alone",
        ),
        ("        api = 1\n", "        api = 1\n        options_type = dict\n", "subclass of PluginOptions"),
    ],
)
def test_hooks_that_pluggy_would_ignore_are_errors_at_load(write: Write, old: str, new: str, error: str) -> None:
    assert old in GOOD
    registry = Registry.find(paths=[write(GOOD.replace(old, new))], installed=False)
    (item,) = [item for item in registry.all() if item.found.origin == "stranger.py"]
    assert item.status is Status.BROKEN
    assert error in (item.error or "")


def test_an_object_instead_of_a_class_is_refused() -> None:
    with pytest.raises(PluginError, match="a plugin must be a class"):
        check_plugin(object(), "thing")


def test_an_installed_plugin_cannot_use_a_built_in_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "eunomia.platform.registry._entry_points", lambda: [Found(name="fifo", target="evil:Fifo", origin="evil")]
    )
    rows = Registry.find().all()
    assert [row.status for row in rows if row.found.origin == "evil"] == [Status.BROKEN]
    assert [row.status for row in rows if row.found.name == "fifo" and row.found.origin == "eunomia"] == [Status.OK]


def test_a_file_cannot_use_a_built_in_name(write: Write) -> None:
    path = write(GOOD.replace('"lottery"', '"fifo"'))
    with pytest.raises(InputError) as refused:
        Registry.find(paths=[path], installed=False)
    rule = f"a plugin must have a name of its own, and {DEFAULT_PLUGINS['fifo']} has this one"
    assert str(refused.value) == f'{rule}, but got "fifo" ({path}:Lottery)'


def test_two_files_cannot_use_the_same_name(write: Write) -> None:
    first, second = write(GOOD), write(GOOD, name="second.py")
    with pytest.raises(InputError) as refused:
        Registry.find(paths=[first, second], installed=False)
    assert f"{first}:Lottery" in refused.value.rule
    assert refused.value.place == f"{second}:Lottery"
    assert "lottery" in Registry.find(paths=[first, first], installed=False)


def test_a_file_replaces_an_installed_plugin(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = Found(name="lottery", target="elsewhere:Lottery", origin="eunomia-lottery")
    monkeypatch.setattr("eunomia.platform.registry._entry_points", lambda: [installed])
    assert Registry.find(paths=[write(GOOD)]).listed("lottery").found.origin == "stranger.py"


def test_a_registry_can_be_sent_to_another_process(write: Write) -> None:
    registry = Registry.find(paths=[write(GOOD)], installed=False)
    registry.load("lottery")
    assert pickle.loads(pickle.dumps(registry)).load("lottery").name == "lottery"


class _Taker:
    @hookimpl
    def eunomia_allocation(self, offer: Any, snapshot: Any) -> tuple[Any, Any]:
        return offer, snapshot

    @hookimpl
    def eunomia_valuation(self, snapshot: Any, menus: Any, offer: Any) -> tuple[Any, Any, Any]:
        return snapshot, menus, offer


def test_a_stage_is_called_with_only_the_arguments_that_it_accepts() -> None:
    taker = _Taker()
    allocation = bind(taker, "eunomia_allocation")
    assert allocation is not None
    assert allocation("snapshot", "menus", "offer", "valuations") == ("offer", "snapshot")
    assert allocation("snapshot", "menus", offer="offer", valuations="v") == ("offer", "snapshot")
    assert bind(taker, "eunomia_placement") is None


def test_a_method_with_all_the_arguments_is_called_directly() -> None:
    taker = _Taker()
    assert bind(taker, "eunomia_valuation") == taker.eunomia_valuation


def test_every_stage_hook_has_a_spec_and_pluggy_agrees_on_its_arguments() -> None:
    manager = pluggy.PluginManager("eunomia")
    manager.add_hookspecs(Hooks)
    for hook in STAGE_HOOKS:
        spec = getattr(manager.hook, hook).spec
        assert tuple(spec.argnames) == SPECS[hook]
        assert spec.opts["firstresult"]


def test_pluggy_behaves_as_the_checks_of_plugins_assume() -> None:
    """Keyword-only parameters are not passed: why they are refused here."""
    manager = pluggy.PluginManager("eunomia")
    manager.add_hookspecs(Hooks)

    class KeywordOnly:
        @hookimpl
        def eunomia_round_finished(self, *, decision: object = "never passed") -> object:
            return decision

    manager.register(KeywordOnly())
    assert manager.hook.eunomia_round_finished(decision="passed") == ["never passed"]


def test_a_contract_of_an_instance_is_checked_when_it_is_created(write: Write) -> None:
    late = "        def __init__(self):\n            self.contracts = {Stage.REFINE: Contract()}\n\n        @hookimpl"
    body = GOOD.replace("contracts = {Stage.ALLOCATION: Contract()}", "").replace("        @hookimpl", late)
    registry = Registry.find(paths=[write(body)], installed=False)
    with pytest.raises(PluginError, match="contracts must be of stages"):
        registry.make("lottery", {}, alias="lottery", place=lambda path: "")


def test_contracts_are_compared_by_value() -> None:
    assert Contract() == Contract()


def _env() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
