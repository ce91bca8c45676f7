"""``eunomia simulate`` and ``eunomia compare`` as users call them: screens, JSON, exit codes, errors, modules."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from real_data import shared_data

from eunomia.cli import run
from eunomia.errors import InputError, InputErrors
from eunomia_testbed.performance.replay_profiles import Costs as MeasuredCosts
from eunomia_testbed.performance.replay_profiles import Measurements, Profiles, ProgramRate
from eunomia_testbed.results import RunData
from eunomia_testbed.simulator import Costs, Failures
from eunomia_testbed.spec.costs import costs_note, costs_of
from eunomia_testbed.spec.outages import failures_of
from eunomia_testbed.spec.settings import factors, filled, load_list, seed_list

TRACE = "job,user,arrival_seconds,most_gpus,iterations,seconds_per_iteration\n" + "".join(
    f"j{row}/0,{'ana' if row % 2 else 'bob'},{row * 5},{1 + row % 2},{20 + 13 * (row % 5)},1\n" for row in range(16)
)
HEAVY = ("scipy", "pandas", "torch", "cvxpy", "gurobipy", "tensorboard", "grpc", "pyarrow", "sklearn", "rich")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in ("EUNOMIA_POLICY", "EUNOMIA_CLUSTER"):
        monkeypatch.setenv(name, "")
    (tmp_path / "jobs.csv").write_text(TRACE)
    yield


def simulate(*more: str, cluster: str = "2x2 V100") -> int:
    return run(["simulate", "jobs.csv", "--cluster", cluster, *more])


def test_the_screen_has_the_expected_lines_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--policy", "fifo", "--policy", "srtf", "--out", "out") == 0
    shown = capsys.readouterr()
    assert shown.err.splitlines()[0] == "jobs.csv: 16 jobs read, 0 dropped (Eunomia format); 4 slots on 2 machines"
    extent = r"  jobs arrive over .* GPU hours by the trace's times, the longest job .*"
    assert re.fullmatch(extent, shown.err.splitlines()[1])
    assert re.fullmatch(r"fifo, seed 0: .*1 of 2 done", shown.err.splitlines()[2])
    lines = shown.out.splitlines()
    heads = ["policy", "mean JCT", "p99 JCT", "end", "ρ: p90, > 1, worst here", "contention ρ: p90, > 1", "in use"]
    assert re.split(r"\s{2,}", lines[0]) == [*heads, "moves a job", "deciding"]
    assert [line.split()[0] for line in lines[1:3]] == ["fifo", "srtf"]
    jobs = RunData.load(Path("out")).only("fifo", 0).jobs
    jct, unit = jobs["jct_seconds"].mean(), {"s": 1.0, "min": 60.0, "h": 3600.0}
    cells = re.split(r"\s{2,}", lines[1])
    assert float(cells[1].split()[0]) * unit[cells[1].split()[1]] == pytest.approx(jct, rel=0.06)
    assert "One run: nothing is known about chance (--resample 100)." in lines
    assert not [line for line in lines if "Take" in line or "✓" in line]
    assert lines[-2:] == ["Results  out", "Report   out/report.html"]
    assert Path("out/report.html").stat().st_size > 10_000


def test_machines_without_gpus_are_listed_as_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Path("machines.csv").write_text("machineId,number of GPUs\nm1,2\nm2,0\nm3,2\nm4,0\n")
    assert simulate("--policy", "fifo", "--out", "out", "--no-report", cluster="machines.csv") == 0
    first, _, second = capsys.readouterr().err.splitlines()[:3]
    assert first.endswith("4 slots on 2 machines")
    assert second == (
        '  2 machines of the list left out, the first: a machine must have at least 1 GPU, but got 0 ("m2") '
        "(machines.csv, line 3)"
    )


def test_json_has_the_same_facts_as_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--policy", "random", "--seeds", "0-1", "--out", "out", "--json", "--no-report") == 0
    shown = capsys.readouterr()
    facts = json.loads(shown.out)
    assert (facts["schema"], facts["out"], facts["report"]) == ("eunomia/simulate@1", "out", None)
    assert [(row["policy"], row["seed"]) for row in facts["rows"]] == [("random", 0), ("random", 1)]
    assert {"makespan_seconds", "jct_mean_seconds", "rho_worst", "deciding_seconds"} <= set(facts["rows"][0])
    summary = pl.read_csv("out/summary.csv")
    assert summary["jct_mean_seconds"].to_list() == [row["jct_mean_seconds"] for row in facts["rows"]]
    assert "deciding_seconds" not in summary.columns  # it differs from run to run


def test_with_quiet_only_the_folder_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--policy", "fifo", "-q", "--no-report") == 0
    shown = capsys.readouterr()
    assert re.fullmatch(r"eunomia-out/simulate-\d{8}T\d{6}Z\n", shown.out)
    assert shown.err == ""
    assert Path("eunomia-out/latest/summary.csv").is_file()


def test_the_same_command_writes_the_same_bytes() -> None:
    for out in ("one", "two"):
        arguments = ["--policy", "themis", "--policy", "random", "--cost", "start=3s", "--error", "0.2", "--csv"]
        assert simulate(*arguments, "--out", out, "--seed", "3", "-q") == 0
    changing = {"run.json", "timings.parquet", "timings.csv", "report.html"}
    names = {str(path.relative_to("one")) for path in Path("one").rglob("*") if path.is_file()}
    assert names == {str(path.relative_to("two")) for path in Path("two").rglob("*") if path.is_file()}
    for name in names - changing:
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes(), name
    assert {"profiles/themis.toml", "cluster.toml", "plugins/themis.parquet", "dropped.csv"} <= names


def test_options_on_costs_and_load_change_the_simulation() -> None:
    assert simulate("--policy", "fifo", "--out", "plain", "--no-report", "-q") == 0
    costs = ["--cost", "start=10s", "--cost", "release=1s", "--load", "2", "--rho", "exclusive", "--unfair", "1.5"]
    assert simulate("--policy", "fifo", "--out", "dear", "--no-report", "-q", *costs) == 0
    plain, dear = (pl.read_csv(f"{name}/summary.csv").row(0, named=True) for name in ("plain", "dear"))
    assert dear["jct_mean_seconds"] > plain["jct_mean_seconds"] + 10
    assert (dear["policy"], dear["rho_kind"]) == ("fifo x2", "exclusive")
    facts = RunData.load(Path("dear")).facts
    assert facts is not None
    assert (facts.unfair_above, facts.kind, facts.clock, facts.slots) == (1.5, "simulate", "virtual", 4)
    assert len(facts.inputs[0].sha256) == 64


def test_options_of_the_trace_reader_are_passed_on() -> None:
    assert simulate("--policy", "fifo", "--set", "trace.first_jobs=3", "--out", "out", "--no-report", "-q") == 0
    assert RunData.load(Path("out")).jobs.height == 3


@pytest.mark.parametrize(
    ("source", "setting", "said"),
    [
        (
            ["--workload", "gavel"],
            "jobs=4",
            'the generator must begin with gavel., but got "jobs"; did you mean "gavel.jobs"?',
        ),
        (["--workload", "gavel"], "job=4", 'but got "job"; did you mean "gavel.jobs"? (--set job)'),
        (["jobs.csv"], "first_jobs=4", 'but got "first_jobs"; did you mean "trace.first_jobs"? (--set first_jobs)'),
    ],
)
def test_a_setting_of_an_unused_component_is_refused_and_its_owner_named(
    source: list[str], setting: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *source, "--set", setting, "--cluster", "2x2 V100"]) == 2
    assert said in capsys.readouterr().err
    assert not Path("eunomia-out").exists()


def test_a_trace_without_any_speed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("slow.csv").write_text("job,arrival_seconds,most_gpus,iterations,model\na,0,1,100,resnet50\n")
    command = ["simulate", "slow.csv", "--cluster", "2x2 V100", "--policy", "fifo", "--out", "out"]
    assert run(command) == 2
    rule = "a trace must have the column seconds_per_iteration, or --speeds must give the speeds of its models"
    assert f"{rule}, but got neither (slow.csv)" in capsys.readouterr().err
    assert not Path("out").exists()
    assert run([*command, "--speeds", "analytic", "--unknown-models", "ResNet-50"]) == 0


CURVES = "model,global_batch,num_gpus,step_time_s\nresnet,64,1,0.1\nresnet,64,2,0.06\n"


def test_a_trace_whose_models_are_in_a_column_of_another_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("job,arrival_seconds,most_gpus,iterations,kind\na,0,1,100,resnet\n")
    (tmp_path / "curves.csv").write_text(CURVES)
    flags = ["--speeds", str(tmp_path / "curves.csv"), "--out", str(tmp_path / "out")]
    assert run(["simulate", str(tmp_path / "t.csv"), "--cluster", "1x2 V100", *flags]) == 2
    rule = "a trace must have the column model, whose speeds --speeds gives, or seconds_per_iteration"
    assert f"{rule}, but got neither (t.csv)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_screen_names_columns_that_are_not_read_and_why_jobs_are_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = "job,arrival_seconds,most_gpus,least_gpu,iterations,model\na,0,1,1,100,resnet\nb,0,1,1,100,other\n"
    (tmp_path / "t.csv").write_text(trace)
    (tmp_path / "curves.csv").write_text(CURVES)
    flags = ["--speeds", str(tmp_path / "curves.csv"), "--out", str(tmp_path / "out"), "--no-report"]
    flags += ["--unknown-models", "drop"]
    assert run(["simulate", str(tmp_path / "t.csv"), "--cluster", "1x2 V100", *flags]) == 0
    said = capsys.readouterr()
    assert (
        'column least_gpu is not one of the format\'s and is not read; did you mean "least_gpus"?'
        in said.err + said.out
    )
    assert (
        "1 row or job is left out under every policy: a job's model must have a speed in --speeds, unless "
        "--unknown-models" in said.out
    )
    assert said.out.startswith('Left out, without known speeds ("other"): 1 of 2 jobs.')


def test_the_default_policy_is_named_in_help_and_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--out", "out") == 0
    assert "themis, seed 0" in capsys.readouterr().err
    assert run(["simulate", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "By default EUNOMIA_POLICY, else themis." in words
    page = Path(__file__).parents[2] / "docs" / "how-to" / "simulate.md"
    assert "`EUNOMIA_POLICY`, else `themis`" in page.read_text()


def test_a_workload_is_generated_with_each_seed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--workload", "themis1", "--set", "themis1.apps=2", "--cluster", "2x4 V100", "--policy", "fifo"]
    assert run(["simulate", *arguments, "--seeds", "0,1", "--out", "out", "--no-report"]) == 0
    assert re.search(r"themis1: .* jobs.* generated, a workload for each of 2 seeds; 8 slots", capsys.readouterr().err)
    run_data = RunData.load(Path("out"))
    assert run_data.only("fifo", 0).jobs["iterations"].sum() != run_data.only("fifo", 1).jobs["iterations"].sum()


def test_strict_turns_dropped_rows_into_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--policy", "fifo", "--out", "out", "--no-report", "-q", cluster="1x1 V100") == 0
    assert "a gang must be at most the cluster's 1 GPUs,2 (j1/0)" in Path("out/dropped.csv").read_text()
    capsys.readouterr()
    assert simulate("--policy", "fifo", "--out", "strict", "--strict", cluster="1x1 V100") == 2
    assert (
        "error: a gang must be at most the cluster's 1 GPUs, but got 2 (jobs.csv, job j1/0)" in capsys.readouterr().err
    )
    assert not Path("strict").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "fifo"], "a simulation must have a cluster"),
        (["--cluster", "2x2 V100", "--policy", "fido"], 'did you mean "fifo"?'),
        (["--cluster", "2x2 V100", "--policy", "fifo", "--policy", "fifo"], "policies must have different names"),
        (["--cluster", "2x2 V100", "--workload", "themis1"], "either a trace or --workload, but got both"),
        (["--cluster", "2x2 V100", "--seeds", "4-0"], "seeds must be numbers and ranges"),
        (["--cluster", "2x2 V100", "--load", "0"], "load must be positive factors"),
        (["--cluster", "2x2 V100", "--cost", "strat=2s"], 'did you mean "start"?'),
        (["--cluster", "2x2 V100", "--cost", "start=2parsecs"], "start must be a duration with a unit"),
        (
            ["--cluster", "2x2 V100", "--error", "1.5"],
            "error must be at least 0 and less than 1, but got 1.5 (--error)",
        ),
        (
            ["--cluster", "2x2 V100", "--cost", "start=-1s"],
            'start must be a duration with a unit, such as "10m", but got "-1s" (--cost)',
        ),
        (
            ["--cluster", "2x2 V100", "--cost", "start=20"],
            'start must be a duration with a unit, such as "10m", but got "20" (--cost)',
        ),
        (
            ["--cluster", "2x2 V100", "--failures", "between=30d,repair=60"],
            'repair must be a duration with a unit, such as "10m", but got "60" (--failures)',
        ),
        (
            ["--cluster", "2x2 V100", "--rules", "gavel", "--rule", "round=120"],
            'round must be a duration with a unit, such as "10m", but got "120" (--rule)',
        ),
        (["--cluster", "2x2 V100", "--until", "30"], 'until must be a positive duration with a unit, such as "10m"'),
        (
            ["--cluster", "2x2 V100", "--policy", "fifo+srtf+las"],
            'plugins that are paired must answer different stages, but got "fifo" and "srtf", which both answer',
        ),
        (
            ["--cluster", "2x2 V100", "--policy", "srtf+packt"],
            'each part of a policy A+B must be a plugin, but got "packt"; did you mean "packed"? (--policy)',
        ),
        (
            ["--cluster", "2x2 V100", "--failures", "between=0s"],
            "between_seconds must be positive, but got 0.0 (--fail",
        ),
        (["--cluster", "2x2 V100", "--lie", "j1"], "--lie must be APP=FACTOR"),
        (["--cluster", "2x2 V100", "--know", "all"], "know must be declared, measured or oracle"),
        (["--cluster", "2x2 V100", "--rules", "gravel"], 'did you mean "gavel"?'),
        (["--cluster", "2x2 V100", "--rule", "round=2m"], "--rule must stand with --rules"),
        (["--cluster", "2x2 V100", "--rho", "thems"], "rho must be one of themis, static, contention, exclusive"),
        (["--cluster", "2x2 V100", "--failures", "no.csv"], "--failures must be between=DURATION"),
        (["--cluster", "2x2 V100", "--until", "soon"], "until must be a positive duration"),
        (["--cluster", "2x2 V100", "--set", "trace.first=3"], "--set trace must be KEY=VALUE with one of"),
        (["--cluster", "1x2 V100, " * 60], "a cluster must be written like"),
        (["--cluster", "2x2 V100", "--seed", str(2**63)], "Input should be less than or equal to"),
        (["--cluster", "2x2 V100", "--seeds", f"0,{2**63}"], "a seed must be at most 9223372036854775807"),
        (["--cluster", "2x2 V100", "--seeds", "0-5999,6000-11999"], "seeds must be at most 10000"),
        (["--cluster", "2x2 V100", "--load", "1e-300"], "load must be from 1e-06 to 1e+06"),
        (["--cluster", "2x2 V100", "--cost", "start=1s", "--cost", "start=2s"], "start must be given once"),
        (
            ["--cluster", "2x2 V100", "--rules", "gavel", "--cost", "start=1s"],
            "have their own cost of a restart (--rule restart=20s), but got start=1s (--cost)",
        ),
        (["--cluster", "2x2 V100", "--cost", "start"], 'checkpoint_every, but got "start" (--cost)'),
        (
            ["--cluster", "2x2 V100", "--cost", "checkpoint_every=0s"],
            "checkpoint_every must be positive, but got 0.0 (--c",
        ),
        (["--cluster", "2x2 V100", "--lie", "j111=2"], 'a lie must be of an app of the workload, but got "j111"; did'),
        (["--cluster", "2x2 V100", "--unfair", "nan"], "unfair must be a positive number, but got nan (--unfair)"),
        (["--cluster", "x" * 300 + ".toml"], "a cluster file must exist"),
        (
            ["--cluster", "deep.toml"],
            "a cluster file must have at most 32 lists and tables in each other",
        ),
        (
            ["--cluster", "2x2 V100", "--policy", "deep.toml"],
            "a profile must have at most 32 lists and tables",
        ),
        (["--cluster", "2x2 V100", "--policy", "x" * 300 + ".toml"], "a profile must be a file that exists"),
        (["--cluster", "2x2 V100", "--speeds", "x" * 300], "a file of measured speeds must be readable, but got File"),
        (["--cluster", "2x2 V100", "--failures", "x" * 300], "--failures must be between=DURATION"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("deep.toml").write_text("machines = " + "[" * 5_000)
    assert run(["simulate", "jobs.csv", *arguments, "--out", "out"]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""
    assert not Path("out").exists()


def test_an_unusable_folder_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for more in ((), ("--resume",)):
        assert simulate("--policy", "fifo", "--out", "x" * 300, *more) == 2
        assert "error: --out must be a folder that can be made, but got File name too long" in capsys.readouterr().err


def test_an_existing_folder_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("out/thesis.tex").write_text("years of work")
    assert simulate("--policy", "fifo", "--out", "out") == 2
    assert "--out must name a new folder, unless --overwrite is given" in capsys.readouterr().err
    assert simulate("--policy", "fifo", "--out", "out", "--overwrite") == 2
    assert [path.name for path in Path("out").iterdir()] == ["thesis.tex"]


def python(script: str) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen([sys.executable, "-c", script], stdout=-1, stderr=-1, text=True, env=env)


def test_ctrl_c_keeps_the_finished_runs_and_resume_continues(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = 400
    arguments = ["simulate", "jobs.csv", "--cluster", "2x2 V100", "--policy", "random", "--out", "out", "--no-report"]
    arguments += ["--seeds", f"0-{seeds - 1}", "-j", "1"]
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # whoever runs the tests may ignore it
    process = python(f"import signal, sys; {heard}; from eunomia.cli import run; sys.exit(run({arguments!r}))")
    until = time.monotonic() + 60
    while len(list(Path("out/.cells").glob("*/done.json"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    done = pl.read_csv("out/summary.csv").height
    assert 2 <= done < seeds
    assert f"interrupted: {done} of {seeds} simulations are done; the same command with --out out --resume" in err
    assert RunData.load(Path("out")).jobs.height == 16 * done
    few = [word if word != f"0-{seeds - 1}" else "0-3" for word in arguments]
    assert run([*few, "--resume"]) == 2
    assert "other seeds" in capsys.readouterr().err


def test_the_command_imports_no_heavy_module() -> None:
    """Nothing heavy; what may be loaded beyond the standard library is listed here."""
    arguments = ["simulate", "jobs.csv", "--cluster", "2x2 V100", "--policy", "themis", "--out", "out", "-q"]
    script = f"""
