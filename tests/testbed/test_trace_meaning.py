"""A trace runs only when its times and models are known; what is assumed of them is counted and said everywhere."""

import csv
import html
import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import three_types
from real_data import shared_data
from simulator_lab import runs
from three_types import AS_SPELT, CLUSTER

from eunomia.cli import run
from eunomia.errors import InputError
from eunomia_testbed import read_trace, simulate
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.performance import AfsScaling, ElasticFlowTables, GavelThroughputs, SynergyProfiles
from eunomia_testbed.performance.names import nearest
from eunomia_testbed.traces import write_trace

NO_TYPE = "a trace of times must say on which GPU type they were measured where the cluster has several"
NO_SPEEDS = "a cluster of several GPU types (K80, P100, V100) must have a speed source"
HANGS = "What follows hangs on that."
OF_V100 = ("--set", "trace.reference_type=V100")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    three_types.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def simulated(trace: str, *more: str, out: str = "run", cluster: str = CLUSTER) -> int:
    common = ["--cluster", cluster, "--policy", "srtf", "--no-progress", "--no-report", "-j", "1", "--out", out]
    return run(["simulate", trace, *common, *more])


def figures(out: str) -> dict[str, object]:
    """The figures of a run, without what was assumed of speeds."""
    row = pl.read_csv(Path(out) / "summary.csv").row(0, named=True)
    return {name: found for name, found in row.items() if not name.startswith("speeds_assumed")}


# -- the three types


def test_the_script_draws_the_same_trace_each_time() -> None:
    assert three_types.trace() == three_types.trace() != three_types.trace(seed=8)
    assert three_types.trace().count("\n") == 101


