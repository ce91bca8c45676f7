"""Where jobs ran by GPU type: the table, the part of the page, and apps that are slow because of their type."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import three_types
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.testbed.test_report import data_of, parts_of

from eunomia.cli import run
from eunomia.model.cluster import Cluster
from eunomia_testbed import SimulationOptions, Workload, simulate
from eunomia_testbed.metrics.type_speeds import TrueTypeSpeeds
from eunomia_testbed.performance import Setting
from eunomia_testbed.report import render
from eunomia_testbed.results import RunData
from eunomia_testbed.results.gpu_types import apps_by_type
from eunomia_testbed.run_log.gpu_types import held_by_type
from strength import examples

JOBS = 60
CLUSTER = Cluster.parse("1x2 V100, 1x2 K80")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 jobs on three GPU types under two policies."""
    path = tmp_path_factory.mktemp("types")
    (path / "jobs.csv").write_text(three_types.trace(spelt=True, jobs=JOBS), encoding="utf-8")
    (path / "speeds.json").write_text(three_types.speeds(), encoding="utf-8")
    command = ["simulate", str(path / "jobs.csv"), "--cluster", three_types.CLUSTER, "--policy", "fifo"]
    command += ["--speeds", str(path / "speeds.json"), "--set", "trace.reference_type=V100", "--policy", "las"]
    assert run([*command, "--no-progress", "-j", "1", "--csv", "--out", str(path / "run")]) == 0
    return path


@pytest.fixture(scope="module")
def data(folder: Path) -> RunData:
    return RunData.load(folder / "run")


@pytest.fixture(scope="module")
def page(data: RunData) -> str:
    return render(data)


def view_of(page: str, policy: str = "fifo") -> Any:
    shown = data_of(page)
    at = [each["policy"] for each in shown["runs"]].index(policy)
    return shown["parts"]["types"]["views"][at]


def test_rows_of_a_job_sum_to_its_slot_time_run_time_and_waiting_time(data: RunData) -> None:
    sums = data.gpu_types.group_by("policy", "app").agg(pl.col("slot_seconds", "run_seconds", "wait_seconds").sum())
    both = sums.join(data.jobs, on=["policy", "app"], suffix="_of_job")
    assert both.height == 2 * JOBS
    for name in ("slot_seconds", "run_seconds", "wait_seconds"):
        assert (both[name] - both[f"{name}_of_job"]).abs().max() == pytest.approx(0.0, abs=1e-6)


def test_speeds_equal_those_of_the_table_relative_to_the_reference_type(data: RunData) -> None:
    """The table of speeds has the power of a model's gain: V100 1, P100 0.7, K80 0.25, whatever the gang."""
    models = data.jobs.select("policy", "job", "model")
    rows = data.gpu_types.join(models, on=["policy", "job"])
    assert set(rows["reference_type"]) == {"V100"}
    assert rows["gpu_type"].n_unique() == 3
    for kind, model, speed in rows.select("gpu_type", "model", "speed").unique().iter_rows():
        assert speed == pytest.approx(three_types._SPEEDS[kind.lower()] ** three_types._GAIN[model])
    lost = rows["run_seconds"] * (1.0 - rows["speed"])
    assert (lost - rows["lost_seconds"]).abs().max() == pytest.approx(0.0, abs=1e-6)


def test_lost_time_is_what_the_reference_type_would_have_saved(data: RunData) -> None:
    """A job that held one type alone ran as long as its trace says, divided by the speed."""
    alone = data.gpu_types.filter(pl.len().over("policy", "job") == 1)
    declared = {
        name: float(seconds) * int(steps)
        for name, _, _, steps, seconds, _ in (
            line.split(",") for line in three_types.trace(spelt=True, jobs=JOBS).splitlines()[1:]
        )
    }
    assert alone.height > JOBS
    for job, ran, lost in alone.select("job", "run_seconds", "lost_seconds").iter_rows():
        assert ran - lost == pytest.approx(declared[job], rel=1e-6)


