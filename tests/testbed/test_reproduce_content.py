"""Wrong content of a file given to ``eunomia reproduce`` is refused before anything is printed or simulated.

Each error names the rule, the value and the place, and no folder is left.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from eunomia.cli import run
from eunomia.errors import InputError, InputErrors
from eunomia_testbed.generators.afs import CLUSTERS, MOST_GPUS
from eunomia_testbed.generators.derived import TASKS
from eunomia_testbed.reproduce.files import Reading, check_content
from eunomia_testbed.reproduce.paper import cells_of
from eunomia_testbed.reproduce.papers import find_paper
from eunomia_testbed.reproduce.synergy.jobs import STATIC
from eunomia_testbed.spec.settings import filled

GARBAGE = (
    pytest.param(b"", id="empty"),
    pytest.param(bytes(range(256)), id="bytes"),
    pytest.param(gzip.compress(b"a,b\n" * 1000)[:40], id="half a gzip"),
    pytest.param("é,b\n1,2\n".encode("latin-1"), id="latin"),
    pytest.param(b"a,b,c\n1,2,3\n", id="other columns"),
    pytest.param(b"hello\n", id="a word"),
)
MODELS = [model for names in TASKS.values() for model in names]
CURVES = {model: [12.0 / gpus for gpus in range(1, most + 1)] for model, most in MOST_GPUS.items()}
PHILLY = "job_id,submit_s,submit_local,duration_s,num_gpus,vc,status,afs_model\n"
"""The header of Philly's trace with the models that AFS' authors drew."""


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that runs the command on some settings in the test's folder, and returns the errors."""
    monkeypatch.chdir(tmp_path)

    def reproduce(paper: str, *settings: str, more: str = "") -> str:
        given = [part for setting in settings for part in ("--set", setting)]
        assert run(["reproduce", paper, "--out", "run", "-j", "1", *given, *more.split()]) == 2
        told = capsys.readouterr()
        assert told.out == "" and not Path("run").exists()
        assert all(line.startswith("error: ") for line in told.err.splitlines())
        return told.err

    return reproduce


def afs(**changed: str) -> tuple[str, ...]:
    """Write a trace of one job a cluster and the curves of all models, some files changed; return the settings."""
    rows = [f"j{row},{row},x,600,1,{name},Pass,DcganModel256\n" for row, name in enumerate(CLUSTERS)]
    steps = [f"{model},1,{gpus + 1},{times[gpus]}\n" for model, times in CURVES.items() for gpus in range(len(times))]
    Path("trace.csv").write_text(changed.get("trace", PHILLY + "".join(rows)))
    Path("scaling.csv").write_text(changed.get("scaling", "model,global_batch,num_gpus,step_time_s\n" + "".join(steps)))
    return "trace=trace.csv", "scaling=scaling.csv"


def synergy(folder: Path, **changed: str) -> tuple[str, ...]:
    """Write profiles of all models, a static trace and Philly's, some files changed; return the settings."""
    grid = [(cpus, memory) for cpus in (1, 3) for memory in (20, 62.5)]
    rates = [f"cpu_per_gpu=3,{model},1,{cpus},{memory},1.0\n" for model in MODELS for cpus, memory in grid]
    demands = [f"cpu_per_gpu=3,{model},1,1,20,32,0.5\n" for model in MODELS]
    files = {
        "profiles.csv": "variant,model,gpus,cpus_per_gpu,mem_gb_per_gpu,rel_tput\n" + "".join(rates),
        "models.csv": "variant,model,gpus,demand_cpu,demand_mem_gb,batch,iter_time_base_s\n" + "".join(demands),
        STATIC: "job,model,arrival_seconds,iterations,most_gpus\n0,res18,0,100,1\n",
        "philly.csv": PHILLY + "j0,0,x,600,1,a,Pass,DcganModel256\n",
    }
    for name, content in files.items():
        (folder / name).write_text(changed.get(name, content))
    return f"data={folder}", f"trace={folder / 'philly.csv'}"


# --- content that is of no format ------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", GARBAGE)
@pytest.mark.parametrize("paper", ["oef", "shockwave"])
def test_rates_of_an_unknown_format_are_refused(refused: Callable[..., str], paper: str, content: bytes) -> None:
    Path("rates.json").write_bytes(content)
    errors = refused(paper, "throughputs=rates.json")
    assert len(errors.splitlines()) == 1 and ", but got " in errors and "(rates.json" in errors


