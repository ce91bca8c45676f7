"""A plugin that fails in a simulation: its run ends, the others go on, and whatever is shown of it says so."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from eunomia.cli import run
from eunomia.errors import EunomiaError
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.results import RunData
from eunomia_testbed.running.result import simulate
from eunomia_testbed.simulator import SimulationOptions

EUNOMIA = (sys.executable, "-c", "from eunomia.cli import main; main()")
FAILING = """from eunomia import hookimpl


class Half:
    name, api = "half", 1

    @hookimpl
    def eunomia_allocation(self, snapshot, menus, offer):
        return self.share(offer)

    def share(self, offer):
        return offer.free_gpus / 0
"""
SAID = "half (allocation): ZeroDivisionError: division by zero (half.py:12)"
MENDED = """import numpy as np

from eunomia import Allocation, Reason, hookimpl


class Half:
    name, api = "half", 1

    @hookimpl
    def eunomia_allocation(self, snapshot, menus, offer):
        jobs, free = offer.candidates, offer.free_gpus
        sizes = np.zeros(jobs.size, dtype=np.int64)
        for turn, job in enumerate(jobs):
            sizes[turn] = menus.largest_at_most(job, free)
            free -= sizes[turn]
        return Allocation.to_jobs(jobs, sizes, otherwise=Reason.OUTRANKED)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "half.py").write_text(FAILING)
    yield tmp_path


def command(folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own: plugins that a flag names stay known to a process."""
    given = ["simulate", "--workload", "gavel", "--set", "gavel.jobs=20", "--cluster", "1x8 V100"]
    return eunomia(folder, *given, "--plugin-path", "half.py", *more)


def eunomia(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([*EUNOMIA, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_fault_ends_its_run_and_the_other_runs_finish(processes: str, folder: Path) -> None:
    done = command(folder, "--policy", "half", "--policy", "fifo", "--out", "run", "-j", processes)
    assert done.returncode == 1, done.stderr
    assert f"but got {SAID} (half, seed 0, round 1)" in done.stderr
    assert "Traceback" not in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:3]] == ["half:", "fifo"]
    facts = json.loads((folder / "run" / "run.json").read_text())
    assert [(each["policy"], each["seed"]) for each in facts["failures"]] == [("half", 0)]
    assert SAID in facts["failures"][0]["error"]
    rows = {row["policy"]: row for row in pl.read_csv(folder / "run" / "summary.csv").iter_rows(named=True)}
    assert SAID in rows["half"]["failure"]
    assert rows["half"]["apps"] is None
    assert (rows["fifo"]["apps_finished"], rows["fifo"]["failure"]) == (20, None)
    assert SAID in (folder / "run" / "report.html").read_text()
    assert RunData.load(folder / "run").runs() == [("fifo", 0)]


def test_a_run_whose_simulations_all_failed_writes_a_page_that_states_it(folder: Path) -> None:
    done = command(folder, "--policy", "half", "--out", "run", "--json")
    assert done.returncode == 1, done.stderr
    assert [each["policy"] for each in json.loads(done.stdout)["failed"]] == ["half"]
    page = (folder / "run" / "report.html").read_text()
    assert "1 run failed" in page
    assert SAID in page


@pytest.mark.parametrize("others", [(), pytest.param(("--policy", "fifo"), marks=pytest.mark.slow)])
def test_resume_runs_a_failed_simulation_again(others: tuple[str, ...], folder: Path) -> None:
    given = ("--policy", "half", *others, "--out", "run")
    first, again = command(folder, *given), command(folder, *given, "--resume")
    assert (first.returncode, again.returncode) == (1, 1)
    assert "the same command with --out run --resume goes on" in first.stdout
    (folder / "half.py").write_text(MENDED)
    mended = command(folder, *given, "--resume")
    assert mended.returncode == 0, mended.stderr
    assert json.loads((folder / "run" / "run.json").read_text())["failures"] == []
    assert ("half", 0) in RunData.load(folder / "run").runs()


def test_tolerated_faults_are_shown_in_the_table_the_report_and_the_comparison(folder: Path) -> None:
    done = command(folder, "--policy", "half", "--policy", "fifo", "--out", "run", "--tolerate-faults")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("half (fallback from round 4) ")
    told = f"rounds with a fault, the first: {SAID}; the fallback decided from round 4 on"
    assert told in done.stdout
    row = pl.read_csv(folder / "run" / "summary.csv").filter(pl.col("policy") == "half").row(0, named=True)
    assert (row["faults"], row["first_fault"], row["fallback_round"]) == (3, SAID, 4)
    page = (folder / "run" / "report.html").read_text()
    assert "The fallback decided from round 4 on" in page
    assert f"first fault: {SAID}" in page
    compared = eunomia(folder, "compare", "run:half", "run:fifo")
    assert compared.returncode == 0, compared.stderr
    assert told in compared.stdout


def test_a_comparison_with_a_run_that_failed_names_the_fault(folder: Path) -> None:
    command(folder, "--policy", "half", "--policy", "fifo", "--out", "run", "--no-report")
    compared = eunomia(folder, "compare", "run:half", "run:fifo")
    assert compared.returncode == 1
    assert SAID in compared.stderr


def test_python_raises_the_fault_unless_it_is_tolerated(folder: Path) -> None:
    workload = generate_workload("gavel", {"jobs": "20"}, 0)
    registry = Registry.find(paths=[folder / "half.py"], installed=False)
    profile = Profile.load("half", registry=registry)
    with pytest.raises(EunomiaError, match="ZeroDivisionError") as caught:
        simulate(workload, "1x8 V100", [profile])
    assert caught.value.exit_code == 1
    for result in (
        simulate(workload, "1x8 V100", [profile], tolerate_faults=True),
        simulate(workload, "1x8 V100", [profile], options=SimulationOptions(tolerate_faults=True)),
    ):
        assert result.metrics["fallback_round"].to_list() == [4]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_interrupted_simulation_suggests_resume_in_one_line(processes: str, folder: Path) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    given = ["simulate", "--workload", "gavel", "--set", "gavel.jobs=20000", "--cluster", "8x8 V100", "--out", "run"]
    given += ["--policy", "srtf", "--policy", "las", "-j", processes]
    running = subprocess.Popen([*EUNOMIA, *given], cwd=folder, env=env, stdout=-1, stderr=-1, text=True)
    while running.poll() is None and not (folder / "run" / "run.json").exists():
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert said.splitlines()[1:] == [
        "interrupted: 0 of 2 simulations are done; the same command with --out run --resume goes on"
    ]


@pytest.mark.parametrize("module", ["eunomia", "eunomia.cli"])
def test_the_command_line_runs_as_a_module(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()[0]) == (0, "eunomia")


def test_an_impossible_output_folder_is_refused_in_one_line_with_exit_code_2(folder: Path) -> None:
    for out in ("half.py", "half.py/below", "/proc/run"):
        done = command(folder, "--policy", "fifo", "--out", out)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 2
        assert done.stderr.splitlines()[1].startswith("error: --out must ")


def test_a_policy_of_two_plugins_uses_both_and_defaults_for_other_stages() -> None:
    profile = Profile.load("srtf+packed")
    assert sorted(profile.plugins.values()) == ["fixed", "ordered", "packed", "srtf"]
    assert profile.name == "srtf+packed"
    assert run(["plugins", "--resolve", "srtf+packed"]) == 0