def test_a_cluster_of_several_types_needs_a_speed_source(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated("by-hand.csv") == 2
    said = capsys.readouterr()
    assert NO_SPEEDS in said.err and "or equal where all types are equally fast" in said.err
    assert said.out == "" and not Path("run").exists()
    assert simulated("by-hand.csv", "--speeds", "equal") == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"Speeds assumed equal on all types: 100 of 100 jobs, 100 % of the GPU hours. {HANGS}"


def test_unknown_times_and_models_are_refused_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated("by-hand.csv", "--speeds", "speeds.json") == 2
    said = capsys.readouterr()
    assert f"{NO_TYPE}, but got none; the cluster has K80, P100, V100 (--set trace.reference_type=TYPE" in said.err
    for name, known in three_types.SPELT.items():
        assert re.search(rf'"{name}" \(\d+ jobs, [\d.,]+ GPU hours; did you mean "{known}"\?\)', said.err), name
    assert 'as spelt there: --unknown-models "' in said.err
    pairs = re.search(r'--unknown-models "([^"]*)"', said.err)
    assert pairs is not None and set(pairs[1].split(",")) == set(AS_SPELT.split(","))
    assert said.out == "" and not Path("run").exists()


def test_the_result_does_not_depend_on_the_spelling_of_models(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = ("--speeds", "speeds.json", *OF_V100)
    assert simulated("as-spelt.csv", *known, out="spelt") == 0
    assert "Speeds" not in capsys.readouterr().out
    assert simulated("by-hand.csv", *known, "--unknown-models", AS_SPELT, out="mapped") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == [
        f'Speeds of "{known}" taken for "{name}"'
        for name, known in sorted(three_types.SPELT.items(), key=lambda x: x[1])
    ]
    assert lines[2].endswith(HANGS)
    assert figures("spelt") == figures("mapped")
    flags = [word for pair in AS_SPELT.split(",") for word in ("--unknown-models", pair)]
    assert simulated("by-hand.csv", *known, *flags, out="flags") == 0
    assert figures("flags") == figures("mapped")
    of_jobs = [pl.read_parquet(f"{out}/jobs.parquet").drop("model") for out in ("spelt", "mapped")]
    assert of_jobs[0].equals(of_jobs[1])


@pytest.mark.slow
def test_no_policy_depends_on_the_spelling_of_models(folder: Path) -> None:
    """The names sort in another order as spelt: policies that keep rates by type and model still decide the same."""
    assert sorted(three_types.SPELT.values()) != [three_types.SPELT[name] for name in sorted(three_types.SPELT)]
    policies = ("themis", "max_min_fairness_perf", "oef", "gandiva_fair", "allox")
    flags = [word for policy in policies for word in ("--policy", policy)] + ["--know", "oracle"]
    known = ("--speeds", "speeds.json", *OF_V100, *flags)
    assert simulated("as-spelt.csv", *known, out="spelt") == 0
    assert simulated("by-hand.csv", *known, "--unknown-models", AS_SPELT, out="mapped") == 0
    spelt, mapped = (pl.read_parquet(f"{out}/jobs.parquet").drop("model") for out in ("spelt", "mapped"))
    assert spelt.equals(mapped) and spelt["policy"].n_unique() == len(policies) + 1


def test_sizes_of_elastic_jobs_do_not_depend_on_the_spelling_of_models(folder: Path) -> None:
    known = ("--speeds", "speeds.json", *OF_V100, "--elastic", "1..8")
    assert simulated("as-spelt.csv", *known, out="spelt") == 0
    assert simulated("by-hand.csv", *known, "--unknown-models", AS_SPELT, out="mapped") == 0
    assert figures("spelt") == figures("mapped")


def test_sizes_of_elastic_jobs_follow_the_curve_of_the_type_of_their_times(tmp_path: Path) -> None:
    """On a K80 two GPUs are as slow as one: the hour there is an hour on two, whatever type stands first."""
    rates = {"a10": {1: 1.0, 2: 2.0}, "k80": {1: 0.5, 2: 0.5}}
    (tmp_path / "speeds.json").write_text(
        json.dumps({kind: {f"('m', {n})": {"null": rate} for n, rate in of.items()} for kind, of in rates.items()})
    )
    timed = runs([(0.0, 1, 3600.0)], models=["m"], gpu_type=["K80"])
    result = simulate(timed, "1x2 A10, 1x2 K80", ["srtf"], speeds=str(tmp_path / "speeds.json"), elastic="1..2")
    assert result.jobs["ideal_seconds"].to_list() == pytest.approx([3600.0])


def test_assumptions_on_speeds_are_in_every_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = ("--speeds", "speeds.json", *OF_V100, "--unknown-models", "equal", "--unknown-models", "vgg16=VGG-16")
    assert simulated("by-hand.csv", *known, "--report") == 0
    out = capsys.readouterr().out.splitlines()
    jobs = pl.read_csv("by-hand.csv")
    hours = pl.col("most_gpus") * pl.col("iterations")
    vgg, whole = (float(each.select(hours.sum()).item()) for each in (jobs.filter(pl.col("model") == "vgg16"), jobs))
    count = jobs.filter(pl.col("model") == "vgg16").height
    taken = f'Speeds of "VGG-16" taken for "vgg16": {count} of 100 jobs, {vgg / whole:.0%}'.replace("%", " %")
    equal = f"Speeds assumed equal on all types: {100 - count} of 100 jobs, {1 - vgg / whole:.0%}".replace("%", " %")
    sentences = [f"{equal} of the GPU hours.", f"{taken} of the GPU hours. {HANGS}"]
    assert out[:2] == sentences
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert html.escape(" ".join(sentences)) in page
    facts = json.loads(Path("run/run.json").read_text(encoding="utf-8"))
    assert [(each["kind"], each["model"], each["jobs"], each["of_jobs"]) for each in facts["assumptions"]] == [
        ("equal", "", 100 - count, 100),
        ("as", "VGG-16", count, 100),
    ]
    row = pl.read_csv("run/summary.csv").row(0, named=True)
    assert (row["speeds_assumed_jobs"], row["speeds_assumed_share"]) == (100, 1.0)
    assert facts["assumptions"][0]["seeds"] == []  # of every run of the trace
    assert simulated("by-hand.csv", *known, "--policy", "fifo", "--json", out="two") == 0
    assert json.loads(capsys.readouterr().out)["assumed"] == sentences
    assert run(["compare", "two:srtf", "two:fifo"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == sentences
    assert simulated("as-spelt.csv", *known[:4], out="known") == 0
    capsys.readouterr()
    assert run(["compare", "known:srtf", "two:fifo"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [f"fifo: {line}" for line in sentences]


def test_each_generated_workload_has_its_own_assumptions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = ["simulate", "--workload", "themis1", "--set", "themis1.apps=2", "--cluster", "2x4 V100, 1x4 K80"]
    flags = ["--seeds", "0-1", "--until", "1h", "--policy", "fifo", "--no-report", "--no-progress", "--out", "run"]
    assert run([*drawn, *flags]) == 0
    found = pl.read_csv("run/summary.csv").sort("seed").select("jobs", "speeds_assumed_jobs", "speeds_assumed_share")
    assert found["jobs"].to_list() == found["speeds_assumed_jobs"].to_list()
    assert found["jobs"].n_unique() == 2 and found["speeds_assumed_share"].to_list() == [1.0, 1.0]
    whole = f"{found['jobs'].sum():,}"
    assert capsys.readouterr().out.startswith(f"Speeds assumed equal on all types: {whole} of {whole} jobs, 100 %")


def test_jobs_that_are_left_out_are_listed_and_not_simulated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    choices = "drop,resnet50=ResNet-50,vgg16=VGG-16"
    assert simulated("by-hand.csv", "--speeds", "speeds.json", *OF_V100, "--unknown-models", choices) == 2
    assert "unknown models must be NAME, equal or drop, or MODEL=NAME" in capsys.readouterr().err
    flags = ("--unknown-models", "drop", "--unknown-models", "resnet50=ResNet-50,vgg16=VGG-16")
    assert simulated("by-hand.csv", "--speeds", "speeds.json", *OF_V100, *flags) == 0
    left = three_types.trace().count("bert-base")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith(HANGS)
    assert lines[2].startswith(f'Left out, without known speeds ("bert-base"): {left} of 100 jobs, ')
    with Path("run/dropped.csv").open(encoding="utf-8", newline="") as stream:
        dropped = list(csv.DictReader(stream))
    assert len(dropped) == left and all(row["value"].startswith('"bert-base", job ') for row in dropped)
    assert pl.read_csv("run/summary.csv")["jobs"].to_list() == [100 - left]


def test_unknown_models_are_refused_with_the_published_table_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(shared_data("gavel/simulation_throughputs.json.gz"))
    assert simulated("by-hand.csv", "--speeds", path, *OF_V100) == 2
    said = capsys.readouterr().err
    assert 'did you mean "ResNet-50" (batch size 16, 32, 64, 128)?' in said
    assert '"bert-base" (' in said and '"vgg16" (' in said
    assert simulated("by-hand.csv", "--speeds", path, *OF_V100, "--unknown-models", "ResNet-50") == 2
    assert "a model whose speeds are taken must be one that --speeds knows" in capsys.readouterr().err
    flags = ("--unknown-models", "equal", "--unknown-models", "resnet50=ResNet-50 (batch size 64)")
    assert simulated("by-hand.csv", "--speeds", path, *OF_V100, *flags) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Speeds assumed equal on all types: ")
    assert lines[1].startswith('Speeds of "ResNet-50 (batch size 64)" taken for "resnet50": ')


# -- whose hours


@pytest.mark.parametrize(
    ("measured", "cluster", "ideal"),
    [
        ("V100", "1x1 V100, 8x1 K80", 3600.0),
        ("V100", "4x1 V100, 4x1 K80", 3600.0),
        ("k80", "4x1 V100, 4x1 K80", 900.0),
        ("K80", "8x1 V100, 1x1 K80", 900.0),
        ("V100", "2x1 K80", 14400.0),
        ("K80", "2x1 V100", 900.0),
    ],
)
def test_the_reference_type_of_times_is_the_given_one_not_the_most_frequent(
    folder: Path, measured: str, cluster: str, ideal: float
) -> None:
    """The model of the job is four times as fast on a V100 as on a K80."""
    timed = runs([(0.0, 1, 3600.0)], models=["ResNet-50"], reference_type=measured)
    result = simulate(timed, cluster, ["srtf"], speeds="speeds.json")
    assert result.jobs["ideal_seconds"].to_list() == pytest.approx([ideal])


def test_a_simulation_from_python_needs_a_speed_source_for_each_timed_model(folder: Path) -> None:
    timed = runs([(0.0, 1, 3600.0)], models=["ResNet-50"])
    with pytest.raises(InputError, match=NO_TYPE):
        simulate(timed, CLUSTER, ["srtf"], speeds="speeds.json")
    with pytest.raises(InputError, match="must have a speed source"):
        simulate(timed, CLUSTER, ["srtf"])
    with pytest.raises(InputError, match=r"unknown models must stand with a speed source.*\(unknown_models\)"):
        simulate(timed, CLUSTER, ["srtf"], speeds="equal", unknown_models=["equal"])
    assert simulate(timed, CLUSTER, ["srtf"], speeds="equal").metrics["speeds_assumed_jobs"].to_list() == [1]
    other = read_trace("by-hand.csv", reference_type="V100")
    assert other.reference_type == "V100"
    found = simulate(other, CLUSTER, ["srtf"], speeds="speeds.json", unknown_models="equal").metrics
    assert found["speeds_assumed_jobs"].to_list() == [100]


def test_a_column_gives_the_type_of_each_time(tmp_path: Path) -> None:
    head = "job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,reference_type\n"
    path = tmp_path / "own.csv"
    path.write_text(head + "a,0,1,10,1,V100\nb,1,1,10,1,K80\nc,2,1,10,1,\n")
    read = read_trace(path)
    assert (read.reference_type, read.jobs.measured_on) == (None, ["V100", "K80", None])
    filled = read_trace(path, reference_type="P100")
    assert (filled.reference_type, filled.jobs.measured_on) == ("P100", ["V100", "K80", None])
    write_trace(filled, tmp_path / "again.csv")
    assert read_trace(tmp_path / "again.csv").jobs.measured_on == ["V100", "K80", "P100"]
    path.write_text(head + "a,0,1,10,1,V100\nb,1,1,10,1,V100\n")
    assert read_trace(path, reference_type="v100").reference_type == "V100"
    with pytest.raises(InputError, match=r'reference_type must be that of the trace.*but got "K80" where.* V100'):
        read_trace(path, reference_type="K80")


def test_a_mapped_column_gives_the_type_of_each_time(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("t,d,g,kind\n0,60,1,V100\n5,60,2,\n")
    columns = {"submit": "t", "duration": "d", "gpus": "g", "reference_type": "kind"}
    read = read_trace(tmp_path / "jobs.csv", columns=columns, reference_type="K80")
    assert (read.reference_type, read.jobs.measured_on) == ("K80", ["V100", None])


def test_formats_with_the_former_option_gpu_type_still_accept_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated("by-hand.csv", "--speeds", "speeds.json", "--set", "trace.gpu_type=V100") == 2
    rule = "gpu_type must stand with a trace of format gavel or shockwave; other traces read reference_type"
    assert rule in capsys.readouterr().err
    path = shared_data("gavel/max_min_fairness.trace")
    rates = shared_data("gavel/simulation_throughputs.json.gz")
    old, new = (
        read_trace(path, throughputs=rates, first_jobs=9, **{name: "k80"}) for name in ("gpu_type", "reference_type")
    )
    assert old.reference_type == new.reference_type == "k80"
    assert np.array_equal(old.jobs.seconds_per_iteration, new.jobs.seconds_per_iteration, equal_nan=True)
    with pytest.raises(InputError, match="reference_type must be given once"):
        read_trace(path, throughputs=rates, gpu_type="k80", reference_type="v100")


def test_generators_know_the_type_of_their_times(folder: Path) -> None:
    assert generate_workload("oef", {"tenants": 2}).reference_type == "RTX3070"
    assert generate_workload("gavel", {"jobs": 3}).reference_type is None
    path = shared_data("gavel/simulation_throughputs.json.gz")
    assert generate_workload("gavel", {"jobs": 3, "throughputs": str(path)}).reference_type == "v100"


def test_models_without_speeds_by_type_are_reported_as_equally_fast(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """AFS' file has no GPU types: on several its speeds are assumed to be the same."""
    Path("afs.csv").write_text("model,global_batch,num_gpus,step_time_s\nm,64,1,1.0\nm,64,2,0.6\n")
    Path("jobs.csv").write_text("job,arrival_seconds,most_gpus,iterations,model\na,0,2,10,m\n")
    assert simulated("jobs.csv", "--speeds", "afs.csv") == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"Speeds assumed equal on all types: 1 of 1 jobs. {HANGS}"


# -- bad input


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["resnet51"], 'must be one that --speeds knows, but got "resnet51"; did you mean "ResNet-50"?'),
        ([""], "unknown models must be NAME, equal or drop"),
        (["equal", "drop"], 'but got "equal", "drop"'),
        (["resnet50="], 'but got "resnet50="'),
        (["resnet50=equal,resnet50=drop"], 'but got "resnet50=drop"'),
        (["resnet50=ResNet-50,oops"], 'but got "oops"'),
        (["equal", "rsnet50=ResNet-50"], 'but got "rsnet50"; did you mean "resnet50"?'),
        (["equal", "ResNet-50=drop"], 'the trace that the speed source lacks, but got "ResNet-50"'),
        (
            ["drop"],
            "a trace must hold a job whose model has speeds, or is not left out, but got 100 jobs, all left out",
        ),
        (["=equal"], "the trace that the speed source lacks, but got jobs without a model"),
        (["../../etc/passwd"], 'must be one that --speeds knows, but got "../../etc/passwd"'),
        (["x" * 5000], f'must be one that --speeds knows, but got "{"x" * 60}"'),
        (["equal\n=drop"], "the trace that the speed source lacks"),
    ],
)
def test_malformed_choices_for_unknown_models_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    more = [word for text in flags for word in ("--unknown-models", text)]
    assert simulated("by-hand.csv", "--speeds", "speeds.json", *OF_V100, *more) == 2
    assert message in capsys.readouterr().err
    assert not Path("run").exists()


@pytest.mark.parametrize(("cluster", "speeds"), [(CLUSTER, "equal"), (CLUSTER, None), ("4x8 V100", None)])
def test_choices_for_unknown_models_without_a_speed_source_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], cluster: str, speeds: str | None
) -> None:
    more = [] if speeds is None else ["--speeds", speeds]
    assert simulated("by-hand.csv", *more, "--unknown-models", "equal", cluster=cluster) == 2
    assert "unknown models must stand with a speed source, which lacks them" in capsys.readouterr().err


def test_unneeded_choices_for_unknown_models_change_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated("as-spelt.csv", "--speeds", "speeds.json", *OF_V100, "--unknown-models", "equal") == 0
    assert capsys.readouterr().out.startswith("policy ")


def test_unknown_models_assumed_equal_need_times_in_the_trace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("steps.csv").write_text("job,arrival_seconds,most_gpus,iterations,model\na,0,1,10,ResNet-50\nb,0,1,10,mine\n")
    assert simulated("steps.csv", "--speeds", "speeds.json", "--unknown-models", "equal") == 2
    assert 'must have times in the trace (seconds_per_iteration), but got "mine"' in capsys.readouterr().err


def test_a_job_without_a_model_counts_as_unknown_if_types_differ(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,model,gpu_type\n"
    Path("some.csv").write_text(head + "a,0,1,36000,1,ResNet-50,\nb,0,1,36000,1,,\nc,0,1,3600,1,,K80\n")
    known = ("--speeds", "speeds.json", *OF_V100)
    assert simulated("some.csv", *known) == 2
    assert "none for jobs without a model (1 job, 10 GPU hours)" in capsys.readouterr().err
    assert simulated("some.csv", *known, cluster="4x1 V100", out="one") == 0  # one type: no speed is needed
    assert simulated("some.csv", *known, "--unknown-models", "=equal", out="all") == 0
    assert "Speeds assumed equal on all types: 1 of 3 jobs, 48 % of the GPU hours." in capsys.readouterr().out


def test_jobs_of_types_that_the_cluster_lacks_are_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,gpu_type\n"
    Path("typed.csv").write_text(head + "a,0,1,10,1,T4\nb,0,1,10,1,A10\nc,0,1,10,1,T4\n")
    assert simulated("typed.csv", cluster="2x4 V100, 1x4 K80") == 2
    rule = "a job of the trace must require a GPU type of the cluster, K80, V100"
    assert f"{rule}, but got gpu_type A10 (1 job), T4 (2 jobs)" in capsys.readouterr().err
    assert simulated("typed.csv", cluster="2x4 V100, 1x4 t4", out="other") == 0  # however it is spelt
    assert (
        "1 row or job is left out under every policy: gpu_type must be a type of the cluster" in capsys.readouterr().out
    )
    assert simulated("by-hand.csv", "--set", "trace.reference_type=A100", cluster="4x8 V100", out="none") == 2
    rule = "times of a GPU type that the cluster (V100) lacks must have a speed source that scales them"
    assert rule in capsys.readouterr().err
    more = ("--speeds", "speeds.json", "--set", "trace.reference_type=A100")
    assert simulated("as-spelt.csv", *more, out="lacks") == 2
    assert 'GPU type must be one that is known: v100, p100, k80, but got "A100"' in capsys.readouterr().err
    more = ("--speeds", "speeds.json", "--set", "trace.reference_type=V100")
    assert simulated("as-spelt.csv", *more, cluster="4x8 V100, 4x8 A100", out="lacks") == 2
    assert 'GPU type must be one that is known: v100, p100, k80, but got "A100"' in capsys.readouterr().err


def test_a_mapping_that_names_a_column_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("t,g\n0,1\n5,2\n")
    with pytest.raises(InputError, match='columns must name each column once, but got "t" as submit, duration'):
        read_trace(tmp_path / "jobs.csv", columns={"submit": "t", "duration": "t:min", "gpus": "g"})


def test_a_speed_file_with_a_model_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "speeds"
    path.write_text("""{"v100": {"('A', 1)": {"null": 1.0}, "('A', 1)": {"null": 2.0}}}""")
    with pytest.raises(InputError, match=r"a name must stand once in a table of throughputs, but got \('A', 1\) twice"):
        GavelThroughputs.read(path)
    path.write_text("""{"v100": {"('A', 1)": {"null": 1.0}, "(\\"A\\", 1)": {"null": 2.0}}}""")
    with pytest.raises(InputError, match="a job type must stand once for a gang and GPU type"):
        GavelThroughputs.read(path)
    path.write_text("""{"v100": {"('A', 1)": {"null": 1.0}}, "V100": {"('A', 1)": {"null": 2.0}}}""")
    with pytest.raises(InputError, match="a GPU type must stand once, whatever its case, but got v100 twice"):
        GavelThroughputs.read(path)
    path.write_text("model,global_batch,num_gpus,step_time_s\nm,64,1,1.0\nm,128,2,0.6\n")
    with pytest.raises(InputError, match=r"a model must have one global_batch.*but got m with 64 and 128"):
        AfsScaling.read(path)
    tables = tmp_path / "throughputs_V100"
    tables.mkdir()
    (tables / "m.csv").write_text("global_batch_size,1,2\n64,1,2\n64,1,3\n")
    with pytest.raises(InputError, match=r"a batch size of a model must stand once, but got m \(batch size 64\)"):
        ElasticFlowTables.read(tables)


def test_a_duplicate_model_in_synergy_files_is_refused(tmp_path: Path) -> None:
    source = shared_data("synergy/models.csv")
    for name in ("models.csv", "profiles.csv"):
        (tmp_path / name).write_text((source.parent / name).read_text())
    with (tmp_path / "models.csv").open("a") as stream:
        stream.write(
            next(line for line in source.read_text().splitlines() if line.startswith("cpu_per_gpu=3,res18,1,"))
        )
    with pytest.raises(InputError, match='a model must stand once for one GPU, but got "res18" twice'):
        SynergyProfiles.read(tmp_path)


# -- names


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet50", '"ResNet-50" (batch size 16, 32, 64)'),
        ("resnet50 (batch size 32)", '"ResNet-50 (batch size 32)"'),
        ("RESNET_50 (batch size 60)", '"ResNet-50" (batch size 64, 32, 16)'),
        ("lm", '"LM (batch size 5)"'),
        ("vgg-16", '"VGG16"'),
        ("own-net", ""),
        ("---", ""),
    ],
)
def test_the_nearest_name_ignores_case_punctuation_and_batch_size(name: str, near: str) -> None:
    known = [*(f"ResNet-50 (batch size {size})" for size in (16, 32, 64)), "LM (batch size 5)", "VGG16"]
    assert nearest(known, name) == near


def test_a_batch_size_that_is_not_measured_is_unknown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rates of another batch are not taken in silence; the column batch_size completes a name without one."""
    rates = {"v100": {f"('net (batch size {size})', 1)": {"null": float(size)} for size in (8, 16)}}
    Path("sizes.json").write_text(json.dumps(rates))
    head = "job,arrival_seconds,most_gpus,iterations,batch_size,model\n"
    Path("steps.csv").write_text(f"{head}a,0,1,160,16,net\n")
    assert simulated("steps.csv", "--speeds", "sizes.json", cluster="1x1 V100", out="known") == 0
    assert pl.read_parquet("known/jobs.parquet")["finish_seconds"].to_list() == [10.0]
    Path("steps.csv").write_text(f"{head}a,0,1,160,12,net\n")
    capsys.readouterr()
    assert simulated("steps.csv", "--speeds", "sizes.json", cluster="1x1 V100") == 2
    assert '"net (batch size 12)" (1 job; did you mean "net" (batch size 8, 16)?)' in capsys.readouterr().err
    more = ("--unknown-models", "net (batch size 8)")
    assert simulated("steps.csv", "--speeds", "sizes.json", *more, cluster="1x1 V100", out="taken") == 0
    assert pl.read_parquet("taken/jobs.parquet")["finish_seconds"].to_list() == [20.0]


# -- columns that no format has


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        (
            "who,queued_at,took_h,cards,arch\na,1500000000000,2,4,resnet50\nb,1560000000000,0.5,1,vgg\n",
            "submit=queued_at:ms duration=took_h:h gpus=cards user=who model=arch",
        ),
        (
            "JobID\tSubmitTime\tEndTime\tAllocGPUs\tUser\tGPU Type\n"
            "1\t2020-06-09 18:00:00\t2020-06-09 19:00:00\t2\tana\tV100\n",
            "id=JobID submit=SubmitTime:time end=EndTime:time gpus=AllocGPUs user=User reference_type='GPU Type'",
        ),
        ("run;submitted;runtime minutes\n1;0;5\n", "submit=submitted duration='runtime minutes:min' gpus=GPUS"),
        (
            "JobID,SubmitTime,GPU,NGPU,RuntimeHours\n7,2026-09-01 08:18:43,V100,2,0.5\n",
            "id=JobID submit=SubmitTime:time duration=RuntimeHours:h gpus=NGPU reference_type=GPU",
        ),
    ],
)
def test_for_unknown_columns_the_error_suggests_a_mapping(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, mapping: str
) -> None:
    path = tmp_path / "my jobs.csv"
    path.write_text(text)
    assert run(["simulate", str(path), "--cluster", "1x4 V100"]) == 2
    said = capsys.readouterr().err
    command = said.partition("as far as its header shows by: ")[2].partition("; check the units")[0]
    words = shlex.split(command)
    assert words[:5] == ["eunomia", "simulate", str(path), "--cluster", "CLUSTER"]
    assert words[6::2] == [f"trace.columns.{each}" for each in shlex.split(mapping)]
    if "GPUS" not in command:
        words[4] = "1x4 V100"
        assert (
            run([*words[1:], "--policy", "fifo", "--no-report", "--no-progress", "--out", str(tmp_path / "run")]) == 0
        )


def test_the_screen_states_the_gpu_hours_of_a_trace_so_that_a_mistaken_unit_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "jobs.csv", str(tmp_path / "run")
    path.write_text("id,submitted,took,gpus\na,0,2,4\nb,36000,5,1\n")
    columns = {"id": "id", "submit": "submitted", "gpus": "gpus"}
    for unit, said in ((":h", "13 GPU hours by the trace's times, the longest job 5.0 h"), ("", "0.0036 GPU hours")):
        mapping = [f"trace.columns.{key}={name}" for key, name in (columns | {"duration": f"took{unit}"}).items()]
        words = [word for each in mapping for word in ("--set", each)]
        assert run(["simulate", str(path), "--cluster", "1x4 V100", *words, "--out", out, "--overwrite"]) == 0
        shown = capsys.readouterr().err
        assert "jobs arrive over 10 h; " in shown
        assert said in shown


def test_for_text_that_is_not_a_table_no_mapping_is_suggested(tmp_path: Path) -> None:
    for text in ("a,b,c\n1,2,3\n", "1,2,3\n4,5,6\n", "gpus,submit\n", "hello\n" * 5, '"job,submit,gpus\n1,2,3\n'):
        (tmp_path / "text").write_text(text)
        with pytest.raises(InputError, match="a trace must be of a known format"):
            read_trace(tmp_path / "text")
