"""`eunomia replay --faults` with real processes: all jobs finish, and the journal is as it must be."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.end_to_end.test_replay import command
from tests.testbed.replay_lab import measurements, write_trace

from eunomia_appmaster.journal_check import check_folder
from eunomia_testbed.results import RunData

LIMIT_SECONDS = 900.0
FAULTS = 10
RATE = 20.0
"""Iterations per second in the profiles: low, so that a busy machine has time for all jobs."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * LIMIT_SECONDS)]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A replay of ten jobs with ten faults, two of each kind: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("replay")
    trace, profiles = write_trace(folder), folder / "profiles.toml"
    profiles.write_text(measurements("cpu", rate=RATE).to_toml())
    options = ("--policy", "default", "--slots", "4x cpu", "--speed", "40x", "--budget", "4m", "--anyway")
    done = subprocess.run(
        command(
            str(trace), *options, "--profiles", str(profiles), "--out", str(folder / "out"), "--json",
            "--faults", str(FAULTS), "--fault-seed", "7",
        ),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr[-3000:])
    return folder / "out", json.loads(done.stdout)


def test_nothing_is_lost_and_the_journal_is_as_it_must_be(replayed: tuple[Path, dict[str, object]]) -> None:
    out, plain = replayed
    apps = RunData.load(out / "real").apps
    assert sorted(apps["app"]) == [f"job{number}" for number in range(10)]
    assert set(apps["state"]) == {"finished"}
    assert not check_folder(out / "runs" / "default-0", over=True).findings
    (line,) = plain["faults"]  # type: ignore[misc]
    assert "findings in the journal: 0" in line


def test_every_fault_hit_a_process_of_its_kind(replayed: tuple[Path, dict[str, object]]) -> None:
    out, _ = replayed
    rows = list(csv.DictReader((out / "faults.csv").read_text().splitlines()))
    assert [int(row["number"]) for row in rows] == list(range(1, FAULTS + 1))
    done = [row for row in rows if row["at_seconds"]]
    assert len(done) >= FAULTS // 2  # the others had no target any more on a faster machine
    assert {row["kind"] for row in done} == {"worker", "stop", "app-master", "arbiter", "launcher"}
    for row in done:
        assert float(row["at_seconds"]) >= float(row["planned_seconds"])
        assert bool(row["job"]) == (row["kind"] not in ("arbiter", "launcher"))
        assert bool(row["stopped_seconds"]) == (row["kind"] == "stop")


def test_the_simulation_has_the_same_faults(replayed: tuple[Path, dict[str, object]]) -> None:
    jobs = RunData.load(replayed[0] / "simulated").jobs
    assert jobs["iterations_lost"].sum() > 0
    assert set(jobs["state"]) == {"finished"}


def test_a_changed_plan_of_faults_is_another_replay(replayed: tuple[Path, dict[str, object]]) -> None:
    out, _ = replayed
    kept = json.loads((out / "replay.json").read_text())
    assert (kept["flags"]["faults"], kept["flags"]["fault_seed"]) == (FAULTS, 7)
    kept["flags"]["fault_seed"] = 8
    (out / "replay.json").write_text(json.dumps(kept))
    script = "from eunomia.cli import main; main()"
    again = subprocess.run(
        [sys.executable, "-c", script, "replay", "--resume", str(out)], capture_output=True, text=True, check=False
    )
    assert again.returncode == 2
    assert "--resume must go on with the same trace" in again.stderr
