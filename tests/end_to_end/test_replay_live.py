"""`eunomia replay --resizes live` as a user runs it: elastic jobs grow and shrink under CoDDL without a restart."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from eunomia_testbed.performance.replay_profiles import Costs, Measurements, Profiles, ProgramRate
from eunomia_testbed.results import RunData

LIMIT_SECONDS = 600.0
RATE = 4.0
"""Iterations per second on one slot in the profiles; no time of the run is compared with it."""
JOBS = {"first": (0, 3000), "second": (400, 800), "third": (900, 800)}
"""Arrival in seconds, and seconds alone on one slot, of the trace: the first one is there all the time."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * LIMIT_SECONDS)]


def command(*options: str) -> list[str]:
    return [sys.executable, "-c", "from eunomia.cli import main; main()", "replay", *options]


def write_inputs(folder: Path) -> tuple[Path, Path]:
    """Write the trace, and profiles in which two slots are faster than one and four than two."""
    header = "job,user,arrival_seconds,most_gpus,iterations,seconds_per_iteration,model,batch_size"
    rows = [header, *(f"{job},u0,{at},1,{seconds},1.0,A3C,64" for job, (at, seconds) in JOBS.items())]
    trace, profiles = folder / "trace.csv", folder / "profiles.toml"
    trace.write_text("\n".join([*rows, ""]))
    rates = tuple(
        ProgramRate(program="mlp", batch_size=64, slots=slots, slot_type="cpu", iterations_per_second=RATE * faster)
        for slots, faster in ((1, 1.0), (2, 1.6), (4, 2.4))
    )
    costs = Costs(start_seconds=0.5, save_seconds=0.1, restore_seconds=0.1, pause_seconds=0.1, join_seconds=1.0)
    measured = Measurements(
        profiles=Profiles(rates=rates, slot_speeds={"cpu": 0.0}),
        costs=costs,
        machine="of a test",
        versions={},
        measured_at="2026-01-02T03:04:05Z",
        program_costs={},
    )
    profiles.write_text(measured.to_toml())
    return trace, profiles


def test_elastic_jobs_change_live_and_both_sides_count_their_changes(tmp_path: Path) -> None:
    trace, profiles = write_inputs(tmp_path)
    out = tmp_path / "out"
    options = ("--policy", "coddl", "--slots", "4x cpu", "--speed", "50x", "--budget", "5m", "--anyway")
    elastic = ("--elastic", "1..4", "--resizes", "live", "--profiles", str(profiles), "--out", str(out))
    done = subprocess.run(
        command(str(trace), *options, *elastic), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "3 of 3 apps change their size live" in done.stderr
    for app in (out / "runs" / "coddl-0" / "apps-submitted").glob("*.toml"):
        assert 'elastic = "live"' in app.read_text()
    jobs = RunData.load(out / "real").jobs
    assert set(jobs["state"]) == {"finished"}
    assert jobs["resizes"].sum() > jobs["restarts"].sum()  # by restarts, each resize is one
    resizes = pl.read_csv(out / "resizes.csv")
    assert resizes["side"].to_list() == ["real", "simulated"]
    assert set(resizes["way"]) == {"live"}
    real = resizes.row(0, named=True)
    assert real["resizes"] == jobs["resizes"].sum()
    assert 0.0 < real["still_seconds"] < real["lost_slot_seconds"]
    lost = pl.read_csv(out / "slot-time.csv").filter((pl.col("cause") == "resize") & (pl.col("side") == "real"))
    assert lost["slot_seconds"].to_list() == pytest.approx([real["lost_slot_seconds"]])