def test_an_app_is_slow_by_type_if_its_type_cost_more_than_waiting(data: RunData) -> None:
    one = data.only("fifo", 0)
    apps = apps_by_type(one)
    assert apps is not None
    slow = {each.app for each in apps if each.slow}
    jobs = {row["app"]: row for row in one.jobs.iter_rows(named=True)}
    for each in apps:
        assert each.wait_seconds == pytest.approx(jobs[each.app]["wait_seconds"])
        lost = one.gpu_types.filter(pl.col("app") == each.app)["lost_seconds"].sum()
        expected = lost > each.wait_seconds and lost >= 0.1 * jobs[each.app]["run_seconds"]
        assert (each.app in slow) == expected
    assert 0 < len(slow) < JOBS


def test_summary_and_screen_count_apps_that_are_slow_because_of_their_type(
    folder: Path, data: RunData, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pl.read_csv(folder / "run" / "summary.csv")
    for policy, slow, speed in rows.select("policy", "apps_slow_by_type", "type_speed_mean").iter_rows():
        one = data.only(policy, 0)
        assert slow == sum(each.slow for each in apps_by_type(one) or ())
        held = one.gpu_types["slot_seconds"]
        assert speed == pytest.approx((held * one.gpu_types["speed"]).sum() / held.sum())
    command = ["simulate", str(folder / "jobs.csv"), "--cluster", three_types.CLUSTER, "--policy", "fifo"]
    command += ["--speeds", str(folder / "speeds.json"), "--set", "trace.reference_type=V100"]
    assert run([*command, "--no-progress", "-j", "1", "--no-report", "--out", str(folder / "again")]) == 0
    slow = rows.filter(pl.col("policy") == "fifo")["apps_slow_by_type"][0]
    assert f"fifo: {slow} of {JOBS} apps are slow because of their GPU type" in capsys.readouterr().out


def test_the_page_has_a_part_by_gpu_type(page: str, data: RunData) -> None:
    assert "types" in parts_of(page)
    shown = view_of(page)["data"]
    assert shown["reference"] == "V100"
    assert [each["name"] for each in shown["types"]] == ["K80", "P100", "V100"]
    assert [each["gpus"] for each in shown["types"]] == [16, 16, 16]
    one = data.only("fifo", 0)
    for each in shown["types"]:
        mine = one.gpu_types.filter(pl.col("gpu_type") == each["name"])
        assert each["slotSeconds"] == pytest.approx(mine["slot_seconds"].sum(), rel=1e-4)
        assert each["waited"] == pytest.approx(mine["wait_seconds"].sum(), abs=0.02)
        assert 0.0 < each["held"] <= 1.0
    assert sum(each["jobs"] for each in shown["types"]) >= JOBS


def test_the_page_names_apps_that_are_slow_because_of_their_type(page: str, data: RunData) -> None:
    apps = apps_by_type(data.only("fifo", 0)) or ()
    slow = [each for each in apps if each.slow]
    most = max(slow, key=lambda each: each.lost_seconds)
    assert f"{len(slow)} of {JOBS} apps are slow because of their GPU type" in page
    assert f"The most: {most.app} lost" in page
    table = view_of(page)["tables"][1]
    labels = [column["label"] for column in table["columns"]]
    assert {"on K80", "on P100", "on V100", "lost to its types", "slow because"} <= set(labels)
    because, lost = labels.index("slow because"), labels.index("lost to its types")
    assert sum(row[because] is not None for row in table["rows"]) == len(slow)
    assert [row[lost] for row in table["rows"]] == sorted((row[lost] for row in table["rows"]), reverse=True)
    assert table["rows"][0][because] == f"{apps_named(apps, table['rows'][0][0])}"


def apps_named(apps: Any, name: str) -> str:
    found = next(each for each in apps if each.app == name)
    return f"{found.gpu_type} at {found.speed:.2f} of V100"


def test_the_verdict_states_if_the_worst_app_is_slow_because_of_its_type(data: RunData) -> None:
    apps = apps_by_type(data.only("fifo", 0)) or ()
    slow = next(each for each in apps if each.slow)
    raised = pl.when(pl.col("app") == slow.app).then(99.0).otherwise(pl.col("rho")).alias("rho")
    text = render(dataclasses.replace(data, apps=data.apps.with_columns(raised)))
    assert f"{slow.app} is slow because of its GPU type" in text
    fast = next(each for each in apps if not each.slow)
    raised = pl.when(pl.col("app") == fast.app).then(99.0).otherwise(pl.col("rho")).alias("rho")
    text = render(dataclasses.replace(data, apps=data.apps.with_columns(raised)))
    assert f"{fast.app} is slow because of its GPU type" not in text


def test_a_cluster_of_one_type_has_neither_rows_nor_part_by_type(simulated: RunData, tmp_path: Path) -> None:
    assert "types" not in parts_of(render(simulated))
    two = Workload.single_jobs(
        "two", ids=["a", "b"], arrival_seconds=np.zeros(2), gpus=np.ones(2, np.int64),
        iterations=np.full(2, 10.0), seconds_per_iteration=np.ones(2),
    )  # fmt: skip
    found = simulate(two, "1x2 V100", policies=["fifo"])
    assert found.run.gpu_types.is_empty()
    assert found.metrics["apps_slow_by_type"].to_list() == found.metrics["type_speed_mean"].to_list() == [None]


def test_no_app_is_slow_by_type_if_all_types_are_equally_fast() -> None:
    four = Workload.single_jobs(
        "four", ids=list("abcd"), arrival_seconds=np.zeros(4), gpus=np.ones(4, np.int64),
        iterations=np.full(4, 10.0), seconds_per_iteration=np.ones(4),
    )  # fmt: skip
    found = simulate(four, "1x2 V100, 1x2 K80", policies=["fifo"], speeds="equal")
    assert found.metrics["apps_slow_by_type"].to_list() == [0]
    assert found.metrics["type_speed_mean"].to_list() == [1.0]
    assert "No app is slow because of its GPU type." in render(found.run)


def test_with_unknown_speeds_the_page_shows_only_where_jobs_ran(data: RunData) -> None:
    unknown = [pl.lit(None, pl.Float64).alias(name) for name in ("speed", "lost_seconds", "run_seconds")]
    rows = data.gpu_types.with_columns(*unknown, reference_type=pl.lit(None, pl.String))
    page = render(dataclasses.replace(data, gpu_types=rows))
    view = view_of(page)
    assert "is slow because" not in page
    labels = [column["label"] for column in view["tables"][1]["columns"]]
    assert labels == ["app", "model", "on K80", "on P100", "on V100"]
    assert all(each["speed"] is None for each in view["data"]["types"])


def test_waits_of_jobs_that_never_got_a_gpu_have_their_own_row() -> None:
    """One GPU of each of two types; c follows a after 10 s, and d still waits when the run is cut off."""
    four = Workload.single_jobs(
        "four", ids=list("abcd"), arrival_seconds=np.zeros(4), gpus=np.ones(4, np.int64),
        iterations=np.array([10.0, 100.0, 100.0, 100.0]), seconds_per_iteration=np.ones(4),
    )  # fmt: skip
    options = SimulationOptions(until=50.0)
    found = simulate(four, "1x1 V100, 1x1 K80", policies=["fifo"], speeds="equal", options=options).run
    assert found.gpu_types["wait_seconds"].sum() == pytest.approx(10.0)
    table = view_of(render(found))["tables"][0]
    assert table["rows"][-1][0] == "none: no GPU followed"
    waited = [column["label"] for column in table["columns"]].index("waited for it")
    assert sum(row[waited] for row in table["rows"]) == pytest.approx(
        20.0
    )  # c and d until 10 s; open waits do not count


def test_a_wait_that_ends_with_gpus_of_two_types_is_divided_by_the_gpus_of_each() -> None:
    """Job 0 waits from 0 to 4 s and from 4 to 9 s, until it gets two V100 and one K80; job 1 has a V100 at once."""
    leases = SimpleNamespace(
        app=np.array([1, 0, 0, 0, 0]), job=np.array([1, 0, 0, 0, 0]), gpu=np.array([0, 0, 1, 2, 3]),
        start_seconds=np.array([0.0, 9.0, 9.0, 9.0, 20.0]), end_seconds=np.array([9.0, 20.0, 20.0, 30.0, 30.0]),
    )  # fmt: skip
    waits = SimpleNamespace(
        job=np.zeros(2, np.int64), start_seconds=np.array([0.0, 4.0]), end_seconds=np.array([4.0, 9.0]),
        reason=np.array(["outranked", "fragmented"]),
    )  # fmt: skip
    rounds, arrivals = SimpleNamespace(time_seconds=np.zeros(0)), SimpleNamespace(run_seconds=None)
    log: Any = SimpleNamespace(
        jobs=["a", "b"], leases=leases, waits=waits, rounds=rounds, arrivals=arrivals, queue=None, end_seconds=30.0
    )
    held = held_by_type(log, CLUSTER)
    rows = zip(held.job.tolist(), [CLUSTER.gpu_types[kind] for kind in held.kind], held.wait_seconds, strict=True)
    assert {(job, kind): waited for job, kind, waited in rows} == pytest.approx(
        {(0, "V100"): 6.0, (0, "K80"): 3.0, (1, "V100"): 0.0}
    )


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(["fifo", "las", "srtf"]), st.one_of(st.none(), st.floats(20.0, 300.0)))
def test_gpu_types_of_random_histories_sum_to_the_times_of_jobs(seed: int, policy: str, until: float | None) -> None:
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, 14))
    workload = Workload.single_jobs(
        "random", ids=[f"a{at}" for at in range(count)], arrival_seconds=np.sort(draw.uniform(0.0, 200.0, count)),
        gpus=draw.integers(1, 4, count), iterations=draw.integers(1, 90, count).astype(float),
        seconds_per_iteration=np.ones(count),
    )  # fmt: skip
    options = SimulationOptions(until=float("inf") if until is None else until)
    found = simulate(workload, "1x3 V100, 2x2 K80", policies=[policy], speeds="equal", options=options).run
    for name in ("slot_seconds", "run_seconds"):
        assert found.gpu_types[name].sum() == pytest.approx(found.jobs[name].sum(), abs=1e-6)
    assert found.gpu_types["wait_seconds"].sum() <= found.jobs["wait_seconds"].sum() + 1e-6
    assert ("types" in parts_of(render(found))) == (found.gpu_types.height > 0)
    for each in view_of(render(found), policy)["data"]["types"] if found.gpu_types.height else ():
        assert each["held"] is None or 0.0 <= each["held"] <= 1.0


