"""`eunomia demo` as a user runs it: four apps by real processes, and everything that it must show but its time.

The ordinary suite runs it with fewer and shorter trials, `make slow` as it is.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from eunomia_testbed.results import RunData

LIMIT_SECONDS = 900.0
pytestmark = pytest.mark.timeout(LIMIT_SECONDS + 30)


WHOLE = "from eunomia.cli import main; main()"
SHORT = """
from eunomia.cli import main
from eunomia_testbed.demo import command

TRIALS = {"curves": 3, "halving": 4}
fitted = command.fitted


def shorter(source):
    source = source.with_setting("max_iterations", source.max_iterations // 3)
    return source.with_setting("trials", TRIALS[source.path.stem]) if source.path.stem in TRIALS else source


command.fitted = lambda sources, **machine: [shorter(source) for source in fitted(sources, **machine)]
main()
"""
"""The demo with a third of the iterations of each trial, and fewer trials; each has its first metric at 15."""
LONGER_LEASES = ("--set", "rounds.lease=12s")
"""On a busy machine, where a start takes seconds, fewer of them."""


def command(*options: str, script: str = WHOLE) -> list[str]:
    return [sys.executable, "-c", script, "demo", *options]


def processes_of(folder: Path) -> list[str]:
    """Command lines and environments of living processes that name the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(folder).encode() in text and state != "Z":
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
    return found


def ran(folder: Path, script: str, *options: str) -> tuple[Path, dict[str, Any], str]:
    """Run the demo; its folder, what it said as JSON, and its progress."""
    done = subprocess.run(
        command("--out", str(folder), "--json", *options, script=script),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def whole_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """The demo, run once."""
    return ran(tmp_path_factory.mktemp("demo") / "out", WHOLE)


@pytest.fixture(scope="module")
def short_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """The short demo, run once."""
    return ran(tmp_path_factory.mktemp("demo") / "out", SHORT, *LONGER_LEASES)


@pytest.fixture(params=["short_demo", pytest.param("whole_demo", marks=pytest.mark.slow)])
def demo(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any], str]:
    """The short demo in the ordinary suite, the whole one among the slow tests."""
    found: tuple[Path, dict[str, Any], str] = request.getfixturevalue(request.param)
    return found


def test_four_apps_finish_and_each_has_a_rho(demo: tuple[Path, dict[str, Any], str]) -> None:
    _, said, _ = demo
    assert [app["app"] for app in said["apps"]] == ["curves", "halving", "hyperband", "single"]
    assert {app["state"] for app in said["apps"]} == {"finished"}
    assert all(0.0 < app["rho"] < 10.0 for app in said["apps"])


@pytest.mark.slow
def test_auctions_of_the_demo_have_several_bidders_and_payments(whole_demo: tuple[Path, dict[str, Any], str]) -> None:
    folder, said, _ = whole_demo
    record = RunData.load(folder).records["themis"]
    by_round = record.group_by("round").agg(pl.col("bidder").sum(), (pl.col("c") < 1.0 - 1e-9).any().alias("paid"))
    contested = by_round.filter((pl.col("bidder") >= 2) & pl.col("paid"))
    assert contested.height >= 5
    assert said["contested"] == contested.height


def test_suspended_jobs_resume_without_repeating_work(demo: tuple[Path, dict[str, Any], str]) -> None:
    folder, said, _ = demo
    assert said["resumed"] == said["suspensions"]
    # A job stopped between an epoch's last batch and the next epoch does that one batch again (decision 0123).
    assert said["twice_at_most"] <= said["suspensions"]
    assert RunData.load(folder).jobs["iterations_lost"].sum() <= said["suspensions"]


@pytest.mark.slow
def test_the_demo_suspends_unfinished_jobs(whole_demo: tuple[Path, dict[str, Any], str]) -> None:
    assert whole_demo[1]["suspensions"] >= 6


@pytest.mark.slow
def test_the_best_trial_of_each_search_classifies_95_of_100_digits_correctly(
    whole_demo: tuple[Path, dict[str, Any], str],
) -> None:
    _, said, _ = whole_demo
    assert {app["app"]: app["best"] for app in said["apps"] if not app["best"] or app["best"] < 0.95} == {}


def test_no_slot_has_two_holders_and_no_round_is_faulty(demo: tuple[Path, dict[str, Any], str]) -> None:
    folder, said, _ = demo
    assert said["held_twice"] == []
    assert said["faults"] == []
    summary = pl.read_csv(folder / "summary.csv")
    assert summary["slots_held_twice"].to_list() == [0]


def test_the_demo_leaves_a_complete_run_folder_and_no_process(demo: tuple[Path, dict[str, Any], str]) -> None:
    folder, _, progress = demo
    assert processes_of(folder) == []
    for name in ("report.html", "run.json", "journal.sqlite", "summary.csv", "profiles/demo.toml", "cluster.toml"):
        assert (folder / name).is_file(), name
    assert list(folder.glob("apps/single/1/checkpoints/*/*.pt"))
    assert list(folder.glob("apps/*/*/logs/events.out.tfevents.*"))
    assert not (folder / "run").exists()  # its tokens
    page = (folder / "report.html").read_text()
    for part in ("verdict", "held", "fairness", "searches", "decisions", "provenance"):
        assert f'<section id="{part}"' in page
    assert "auction" in progress and "hyperband finished" in progress


@pytest.mark.timeout(500)
def test_ctrl_c_stops_all_processes_and_still_writes_the_report(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    process = subprocess.Popen(
        command("--out", str(folder)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 180.0
        while not list(folder.glob("apps/*/*/containers/*/worker.json")):
            assert time.monotonic() < deadline, "no worker ever started"
            time.sleep(0.1)
        time.sleep(2.0)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=180.0)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 130, err
    assert "unfinished" in out
    assert (folder / "report.html").is_file()
    assert json.loads((folder / "run.json").read_text())["ended"] == "interrupted"
    assert processes_of(folder) == []


def test_bad_input_is_refused_before_anything_starts(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    done = subprocess.run(
        command("--out", str(folder), "--set", "rounds.lease=-5s"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "lease must be a positive duration" in done.stderr
    assert not folder.exists()
