"""Metrics of a run small enough to work out by hand, and laws that they keep on any."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.model.cluster import Cluster
from eunomia_testbed.metrics import fairness, queueing
from eunomia_testbed.metrics.activity import merged_runs
from eunomia_testbed.metrics.frames import frames_of
from eunomia_testbed.metrics.judged import judge
from eunomia_testbed.results import ResultFolder, RunData, RunFacts
from eunomia_testbed.results.counting import extension_share
from eunomia_testbed.results.summary import Summary, summary_of
from eunomia_testbed.results.tables import RoundRow, frame_of, schema_of
from eunomia_testbed.simulator.logs.run import (
    Leases,
    QueueLog,
    RoundLog,
    SegmentLog,
    SimulatedRun,
    WaitLog,
)
from eunomia_testbed.workload import Workload

NAN = float("nan")


def words(*texts: str) -> np.ndarray:
    return np.array(texts, dtype=object)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def reals(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float64)


# On two GPUs, all scaling linearly: a (2 GPUs, 10 s) runs from 0 to 10; b (1 GPU, 10 s) waits from 0 to 10 and runs to
# 20; c (1 GPU, 5 s) arrives at 10 and runs to 15.
CLUSTER = Cluster.parse("1x2 V100")
WORKLOAD = Workload.single_jobs(
    "three",
    ids=["a", "b", "c"],
    users=["ana", "bob", "ana"],
    arrival_seconds=reals(0, 0, 10),
    gpus=ints(2, 1, 1),
    iterations=reals(10, 10, 5),
    seconds_per_iteration=reals(1, 1, 1),
)


def three(*, segments: bool = False) -> SimulatedRun:
    none = np.empty(0)
    kept = ints(0, 1, 2) if segments else np.empty(0, np.int64)
    return SimulatedRun(
        policy="fifo",
        seed=0,
        end_seconds=20.0,
        start_seconds=reals(0, 10, 10),
        finish_seconds=reals(10, 20, 15),
        state=words("finished", "finished", "finished"),
        run_seconds=reals(10, 10, 5),
        wait_seconds=reals(0, 10, 0),
        slot_seconds=reals(20, 10, 5),
        iterations_done=reals(10, 10, 5),
        iterations_lost=reals(0, 0, 0),
        restarts=ints(0, 0, 0),
        migrations=ints(0, 0, 0),
        resizes=ints(0, 0, 0),
        probes=ints(0, 0, 0),
        ideal_seconds=reals(10, 10, 5),
        exclusive_seconds=reals(10, 10, 5),
        app_finish_seconds=reals(10, 20, 15),
        app_state=words("finished", "finished", "finished"),
        leases=Leases(
            app=ints(0, 0, 1, 2), job=ints(0, 0, 1, 2), gpu=ints(0, 1, 0, 1), lease=ints(1, 1, 2, 3),
            start_seconds=reals(0, 0, 10, 10), end_seconds=reals(10, 10, 20, 15),
            ended_by=words("released", "released", "released", "released"),
        ),
        rounds=RoundLog(
            round=ints(1, 2), time_seconds=reals(0, 10), causes=words("arrived", "arrived+freed"), free_gpus=ints(2, 2),
            running_jobs=ints(0, 0), waiting_jobs=ints(2, 2), started=ints(1, 2), suspended=ints(0, 0),
            grown=ints(0, 0), shrunk=ints(0, 0), migrated=ints(0, 0), quiet=np.array([False, False]),
            fault=words("", ""),
        ),
        waits=WaitLog(
            job=ints(1), start_seconds=reals(0), end_seconds=reals(10), reason=words("outranked"),
            stage=words("allocation"), plugin=words("ordered"),
        ),
        queue=QueueLog(
            time_seconds=reals(0, 10, 15, 20), waiting_jobs=ints(1, 0, 0, 0), waiting_gpus=ints(1, 0, 0, 0),
            busy_gpus=ints(2, 2, 1, 0),
        ),
        segments=SegmentLog(
            job=kept, start_seconds=reals(0, 10, 10) if segments else none,
            end_seconds=reals(10, 20, 15) if segments else none, gpus=ints(2, 1, 1) if segments else kept,
            locality=kept * 0, seconds_per_iteration=reals(1, 1, 1) if segments else none,
            batch_size=reals(NAN, NAN, NAN) if segments else none,
        ),
        records={}, faults=(), fallback_round=None, dropped=(), steps=4, events=6, round_count=2,
        quiet_rounds=0, stage_calls=8,
        timings={"allocation": 0.5, "step": 0.75},
    )  # fmt: skip


def written(tmp_path: Path, *, rho: str = "themis", segments: bool = False) -> RunData:
    folder = ResultFolder.create(tmp_path / "run")
    folder.write_facts(RunFacts(kind="simulate", command=("eunomia",), slots=2, rho=rho))
    for table, frame in frames_of(three(segments=segments), WORKLOAD, CLUSTER).tables.items():
        folder.write_frame(table, frame)
    return RunData.load(folder.path)


def summed(tmp_path: Path, *, rho: str = "themis", segments: bool = False) -> Summary:
    return summary_of(written(tmp_path, rho=rho, segments=segments), "fifo", 0)


def test_rho_is_computed_by_each_definition() -> None:
    judged = judge(three(), WORKLOAD, CLUSTER)
    # N_avg: a meets b for all its life; b has one other until 15; c has b.
    np.testing.assert_allclose(judged.apps.mean_apps, [2, 1.75, 2])
    np.testing.assert_allclose(judged.apps.alone_seconds, [10, 10, 5])
    np.testing.assert_allclose(judged.apps.rho, [10 / 20, 20 / 17.5, 5 / 10])
    np.testing.assert_allclose(judged.jobs.rho_static, [10 / 15, 20 / 15, 5 / 7.5])  # 3 jobs on 2 GPUs: 1.5
    np.testing.assert_allclose(judged.jobs.rho_contention, [1, 2, 1])  # at most 2 jobs on 2 GPUs: never below 1
    np.testing.assert_allclose(judged.jobs.rho_exclusive, [1, 2, 1])


def test_a_job_that_its_tuner_stopped_is_judged_by_the_work_that_it_did() -> None:
    stopped = dataclasses.replace(
        three(), state=words("finished", "stopped", "finished"), iterations_done=reals(10, 4, 5)
    )
    jobs, apps = judge(stopped, WORKLOAD, CLUSTER).jobs, judge(stopped, WORKLOAD, CLUSTER).apps
    np.testing.assert_allclose(jobs.rho_exclusive, [1, 20 / 4, 1])
    np.testing.assert_allclose(jobs.rho_static, [10 / 15, 20 / (4 * 1.5), 5 / 7.5])
    np.testing.assert_allclose(jobs.rho_contention, [1, 20 / 4, 1])
    np.testing.assert_allclose(jobs.rho_exclusive, apps.rho_exclusive)  # each is its app's only job


def test_the_summary_of_the_golden_run_equals_figures_computed_by_hand(tmp_path: Path) -> None:
    got = summed(tmp_path)
    assert (got.apps, got.apps_finished, got.jobs, got.slots) == (3, 3, 3, 2)
    assert got.makespan_seconds == 20.0
    assert (got.jct_mean_seconds, got.jct_median_seconds) == (pytest.approx(35 / 3), 10.0)
    assert got.jct_p95_seconds == pytest.approx(19.0)  # between 10 (rank 1) and 20 (rank 2): rank 1.9
    assert (got.rho_worst, got.rho_worst_app) == (pytest.approx(20 / 17.5), "b")
    assert got.rho_unfair_share == pytest.approx(1 / 3)
    assert got.rho_jain == pytest.approx((2 + 0.875 + 2) ** 2 / (3 * (4 + 0.875**2 + 4)))
    assert (got.slot_seconds, got.slots_in_use_share, got.utilization) == (35.0, 35 / 40, 35 / 40)
    assert (got.queue_length_mean, got.queue_length_max) == (0.5, 1)
    assert got.cluster_efficiency_mean == pytest.approx((2 * 15 + 1 * 5) / 2 / 20)
    assert got.contention_mean == pytest.approx((1 * 10 + 1 * 5 + 0.5 * 5) / 20)
    assert got.blocking_index_mean == pytest.approx(0.25)  # b: t / 10 for 10 of 20 s
    assert (got.wait_seconds, got.wait_by_reason) == (10.0, {"outranked": 10.0})
    assert got.jct_mean_by_gang["1"] == 12.5
    assert got.jct_mean_by_gang["2"] == 10.0
    assert got.jct_mean_by_gang["4"] is None
    assert got.placement_score_mean == 1.0
    assert (got.lease_extension_share, got.restarts, got.slots_held_twice) == (None, 0, 0)


def test_the_summary_judges_a_run_by_the_kind_of_rho_in_its_facts(tmp_path: Path) -> None:
    got = summed(tmp_path, rho="static")
    assert (got.rho_kind, got.rho_worst) == ("static", pytest.approx(4 / 3))
    assert got.flat()["rho_themis_worst"] == pytest.approx(20 / 17.5)
    assert got.flat()["rho_exclusive_unfair_share"] == pytest.approx(1 / 3)


def test_slot_time_is_split_by_user(tmp_path: Path) -> None:
    ana, bob = written(tmp_path).users.iter_rows(named=True)
    assert (ana["user"], ana["apps"], ana["jobs"], ana["apps_finished"]) == ("ana", 2, 2, 2)
    assert (ana["slot_seconds"], ana["slot_share"], bob["slot_share"]) == (25.0, 25 / 35, 10 / 35)
    assert (ana["jct_mean_seconds"], ana["jct_p99_seconds"]) == (7.5, pytest.approx(5 + 0.99 * 5))
    assert (bob["wait_seconds"], bob["rho_worst"]) == (10.0, pytest.approx(20 / 17.5))
    assert (ana["arrival_seconds"], ana["finish_seconds"]) == (0.0, 15.0)


def test_every_table_has_its_schema_and_names(tmp_path: Path) -> None:
    run = written(tmp_path, segments=True)
    for table in ("jobs", "apps", "users", "rounds", "leases", "waits", "queue", "segments", "timings"):
        assert run.table(table).height > 0
        assert run.table(table).schema == schema_of(table)
    assert run.jobs["job"].to_list() == ["a", "b", "c"]  # apps of one job go by their name
    assert run.leases.select("job", "machine", "slot").rows()[1] == ("a", "m01", 1)
    assert run.segments["activity"].unique().to_list() == ["run"]
    assert run.rounds["trigger"].to_list() == ["arrived", "arrived+freed"]
    assert run.rounds["fault"].null_count() == 2
    assert run.queue["blocking_index"].to_list() == pytest.approx([0.5, 0, 0, 0])
    assert run.timings.select("stage", "cpu_seconds").rows() == [("allocation", 0.5), ("step", 0.75)]


def test_a_job_not_at_its_best_place_has_a_lower_placement_score() -> None:
    import dataclasses

    slow = dataclasses.replace(three(), run_seconds=reals(12.5, 10, 5))
    np.testing.assert_allclose(judge(slow, WORKLOAD, CLUSTER).jobs.placement_score, [0.8, 1, 1])


def test_serial_times_that_do_not_scale_change_themis_rho_and_the_cluster_efficiency() -> None:
    serial = reals(15, 10, 5)  # a needs 15 s on one GPU and 10 s on two: Themis' T_cluster is 15 / 2
    judged = judge(three(), WORKLOAD, CLUSTER, serial)
    assert judged.apps.rho[0] == pytest.approx(10 / (7.5 * 2))
    frames = frames_of(three(), WORKLOAD, CLUSTER, serial_seconds=serial)
    assert frames.tables["queue"]["efficiency"].to_list() == pytest.approx([0.75, 1.0, 0.5, 0.0])


def test_jobs_that_cannot_run_on_the_cluster_count_in_no_metric() -> None:
    import dataclasses

    refused = dataclasses.replace(
        three(), state=words("finished", "rejected", "finished"), app_state=words("finished", "rejected", "finished"),
        finish_seconds=reals(10, NAN, 15), app_finish_seconds=reals(10, NAN, 15),
    )  # fmt: skip
    judged = judge(refused, WORKLOAD, CLUSTER)
    assert judged.static_contention == 1.0
    np.testing.assert_allclose(judged.apps.rho, [1, NAN, 1])


# --- fairness, queue -----------------------------------------------------------------------------------------------


def test_the_index_of_jain_reaches_its_known_minimum_and_maximum() -> None:
    assert fairness.jain(reals(2, 2, 2)) == 1.0
    assert fairness.jain(reals(1, 1e12, 1e12, 1e12)) == pytest.approx(0.25)
    assert fairness.jain(reals(NAN)) is None


def test_static_contention_equals_the_published_factor_of_the_canonical_trace() -> None:
    assert [fairness.static_contention(jobs, gpus) for jobs, gpus in ((120, 32), (220, 64), (10, 32))] == [
        3.75, 3.4375, 1.0,
    ]  # fmt: skip


def test_the_extension_share_of_two_rounds_equals_the_one_computed_by_hand() -> None:
    rows = [
        RoundRow(round=1, time_seconds=0.0, kept=3, grown=1, shrunk=0, migrated=0, suspended=0),
        RoundRow(round=2, time_seconds=1.0, kept=2, grown=0, shrunk=1, migrated=0, suspended=1),
    ]
    assert extension_share(frame_of("rounds", rows, policy="p", seed=0)) == 5 / 8


lives = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 50) | st.just(NAN)), min_size=1, max_size=12
)  # arrival, length


@given(lives)
def test_the_mean_number_of_present_apps_is_the_overlap_over_the_lifetime(spans: list[tuple[float, float]]) -> None:
    start = np.array([begin for begin, _ in spans])
    end = np.array([begin + length for begin, length in spans])
    got = fairness.mean_present(start, end)
    for row, (begin, stop) in enumerate(zip(start, end, strict=True)):
        if np.isnan(stop):
            assert np.isnan(got[row])
        elif stop - begin > 1e-6:
            shared = np.clip(np.minimum(np.nan_to_num(end, nan=np.inf), stop) - np.maximum(start, begin), 0, None)
            assert got[row] == pytest.approx(shared.sum() / (stop - begin))


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100), st.floats(0.1, 50)), max_size=10), st.floats(0, 200))
def test_the_blocking_index_is_the_mean_over_pending_jobs(rows: list[tuple[int, float, float]], moment: float) -> None:
    last: dict[int, float] = {}
    waits = []
    for job, gap, length in rows:  # one after the other for each job, with runs in between
        begin = last.get(job, 0.0) + (gap if job in last else 0.0)
        last[job] = begin + length
        waits.append((job, begin, begin + length))
    finish, serial = reals(*(last.get(job, 0.0) + 30 for job in range(4))), reals(10, 20, 30, 40)
    series = queueing.blocking_index(
        queueing.Waits(
            job=ints(*(w[0] for w in waits)), start_seconds=reals(*(w[1] for w in waits)),
            end_seconds=reals(*(w[2] for w in waits)),
        ),
        np.zeros(4), finish, serial, 1000.0,
    )  # fmt: skip
    ratios = []
    for job in range(4):
        mine = [(begin, end) for owner, begin, end in waits if owner == job]
        on = [(begin, end) for begin, end in mine if begin <= moment < end]
        if on:
            pending = sum(min(end, moment) - begin for begin, end in mine if begin <= moment)
            runs = finish[job] - sum(end - begin for begin, end in mine)
            ratios.append(pending / (serial[job] * (1 - (moment - pending) / runs)))
    expected = sum(ratios) / len(ratios) if ratios else 0.0
    near = [abs(moment - edge) for _, begin, end in waits for edge in (begin, end)]
    if min(near, default=1.0) > 1e-6:
        assert series.at(reals(moment))[0] == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(-5, 5), st.floats(-1, 1)), min_size=1, max_size=8))
def test_areas_of_a_line_over_parts_of_its_time_add_up(pieces: list[tuple[float, float, float]]) -> None:
    begin = np.cumsum([gap for gap, _, _ in pieces])
    series = queueing.Series(
        time_seconds=begin, value=reals(*(p[1] for p in pieces)), slope=reals(*(p[2] for p in pieces))
    )
    moments, until = np.linspace(0.0, begin[-1] + 5, 7), begin[-1] + 9
    lengths = np.diff(np.append(moments, until))
    total = float((series.means(moments, until) * lengths).sum())
    assert total == pytest.approx(float(series.areas(reals(until))[0]), abs=1e-6)


def test_adjacent_intervals_are_joined() -> None:
    job, start, end = merged_runs(ints(1, 0, 0), reals(0, 5, 0), reals(3, 9, 5))
    assert (job.tolist(), start.tolist(), end.tolist()) == ([0, 1], [0, 0], [9, 3])


# --- documents -----------------------------------------------------------------------------------------------------


def test_every_metric_of_the_summary_is_defined_in_the_reference() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z0-9_]+)`", text))
    families = ("jct_mean_gang_", "wait_")
    assert named
    for column in summed_columns():
        assert column in named or any(column.startswith(each) and f"{each}*" in text for each in families), column


def summed_columns() -> list[str]:
    plain = dict.fromkeys(Summary.__dataclass_fields__)
    return list(Summary(**{**plain, **{name: {} for name in plain if "_by_" in name}}).flat())  # type: ignore[arg-type]


def test_a_summary_is_plain_json(tmp_path: Path) -> None:
    assert json.loads(json.dumps(summed(tmp_path).flat()))["jct_mean_gang_1_seconds"] == 12.5
    assert isinstance(pl.DataFrame([summed(tmp_path / "again").flat()]), pl.DataFrame)
