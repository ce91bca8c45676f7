"""What trials of a live run logged: the app's own metric on the page and at rungs, every tag in the tables."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.arbiter import Arbiter
from eunomia.contract.codec import encode
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.journal.journal import Journal
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_appmaster.explaining.activity import Line
from eunomia_testbed.live_runs.activity import from_first_steps, segments
from eunomia_testbed.live_runs.logged import overlaps, read_logs, tag_of_steps
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.scalars import MOST_POINTS
from eunomia_testbed.live_runs.tables import Tables
from eunomia_testbed.report.part import Part
from eunomia_testbed.report.searches import searches
from eunomia_testbed.report.view import whole_of
from eunomia_testbed.results import ResultFolder, RunData

AT = 1_000.0
"""Unix time of the first arrival."""
Series = Mapping[str, Sequence[tuple[int, float]]]


def write_logs(run_dir: Path, logged: Series, *, incarnation: int = 1) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(run_dir / "logs"), filename_suffix=f".r{incarnation}") as writer:
        for tag, points in logged.items():
            for step, value in points:
                writer.add_scalar(tag, value, step, walltime=AT + step / 10)


def app(state: Path, name: str, metric: str, trials: Mapping[int, tuple[str, int, Series]]) -> list[Event]:
    """Write an app's folder as its app master leaves it, and return the events of its arrival."""
    folder = state / "apps" / name
    folder.mkdir(parents=True)
    text = f'[app]\nname = "{name}"\n[job]\ncommand = "python x.py"\nmax_iterations = 1000\n[tuner]\n'
    (folder / "app.toml").write_text(text + f'metric = "{metric}"\nmode = "min"\n')
    rows, lines = [], []
    for number, (ended, iterations, logged) in trials.items():
        write_logs(folder / str(number), logged)
        rows.append(f"{name}/{number},{{}},{ended},,{iterations},,,1,3,\n")
        steps = (("start", 0), ("running", 0), (ended, iterations))
        for second, (event, step) in enumerate(steps):
            line = {"t": f"1970-01-01T00:16:{41 + second}.000Z", "job": f"{name}/{number}", "event": event}
            lines.append(json.dumps(line | {"slots": [0], "step": step, "incarnation": 1}) + "\n")
    head = "job,parameters,state,rung,iterations,metric,best,incarnations,iterations_lost,why\n"
    (folder / "trials.csv").write_text(head + "".join(rows))
    (folder / "activity.jsonl").write_text("".join(lines))
    jobs = [JobAdded(job=JobId(f"{name}/{number}"), app=AppId(name), iterations=1000.0) for number in trials]
    return [AppArrived(app=AppId(name), user=UserId("ana")), *jobs]


def report_of(state: Path, events: Sequence[Event]) -> tuple[RunData, Part | None]:
    cluster = Cluster.parse("1x2 V100")
    profile = Profile.load("las")
    arbiter = Arbiter(cluster, profile.stages(cluster), Profile.fallback().stages(cluster), seed=1)
    with Journal.open(state / "journal.sqlite", durable=False) as journal:
        journal.set_meta(layout=encode((cluster.machines, (("box", 0), ("box", 1)))))
        journal.append(Seconds(0.0), tuple(events), arbiter.step(Seconds(0.0), events), at=AT)
    record = LiveRecord(state)
    record.poll()
    Tables(record).write(ResultFolder.create(state / "out"), policy="las", seed=0)
    record.close()
    run = RunData.load(state / "out")
    return run, searches(whole_of(run).views[0])


