"""Figures that mislead: free resizes, GPUs that wait to join, and Themis' rho where speed-up is not linear."""

from pathlib import Path

import polars as pl
import pytest

from eunomia.cli import run

MODEL = "Inception4Model256"
HALVING = ((1, 2.0), (2, 1.2), (4, 0.8))
TABLES = ("segments", "jobs")
FLAT = ((1, 2.0), (2, 1.9), (4, 1.8))


def simulate(folder: Path, steps: tuple[tuple[int, float], ...], *more: str) -> pl.DataFrame:
    """The summary of twelve elastic jobs on eight GPUs under AFS-L, with these seconds per step by GPUs."""
    header = "job_id,submit_s,submit_local,duration_s,num_gpus,vc,status,afs_model\n"
    rows = [f"j{row},{row * 60},x,{600 + 300 * row},{(1, 2, 4)[row % 3]},2869ce,Pass,{MODEL}\n" for row in range(12)]
    trace, curve = folder / "philly.csv", folder / "curve.csv"
    trace.write_text(header + "".join(rows))
    curve.write_text(
        "model,global_batch,num_gpus,step_time_s\n"
        + "".join(f"{MODEL},256,{gpus},{seconds}\n" for gpus, seconds in steps)
    )
    given = {"trace": trace, "cluster": "2869ce", "told_models": "true", "scaling": curve, "elastic": "true"}
    command = ["simulate", "--workload", "afs", "--speeds", str(curve), "--know", "sizes,types", "-j", "1"]
    command += [part for key, value in given.items() for part in ("--set", f"afs.{key}={value}")]
    command += ["--cluster", "2x4 V100", "--policy", "afs", "--out", str(folder / "run"), "--no-progress"]
    assert run([*command, *more]) == 0
    return pl.read_csv(folder / "run" / "summary.csv")


def test_a_warning_names_resizes_without_a_cost_where_starts_have_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = simulate(tmp_path, HALVING, "--cost", "start=20s")
    resizes = found["resizes"][0]
    assert resizes > 0
    jobs = pl.concat([pl.read_parquet(path) for path in (tmp_path / "run").rglob("jobs.parquet")])
    assert jobs["resizes"].sum() == resizes
    assert jobs["probes"].sum() == 0
    assert f"afs: {resizes} resizes took no time, although starts or saves do" in capsys.readouterr().out
    assert "took no time: --cost pause=30s gives each a time" in (tmp_path / "run" / "report.html").read_text()


def test_resizes_with_a_cost_cause_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = simulate(tmp_path, HALVING, "--cost", "start=20s", "--cost", "pause=10s", "--no-report")
    assert found["resizes"][0] > 0
    assert "took no time" not in capsys.readouterr().out


@pytest.mark.parametrize("costs", [("join=40s",), ("join=40s", "pause=10s"), ("pause=10s",), ()])
def test_gpus_that_wait_to_join_a_running_job_do_not_count_as_running(tmp_path: Path, costs: tuple[str, ...]) -> None:
    simulate(tmp_path, HALVING, "--no-report", *(part for cost in costs for part in ("--cost", cost)))
    tables = {name: pl.concat(map(pl.read_parquet, (tmp_path / "run").rglob(f"{name}.parquet"))) for name in TABLES}
    segments = tables["segments"].with_columns(seconds=pl.col("end_seconds") - pl.col("start_seconds"))
    by_activity = dict(segments.group_by("activity").agg(pl.col("seconds").sum()).iter_rows())
    assert by_activity["run"] == pytest.approx(tables["jobs"]["busy_slot_seconds"].sum())
    assert sum(by_activity.values()) == pytest.approx(tables["jobs"]["slot_seconds"].sum())
    assert ("start" in by_activity) == ("join=40s" in costs)


@pytest.mark.parametrize(("rho", "says"), [("themis", True), ("contention", False)])
def test_themis_rho_of_jobs_with_sublinear_speedup_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rho: str, says: bool
) -> None:
    found = simulate(tmp_path, FLAT, "--rho", rho)
    assert found["apps_slower_alone"][0] > 0
    assert ("take longer alone than Themis' linear speed-up gives" in capsys.readouterr().out) == says
    page = (tmp_path / "run" / "report.html").read_text()
    assert ("would have a large ρ even alone" in page) == says
