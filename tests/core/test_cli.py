import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import eunomia
from eunomia import cli, commands
from eunomia.cli import run, take_plugin_flags
from eunomia.commands import Command, all_commands
from eunomia.errors import EunomiaError, InputError, InputErrors, UnreachableError
from eunomia.platform.registry import default_registry

HEAVY = ("torch", "tensorboard", "cvxpy", "gurobipy", "pydantic", "polars", "scipy", "structlog", "rich", "grpc")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("EUNOMIA_PLUGIN_PATH", "EUNOMIA_NO_PLUGINS", "EUNOMIA_TRACE_PLUGINS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    default_registry.cache_clear()
    yield
    default_registry.cache_clear()


def python(script: str) -> str:
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def loaded(script: str) -> set[str]:
    return set(
        python(f"import sys\n{script}\nprint()\nprint(*(n.split('.')[0] for n in sys.modules))").split("\n")[-2].split()
    )


def test_importing_eunomia_imports_no_heavy_library() -> None:
    assert not loaded("import eunomia") & {*HEAVY, "numpy", "typer"}


def test_the_modules_that_a_policy_author_imports_load_neither_solvers_nor_torch() -> None:
    names = "Allocation, Contract, Feature, Menus, Offer, PluginOptions, Promise, Reason, Snapshot, Stage, hookimpl"
    assert not loaded(f"from eunomia import {names}, Cluster, Profile") & ({*HEAVY} - {"pydantic"})


def test_help_imports_neither_commands_nor_heavy_libraries() -> None:
    script = "from eunomia.cli import run; run(['--help'])"
    modules = loaded(script)
    assert not modules & {*HEAVY, "eunomia_appmaster", "eunomia_testbed", "eunomia_plugins"}


def test_every_exported_name_can_be_imported_from_eunomia() -> None:
    for name in eunomia.__all__:
        assert getattr(eunomia, name) is not None
    assert set(eunomia.__all__) - {"__version__"} == set(eunomia._HOME)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = eunomia.nothing  # type: ignore[attr-defined]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {command.name} " in shown and command.help[:20] in shown for command in commands.BUILT_IN)


def test_the_version_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"eunomia {eunomia.__version__}\n"


def test_the_plugins_command_lists_every_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins"]) == 0
    shown = capsys.readouterr().out
    assert "ordered" in shown
    assert "broken" not in shown
    assert shown.splitlines()[0].split() == ["PLUGIN", "VERSION", "STAGES", "FROM", "STATUS"]
    profiles = shown.splitlines()[-1]
    assert profiles.startswith("Profiles: ")
    assert {"default", "demo", "themis"} <= set(profiles.split())


def test_the_plugins_command_prints_plugins_with_options_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["schema"] == "eunomia/plugins@1"
    (ordered,) = [row for row in facts["plugins"] if row["name"] == "ordered"]
    assert ordered["options"]["on_misfit"]["enum"] == ["skip", "stop", "easy", "conservative"]
    assert ordered["options"]["on_misfit"]["default"] == "skip"
    for row in facts["plugins"]:
        assert all(option.get("description") for option in row["options"].values()), row["name"]


def test_a_plugin_file_is_listed_whatever_the_position_of_the_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.py"
    path.write_text("class Odd:\n    name = 'odd'\n    api = 0\n    def eunomia_elasticity(self): ...\n")
    assert run(["plugins", "--plugin-path", str(path), "--no-plugins"]) == 0
    assert "incompatible: api must be 1, but got 0" in capsys.readouterr().out


def test_the_profile_command_prints_each_value_with_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--resolve", "las", "--set", "rounds.lease=5m"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith('lease = "5m"') and line.endswith("# --set rounds.lease") for line in lines)
    assert any(line.startswith('valuation = "las"') and line.endswith("# las.toml") for line in lines)


def test_bad_input_gives_one_error_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--resolve", "las", "--set", "rounds.lease=-5s", "--set", "stages.placement=pakced"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        'error: lease must be a positive duration with a unit, such as "10m", but got "-5s" (--set rounds.lease)',
        'error: placement must name a plugin that answers placement, but got "pakced"; did you mean "packed"? '
        "(--set stages.placement)",
    ]


