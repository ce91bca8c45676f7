"""``simulate --resample``: rows of resamples, intervals on the screen, further resamples by --resume, and bad input."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eunomia.cli import run
from eunomia_testbed import read_trace
from eunomia_testbed import simulate as simulate_in_python
from eunomia_testbed.evidence.draws import DrawKind
from eunomia_testbed.evidence.evidence import evidence_of
from eunomia_testbed.results import RunData


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in ("EUNOMIA_POLICY", "EUNOMIA_CLUSTER"):
        monkeypatch.setenv(name, "")
    write("jobs.csv", 60)
    yield


def write(name: str, apps: int) -> None:
    rng = np.random.default_rng(4)
    arrivals = np.cumsum(rng.exponential(60.0, size=apps))
    lines = ["job,user,arrival_seconds,most_gpus,iterations,seconds_per_iteration"]
    lines += [
        f"j{at},u{at % 3},{arrivals[at] - arrivals[0]:.2f},{rng.choice([1, 2])},{rng.integers(50, 900)},1.0"
        for at in range(apps)
    ]
    Path(name).write_text("\n".join(lines) + "\n")


def simulate(*more: str, trace: str = "jobs.csv") -> int:
    usual = ["--cluster", "1x4 V100", "--cost", "start=5s", "--policy", "fifo", "--policy", "srtf", "--no-progress"]
    return run(["simulate", trace, *usual, *more])


DRAWN = ("--resample", "40", "--block", "6", "--out", "out")


@pytest.fixture(scope="module")
def resampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run with 40 resamples; read only."""
    folder = tmp_path_factory.mktemp("resampled")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write("jobs.csv", 60)
        assert simulate(*DRAWN) == 0
    return folder / "out"


@pytest.fixture
def drawn(resampled: Path) -> Path:
    """A copy of that folder, as if the command had just written it here."""
    return Path(shutil.copytree(resampled, "out"))


