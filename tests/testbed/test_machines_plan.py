"""A plan of machines in a simulation: leases keep to the machines that are there, and bad plans are refused."""

from pathlib import Path

import polars as pl
import pytest

from eunomia.errors import InputError
from eunomia_testbed import simulate
from eunomia_testbed.results.counting import held_twice, horizon_seconds

PLAN = """time_seconds,machine,change,detail
40000,m04,drain,43600
43600,m04,leave,
30000,m02,leave,
60000,m05,join,8 V100 32cpu 128GB
90000,m03,drain,
150000,m03,keep,
"""
THERE = {
    "m01": (0.0, None),
    "m02": (0.0, 30_000.0),
    "m03": (0.0, None),
    "m04": (0.0, 43_600.0),
    "m05": (60_000.0, None),
}
"""By machine: when it joins, and when it leaves."""
CLOSED = {"m04": (40_000.0, 43_600.0), "m03": (90_000.0, 150_000.0)}
"""By machine: when it drains."""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "plan.csv"
    path.write_text(PLAN)
    return str(path)


@pytest.mark.parametrize(
    "policy", ["fifo", "las", "themis", "shockwave", "oef_cooperative", "afs_p", "synergy_tune", "isolated", "drf"]
)
def test_leases_use_only_machines_while_they_are_present(policy: str, plan: str) -> None:
    cluster = "4x4 V100 16cpu 64GB"
    result = simulate("gavel", cluster, [policy], settings=["gavel.jobs=25"], speeds="equal", machines_plan=plan)
    run = result.run
    assert run.jobs.filter(pl.col("finish_seconds").is_null()).height == 0, "all jobs finish"
    for machine, began, ended in run.leases.select("machine", "start_seconds", "end_seconds").iter_rows():
        joins, leaves = THERE[machine]
        assert began >= joins
        assert leaves is None or began < ended <= leaves
        drains, kept = CLOSED.get(machine, (0.0, 0.0))
        assert not drains <= began < kept, f"a lease begins on {machine} while it drains"
    assert set(run.leases["machine"].to_list()) >= {"m01", "m05"}
    row = result.summary().row(0, named=True)
    horizon = horizon_seconds(run)
    assert horizon is not None
    there = 16 * horizon - 4 * (horizon - 43_600) - 4 * (horizon - 30_000) + 8 * (horizon - 60_000)
    assert row["slots_in_use_share"] == pytest.approx(row["slot_seconds"] / there)
    assert held_twice(run.leases) == 0


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ("", "a plan of machines must have the columns time_seconds, machine, change, detail, but got nothing"),
        ("1,m01,leaves,", 'change must be one of join, drain, keep, leave, but got "leaves" (plan.csv, line 2)'),
        ("-1,m01,leave,", 'time_seconds must be at least 0, but got "-1" (plan.csv, line 2)'),
        ("soon,m01,leave,", 'time_seconds must be at least 0, but got "soon" (plan.csv, line 2)'),
        ("1,m1,leave,", 'machine must be one of the cluster at that time, but got "m1"'),
        ("1,m01,leave,\n2,m01,drain,", 'machine must be one of the cluster at that time, but got "m01"'),
        ("1,m01,join,4 V100", 'a machine must join under a name that no machine had, but got "m01"'),
        ("1,m01,leave,\n2,m01,join,4 V100", 'a machine must join under a name that no machine had, but got "m01"'),
        ("1,m09,join,2x4 V100", 'one machine must join in a row, but got "2x4 V100" (plan.csv, line 2)'),
        ("1,m09,join,", 'a cluster must be written like "4x8 V100"'),
        ("9,m01,drain,8", "a machine must be empty after it begins to drain, but got 8 s (plan.csv, line 2)"),
        ("9,m01,drain,x", 'detail must be at least 0, but got "x" (plan.csv, line 2)'),
        ("9,m01,keep,x", 'detail must be empty where a machine is to "keep", but got "x" (plan.csv, line 2)'),
        ("1,m01,leave,\n2,m02,leave,", 'a cluster must have at least one machine, but got "m02" leaves'),
        ("1,m01,leave", 'a row must have as many fields as the header, but got "1,m01,leave" (plan.csv, line 2)'),
    ],
)
def test_a_plan_that_contradicts_the_cluster_is_refused(rows: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(f"time_seconds,machine,change,detail\n{rows}\n" if rows else "")
    with pytest.raises(InputError) as caught:
        simulate("gavel", "2x4 V100", ["fifo"], settings=["gavel.jobs=3"], machines_plan=str(path))
    assert str(caught.value).startswith(error)


def test_a_policy_must_suit_the_machines_that_join(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("time_seconds,machine,change,detail\n5,m09,join,4 A100\n")
    with pytest.raises(Exception, match=r"a policy must suit the cluster.*needs one GPU type, but got V100 and A100"):
        simulate("gavel", "2x4 V100", ["afs_p"], settings=["gavel.jobs=3"], speeds="equal", machines_plan=str(path))


def test_a_plan_of_machines_is_refused_together_with_rules_of_a_peer(plan: str) -> None:
    with pytest.raises(InputError, match="--machines-plan must stand without --rules"):
        simulate("gavel", "4x4 V100", ["max_min_fairness"], rules="gavel", machines_plan=plan)
