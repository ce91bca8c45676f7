"""Many simulations: the same results however they are spread, interrupted and gone on with; folders refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_testbed import simulate
from eunomia_testbed.metrics.intervals import interval, t_quantile
from eunomia_testbed.results import RunData
from eunomia_testbed.results.writing import DiskError, replacing
from eunomia_testbed.running.display import Lines, bar_line, simulated
from eunomia_testbed.running.manifest import workload_hash
from eunomia_testbed.running.many import run_plan
from eunomia_testbed.running.plan import Cell, Plan, sped_up
from eunomia_testbed.running.pool import processes_for
from eunomia_testbed.running.portable import packed, unpacked
from eunomia_testbed.running.watching import Silent
from eunomia_testbed.simulator import Progress, SimulationOptions
from eunomia_testbed.workload import Workload

CLUSTER = Cluster.parse("2x2 V100")
NOT_REPEATED = ("run.json", "timings.parquet", "timings.csv", "report.html")


def workload(jobs: int = 12, seed: int = 0) -> Workload:
    draws = np.random.default_rng(seed)
    return Workload.single_jobs(
        "drawn",
        ids=[f"j{row}" for row in range(jobs)],
        users=["ana" if row % 2 else "bob" for row in range(jobs)],
        arrival_seconds=np.sort(draws.uniform(0, 100, jobs)) - 0.0,
        gpus=draws.choice([1, 2], jobs),
        iterations=draws.uniform(10, 100, jobs).round(),
        seconds_per_iteration=np.ones(jobs),
    )


def plan(*, policies: tuple[str, ...] = ("fifo", "srtf"), seeds: tuple[int, ...] = (0, 1), **more: object) -> Plan:
    return Plan(
        workloads={seed: workload() for seed in seeds},  # of each seed its own, so that no seed repeats another
        cluster=CLUSTER,
        cluster_text="machines = []\n",
        profiles={name: Profile.load(name) for name in policies},
        **more,  # type: ignore[arg-type]
    )


def files(folder: Path) -> dict[str, bytes]:
    """What must come out the same each time."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.name not in NOT_REPEATED}


class Interrupt(Silent):
    """Presses Ctrl-C when the cell of this number begins."""

    def __init__(self, at: int) -> None:
        self.began_so_far: list[Cell] = []
        self.at = at

    def began(self, cell: Cell) -> None:
        self.began_so_far.append(cell)
        if len(self.began_so_far) == self.at:
            raise KeyboardInterrupt


def test_results_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    one = run_plan(plan(csv=True), tmp_path / "one", processes=1, report=False)
    two = run_plan(plan(csv=True), tmp_path / "two", processes=2, report=False)
    assert (one.done, one.cells, one.ended) == (4, 4, "finished")
    assert files(one.folder) == files(two.folder)
    assert {"jobs.parquet", "jobs.csv", "summary.csv", "dropped.csv", "queue.parquet"} <= set(files(one.folder))
    assert RunData.load(one.folder).runs() == [("fifo", 0), ("fifo", 1), ("srtf", 0), ("srtf", 1)]


def test_an_interrupted_run_keeps_its_results_and_can_be_resumed(tmp_path: Path) -> None:
    whole = run_plan(plan(), tmp_path / "whole", processes=1, report=False)
    broken = run_plan(plan(), tmp_path / "run", processes=1, report=False, watch=Interrupt(3))
    assert (broken.ended, broken.done) == ("interrupted", 2)
    assert RunData.load(broken.folder).runs() == [("fifo", 0), ("fifo", 1)]
    assert json.loads((broken.folder / "run.json").read_text())["ended"] == "interrupted"
    watch = Interrupt(99)
    resumed = run_plan(plan(), tmp_path / "run", processes=1, report=False, resume=True, watch=watch)
    assert [cell.policy for cell in watch.began_so_far] == ["srtf", "srtf"]
    assert (resumed.ended, resumed.done) == ("finished", 4)
    assert files(resumed.folder) == files(whole.folder)


def test_resuming_a_finished_run_simulates_nothing(tmp_path: Path) -> None:
    first = run_plan(plan(), tmp_path / "run", processes=1, report=False)
    before = files(first.folder)
    watch = Interrupt(1)
    again = run_plan(plan(), tmp_path / "run", processes=1, report=False, resume=True, watch=watch)
    assert not watch.began_so_far
    assert (again.done, files(again.folder)) == (4, before)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        (plan(policies=("fifo", "las")), "but got other policies or settings"),
        (plan(seeds=(0, 2)), "but got other seeds"),
        (plan(loads=(2.0,)), "but got other loads"),
        (plan(options=SimulationOptions(answer_seconds=1.0)), "but got other options of the simulation"),
        (plan(rho="static"), "but got other rho, limit or form of the tables"),
    ],
)
def test_a_folder_of_another_command_is_not_resumed(changed: Plan, word: str, tmp_path: Path) -> None:
    run_plan(plan(), tmp_path / "run", processes=1, report=False, watch=Interrupt(2))
    before = files(tmp_path / "run")
    with pytest.raises(InputError, match=word):
        run_plan(changed, tmp_path / "run", resume=True)
    assert files(tmp_path / "run") == before


