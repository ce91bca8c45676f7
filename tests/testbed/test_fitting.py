"""Policies that do not suit are named together, each with a preset that does; --elastic gives fixed gangs sizes."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from eunomia.cli import run
from eunomia.model.cluster import Cluster
from eunomia_testbed import read_trace
from eunomia_testbed.results import RunData
from eunomia_testbed.spec.elastic import sizes_of, with_sizes
from eunomia_testbed.spec.fitting import fitting_presets

TRACE = """job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,model
a,0,2,100,2.0,curved
b,10,1,300,1.0,curved
c,20,4,50,1.0,
"""
CURVES = "model,global_batch,num_gpus,step_time_s\ncurved,32,1,1.0\ncurved,32,2,0.6\ncurved,32,4,0.5\n"
TWO_TYPES = ["--cluster", "1x8 V100, 1x4 K80", "--set", "trace.reference_type=V100", "--speeds", "equal"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in ("EUNOMIA_POLICY", "EUNOMIA_CLUSTER"):
        monkeypatch.setenv(name, "")
    Path("jobs.csv").write_text(TRACE)
    Path("curves.csv").write_text(CURVES)
    yield


def simulate(*more: str) -> int:
    return run(["simulate", "jobs.csv", "--cost", "start=1s", "--no-progress", "--no-report", "--out", "out", *more])


def test_all_unsuitable_policies_are_named_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(*TWO_TYPES, "--policy", "fifo", "--policy", "afs", "--policy", "shockwave") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    for line, name in zip(lines, ("afs", "shockwave"), strict=True):
        assert f'got {name}: allocation "{name}" needs one GPU type, but got K80 and V100; ' in line
        assert " runs here and shares the most plugins with it, which is no recommendation" in line
        assert "--skip-unfit leaves it out" in line
    assert not Path("out").exists()


def test_the_option_skip_unfit_simulates_only_suitable_policies_and_names_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["simulate", "jobs.csv", *TWO_TYPES, "--cost", "start=1s", "--no-report", "--out", "out", "--skip-unfit"]
    assert run([*command, "--policy", "fifo", "--policy", "afs"]) == 0
    assert "left out (--skip-unfit): afs: " in capsys.readouterr().err
    assert RunData.load(Path("out")).runs() == [("fifo", 0)]


def test_nothing_is_simulated_if_no_policy_is_suitable(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(*TWO_TYPES, "--policy", "afs", "--skip-unfit") == 2
    assert "a policy must suit the cluster" in capsys.readouterr().err


def test_the_nearest_preset_suits_the_cluster() -> None:
    workload = read_trace("jobs.csv")
    kept, left = fitting_presets(["fifo", "afs", "synergy"], Cluster.parse("1x8 V100, 1x4 K80"), [workload])
    assert list(kept) == ["fifo"]
    nearest = [each.nearest for each in left if each.nearest]
    assert len(nearest) == 2
    assert list(fitting_presets(nearest, Cluster.parse("1x8 V100, 1x4 K80"), [])[1]) == []


def test_a_warning_says_that_an_elastic_policy_has_no_sizes_to_choose(capsys: pytest.CaptureFixture[str]) -> None:
    usual = ["simulate", "jobs.csv", "--cluster", "1x8 V100", "--cost", "start=1s", "--no-report"]
    assert run([*usual, "--policy", "afs", "--policy", "fifo", "--out", "a"]) == 0
    assert "all jobs have one size, so that afs can grow or shrink none of them" in capsys.readouterr().err
    facts = RunData.load(Path("a")).facts
    assert facts is not None
    assert any(note.startswith("all jobs have one size") for note in facts.notes)
    assert run([*usual, "--policy", "fifo", "--out", "b"]) == 0
    assert "all jobs have one size" not in capsys.readouterr().err


def test_the_option_elastic_gives_sizes_and_times_that_follow_the_curve(capsys: pytest.CaptureFixture[str]) -> None:
    usual = ["simulate", "jobs.csv", "--cluster", "1x8 V100", "--cost", "start=1s", "--no-report", "--policy", "afs"]
    assert run([*usual, "--elastic", "1..4", "--speeds", "curves.csv", "--unknown-models", "equal", "--out", "a"]) == 0
    said = capsys.readouterr().err
    assert (
        "every job may run on 1 to 4 GPUs; speeds scale by the curves of their models, 1 of 3 of them linearly" in said
    )
    jobs = {row["job"]: row for row in RunData.load(Path("a")).jobs.iter_rows(named=True)}
    # a: 100 iterations of 2.0 s on 2 GPUs; its curve is 0.6 s on 2 and 0.5 s on 4 GPUs, so 2.0 x 0.5 / 0.6 on 4.
    assert jobs["a"]["ideal_seconds"] == pytest.approx(100 * 2.0 * 0.5 / 0.6)
    assert jobs["b"]["ideal_seconds"] == pytest.approx(300 * 1.0 * 0.5 / 1.0)
    assert jobs["c"]["ideal_seconds"] == pytest.approx(50.0)
    assert run([*usual, "--elastic", "1..8", "--out", "b"]) == 0
    assert "speeds scale linearly" in capsys.readouterr().err


def test_the_option_elastic_scales_the_time_alone_that_a_trace_gives() -> None:
    cluster = Cluster.parse("1x8 V100")
    given = read_trace(Path("jobs.csv"))
    timed = dataclasses.replace(given, exclusive_seconds=np.full(given.size, 60.0))
    made, _ = with_sizes({0: timed}, sizes_of("1..4", cluster), cluster, None)
    assert made[0].exclusive_seconds is not None
    assert made[0].exclusive_seconds.tolist() == (60.0 * given.jobs.most / 4.0).tolist()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1..9", "elastic must end within the cluster's 8 GPUs"),
        ("4..1", "elastic must be a range of GPUs such as 1..8"),
        ("4", "elastic must be a range of GPUs such as 1..8"),
        ("0..4", "elastic must be a range of GPUs such as 1..8"),
        ("1..99999999999", "elastic must be a range of GPUs such as 1..8"),
    ],
)
def test_bad_sizes_are_refused(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--cluster", "1x8 V100", "--policy", "afs", "--elastic", text) == 2
    assert said in capsys.readouterr().err


def test_a_trace_with_its_own_sizes_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.csv").write_text(TRACE.replace("model\n", "model,least_gpus\n").replace("curved\n", "curved,1\n"))
    assert simulate("--cluster", "1x8 V100", "--policy", "afs", "--elastic", "1..4") == 2
    assert "--elastic must stand with a trace in which every job has one size" in capsys.readouterr().err


def test_all_names_that_are_not_policies_are_refused_together(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--policy", "gavel", "--policy", "fifo", "--policy", "pollux", "--policy", "srft"]
    assert simulate("--cluster", "1x8 V100", *asked) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert '"gavel" is a paper, and a policy must be one of its presets' in lines[0]
    assert "Pollux" in lines[1] and 'did you mean "srtf"?' in lines[2]
    assert not Path("out").exists()
