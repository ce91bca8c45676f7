"""`eunomia replay` as a user runs it: ten jobs with real training, once interrupted and gone on with."""

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

from eunomia_testbed.performance.replay_profiles import Costs, Measurements, Profiles, ProgramRate
from eunomia_testbed.results import RunData

LIMIT_SECONDS = 600.0
RATE = 4.0
"""Iterations per second in the profiles: low, so that few are trained; no time of the runs is compared with it."""
pytestmark = pytest.mark.timeout(2 * LIMIT_SECONDS)


def command(*options: str) -> list[str]:
    return [sys.executable, "-c", "from eunomia.cli import main; main()", "replay", *options]


def write_inputs(folder: Path) -> tuple[Path, Path]:
    """Write a trace of ten jobs of 400 to 600 s, two of them gangs of two, and profiles of their program."""
    header = "job,user,arrival_seconds,most_gpus,iterations,seconds_per_iteration,model,batch_size"
    jobs = [(job, 2 if job in (2, 5) else 1, 400 + 100 * (job % 3)) for job in range(10)]
    rows = [header, *(f"job{job},u{job % 2},{job * 60},{gpus},{seconds},1.0,A3C,64" for job, gpus, seconds in jobs)]
    trace, profiles = folder / "trace.csv", folder / "profiles.toml"
    trace.write_text("\n".join([*rows, ""]))
    rates = tuple(
        ProgramRate(program="mlp", batch_size=64, slots=slots, slot_type="cpu", iterations_per_second=RATE)
        for slots in (1, 2)
    )
    measured = Measurements(
        profiles=Profiles(rates=rates, slot_speeds={"cpu": 0.0}),
        costs=Costs(start_seconds=0.5, save_seconds=0.1, restore_seconds=0.1),
        machine="of a test",
        versions={},
        measured_at="2026-01-02T03:04:05Z",
        program_costs={},
    )
    profiles.write_text(measured.to_toml())
    return trace, profiles


def interrupted(folder: Path, out: Path) -> tuple[int, str]:
    """Start the replay, interrupt it as soon as two jobs are submitted, and return its exit code and stderr.

    ``--anyway``, since the profiles are of no machine.
    """
    trace, profiles = write_inputs(folder)
    options = ("--policy", "default", "--slots", "4x cpu", "--speed", "100x", "--budget", "2m", "--anyway")
    process = subprocess.Popen(
        command(str(trace), *options, "--profiles", str(profiles), "--out", str(out)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (out / "runs" / "default-0" / "apps" / "job1").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, said


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, str]]:
    """The replay's folder, what it said when it was interrupted, and what when it went on to the end."""
    folder = tmp_path_factory.mktemp("replay")
    out = folder / "out"
    code, said = interrupted(folder, out)
    assert code == 130, said
    partial = RunData.load(out / "real").apps
    assert 2 <= partial.height <= 10
    done = subprocess.run(
        command("--resume", str(out), "--json"), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    yield out, said, done.stdout


def test_ctrl_c_keeps_a_partial_result_and_says_how_to_go_on(replayed: tuple[Path, str, str]) -> None:
    out, said, _ = replayed
    assert "interrupted: 0 of 1 runs are done" in said
    assert f"eunomia replay --resume {out} goes on" in said


def test_all_jobs_finish_with_the_iterations_of_the_plan(replayed: tuple[Path, str, str]) -> None:
    data = RunData.load(replayed[0] / "real")
    assert data.apps.height == 10
    assert set(data.apps["state"]) == {"finished"}
    iterations = dict(zip(data.jobs["job"], data.jobs["iterations"], strict=True))
    assert iterations == {f"job{job}": int(RATE) * (4 + job % 3) for job in range(10)}
    assert set(data.apps["user"]) == {"u0", "u1"}


def test_losses_fall(replayed: tuple[Path, str, str]) -> None:
    losses = RunData.load(replayed[0] / "real").metrics.filter(pl.col("tag") == "train/loss").sort("job", "step")
    ends = losses.group_by("job").agg(pl.col("value").first().alias("first"), pl.col("value").last().alias("last"))
    assert ends.height == 10
    assert (ends["last"] < ends["first"]).all()


def test_real_and_simulated_figures_stand_side_by_side(replayed: tuple[Path, str, str]) -> None:
    out, _, said = replayed
    plain = json.loads(said)
    assert (plain["ended"], plain["runs"], plain["done"]) == ("finished", 1, 1)
    table = pl.read_csv(out / "real-and-simulated.csv")
    both = table.filter(pl.col("metric").is_in(["makespan_seconds", "jct_mean_seconds", "rho_unfair_share"]))
    assert both.height == 3
    assert both["real"].null_count() == both["simulated"].null_count() == 0
    whole = RunData.load(out)
    assert sorted(set(whole.apps["policy"])) == ["default", "default, simulated"]
    assert "default, simulated" in (out / "report.html").read_text()
    assert (out / "dropped.csv").read_text().startswith("file,line,rule,value")


def test_no_time_of_the_real_run_reaches_the_simulation(replayed: tuple[Path, str, str]) -> None:
    out, _, _ = replayed
    before = simulated_bytes(out)
    real = pl.read_csv(out / "real-and-simulated.csv")
    for path in [*(out / "real").glob("*.parquet")]:
        frame = pl.read_parquet(path)
        frame.with_columns(pl.col("^.*_seconds$") * 3.0 + 17.0).write_parquet(path)
    for path in (out / "runs").glob("*/done.json"):
        taint_json(path)
    done = subprocess.run(
        command("--resume", str(out), "--quiet"), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert simulated_bytes(out) == before
    after = pl.read_csv(out / "real-and-simulated.csv")
    assert after["simulated"].to_list() == real["simulated"].to_list()
    assert after["real"].to_list() != real["real"].to_list()


def taint_json(path: Path) -> None:
    plain = json.loads(path.read_text())
    tainted = {name: 3.0 * item + 17.0 for name, item in plain.items() if isinstance(item, float)}
    path.write_text(json.dumps(plain | tainted))


def simulated_bytes(out: Path) -> dict[str, bytes]:
    """The files of the simulation, but for the time that stages took on this machine, and the facts with the time."""
    left_out = ("timings.parquet", "run.json")
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted((out / "simulated").rglob("*"))
        if path.is_file() and path.name not in left_out
    }


def test_no_process_of_the_replay_is_left(replayed: tuple[Path, str, str]) -> None:
    out, _, _ = replayed
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(out).encode() in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                    left.append(entry.name)
            except OSError:
                continue
    assert not left
