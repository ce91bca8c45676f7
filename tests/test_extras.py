"""The smallest installation: the lists of packages agree with the imports, and simulations run without any extra."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from eunomia.extras import EXTRAS, extra_of, remedy
from eunomia.platform.registry import default_registry

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FLOORS = {
    "core/eunomia": {"testing"},
    "solvers/eunomia_solvers": {"solvers"},
    "plugins/eunomia_plugins": {"fast", "solvers"},
    "appmaster/eunomia_appmaster": {"live", "dev"},
    "engines/eunomia_engines": {"live", "kubernetes", "ray"},
    "hpo_adapters/eunomia_hpo_adapters": {"optuna", "syne-tune", "ray-tune"},
    "testbed/eunomia_testbed": {"live"},
    "market/eunomia_market": {"solvers"},
}
"""The extras that a package may import from, above the smallest installation."""

PARTS = {"annotated_types": "pydantic", "pydantic_core": "pydantic"}
"""Modules that another package brings with it."""

MODULE_OF = {
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "grpcio-tools": "grpc_tools",
    "nvidia-ml-py": "pynvml",
    "prometheus-client": "prometheus_client",
    "protobuf": "google",
    "scikit-learn": "sklearn",
    "syne-tune": "syne_tune",
}
"""Modules whose names differ from their packages'."""

BLOCKED = sorted(module for modules in EXTRAS.values() for module in modules)
SITE = f"""
import sys

BLOCKED = {BLOCKED!r}

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if any(f"{{name}}.".startswith(f"{{one}}.") for one in BLOCKED):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
"""Imported by every Python process below, including those that a simulation starts."""


SIMULATE = ["simulate", "--workload", "gavel", "--set", "gavel.jobs=5", "--cluster", "1x4 V100", "--until", "30m"]


def modules_of(requirements: list[str]) -> set[str]:
    names = [re.split(r"[\[<>=; ]", one)[0] for one in requirements]
    return {MODULE_OF.get(name, name.replace("eunomia-", "eunomia_")) for name in names if name != "eunomia"}


SMALLEST = modules_of(PROJECT["dependencies"])
BY_EXTRA = {extra: modules_of(names) for extra, names in PROJECT["optional-dependencies"].items()}


def imported(folder: Path) -> dict[str, list[str]]:
    """Third-party modules that a package imports, at the top of a file or inside functions, with file and line."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            for module in names_in(node):
                top = module.partition(".")[0]
                if top not in sys.stdlib_module_names and not top.startswith("eunomia"):
                    found.setdefault(PARTS.get(top, top), []).append(f"{file.relative_to(ROOT)}:{node.lineno}")
    return found