def test_a_changed_workload_has_another_hash() -> None:
    assert workload_hash(workload()) == workload_hash(workload())
    assert workload_hash(workload(seed=1)) != workload_hash(workload())
    assert workload_hash(sped_up(workload(), 2.0)) != workload_hash(workload())


def test_an_existing_folder_is_refused_and_may_be_replaced(tmp_path: Path) -> None:
    few = plan(policies=("fifo",), seeds=(0,))
    run_plan(few, tmp_path / "run", report=False)
    with pytest.raises(InputError, match="--out must name a new folder, unless --overwrite is given"):
        run_plan(few, tmp_path / "run", report=False)
    assert run_plan(few, tmp_path / "run", report=False, overwrite=True).done == 1
    with pytest.raises(InputError, match="--resume must name a folder that an interrupted simulation left"):
        (tmp_path / "other").mkdir()
        run_plan(few, tmp_path / "other", resume=True)
    with pytest.raises(InputError, match="--resume and --overwrite"):
        run_plan(few, tmp_path / "run", resume=True, overwrite=True)


def test_the_option_load_lets_the_same_jobs_arrive_faster(tmp_path: Path) -> None:
    outcome = run_plan(plan(policies=("fifo",), seeds=(0,), loads=(1.0, 4.0)), tmp_path / "run", report=False)
    run = RunData.load(outcome.folder)
    assert run.runs() == [("fifo", 0), ("fifo x4", 0)]
    slow, fast = (run.only(policy, 0).jobs["arrival_seconds"].to_numpy() for policy in ("fifo", "fifo x4"))
    np.testing.assert_allclose(slow, fast * 4)
    assert run.facts is not None
    assert run.facts.loads == {"fifo x4": 4.0}
    assert outcome.metrics["jct_mean_seconds"][1] > outcome.metrics["jct_mean_seconds"][0]


def test_jobs_that_cannot_run_on_the_cluster_are_listed_as_dropped(tmp_path: Path) -> None:
    wide = Workload.single_jobs(
        "wide", ids=["fits", "wide"], arrival_seconds=np.zeros(2), gpus=np.array([1, 64]), iterations=np.ones(2),
        seconds_per_iteration=np.ones(2),
    )  # fmt: skip
    few = Plan(workloads={0: wide, 1: wide}, cluster=CLUSTER, cluster_text="", profiles={"fifo": Profile.load("fifo")})
    outcome = run_plan(few, tmp_path / "run", report=False)
    rows = (outcome.folder / "dropped.csv").read_text().splitlines()
    assert sum(outcome.dropped.values()) == 1
    assert rows[0] == "file,line,rule,value"
    assert rows[1].startswith("wide,,a gang must be at most the cluster's 4 GPUs,64")
    assert RunData.load(outcome.folder).jobs["state"].to_list()[:2] == ["finished", "rejected"]


def test_a_full_disk_is_reported_and_leaves_readable_tables(tmp_path: Path) -> None:
    script = f"""
import resource, sys
sys.path[:0] = {sys.path!r}
from tests_plan import plan
from pathlib import Path
from eunomia_testbed.running.many import run_plan
from eunomia.errors import EunomiaError
out = Path({str(tmp_path / "run")!r})
run_plan(plan(policies=("fifo",), seeds=(0,)), out, report=False)
before = sorted(path.name for path in out.rglob("*.parquet"))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    run_plan(plan(policies=("fifo",), seeds=(0,)), Path({str(tmp_path / "full")!r}), report=False)
except EunomiaError as error:
    print(type(error).__name__, error)
"""
    (tmp_path / "tests_plan.py").write_text(Path(__file__).read_text())
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert "DiskError results must fit on a disk that can be written, but got" in done.stdout, done.stderr
    full = tmp_path / "full"
    assert not list(full.rglob("*.part"))
    for path in full.rglob("*.parquet"):
        pl.read_parquet(path)