@pytest.mark.parametrize(
    ("first", "every", "end"),
    [
        (1, 1, 1_001.8),  # the first step ends at 1,001.8 s, and the processes stand at 1,001.2 s
        (5, 1, 1_001.2),  # the log does not have the first step
        (10, 10, 1_001.2),  # nor where each tenth is logged
    ],
)
def test_the_start_of_a_job_ends_with_its_first_logged_step(tmp_path: Path, first: int, every: int, end: float) -> None:
    logged = [(step, 1.0) for step in range(first, first + 50 * every, every)]
    events = app(tmp_path, "slow", "loss", {1: ("finished", 1000, {})})
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "apps" / "slow" / "1" / "logs"), filename_suffix=".r1") as writer:
        for step, value in logged:
            writer.add_scalar("loss", value, step, walltime=1_001.8 + (step - first) / 100)
    lines = [("start", 1_000.2, 0), ("running", 1_001.2, 0), ("finished", 1_005.0, 1000)]
    rows = [
        {"t": f"1970-01-01T00:16:{at - 960:06.3f}Z", "job": "slow/1", "event": event, "slots": [0], "step": step}
        for event, at, step in lines
    ]
    text = "".join(json.dumps(row | {"incarnation": 1}) + "\n" for row in rows)
    (tmp_path / "apps" / "slow" / "activity.jsonl").write_text(text)
    run, _ = report_of(tmp_path, events)
    spans = {row["activity"]: (row["start_seconds"], row["end_seconds"]) for row in run.segments.iter_rows(named=True)}
    assert spans["start"] == pytest.approx((0.2, end - AT), abs=1e-3)
    assert spans["run"] == pytest.approx((end - AT, 5.0), abs=1e-3)


@given(st.data())
def test_logged_first_steps_only_shift_the_ends_of_starts(data: st.DataObject) -> None:
    lines, at = [], 0.0
    for incarnation in range(1, 5):
        for event in ("start", "running", data.draw(st.sampled_from(["suspended", "suspending", "finished"]))):
            at += data.draw(st.integers(1, 9))
            lines.append(Line(at=at, app="a", job="a/1", event=event, slots=(0,), step=0, incarnation=incarnation))
    steps = {
        ("a/1", number): float(data.draw(st.integers(0, 90))) for number in range(1, 5) if data.draw(st.booleans())
    }
    moved = from_first_steps(lines, steps)
    for at, (before, after) in enumerate(zip(lines, moved, strict=True)):
        following = lines[at + 1].at if at + 1 < len(lines) else before.at
        known = steps.get((before.job, before.incarnation), before.at)
        expected = max(before.at, min(known, following)) if before.event == "running" else before.at
        assert after.at == expected
    total = sum(each.end - each.start for each in segments(lines, 100.0))
    assert sum(each.end - each.start for each in segments(moved, 100.0)) == pytest.approx(total)


def falling(every: int, end: int, scale: float = 1.0) -> list[tuple[int, float]]:
    return [(step, scale / step) for step in range(every, end + 1, every)]


def test_the_metric_of_the_app_is_recorded_at_rungs_and_every_tag_in_the_table(tmp_path: Path) -> None:
    logged = {"val/nll": falling(100, 1000), "val/accuracy": falling(100, 1000, 0.5), "train/nll": falling(1, 1000)}
    events = app(tmp_path, "words", "val/nll", {1: ("finished", 1000, logged), 2: ("stopped", 350, logged)})
    run, part = report_of(tmp_path, events)
    assert sorted(run.metrics["tag"].unique()) == ["train/nll", "val/accuracy", "val/nll"]
    at_rungs = dict(run.rungs.select("iterations", "metric").iter_rows())
    assert at_rungs == {1000: pytest.approx(0.001), 350: pytest.approx(1 / 300)}  # the last value by then
    assert part is not None
    (panel,) = part.data["panels"]
    assert (panel["metric"], len(panel["curves"]), part.html) == ("val/nll", 2, "")
    of_metric = run.metrics.filter(pl.col("tag") == "val/nll")
    assert of_metric["slot_seconds"].null_count() == 0


