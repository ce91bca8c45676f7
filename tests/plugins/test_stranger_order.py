"""An order and an allocation from outside of the tree, as the guides teach them, decide as the built-in ones do."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from eunomia import Cluster, Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.platform.registry import Registry
from eunomia.testing.drive import Drive
from eunomia.units import AppId, JobId, UserId
from eunomia_plugins.allocations import ordered

PLUGIN = Path(__file__).parent / "shortest_first.py"
BACKFILLING = Path(__file__).parent / "short_gaps.py"
GUIDES = Path(__file__).parents[2] / "docs" / "how-to"
NOT_TABLES = {".resume.json", "run.json", "timings.parquet"}
DRAWN = "--workload gavel --set gavel.jobs=80 --set gavel.interarrival=60s -q --no-report -j 1 --no-progress"


def tables(folder: Path) -> dict[str, bytes]:
    """The tables of a run, without the profile's own text."""
    files = (path for path in folder.iterdir() if path.is_file() and path.name not in NOT_TABLES)
    return {path.name: path.read_bytes() for path in files}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """The preset ``srtf`` with the stranger's valuation, under the same name."""
    path = tmp_path / "srtf.toml"
    path.write_text('extends = "srtf"\n\n[stages]\nvaluation = "shortest_first"\n')
    return path


def simulated(out: Path, *more: str) -> dict[str, bytes]:
    """The tables of a simulation."""
    command = [sys.executable, "-m", "eunomia", "simulate", *DRAWN.split(), *more, "--speeds", "equal"]
    subprocess.run([*command, "--out", str(out)], check=True)
    return tables(out)


@pytest.mark.parametrize("cluster", ["2x8 V100", "2x4 V100, 2x4 P100"])
@pytest.mark.parametrize("more", [[], ["--plain"], ["--cost", "start=20s", "--failures", "between=3d"]])
def test_tables_of_the_plugin_equal_those_of_the_built_in_policy(
    tmp_path: Path, profile: Path, cluster: str, more: list[str]
) -> None:
    built_in = simulated(tmp_path / "built-in", "--cluster", cluster, *more, "--policy", "srtf")
    own = ["--policy", str(profile), "--plugin-path", str(PLUGIN)]
    assert {"jobs.parquet", "leases.parquet", "waits.parquet", "summary.csv"} <= set(built_in)
    assert simulated(tmp_path / "own", "--cluster", cluster, *more, *own) == built_in


@pytest.mark.parametrize("more", [[], ["--plain"], ["--cost", "start=20s", "--failures", "between=3d"]])
def test_a_backfilling_plugin_of_another_package_starts_the_same_jobs_as_easy(tmp_path: Path, more: list[str]) -> None:
    path = tmp_path / "easy.toml"
    path.write_text('extends = "easy"\n\n[stages]\nallocation = "short_gaps"\n')
    built_in = simulated(tmp_path / "built-in", "--cluster", "2x8 V100", *more, "--policy", "easy")
    own = ["--policy", str(path), "--plugin-path", str(BACKFILLING)]
    mine = simulated(tmp_path / "own", "--cluster", "2x8 V100", *more, *own)
    assert [mine[name] == built_in[name] for name in ("jobs.parquet", "leases.parquet")] == [True, True]


def test_jobs_of_the_plugin_stay_sorted_without_a_full_ranking(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No round of it ranks all jobs."""
    ranked = []
    monkeypatch.setattr(ordered, "serve_sizes", lambda *given: ranked.append(given))
    cluster = Cluster.parse("1x4 V100")
    stages = Profile.load(profile, registry=Registry.find(paths=[PLUGIN], installed=False)).stages(cluster)
    script: list[tuple[float, Event]] = []
    for number in range(12):
        app, work = AppId(f"a{number}"), {"iterations": 90.0 - 7.0 * number, "seconds_per_iteration": 1.0}
        script.append((float(number), AppArrived(app=app, user=UserId("ana"), divides=False)))
        script.append((float(number), JobAdded(job=JobId(f"{app}/0"), app=app, least=2, most=2, **work)))  # type: ignore[arg-type]
    work = {JobId(f"a{number}/0"): 90.0 - 7.0 * number for number in range(12)}
    done = Drive(Arbiter(cluster, stages, stages), work=work).run(script, until=4000.0)
    assert set(done.finished) == set(work)
    assert ranked == []


@pytest.mark.parametrize(
    ("plugin", "begins", "guide"),
    [(PLUGIN, "def seconds_left", "write-a-valuation.md"), (BACKFILLING, "def seconds_left", "write-an-allocation.md")],
)
def test_the_plugin_equals_that_of_the_guide_and_imports_only_public_names(
    plugin: Path, begins: str, guide: str
) -> None:
    text = plugin.read_text()
    assert text[text.index(begins) :] in (GUIDES / guide).read_text()
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom | ast.Import)]
    names = {alias.name for node in found if getattr(node, "module", "") == "eunomia" for alias in node.names}
    modules = {getattr(node, "module", "") or node.names[0].name for node in found}
    assert modules <= {"typing", "math", "heapq", "collections.abc", "numpy", "eunomia"}
    assert names <= set(sys.modules["eunomia"].__all__)