def test_the_trace_has_tables_and_each_resample_a_row(drawn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(*DRAWN, "--resume") == 0
    shown = capsys.readouterr().out
    assert "40 resamples of jobs.csv by circular blocks of 6 apps: 95 % intervals are percentiles." in shown
    found = RunData.load(Path("out"))
    assert found.facts is not None
    draws = found.facts.draws
    assert (draws.kind, draws.count, draws.block_apps, draws.source) == (DrawKind.RESAMPLES, 40, 6, "jobs.csv")
    assert found.runs() == [("fifo", 0), ("srtf", 0)]  # tables are of the trace itself
    rows = found.resamples
    assert rows.group_by("policy").len().sort("policy").rows() == [("fifo", 40), ("srtf", 40)]
    assert (rows["apps"] == 60).all()
    assert rows["work_while_waiting"].null_count() == 0
    assert rows["rho_static_p90"].n_unique() > 30
    low, high = np.percentile(
        rows.filter(pl.col("policy") == "fifo")["jct_mean_seconds"], [2.5, 97.5], method="weibull"
    )
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert f"{low:.4f}"[:7] in page and f"{high:.4f}"[:7] in page


def test_further_resamples_are_added_to_a_folder_and_the_first_stay(
    drawn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = RunData.load(drawn).resamples
    more = ("--resample", "41", "--block", "6", "--out", "out", "--resume")
    assert simulate(*more, "--no-report", "-q") == 0
    found = RunData.load(drawn).resamples
    assert found.height == 82
    assert found.filter(pl.col("seed") <= 40).equals(first)
    assert simulate(*more, "--seed", "1", "-q") == 2
    assert "must go on with the same command" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_give_the_same_resamples_as_one() -> None:
    for processes in ("1", "2"):
        assert simulate("--resample", "39", "--out", f"out{processes}", "-j", processes, "--no-report", "-q") == 0
    one, two = (RunData.load(Path(f"out{processes}")) for processes in ("1", "2"))
    assert one.resamples.equals(two.resamples)
    assert one.jobs.equals(two.jobs)


def test_json_names_the_best_by_goal_with_intervals(drawn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(*DRAWN, "--resume", "--no-report", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["draws"]["kind"] == "resamples"
    goals = {each["goal"]: each for each in facts["answers"][0]["goals"]}
    assert goals["mean_jct"]["shows_chance"] is True
    assert goals["end"]["shows_chance"] is False  # a maximum is a figure of this trace
    low_high = goals["mean_jct"]["figures"]["fifo"]
    assert low_high["low"] < low_high["high"]


def test_folders_of_resamples_and_of_seeds_cannot_be_compared(drawn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--out", "b", "--no-report", "-q") == 0
    capsys.readouterr()
    assert run(["compare", "out"]) == 0
    assert "40 resamples of jobs.csv" in capsys.readouterr().out
    assert run(["compare", "out:fifo", "b:srtf"]) == 2
    error = capsys.readouterr().err
    assert (
        "must be draws of one kind" in error
        and "got fifo: resamples of jobs.csv" in error
        and "; srtf: one run" in error
    )


def test_python_can_resample_a_trace() -> None:
    result = simulate_in_python(
        read_trace("jobs.csv"), "1x4 V100", policies=["fifo", "srtf"], cost=["start=5s"], resample=39
    )
    assert result.run.resamples.height == 78


@pytest.mark.slow
def test_a_budget_of_cpu_time_ends_the_resamples_and_screen_and_page_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--resample", "100", "--budget", "0.001s", "--out", "out") == 0
    said = "One run: nothing is known about chance. 0.001 s of CPU time allow no 39 resamples"
    assert said in capsys.readouterr().out
    assert said in Path("out/report.html").read_text(encoding="utf-8")
    draws = json.loads(Path("out/run.json").read_text())["draws"]
    assert (draws["kind"], draws["asked"], draws["budget_seconds"]) == ("one", 100, 0.001)
    assert not Path("out/resamples.parquet").exists()
    # The same folder goes on with a budget that suffices.
    assert simulate("--resample", "40", "--budget", "1h", "--out", "out", "--resume") == 0
    assert "40 resamples of jobs.csv" in capsys.readouterr().out
    found = RunData.load(Path("out"))
    assert found.facts is not None and found.facts.draws.budget_seconds is None
    assert found.resamples.height == 80


def test_figures_use_only_the_resamples_that_all_policies_have(drawn: Path) -> None:
    path = drawn / "resamples.parquet"
    rows = pl.read_parquet(path)
    rows.filter(~((pl.col("policy") == "srtf") & (pl.col("seed") == 40))).write_parquet(path)
    found = RunData.load(drawn)
    summary = pl.read_csv(drawn / "summary.csv", infer_schema_length=None)
    evidence = evidence_of(found.facts, summary, found.resamples)
    assert sorted(evidence.drawn["seed"].unique()) == list(range(1, 40))


@pytest.mark.slow
def test_the_99th_percentile_of_few_apps_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--resample", "39", "--out", "out", "--json", "--no-report") == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    goals = {each["goal"]: each for each in answer["goals"]}
    assert goals["mean_jct"]["shows_chance"]
    assert not goals["p99_jct"]["shows_chance"]  # of 60 apps, it is the figure of one
    assert goals["p99_jct"]["figures"]["fifo"]["low"] is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--budget", "10m"], "--budget must stand with --resample"),
        (["--resample", "100", "--budget", "soon"], "budget must be"),
        (["--resample", "100", "--budget", "0s"], "budget must be"),
        (["--resample", "38"], "resamples must be 39 to 10,000: fewer give no 95 % interval, but got 38"),
        (["--resample", "100", "--block", "13"], "a block must be at most a fifth of the trace's 60 apps"),
        (["--resample", "100", "--block", "600"], "a block must be at most a fifth of the trace's 60 apps"),
        (["--resample", "100", "--block", "0"], "block must be at least 1 app"),
        (["--resample", "100", "--block", "1d"], "a trace must last 10 days for blocks by time of day"),
        (["--resample", "100", "--block", "lots"], "block"),
        (["--block", "10"], "--block must stand with --resample"),
        (["--resample", "100", "--seeds", "0-4"], "--resample must stand with one seed"),
        (["--resample", "100", "--load", "1,2"], "--resample must stand without --load"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(*more, "--out", "out") == 2
    assert said in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_trace_of_ten_jobs_and_a_generated_workload_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write("ten.csv", 10)
    assert simulate("--resample", "100", trace="ten.csv") == 2
    assert "a trace must have at least 50 apps to be resampled, but got 10" in capsys.readouterr().err
    command = ["simulate", "--workload", "gavel", "--cluster", "2x8 V100", "--policy", "fifo", "--resample", "100"]
    assert run(command) == 2
    assert "a generated workload has seeds, which show more" in capsys.readouterr().err
