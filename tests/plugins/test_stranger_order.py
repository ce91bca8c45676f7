"""An order from outside of the tree, written as the guide teaches, decides and is served like the built-in one."""

import subprocess
import sys
from pathlib import Path

import pytest

from eunomia import Cluster, Profile
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.platform.registry import Registry
from eunomia.round.arbiter import Arbiter
from eunomia.testing.drive import Drive
from eunomia.units import AppId, JobId, UserId
from eunomia_plugins.allocations.ordered import Ordered

PLUGIN = Path(__file__).parent / "shortest_first.py"
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-valuation.md"
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


@pytest.mark.parametrize("cluster", ["2x8 V100", "2x4 V100, 2x4 P100"])
@pytest.mark.parametrize("more", [[], ["--plain"], ["--cost", "start=20s", "--failures", "between=3d"]])
def test_its_tables_are_those_of_the_built_in(tmp_path: Path, profile: Path, cluster: str, more: list[str]) -> None:
    common = [
        sys.executable,
        "-m",
        "eunomia",
        "simulate",
        *DRAWN.split(),
        "--cluster",
        cluster,
        *more,
        "--speeds",
        "equal",
    ]
    subprocess.run([*common, "--policy", "srtf", "--out", str(tmp_path / "built-in")], check=True)
    own = ["--policy", str(profile), "--plugin-path", str(PLUGIN), "--out", str(tmp_path / "own")]
    subprocess.run([*common, *own], check=True)
    built_in = tables(tmp_path / "built-in")
    assert {"jobs.parquet", "leases.parquet", "waits.parquet", "summary.csv"} <= set(built_in)
    assert tables(tmp_path / "own") == built_in


def test_its_jobs_are_kept_sorted(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No round of it ranks all jobs."""
    ranked = []
    monkeypatch.setattr(Ordered, "_ranked", lambda *given: ranked.append(given))
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


def test_it_is_the_order_of_the_guide_and_has_public_names_alone() -> None:
    text = PLUGIN.read_text()
    assert text[text.index("class ShortestFirst") :] in GUIDE.read_text()
    imports = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert [line.split()[1] for line in imports] == ["typing", "numpy", "eunomia"]
    public = set(sys.modules["eunomia"].__all__)
    assert {name.strip() for name in imports[-1].partition("import")[2].split(",")} <= public