import sys
from eunomia.cli import run
assert run({arguments!r}) == 0
print(*sorted({{name.partition(".")[0] for name in sys.modules if not name.startswith("__")}}))
"""
    process = python(script)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    loaded = set(out.splitlines()[-1].split())
    assert not loaded & set(HEAVY)
    ours = {"eunomia", "eunomia_solvers", "eunomia_plugins", "eunomia_appmaster", "eunomia_hpo_adapters"}
    ours |= {"eunomia_testbed", "eunomia__mypyc"}  # the last of a compiled build
    chosen = {"numpy", "pluggy", "typer", "pydantic", "polars", "structlog", "highspy"}
    theirs = {  # what these bring along
        "annotated_types", "pydantic_core", "typing_extensions", "typing_inspection", "shellingham", "click",
        "annotated_doc", "pydantic_settings", "colorama", "cython_runtime", "sitecustomize", "attr",
    }  # fmt: skip
    known = {*ours, *chosen, *theirs, *sys.stdlib_module_names}
    strangers = {name for name in loaded - known if not name.startswith(("_", "polars"))}
    assert not strangers


def test_the_command_reproduces_published_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """Shockwave's canonical trace under Gavel's max-min fairness, with the peer's round rules."""
    shared = shared_data("shockwave")
    arguments = [str(shared / "canonical_120jobs_32gpus.trace"), "--cluster", "32x1 V100", "--rules", "gavel"]
    arguments += ["--throughputs", str(shared / "tacc_throughputs.json.gz"), "--policy", "max_min_fairness"]
    assert run(["simulate", *arguments, "--out", "out", "--no-report", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    makespan, jct, worst_rho = row["makespan_seconds"], row["jct_mean_seconds"], row["rho_worst"]
    unfair, in_use = 100.0 * row["rho_unfair_share"], 100.0 * row["utilization"]
    assert makespan == pytest.approx(33208, rel=0.005)
    assert jct == pytest.approx(11274, rel=0.01)
    assert worst_rho == pytest.approx(2.947, rel=0.02)
    assert unfair == pytest.approx(25.0, abs=2.0)
    assert in_use == pytest.approx(59.5, abs=0.6)


# --- compare -------------------------------------------------------------------------------------------------------


def test_two_policies_are_compared_over_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    for policy in ("fifo", "random"):
        assert simulate("--policy", policy, "--seeds", "0-2", "--out", f"out/{policy}", "--no-report", "-q") == 0
    capsys.readouterr()
    assert run(["compare", "out/fifo", "out/random"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heading = r"same trace and cluster, 3 seeds\s+fifo\s+random   random against fifo \(95 % interval\)"
    assert re.fullmatch(heading, lines[0])
    row = (
        r"mean JCT s\s+\d+\s+\d+ +[+-]\d+\.\d % \( *[+-]\d+\.\d to +[+-]\d+\.\d\)   (no difference shown|\w+ is better)"
    )
    assert re.fullmatch(row, lines[1])
    assert run(["compare", "out/fifo", "out/random", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["schema"], facts["seeds"], facts["same"]) == ("eunomia/compare@1", [0, 1, 2], True)
    jct = facts["rows"][0]
    one, other = (pl.read_csv(f"out/{name}/summary.csv")["jct_mean_seconds"].to_list() for name in ("fifo", "random"))
    assert len(one) == 1  # nothing is drawn under fifo, whose run is held against each seed of random
    ratios = [math.log(each / one[0]) for each in other]
    assert jct["difference"] == pytest.approx(math.expm1(sum(ratios) / 3))
    assert jct["low"] <= jct["difference"] <= jct["high"]


def test_one_seed_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--policy", "fifo", "--policy", "srtf", "--out", "out", "--no-report", "-q") == 0
    capsys.readouterr()
    assert run(["compare", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"same trace and cluster, one run\s+fifo\s+srtf   srtf against fifo", lines[0])
    assert re.search(r"mean JCT s .* %$", lines[1].rstrip())
    assert "is better" not in "\n".join(lines)
    assert "One run: nothing is known about chance (--resample 100)." in lines


def test_seeds_that_change_nothing_give_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--policy", "fifo", "--policy", "srtf", "--seeds", "0-2", "--out", "out", "--no-report", "-q") == 0
    capsys.readouterr()
    assert run(["compare", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "is better" not in "\n".join(lines)
    assert not re.search(r"\d to ", "\n".join(lines[:-1]))
    assert lines[-1] == "One run: nothing is known about chance (--resample 100)."


def test_jobs_that_never_fit_are_reported_separately_from_unfinished_ones(capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.csv").write_text(f"{TRACE}huge,ana,0,64,50,1\n")
    assert simulate("--policy", "fifo", "--policy", "random", "--seeds", "0-1", "--out", "out") == 0
    shown = capsys.readouterr().out
    assert "1 row or job is left out under every policy: a gang must be at most the cluster's 4 GPUs" in shown
    assert "did not finish" not in shown
    assert "1 app can never run on this cluster" in Path("out/report.html").read_text(encoding="utf-8")
    assert set(pl.read_csv("out/summary.csv")["apps_left_out"].to_list()) == {1}


def test_runs_without_randomness_are_simulated_once(capsys: pytest.CaptureFixture[str]) -> None:
    policies = ["--policy", "fifo", "--policy", "random"]
    assert simulate(*policies, "--seeds", "0-3", "--out", "out", "--no-report") == 0
    shown = capsys.readouterr().out
    assert "fifo: nothing is drawn by chance, so one seed was simulated" in shown
    found = RunData.load(Path("out"))
    assert found.runs() == [("fifo", 0), *(("random", seed) for seed in range(4))]
    assert found.facts is not None
    assert (found.facts.draws.kind.value, found.facts.draws.count, found.facts.draws.fixed) == ("seeds", 4, ("fifo",))
    assert run(["compare", "out"]) == 0
    assert "same trace and cluster, 4 seeds" in capsys.readouterr().out
    before = Path("out/summary.csv").read_bytes()
    assert simulate(*policies, "--seeds", "0-3", "--out", "out", "--no-report", "--resume", "-q") == 0
    assert Path("out/summary.csv").read_bytes() == before
    assert json.loads(Path("out/run.json").read_text())["draws"]["fixed"] == ["fifo"]
    assert simulate("--policy", "fifo", "--policy", "srtf", "--seeds", "0-3", "--out", "fixed", "--no-report") == 0
    assert "One run: nothing is known about chance (--resample 100)." in capsys.readouterr().out
    assert RunData.load(Path("fixed")).runs() == [("fifo", 0), ("srtf", 0)]
    assert simulate("--policy", "fifo", "--seeds", "0-1", "--error", "0.2", "--out", "drawn", "--no-report", "-q") == 0
    assert RunData.load(Path("drawn")).runs() == [("fifo", 0), ("fifo", 1)]


def test_compare_names_differences_between_runs_of_unequal_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--policy", "fifo", "--out", "a", "--no-report", "-q") == 0
    assert simulate("--policy", "fifo", "--out", "b", "--no-report", "-q", cluster="3x2 V100") == 0
    assert simulate("--policy", "fifo", "--out", "c", "--no-report", "-q", "--seed", "1") == 0
    capsys.readouterr()
    assert run(["compare", "a", "b"]) == 0
    assert capsys.readouterr().out.startswith("ANOTHER CLUSTER, one run")
    assert run(["compare", "a", "c"]) == 2
    assert "runs that are compared must have seeds in common, but got 0 and 1" in capsys.readouterr().err
    assert run(["compare", "a"]) == 2
    assert "a comparison must be of two policies, but got 1" in capsys.readouterr().err
    assert run(["compare", "a", "nowhere"]) == 2
    assert run(["compare", "a:las", "b"]) == 2


# --- flags ---------------------------------------------------------------------------------------------------------


def test_lists_of_seeds_and_loads_are_parsed() -> None:
    assert seed_list("0-4") == (0, 1, 2, 3, 4)
    assert seed_list("0,3,5-6,3") == (0, 3, 5, 6)
    assert load_list("1,2,0.5") == (1.0, 2.0, 0.5)
    for bad in ("", "a", "-1", "3-1", "0-99999999"):
        with pytest.raises(InputError, match="seeds must be"):
            seed_list(bad)
    assert factors(["a=b=2"], "--lie") == {"a=b": 2.0}


def test_settings_fill_an_option_class() -> None:
    assert filled(Costs, ["start=20s", "join=1500ms"], "--cost", durations=True) == Costs(start=20.0, join=1.5)
    assert filled(Failures, ["between=2d"], "--failures").between_seconds == 172_800.0
    with pytest.raises(InputErrors) as caught:
        filled(Costs, ["begin=1s", "start"], "--cost")
    assert len(caught.value.errors) == 2


def test_costs_are_read_from_the_file_of_a_replay_and_others_replace_them(tmp_path: Path) -> None:
    measured = MeasuredCosts(start_seconds=1.5, save_seconds=0.5, pause_seconds=0.1, join_seconds=2.0)
    file = tmp_path / "profiles.toml"
    rate = ProgramRate(program="mlp", batch_size=64, slots=1, slot_type="cpu", iterations_per_second=4.0)
    profiles = Profiles(rates=(rate,), slot_speeds={"cpu": 0.0})
    file.write_text(
        Measurements(
            profiles=profiles, costs=measured, machine="m", versions={}, measured_at="t", program_costs={}
        ).to_toml()
    )
    found = costs_of([str(file), "checkpoint=3s", "pause-seconds=0s"], "--cost")
    assert found == Costs(start=1.5, checkpoint=3.0, join=2.0, pause=0.0)
    assert costs_of(["start=1s"], "--cost") == Costs(start=1.0)
    assert costs_note([str(file)], found) == [
        f"costs with those measured in {file}: start 1.5 s, checkpoint 3 s, join 2 s"
    ]
    assert costs_note(["start=1s"], Costs(start=1.0)) == []
    bare = tmp_path / "bare.toml"
    bare.write_text(file.read_text().partition("[costs]")[0])
    for texts, rule in (
        ([str(file), str(file)], "one file of measured costs must be given"),
        ([str(tmp_path / "none.toml")], "a file of profiles must be readable text"),
        ([str(tmp_path / "none")], "a file of profiles must be readable text"),
        ([str(bare)], r"a file of measured costs must have a table \[costs\] in which one is above 0"),
        (["none"], "--cost must be KEY=VALUE with one of start, "),
    ):
        with pytest.raises(InputError, match=rule):
            costs_of(texts, "--cost")


def test_failures_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "down.csv"
    path.write_text("time_seconds,machine,state\n10,m01,down\n20,m01,up\n")
    assert [(each.time_seconds, each.machine, each.up) for each in failures_of(str(path)).outages] == [
        (10.0, "m01", False), (20.0, "m01", True),
    ]  # fmt: skip
    path.write_text("time_seconds,machine,state\n-1,m01,down\n")
    with pytest.raises(InputError, match=r'time_seconds must be at least 0, but got "-1" \(down.csv, line 2\)'):
        failures_of(str(path))
    path.write_text("when,machine\n")
    with pytest.raises(InputError, match="a file of failures must have the columns"):
        failures_of(str(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"a file of failures must have the columns .*, but got nothing \(down.csv, line 1\)"),
        (b"\xff\xfe\x00", r"a file of failures must be text in UTF-8"),
        (b"time_seconds,machine,state\n1,m01\n", r'as many fields as the header, but got "1,m01" \(down.csv, line 2\)'),
        (b"time_seconds,machine,state\n1,m01,down,x\n", r"as many fields as the header"),
        (
            b"time_seconds,machine,state\n\n1,m01,down\n",
            r'as many fields as the header, but got "" \(down.csv, line 2\)',
        ),
        (b"time_seconds,machine,state\n" + b"1" * 200_000, r"a file of failures must be CSV"),
        (b"time_seconds,machine,state\nnan,m01,down\n", r"time_seconds must be at least 0"),
        (b"time_seconds,machine,state\n1,m01,broken\n", r'state must be down or up, but got "broken"'),
    ],
)
def test_a_bad_file_of_failures_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "down.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        failures_of(str(path))


def test_a_file_of_failures_may_come_from_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "down.csv"
    path.write_bytes(b"\xef\xbb\xbftime_seconds,machine,state\r\n10,m01,down\r\n")
    assert [each.machine for each in failures_of(str(path)).outages] == ["m01"]


def test_failures_of_unknown_machines_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("down.csv").write_text("time_seconds,machine,state\n1,m9,down\n")
    assert simulate("--failures", "down.csv", "--out", "out") == 2
    assert 'machine must be one of the cluster, but got "m9"' in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({"tuner": "halving"}, 'kind must name a tuner: .*, but got "halving"'),
        ({"tuner": "successive_halving"}, "trials must be at least 2 for successive_halving, but got 1"),
        ({"tuner": "none", "curves": [[1, 2, 3], [1, 2, 3]]}, "a search must have a curve for each trial, but got 2"),
    ],
)
def test_an_invalid_search_is_refused_with_the_name_of_its_app(
    search: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps(search).replace('"', '""')
    Path("jobs.csv").write_text(TRACE.splitlines()[0] + f',search\nj/0,ana,0,1,20,1,"{text}"\n')
    assert simulate("--policy", "fifo", "--out", "out") == 2
    assert re.search(rf"error: {said}.* \(jobs.csv, app j\)", capsys.readouterr().err)
    assert not Path("out").exists()


def test_a_folder_that_no_file_system_accepts_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--policy", "fifo", "--out", "x" * 300) == 2
    assert "--out must be a folder that can be made, but got File name too long" in capsys.readouterr().err


def test_a_policy_of_two_plugins_names_the_preset_settings_that_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["simulate", "--workload", "gavel", "--set", "gavel.jobs=2", "--cluster", "1x4 V100", "--no-report"]
    assert run([*command, "--policy", "las+spread", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    assert "las+spread: las is the plugin, without rounds.on, " in said
    assert "plugins.ordered.preemptive of the preset las" in said
