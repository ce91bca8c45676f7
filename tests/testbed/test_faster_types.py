"""A job that got a slow GPU type while others ran moves to a faster one that is free, though no job waits."""

from pathlib import Path

import polars as pl
import pytest

from eunomia.cli import run

TRACE = """job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,model
first,0,8,2000,1,ResNet-50
second,10,4,40000,1,ResNet-50
"""


@pytest.mark.parametrize(
    ("policy", "moves"),
    [
        ("max_min_fairness_perf", True),
        ("max_sum_throughput", True),
        ("min_total_duration", True),
        ("max_min_fairness", False),
        ("oef_cooperative", True),
        ("oef_noncooperative", True),
    ],
)
def test_a_policy_that_knows_speeds_leaves_the_slow_type(policy: str, moves: bool, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE)
    where = ["--cluster", "1x8 V100, 1x8 K80", "--speeds", "analytic", "--set", "trace.reference_type=V100"]
    more = ["--know", "types", "--policy", policy, "--out", str(tmp_path / "out"), "--no-report", "--no-progress", "-q"]
    assert run(["simulate", str(tmp_path / "jobs.csv"), *where, *more]) == 0
    jobs = pl.read_parquet(tmp_path / "out" / "jobs.parquet")
    last = jobs.filter(pl.col("job") == "second")["finish_seconds"].item()
    # Alone on V100s it takes 40,000 s, on K80s more than six times as long.
    assert (last < 60_000.0) is moves


@pytest.mark.parametrize("policy", ["oef", "oef_noncooperative", "oef_efficient", "max_min_users"])
def test_jobs_of_the_only_user_get_the_fastest_type_and_stay(policy: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,model\n"
        "one,0,1,9000,1,ResNet-50\ntwo,0,2,9000,1,ResNet-50\nthree,0,4,9000,1,ResNet-50\n"
    )
    where = ["--cluster", "1x8 K80, 1x8 P100, 1x8 V100", "--speeds", "analytic", "--set", "trace.reference_type=V100"]
    more = ["--know", "types", "--policy", policy, "--out", str(tmp_path / "out"), "--no-report", "--no-progress", "-q"]
    assert run(["simulate", str(tmp_path / "jobs.csv"), *where, *more]) == 0
    jobs = pl.read_parquet(tmp_path / "out" / "jobs.parquet")
    assert jobs["finish_seconds"].to_list() == pytest.approx([9000.0] * 3)
    assert jobs["restarts"].sum() == jobs["migrations"].sum() == 0