def test_a_failed_write_keeps_the_earlier_file(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")
    with pytest.raises(DiskError, match=r"but got No space left on device \(.*table.csv\)"), replacing(target) as part:
        part.write_text("half")
        raise OSError(28, "No space left on device")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_plans_can_be_sent_to_other_processes() -> None:
    there = unpacked(packed(plan()))
    assert [cell.folder for cell in there.cells()] == [cell.folder for cell in plan().cells()]
    assert there.profiles["srtf"].resolved() == plan().profiles["srtf"].resolved()


def test_a_few_runs_stay_in_one_process_unless_more_are_requested() -> None:
    small = plan()
    assert processes_for(small, small.cells(), None) == 0
    assert processes_for(small, small.cells(), 3) == 3
    assert processes_for(small, small.cells()[:1], 3) == 0


# --- the Python interface --------------------------------------------------------------------------------------------


def test_simulate_and_save_give_tables_and_a_summary_in_python(tmp_path: Path) -> None:
    softer = Profile.load("themis").replace(name="themis-0.4", settings={"plugins.themis.fairness_knob": 0.4})
    result = simulate(workload(), "2x2 V100", policies=["las", softer], seeds=range(2))
    assert result.jobs.height == (1 + 2) * 12  # nothing is drawn under las, so that one seed is simulated
    assert {"policy", "seed", "rho", "jct_seconds"} <= set(result.jobs.columns)
    summary = result.summary()
    assert summary["policy"].to_list() == ["las", "themis-0.4"]
    assert summary["seeds"].to_list() == [1, 2]
    assert (summary["jct_mean_seconds_low"] <= summary["jct_mean_seconds"]).all()
    saved = result.save(tmp_path / "sweep")
    assert {"report.html", "summary.csv", "jobs.parquet", "run.json"} <= {path.name for path in saved.iterdir()}
    assert RunData.load(saved).jobs.equals(result.jobs)
    with pytest.raises(InputError, match="--out must name a new folder"):
        result.save(tmp_path / "sweep")
    assert result._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html')
    assert repr(result) == "SimulationResult(las, themis-0.4, seeds 0, 1)"


def test_a_generator_makes_a_workload_for_each_seed() -> None:
    result = simulate(lambda seed: workload(seed=seed), CLUSTER, policies=["fifo"], seeds=[0, 1])
    one, two = (result.run.only("fifo", seed).jobs["iterations"].to_list() for seed in (0, 1))
    assert one != two


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="policies must have different names"):
        simulate(workload(), CLUSTER, policies=["fifo", "fifo"])
    with pytest.raises(InputError, match="rho must be one of"):
        simulate(workload(), CLUSTER, policies=["fifo"], rho="static ")
    with pytest.raises(InputError, match="at least one policy"):
        simulate(workload(), CLUSTER, policies=[])
    with pytest.raises(InputError, match="load must be a positive factor"):
        simulate(workload(), CLUSTER, policies=["fifo"], loads=[0.0])


# --- small parts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 10, 29, 30, 99, 1000])
@pytest.mark.parametrize("probability", [0.75, 0.95, 0.975, 0.995])
def test_quantiles_of_student_equal_those_of_scipy(probability: float, freedom: int) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(float(stats.t.ppf(probability, freedom)), rel=1e-9)


def test_an_interval_over_seeds_is_a_t_interval_and_absent_for_one_seed() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found is not None
    assert (found.mean, found.low, found.high) == (2.0, pytest.approx(2 - 2.4841377), pytest.approx(2 + 2.4841377))
    one = interval([5.0])
    assert one is not None
    assert (one.mean, one.low, one.high) == (5.0, None, None)
    assert interval([]) is None


def test_a_line_of_progress_shows_finished_jobs_and_simulated_time() -> None:
    line = bar_line(Cell(policy="las", seed=0), 2.0, Progress(finished=51, jobs=120, time_seconds=11232.0))
    assert line.startswith("las                ━━━━━━━━━━━━━━━╸──")
    assert line.endswith("51 of 120 jobs   simulated 0d 03:07:12, about 3 s left")
    assert simulated(90061) == "1d 01:01:01"
    told: list[str] = []
    lines = Lines(2, 0, told.append)
    cell = Cell(policy="las", seed=1, load=2.0)
    lines.began(cell)
    lines.moved(cell, Progress(finished=3, jobs=3, time_seconds=60.0))
    lines.ended(cell)
    assert told[0].startswith("las x2, seed 1: 3 jobs, simulated 0d 00:01:00, ")
    assert told[0].endswith("1 of 2 done")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_policy_that_fails_does_not_affect_results_of_others(processes: str, tmp_path: Path) -> None:
    (tmp_path / "raising.py").write_text(
        "from eunomia import hookimpl\n"
        "class Raising:\n"
        "    name, api = 'raising', 1\n"
        "    @hookimpl\n"
        "    def eunomia_allocation(self, snapshot, menus, offer):\n"
        "        raise ValueError('not today')\n"
    )
    arguments = ["simulate", "--workload", "gavel", "--set", "gavel.jobs=4", "--cluster", "1x8 V100", "--no-report"]
    arguments += ["--policy", "raising", "--policy", "fifo", "--plugin-path", str(tmp_path / "raising.py")]
    arguments += ["--strict-plugins", "--out", str(tmp_path / "run"), "-j", processes]
    script = f"import sys; from eunomia.cli import run; sys.exit(run({arguments!r}))"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert 'error: plugin "raising" must answer allocation, but got ValueError: not today (raising.py:6)' in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:3]] == ["raising:", "fifo"]
    run = RunData.load(tmp_path / "run")
    assert run.runs() == [("fifo", 0)]
    assert run.facts is not None
    assert run.facts.ended == "failed"