def test_errors_are_printed_as_json_if_requested(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--json", "--resolve", "nothing"]) == 2
    facts = json.loads(capsys.readouterr().err)
    assert facts["schema"] == "eunomia/error@1"
    assert facts["errors"][0]["place"] == "--resolve"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plgins"], 'did you mean "plugins"?'),
        (["plugins", "--jsn"], "No such option"),
        (["plugins", "--resolve"], "requires an argument"),
        (["plugins", "extra"], "unexpected extra argument"),
        (["plugins", "--plugin-path"], "--plugin-path must name a file"),
        (["plugins", "--plugin-path", "/nowhere.py"], "a plugin path must name a file"),
    ],
)
def test_wrong_usage_of_a_command_gives_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("error: ")


def test_the_command_without_arguments_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Usage: eunomia" in capsys.readouterr().err


def _answers(monkeypatch: pytest.MonkeyPatch, body: object) -> None:
    module = type(sys)("probe_of_the_command_line")
    module.call = body  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    table = {"probe": Command(name="probe", help="Probe.", target=f"{module.__name__}:call")}
    monkeypatch.setattr(cli, "all_commands", lambda *, installed: table)


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (InputError("a"), 2),
        (InputErrors([InputError("a"), InputError("b")]), 2),
        (UnreachableError("arbiter must answer"), 4),
        (EunomiaError("a"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_kind_of_error_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int
) -> None:
    def call() -> None:
        raise raised

    _answers(monkeypatch, call)
    assert run(["probe"]) == code


def test_the_return_value_of_a_command_is_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, lambda: 1)
    assert run(["probe"]) == 1
    _answers(monkeypatch, lambda: None)
    assert run(["probe"]) == 0


def test_an_unexpected_error_writes_a_report_and_prints_its_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def call() -> None:
        raise ZeroDivisionError("by nought")

    _answers(monkeypatch, call)
    assert run(["probe"]) == 3
    err = capsys.readouterr().err
    assert "error: Eunomia met a fault of its own: ZeroDivisionError: by nought" in err
    (report,) = (tmp_path / "state" / "eunomia" / "faults").iterdir()
    assert str(report) in err
    assert "by nought" in report.read_text()
    assert "Traceback" in report.read_text()


def test_a_command_that_fails_to_import_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"gone": Command(name="gone", help="Gone.", target="nowhere_at_all:call")}
    monkeypatch.setattr(cli, "all_commands", lambda *, installed: table)
    assert run(["gone"]) == 3
    assert 'command "gone" must load, but got No module named' in capsys.readouterr().err


def test_an_installed_command_is_named_and_replaces_no_built_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    entries = [EntryPoint("plugins", "evil:call", commands.GROUP), EntryPoint("extra", "more:call", commands.GROUP)]
    monkeypatch.setattr(commands.importlib.metadata, "entry_points", lambda group: entries)
    table = all_commands()
    assert table["plugins"].target == "eunomia_testbed.commands.plugins:plugins"
    assert table["extra"].target == "more:call"
    assert "extra" not in all_commands(installed=False)


def test_plugin_flags_are_accepted_anywhere_before_the_double_dash() -> None:
    rest = take_plugin_flags(["measure", "--plugin-path=a.py", "--", "--plugin-path", "b.py"])
    assert rest == ["measure", "--", "--plugin-path", "b.py"]
    assert os.environ["EUNOMIA_PLUGIN_PATH"] == str(Path("a.py").absolute())


def test_every_call_of_a_stage_is_traced_if_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    from structlog.testing import capture_logs

    from eunomia import Profile
    from eunomia.testing.builders import World

    assert take_plugin_flags(["serve", "--trace-plugins"]) == ["serve"]
    with capture_logs() as calls:
        Profile.load("default").stages().elasticity(World().snapshot())
    assert [(call["event"], call["plugin"], call["hook"], call["answer"]) for call in calls] == [
        ("hook.called", "fixed", "eunomia_elasticity", "Menus")
    ]