def test_long_series_are_thinned_and_keep_first_last_and_extreme_values(tmp_path: Path) -> None:
    values = np.random.default_rng(3).normal(size=3000)
    events = app(tmp_path, "long", "loss", {1: ("finished", 3000, {"loss": list(enumerate(values.tolist()))})})
    run, _ = report_of(tmp_path, events)
    kept = run.metrics.sort("step")
    assert MOST_POINTS / 2 < kept.height <= MOST_POINTS
    assert (kept["step"][0], kept["step"][-1]) == (0, 2999)
    assert kept["value"].min() == pytest.approx(values.min())
    assert kept["value"].max() == pytest.approx(values.max())
    assert run.rungs["metric"].to_list() == pytest.approx([values[-1]])  # of all points, not of the thinned ones


def test_a_metric_that_no_trial_logged_is_named_and_not_drawn(tmp_path: Path) -> None:
    events = app(tmp_path, "typo", "val/<los", {1: ("failed", 500, {"val/loss": falling(100, 500)})})
    events += app(tmp_path, "good", "val/loss", {1: ("finished", 1000, {"val/loss": falling(100, 1000)})})
    run, part = report_of(tmp_path, events)
    assert part is not None
    assert [panel["app"] for panel in part.data["panels"]] == ["good"]
    said = "typo: no trial logged the metric &quot;val/&lt;los&quot;; they logged val/loss."
    assert part.html == f"<p>{said}</p>"
    assert run.rungs.filter(pl.col("app") == "typo")["metric"].drop_nulls().is_empty()


def test_a_page_without_any_logged_metric_of_a_search_has_no_chart(tmp_path: Path) -> None:
    events = app(tmp_path, "typo", "val/los", {1: ("failed", 500, {"val/loss": falling(100, 500)})})
    _, part = report_of(tmp_path, events)
    assert part is not None
    assert part.data is None
    assert "no trial logged" in part.html


def test_failed_trials_count_in_the_savings_of_early_stopping(tmp_path: Path) -> None:
    logged = {"val/loss": falling(100, 500)}
    events = app(tmp_path, "half", "val/loss", {1: ("failed", 500, logged), 2: ("failed", 500, logged)})
    _, part = report_of(tmp_path, events)
    assert part is not None
    table = part.tables[0]
    row: dict[str, Any] = dict(zip([column.label for column in table.columns], table.rows[0], strict=True))
    assert row == {
        "app": "half",
        "trials": 2,
        "to the end": 0,
        "failed": 2,
        "iterations": 1000,
        "of all to the end": 0.5,
        "with": "",
    }


def test_repeated_iterations_are_counted_from_any_tag_logged_at_each_step(tmp_path: Path) -> None:
    write_logs(tmp_path / "1", {"train/nll": falling(1, 40), "val": falling(10, 40)})
    write_logs(tmp_path / "1", {"train/nll": [(step, 1.0) for step in range(31, 61)]}, incarnation=2)
    logs = read_logs(tmp_path / "1")
    assert tag_of_steps(logs) == "train/nll"
    assert sum(each.twice for each in overlaps(logs, "train/nll")) == 10
    events = app(tmp_path, "rare", "val/loss", {1: ("finished", 1000, {"val/loss": falling(100, 1000)})})
    run, _ = report_of(tmp_path, events)
    assert run.jobs["iterations_lost"].to_list() == [3]  # what its app master counted


def test_an_end_dated_before_the_order_to_leave_ends_the_run() -> None:
    def line(at: float, event: str) -> Line:
        return Line(at=at, app="ana", job="ana/1", event=event, slots=(0,), step=0, incarnation=1)

    heard_late = [line(0.0, "start"), line(1.0, "running"), line(5.0, "suspended"), line(60.0, "suspending")]
    found = segments([*heard_late, line(70.0, "start"), line(71.0, "finished")], 100.0)
    assert [(each.activity, each.start, each.end) for each in found] == [
        ("start", 0.0, 1.0),
        ("run", 1.0, 5.0),
        ("start", 70.0, 71.0),
    ]
