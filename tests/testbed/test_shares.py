"""No share of a run exceeds 1: of random histories, finished or cut off at any time, and of made-up ones."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eunomia_testbed import Costs, SimulationOptions, Workload, simulate
from eunomia_testbed.report import render
from eunomia_testbed.report.view import whole_of
from eunomia_testbed.results import ResultFolder, RunData, RunFacts
from eunomia_testbed.results.summary import Summary, summaries_of
from eunomia_testbed.results.tables import AppRow, JobRow, LeaseRow

SHARES = [name for name in Summary.__dataclass_fields__ if name.endswith("_share")] + ["utilization"]


def shares(run: RunData) -> dict[str, float]:
    """Every known share of every policy and seed, as summary.csv has them."""
    found = {
        f"{policy}: {name}": value
        for (policy, _), summary in summaries_of(run).items()
        for name, value in summary.flat().items()
        if (name in SHARES or name.endswith("_share")) and isinstance(value, float)
    }
    assert found
    return found


def test_an_unfinished_run_holds_at_most_all_slots(tmp_path: Path) -> None:
    """An app that finishes early, and one that holds both slots long after it and does not finish."""
    folder = ResultFolder.create(tmp_path / "run")
    folder.write_facts(RunFacts(kind="serve", command=("eunomia", "serve"), slots=2))
    early: dict[str, Any] = {"arrival_seconds": 0.0, "finish_seconds": 10.0, "jct_seconds": 10.0}
    apps = [AppRow(app="a", state="finished", **early), AppRow(app="b", state="running", arrival_seconds=0.0)]
    jobs = [
        JobRow(app="a", job="a", state="finished", slot_seconds=10.0, busy_slot_seconds=10.0, **early),
        JobRow(app="b", job="b", state="running", arrival_seconds=0.0, slot_seconds=50.0, busy_slot_seconds=50.0),
    ]
    leases = [
        LeaseRow(app="a", job="a", machine="m", slot=0, start_seconds=0.0, end_seconds=10.0),
        LeaseRow(app="b", job="b", machine="m", slot=1, start_seconds=0.0, end_seconds=30.0),
        LeaseRow(app="b", job="b", machine="m", slot=0, start_seconds=10.0, end_seconds=30.0),
    ]
    for table, rows in (("apps", apps), ("jobs", jobs), ("leases", leases)):
        folder.write(table, rows, policy="las")
    run = RunData.load(folder.path)
    found = shares(run)
    assert found["las: slots_in_use_share"] == pytest.approx(1.0)
    assert found["las: utilization"] == pytest.approx(1.0)
    assert "143" not in render(run)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 2**31),
    st.sampled_from(["fifo", "las", "srtf"]),
    st.one_of(st.just(float("inf")), st.floats(1.0, 400.0)),
    st.sampled_from([Costs(), Costs(start=3.0, checkpoint=2.0, restore=2.0, release=4.0)]),
)
def test_no_share_of_a_random_history_exceeds_one(seed: int, policy: str, until: float, costs: Costs) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    workload = Workload.single_jobs(
        "random",
        ids=[f"a{at}" for at in range(count)],
        arrival_seconds=np.sort(rng.uniform(0.0, 200.0, size=count)),
        gpus=rng.integers(1, 5, size=count),
        iterations=rng.integers(1, 120, size=count).astype(float),
        seconds_per_iteration=np.ones(count),
    )
    run = simulate(workload, "2x2 V100", policies=[policy], options=SimulationOptions(costs=costs, until=until)).run
    above = {name: value for name, value in shares(run).items() if not -1e-9 <= value <= 1.0 + 1e-9}
    assert above == {}
    for view in whole_of(run).views:
        assert view.run.queue.is_empty() or float(view.run.queue["busy_gpus"].max() or 0) <= 4  # type: ignore[arg-type]


def test_a_lease_that_is_released_after_the_last_finish_counts_until_then(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    folder.write_facts(RunFacts(kind="simulate", command=("eunomia", "simulate"), slots=1, clock="virtual"))
    done: dict[str, Any] = {"arrival_seconds": 0.0, "finish_seconds": 10.0, "jct_seconds": 10.0, "state": "finished"}
    folder.write("apps", [AppRow(app="a", **done)], policy="las")
    folder.write("jobs", [JobRow(app="a", job="a", slot_seconds=14.0, busy_slot_seconds=10.0, **done)], policy="las")
    lease = LeaseRow(app="a", job="a", machine="m", slot=0, start_seconds=0.0, end_seconds=14.0)
    folder.write("leases", [lease], policy="las")
    found = shares(RunData.load(folder.path))
    assert found["las: slots_in_use_share"] == pytest.approx(1.0)
    assert pl.read_parquet(folder.path / "leases.parquet").height == 1
