"""``--plain``: stages that see columns only come to the same tables as stages that are given indexes."""

from pathlib import Path

import pytest

from eunomia.cli import run

POLICIES = (
    "fifo",
    "srtf",
    "las",
    "tiresias",
    "max_min",
    "drf",
    "themis_rho",
    "gandiva_fair",
    "max_min_fairness",
    "easy",
)
NOT_TABLES = {".resume.json", "run.json", "timings.parquet"}


def tables(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in NOT_TABLES)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], marks=pytest.mark.slow),
        ["--cost", "start=20s", "--cost", "checkpoint=5s", "--failures", "between=5d"],
    ],
)
def test_tables_with_the_option_plain_equal_those_of_the_fast_path(tmp_path: Path, more: list[str]) -> None:
    drawn = ["--workload", "gavel", "--set", "gavel.jobs=24", "--set", "gavel.interarrival=120s"]
    policies = [word for name in POLICIES for word in ("--policy", name)]
    common = ["simulate", *drawn, "--cluster", "3x4 V100, 2x2 P100", *policies, *more, "-q", "--no-report", "-j", "1"]
    common += ["--speeds", "equal"]
    assert run([*common, "--out", str(tmp_path / "fast")]) == 0
    assert run([*common, "--plain", "--out", str(tmp_path / "plain")]) == 0
    fast, plain = tables(tmp_path / "fast"), tables(tmp_path / "plain")
    assert fast.keys() == plain.keys()
    assert [name for name in fast if fast[name] != plain[name]] == []