@pytest.mark.parametrize("content", GARBAGE)
@pytest.mark.parametrize("name", ["trace.csv", "scaling.csv"])
def test_files_of_afs_of_an_unknown_format_are_refused(refused: Callable[..., str], name: str, content: bytes) -> None:
    settings = afs()
    Path(name).write_bytes(content)
    errors = refused("afs", *settings, more="--seeds 0")
    assert len(errors.splitlines()) == 1 and ", but got " in errors and name in errors


@pytest.mark.parametrize("content", GARBAGE)
@pytest.mark.parametrize("name", ["profiles.csv", "models.csv", STATIC, "philly.csv"])
def test_files_of_synergy_of_an_unknown_format_are_refused(
    refused: Callable[..., str], tmp_path: Path, name: str, content: bytes
) -> None:
    settings = synergy(tmp_path)
    (tmp_path / name).write_bytes(content)
    errors = refused("synergy", *settings, more="--seeds 0")
    assert len(errors.splitlines()) == 1 and ", but got " in errors and name in errors


# --- values that no simulation can use --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "error"),
    [
        ([], "throughputs must be tables in tables, but got list (rates.json)"),
        ({}, "throughputs must hold at least one job type, but got none (rates.json)"),
        ({"v100": {"('m', 1)": {"null": -1}}}, "null must be at least 0, but got \"-1\" (rates.json, v100, ('m', 1))"),
        ({"v100": {"('m', 1)": {"null": "x"}}}, "null must be at least 0, but got \"x\" (rates.json, v100, ('m', 1))"),
        ({"v100": {"m": {"null": 1}}}, "a job type must be written ('<model>', <GPUs>), but got \"m\" (rates.json, v"),
        (
            {"v100": {"('m', 1)": {"null": 1, "('m', 1)": [1]}}},
            "a pair must have two rates, but got [1] (rates.json, v100, ('m', 1), ('m', 1))",
        ),
    ],
    ids=["list", "no type", "negative", "word", "no gang", "half a pair"],
)
@pytest.mark.parametrize("paper", ["oef", "shockwave"])
def test_invalid_rates_are_refused(refused: Callable[..., str], paper: str, rates: object, error: str) -> None:
    Path("rates.json").write_text(json.dumps(rates))
    assert error in refused(paper, "throughputs=rates.json")


@pytest.mark.parametrize(
    ("paper", "error"),
    [
        ("oef", 'GPU type must be one that is known: k80, but got "P100" (rates.json)'),
        ("shockwave", 'model must be one that is known: ResNet-18 (batch size 64), but got "'),
    ],
)
def test_rates_without_a_model_or_a_gpu_type_of_the_paper_are_refused(
    refused: Callable[..., str], paper: str, error: str
) -> None:
    kind = "k80" if paper == "oef" else "v100"
    Path("rates.json").write_text(json.dumps({kind: {"('ResNet-18 (batch size 64)', 1)": {"null": 1.0}}}))
    assert error in refused(paper, "throughputs=rates.json")


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("j,-1,x,600,1,2869ce,Pass,DcganModel256", "submit_s"),
        ("j,0,x,nan,1,2869ce,Pass,DcganModel256", "duration_s"),
        ("j,0,x,600,1.5,2869ce,Pass,DcganModel256", "num_gpus"),
        ("j,0,x,600,1,,Pass,DcganModel256", "vc"),
        ("j,0,x,600,1,2869ce,Pass,", "afs_model"),
    ],
)
def test_a_trace_row_that_would_be_dropped_is_refused(refused: Callable[..., str], row: str, error: str) -> None:
    good = [f"j{at},{at},x,600,1,{name},Pass,DcganModel256\n" for at, name in enumerate(CLUSTERS)]
    errors = refused("afs", *afs(trace=PHILLY + "".join(good) + row + "\n"), more="--seeds 0")
    assert errors.startswith(f"error: {error} must ") and f"(trace.csv, line {len(CLUSTERS) + 2})" in errors


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("DcganModel256,1,0,1", 'num_gpus must be at least 1, but got "0" (scaling.csv, line 2)'),
        ("DcganModel256,1,1,0", 'step_time_s must be above 0, but got "0" (scaling.csv, line 2)'),
        ("DcganModel256,x,1,1", 'global_batch must be above 0, but got "x" (scaling.csv, line 2)'),
        ("DcganModel256,1", "a row must have as many fields as the header, but got "),
        ("AnotherModel,1,1,1", 'model must be one that is known: AnotherModel, but got "DcganModel256" (scaling.csv)'),
    ],
)
def test_invalid_curves_are_refused(refused: Callable[..., str], row: str, error: str) -> None:
    scaling = f"model,global_batch,num_gpus,step_time_s\n{row}\n"
    assert error in refused("afs", *afs(scaling=scaling), more="--seeds 0")