def names_in(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith("import_module"):
        first = node.args[0]
        return [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
    return []


@pytest.mark.parametrize("folder", FLOORS)
def test_a_package_imports_only_packages_on_its_lists(folder: str) -> None:
    allowed = SMALLEST.union(*(BY_EXTRA[extra] for extra in FLOORS[folder]))
    beyond = {module: places for module, places in imported(ROOT / folder).items() if module not in allowed}
    assert not beyond


def test_every_listed_package_is_imported() -> None:
    used = set().union(*(imported(ROOT / folder) for folder in FLOORS))
    # torch.utils.tensorboard imports tensorboard; `make test` runs pytest for the conformance suite.
    behind = {"tensorboard", "pytest", "eunomia_market"}  # the last by its entry point
    listed = SMALLEST.union(*(BY_EXTRA[extra] for extra in EXTRAS))
    assert listed - used - behind == set()


def test_the_table_of_extras_equals_that_of_pyproject() -> None:
    assert {extra: {module.partition(".")[0] for module in EXTRAS[extra]} for extra in EXTRAS} == {
        extra: BY_EXTRA[extra] for extra in EXTRAS
    }
    assert PROJECT["optional-dependencies"]["all"] == [f"eunomia[{','.join(EXTRAS)}]"]
    assert "eunomia[all]" in PROJECT["optional-dependencies"]["dev"]
    assert not SMALLEST & set().union(*BY_EXTRA.values())


def test_every_listed_package_is_pinned() -> None:
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().split()}
    listed = [
        *PROJECT["dependencies"],
        *(name for names in PROJECT["optional-dependencies"].values() for name in names),
    ]
    names = {re.split(r"[\[<>=; ]", one)[0].lower().replace("-", "_") for one in listed} - {"eunomia", "eunomia_market"}
    assert names <= {name.replace("-", "_") for name in pinned}


def test_each_module_maps_to_its_extra() -> None:
    assert extra_of("torch.utils.tensorboard") == extra_of("google") == "live"
    assert extra_of("numpy") is None
    assert extra_of("grpcx") is None
    assert remedy("live") == "pip install 'eunomia[live]'"


@pytest.fixture
def smallest(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds no module of any extra."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    paths = [str(site), *(str((ROOT / folder).parent) for folder in FLOORS)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "EUNOMIA_NO_PLUGINS": "1"}


def eunomia(arguments: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    script = "from eunomia.cli import main; main()"
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_smallest_installation_simulates_every_preset(smallest: dict[str, str], tmp_path: Path) -> None:
    probe = "import importlib.util as u; from eunomia.extras import is_installed; print(is_installed('torch'))"
    seen = subprocess.run([sys.executable, "-c", probe], env=smallest, capture_output=True, text=True, check=True)
    assert seen.stdout == "False\n"
    presets = sorted(default_registry().presets())
    assert {"themis", "gandiva", "max_min_fairness", "min_total_duration"} <= set(presets)
    policies = [f"--policy={name}" for name in presets]
    more = ["--cluster", "1x4 V100 16cpu 64GiB", "--set", "gavel.interarrival=2m", "--out", "run", "--strict-plugins"]
    ran = eunomia([*SIMULATE, *policies, *more], smallest, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert all(re.search(rf"^{name} ", ran.stdout, re.MULTILINE) for name in presets), ran.stdout
    assert (tmp_path / "run" / "report.html").exists()
    listed = eunomia(["plugins"], smallest, tmp_path)
    assert listed.returncode == 0 and "broken" not in listed.stdout


def test_the_smallest_installation_compares_runs(smallest: dict[str, str], tmp_path: Path) -> None:
    whole = ["--policy", "las", "--policy", "fifo", "--seeds", "0-1", "--until", "300d", "--csv", "--out", "run"]
    assert eunomia([*SIMULATE, *whole], smallest, tmp_path).returncode == 0
    compared = eunomia(["compare", "run:las", "run:fifo"], smallest, tmp_path)
    assert compared.returncode == 0, compared.stderr


@pytest.mark.parametrize("more", [[], ["--agents"]], ids=["searches", "agents"])
def test_the_smallest_installation_simulates_searches_and_agents(
    smallest: dict[str, str], tmp_path: Path, more: list[str]
) -> None:
    common = ["simulate", "--workload", "themis1", "--cluster", "2x4 V100", "--policy", "themis", "--until", "1h"]
    ran = eunomia([*common, "--speeds", "analytic", *more, "--out", "run"], smallest, tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("serve", "live"),
        ("demo", "live"),
        ("submit app.toml", "live"),
        ("apps", "live"),
        ("explain app/1", "live"),
        ("cancel app", "live"),
        ("resume app", "live"),
        ("best app", "live"),
        ("logs app/1", "live"),
        ("certificates folder", "live"),
        ("market instance.toml", "market"),
    ],
)
def test_a_command_without_its_extra_prints_one_error_line_and_changes_nothing(
    smallest: dict[str, str], tmp_path: Path, arguments: str, extra: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    ran = eunomia(arguments.split(), {**smallest, "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}, tmp_path)
    assert ran.returncode == 2
    name = arguments.partition(" ")[0]
    (line,) = ran.stderr.splitlines()
    assert line.startswith(
        f"error: eunomia {name} needs the extra \"{extra}\": pip install 'eunomia[{extra}]', but got"
    )
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("policy", ["themis", "allox", "max_min_fairness"])
def test_the_specification_without_its_solvers_is_refused_before_anything_runs(
    smallest: dict[str, str], tmp_path: Path, policy: str
) -> None:
    ran = eunomia(
        [*SIMULATE, "--policy", policy, "--set", f"plugins.{policy}.solver=reference", "--out", "run"],
        smallest,
        tmp_path,
    )
    assert ran.returncode == 2
    assert ran.stderr == (
        "error: solver must be \"fast\" where cvxpy is not installed (pip install 'eunomia[solvers]'), "
        f'but got "reference" (--set plugins.{policy}.solver)\n'
    )
    assert not (tmp_path / "run").exists()


def test_the_smallest_installation_loads_and_simulates_a_policy_from_a_file(
    smallest: dict[str, str], tmp_path: Path
) -> None:
    file = ROOT / "docs" / "examples" / "eunomia_lottery" / "eunomia_lottery.py"
    ran = eunomia([*SIMULATE, "--policy", "lottery", "--out", "run", "--plugin-path", str(file)], smallest, tmp_path)
    assert ran.returncode == 0, ran.stderr
    script = (
        f"import sys; sys.path.insert(0, {str(file.parent)!r})\n"
        "from eunomia.testing.conformance import PolicyConformance\n"
        "from eunomia_lottery import Lottery\n"
        "print(sum(name.startswith('test_') for name in dir(PolicyConformance)) > 0, Lottery.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=smallest, capture_output=True, text=True, check=False)
    assert done.stdout == "True lottery\n", done.stderr


def test_the_table_of_modules_agrees_with_the_installed_packages() -> None:
    """MODULE_OF agrees with the metadata of the installed packages."""
    brought = metadata.packages_distributions()
    for package, module in MODULE_OF.items():
        if module in BY_EXTRA["syne-tune"] and module not in brought:
            continue  # it is no part of "all"
        assert package.lower() in {name.lower().replace("_", "-") for name in brought[module]}