def test_the_table_is_written_as_a_csv_file(folder: Path) -> None:
    found = pl.read_csv(folder / "run" / "gpu_types.csv")
    assert found.height == pl.read_parquet(folder / "run" / "gpu_types.parquet").height


class FourTimes:
    """A performance model: an A100 is four times as fast as a V100, and a K80 runs nothing."""

    models = ("net",)

    def rate(self, model: str, setting: Setting) -> float:
        return setting.gpus * {"A100": 4.0, "V100": 1.0, "K80": 0.0}[setting.gpu_type]


@pytest.mark.parametrize(("measured", "expected"), [("A100", 0.25), ("V100", 1.0)])
def test_speeds_refer_to_the_measured_type_even_if_the_cluster_lacks_it(measured: str, expected: float) -> None:
    job = Workload.single_jobs(
        "one", ids=["a"], arrival_seconds=np.zeros(1), gpus=np.full(1, 2, np.int64), iterations=np.full(1, 10.0),
        seconds_per_iteration=np.ones(1), models=["net"],
    )  # fmt: skip
    speeds = TrueTypeSpeeds(dataclasses.replace(job, reference_type=measured), CLUSTER, FourTimes())
    assert speeds.reference(0) == measured
    assert speeds.speed(0, CLUSTER.gpu_types.index("V100")) == pytest.approx(expected)
    assert np.isnan(speeds.speed(0, CLUSTER.gpu_types.index("K80")))