def test_a_trace_without_a_cluster_of_the_paper_is_refused(refused: Callable[..., str]) -> None:
    trace = PHILLY + "j,0,x,600,1,another,Pass,DcganModel256\n"
    errors = refused("afs", *afs(trace=trace), more="--seeds 0")
    assert "cluster must be a user of the trace" in errors and '"2869ce"' in errors and "(trace.csv)" in errors


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        (STATIC, "job,model,arrival_seconds,iterations,most_gpus\n0,x,0,100,1\n", f'but got "x" (FOLDER/{STATIC})'),
        (STATIC, "job,model,arrival_seconds,iterations,most_gpus\n0,res18,0,-1,1\n", f'"-1" ({STATIC}, line 2)'),
        (
            "models.csv",
            "variant,model,gpus,demand_cpu,demand_mem_gb,batch,iter_time_base_s\ncpu_per_gpu=3,res18,1,1,20,32,0\n",
            'iter_time_base_s must be above 0, but got "0" (FOLDER/models.csv, line 2)',
        ),
        (
            "models.csv",
            "variant,model,gpus,demand_cpu,demand_mem_gb,batch,iter_time_base_s\ncpu_per_gpu=3,res18,1,1,20,32,1\n",
            "every model must stand in profiles.csv and models.csv, but got alexnet, ",
        ),
        (
            "philly.csv",
            PHILLY + "j0,0,x,600,1,a,Pass,DcganModel256\n",
            "the range must be within the 1 jobs of the trace (--set philly_first, philly_jobs), but got up to job ",
        ),
    ],
    ids=["model", "iterations", "time", "lacks models", "range"],
)
def test_invalid_values_in_files_of_synergy_are_refused(
    refused: Callable[..., str], tmp_path: Path, name: str, content: str, error: str
) -> None:
    settings = synergy(tmp_path, **{name: content})
    assert error.replace("FOLDER", str(tmp_path)) in refused("synergy", *settings, more="--seeds 0")


# --- what the check itself does ---------------------------------------------------------------------------------------


def test_each_file_is_read_once_and_all_errors_are_reported() -> None:
    calls: list[object] = []

    def first(path: str) -> None:
        calls.append(path)

    def second(path: str, number: int) -> None:
        calls.append((path, number))
        if number:
            raise InputError("R", value=path)

    def third(path: str) -> None:
        calls.append("third")

    given = [("a", 1), ("a", 0), ("b", 1), ("a", 1), ("b", 2)]
    readings = [Reading(read=second, arguments=each) for each in given]
    once = Reading(read=first, arguments=("a",))
    with pytest.raises(InputErrors) as refused:
        check_content([once, *readings, Reading(read=third, arguments=("a",)), once])
    assert [str(error) for error in refused.value.errors] == ["R, but got a", "R, but got b"]
    assert calls == ["a", ("a", 1), ("a", 0), ("b", 1), ("b", 2)]


def test_valid_files_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of which the wrong ones above are made."""
    monkeypatch.chdir(tmp_path)
    for name, settings in (("afs", afs()), ("synergy", (*synergy(tmp_path), "philly_first=0", "philly_jobs=1"))):
        paper = find_paper(name)
        grid = filled(paper.grid, settings, "--set")
        readings = [
            one for cell in cells_of((0,), paper.claims(grid)) for one in paper.files(cell) if isinstance(one, Reading)
        ]
        assert len(set(readings)) > 10
        check_content(readings)
