"""``eunomia example``: the package's files are what their script makes, and are never written over others."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import make_example
from eunomia import EunomiaError
from eunomia.cli import run
from eunomia_testbed import read_trace, write_example
from eunomia_testbed.example import EXAMPLE_FILES, example_text
from eunomia_testbed.performance import AnalyticModel
from eunomia_testbed.spec.cluster_file import load_cluster

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", EXAMPLE_FILES)
def test_each_file_of_the_example_equals_what_its_script_generates(name: str) -> None:
    assert example_text(name) == make_example.FILES[name]()


def test_the_example_trace_has_the_jobs_of_its_description(tmp_path: Path) -> None:
    write_example(tmp_path)
    trace = read_trace(tmp_path / "example.csv", strict=True)
    assert (trace.size, len(trace.apps.id), len(trace.users.id)) == (72, 60, 4)
    assert set(trace.jobs.most.tolist()) == {1, 2, 4, 8}
    assert set(trace.models) <= set(AnalyticModel().models)
    assert load_cluster(tmp_path / "lab.toml").gpus == 32
    assert "72 jobs of 60 apps of four users" in EXAMPLE_FILES["example.csv"]


def test_the_wheel_contains_the_example_files(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    names = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    assert {f"eunomia_testbed/example/{name}" for name in EXAMPLE_FILES} <= names


def test_the_command_overwrites_its_own_files_but_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["example"]) == run(["example"]) == 0
    assert "example.csv" in capsys.readouterr().out
    Path("example.csv").write_text("my own\n")
    Path("lab.toml").unlink()
    assert run(["example"]) == 2
    assert 'unless --overwrite is given, but got "example.csv"' in capsys.readouterr().err
    assert Path("example.csv").read_text() == "my own\n"
    assert not Path("lab.toml").exists()
    assert run(["example", "--overwrite"]) == 0
    assert Path("example.csv").read_text() == example_text("example.csv")


def test_a_missing_folder_is_created_and_a_file_is_refused(tmp_path: Path) -> None:
    assert all(path.exists() for path in write_example(tmp_path / "a" / "b"))
    with pytest.raises(EunomiaError, match="must be a folder"):
        write_example(tmp_path / "a" / "b" / "lab.toml")


def test_the_error_for_a_missing_example_trace_gives_the_command_that_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EunomiaError, match=r"eunomia example writes example\.csv"):
        read_trace("example.csv")
