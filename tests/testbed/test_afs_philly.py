"""AFS on a Philly cluster of the paper, with the curves of its authors: average completion times of GOLDEN."""

from pathlib import Path

import polars as pl
import pytest
from real_data import shared_data

from eunomia.cli import run

HOUR = 3600.0


def mean_hours(policy: str, cluster: str, folder: Path) -> float:
    trace, curves = shared_data("philly/philly_full_reconstructed.csv.gz"), shared_data("afs/afs_scaling.csv")
    workload = {"trace": trace, "cluster": cluster, "scaling": curves, "told_models": "true"}
    command = ["simulate", "--workload", "afs", "--speeds", str(curves), "--know", "sizes,types"]
    command += [part for key, value in workload.items() for part in ("--set", f"afs.{key}={value}")]
    command += ["--cluster", "16x4 V100", "--policy", policy, "--out", str(folder), "--no-report", "-j", "1", "-q"]
    assert run(command) == 0
    found = pl.read_csv(folder / "summary.csv")
    return float(found["jct_mean_seconds"][0]) / HOUR


@pytest.mark.parametrize(("policy", "hours"), [("afs", 15.32), ("afs_p", 15.72)])
def test_average_completion_times_on_cluster_e13805_are_reproduced(policy: str, hours: float, tmp_path: Path) -> None:
    """938 jobs on 64 GPUs, no costs."""
    assert mean_hours(policy, "e13805", tmp_path / "run") == pytest.approx(hours, rel=0.001)
