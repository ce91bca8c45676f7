"""A package of one's own from `pip install` to `pip uninstall`: an environment of its own, nothing fetched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "docs" / "examples" / "eunomia_lottery"
FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
LIMIT_SECONDS = 120.0
DEMO_SECONDS = 420.0


class Place:
    """An environment that sees what this one has, and installs into itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        (site,) = (folder / "venv").glob("lib/python*/site-packages")
        seen = [sysconfig.get_path("purelib"), *(str(ROOT / floor) for floor in FLOORS)]
        (site / "outside.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in seen))
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("EUNOMIA", "PYTHON"))}
        self.env |= {"XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder / "run")}
        (folder / "run").mkdir(mode=0o700)

    def run(self, *arguments: str, cwd: Path | None = None, limit: float = LIMIT_SECONDS) -> str:
        done = subprocess.run(
            [self.python, *arguments],
            capture_output=True,
            text=True,
            env=self.env,
            cwd=cwd or self.folder,
            timeout=limit,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def eunomia(self, *arguments: str) -> str:
        return self.run(*command(arguments))

    def pip(self, *arguments: str) -> None:
        """The pip of this environment, or where it has none the one outside, told where to install."""
        have = subprocess.run([self.python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
        outside = [shutil.which("python3") or "python3", "-m", "pip", "--python", str(self.python)]
        pip = [str(self.python), "-m", "pip"] if have else outside
        words = [*pip, "--disable-pip-version-check", *arguments]
        done = subprocess.run(
            words, capture_output=True, text=True, env=self.env, cwd=self.folder, timeout=LIMIT_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    def install(self, package: Path) -> None:
        self.pip("install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", str(package))

    def plugins(self) -> dict[str, dict[str, Any]]:
        listed = json.loads(self.eunomia("plugins", "--json"))["plugins"]
        return {plugin["name"]: plugin for plugin in listed}


def command(arguments: Sequence[str]) -> list[str]:
    return ["-c", "from eunomia.cli import main; main()", *arguments]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The environment with the lottery in it; taken out again at the end."""
    made = Place(tmp_path_factory.mktemp("stranger"))
    shutil.copytree(PACKAGE, made.folder / "eunomia_lottery", ignore=shutil.ignore_patterns("__pycache__", "dist"))
    assert "lottery" not in made.plugins()
    made.install(made.folder / "eunomia_lottery")
    yield made
    made.pip("uninstall", "--quiet", "--yes", "eunomia-lottery")
    assert "lottery" not in made.plugins()


def test_the_whole_example_package_has_under_60_lines() -> None:
    files = (PACKAGE / "pyproject.toml", PACKAGE / "eunomia_lottery.py")
    assert sum(len(file.read_text().splitlines()) for file in files) < 60


def test_the_policy_is_listed_with_its_package_and_options(place: Place) -> None:
    lottery = place.plugins()["lottery"]
    assert (lottery["version"], lottery["from"], lottery["status"]) == ("0.1.0", "eunomia-lottery", "ok")
    assert lottery["stages"] == ["allocation"]
    assert lottery["options"]["tickets"]["default"] == "weight"
    (line,) = [line for line in place.eunomia("plugins").splitlines() if line.startswith("lottery")]
    assert line.split() == ["lottery", "0.1.0", "allocation", "eunomia-lottery", "ok"]


def test_the_policy_passes_the_conformance_suite(place: Place) -> None:
    said = place.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_lottery.py", cwd=place.folder / PACKAGE.name)
    assert " passed" in said
    assert "failed" not in said


APP = """
[app]
name = "pair"
[job]
command = "python wait.py"
slots = 1
max_iterations = 10
[space]
lr = { type = "float", low = 0.01, high = 0.1 }
[tuner]
kind = "none"
trials = 2
"""
WAIT = """
import os, time
while not os.path.exists("go"):
    time.sleep(0.05)
"""


def test_real_jobs_run_under_the_policy_and_a_waiting_one_is_explained(place: Place) -> None:
    state = place.folder / "live"
    words = ["serve", "--policy", "lottery", "--slots", "1", "--cpu-only", "--address", "127.0.0.1:0", "--json"]
    server = subprocess.Popen(
        [place.python, *command([*words, "--state-dir", str(state)])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=place.env,
        cwd=place.folder,
    )
    try:
        assert server.stdout is not None
        assert json.loads(server.stdout.readline())["policy"] == "lottery"
        (place.folder / "pair.toml").write_text(APP)
        (place.folder / "wait.py").write_text(WAIT)
        place.eunomia("submit", "pair.toml", "--quiet", "--state-dir", str(state))
        said = until(lambda: outranked(place, state))
        assert (said["plugin"], said["stage"], said["state"]) == ("lottery", "allocation", "waiting")
        (place.folder / "go").touch()
        until(lambda: "finished" in place.eunomia("explain", "pair", "--json", "--state-dir", str(state)) or None)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT_SECONDS) == 0


def outranked(place: Place, state: Path) -> dict[str, Any] | None:
    """What is said of the trial that lost the draw for the only slot."""
    lines = place.eunomia("explain", "pair", "--json", "--state-dir", str(state)).splitlines()
    return next((said for said in map(json.loads, lines) if said["reason"] == "outranked"), None)


def until(look: Any) -> Any:
    deadline = time.monotonic() + LIMIT_SECONDS
    while (seen := look()) is None:
        assert time.monotonic() < deadline
    return seen


@pytest.mark.slow
@pytest.mark.timeout(DEMO_SECONDS + 60)
def test_the_demo_runs_under_the_policy_and_a_wait_is_explained(place: Place) -> None:
    out = place.folder / "demo"
    said = json.loads(
        place.run(*command(["demo", "--policy", "lottery", "--json", "--out", str(out)]), limit=DEMO_SECONDS)
    )
    assert {app["state"] for app in said["apps"]} == {"finished"}
    assert len(said["apps"]) == 4
    asked = [("explain", f"halving/{trial}", "--run", str(out), "--history", "--json") for trial in range(1, 9)]
    history = [json.loads(line) for arguments in asked for line in place.eunomia(*arguments).splitlines()]
    assert ("outranked", "lottery") in {(stretch["reason"], stretch["plugin"]) for stretch in history}


PARTY = """
from pathlib import Path

from eunomia import hookimpl


class Party:
    \"\"\"Brings a preset and a command.\"\"\"

    name = "party"
    api = 1

    @hookimpl
    def eunomia_profiles(self):
        return {"calm": Path(__file__).with_name("calm.toml")}


def cheer(loudly: bool = False) -> None:
    \"\"\"Cheer.\"\"\"
    print("HURRAY" if loudly else "hurray")
"""
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "eunomia-party"
version = "0.2.0"
[project.entry-points.eunomia]
party = "eunomia_party:Party"
[project.entry-points."eunomia.commands"]
cheer = "eunomia_party:cheer"
demo = "eunomia_party:cheer"
"""


def test_a_package_can_add_presets_and_commands(place: Place) -> None:
    package = place.folder / "party"
    (package / "eunomia_party").mkdir(parents=True)
    (package / "pyproject.toml").write_text(PROJECT)
    (package / "eunomia_party" / "__init__.py").write_text(PARTY)
    (package / "eunomia_party" / "calm.toml").write_text('extends = "default"\nstages.placement = "spread"\n')
    place.install(package)
    assert "calm" in place.eunomia("plugins").splitlines()[-1].split()
    assert 'placement = "spread"' in place.eunomia("plugins", "--resolve", "calm")
    told = place.eunomia("--help")
    assert "From eunomia-party." in told
    assert told.count("From eunomia-party.") == 1  # a built-in command is not replaced
    assert place.eunomia("cheer", "--loudly") == "HURRAY\n"
    assert "cheer" not in place.eunomia("--no-plugins", "--help")
    place.pip("uninstall", "--quiet", "--yes", "eunomia-party")
    assert "calm" not in place.eunomia("plugins").splitlines()[-1].split()
