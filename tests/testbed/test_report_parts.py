"""What the report shows of simulations: numbers are those of the tables, whatever the size and however odd."""

import dataclasses
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia_testbed.report import render, write_report
from eunomia_testbed.report.curves import BUCKETS, MOST_STEPS, counted, distribution, steps
from eunomia_testbed.report.speed import by_size
from eunomia_testbed.report.sums import sums_by
from eunomia_testbed.results import ResultFolder, RunData, RunFacts, summarise
from eunomia_testbed.results.tables import AppRow, JobRow, LeaseRow, QueueRow, UserRow, WaitRow, schema_of

PARTS = ["verdict", "policies", "held", "fairness", "speed", "cluster", "decisions", "provenance"]
RUNS = [(policy, seed) for policy in ("fifo", "las", "srtf") for seed in (0, 1)]


class Data(HTMLParser):
    """The JSON in a page, and the text outside scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.within, self.scripts, self.text = "", [], ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.within = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.within = ""

    def handle_data(self, data: str) -> None:
        if self.within == "script":
            self.scripts[-1] += data
        elif self.within != "style":
            self.text += data


def page_of(run: RunData) -> Any:
    return json.loads(Data(render(run)).scripts[0])


@pytest.fixture(scope="module")
def shown(simulated: RunData) -> Any:
    """The data of the made-up simulation's page."""
    return page_of(simulated)


def view(shown: Any, part: str, policy: str = "fifo", seed: int = 0) -> Any:
    return shown["parts"][part]["views"][RUNS.index((policy, seed))]


def table(
    shown: Any, part: str, title: str, policy: str = "fifo", seed: int = 0, at: int | None = None
) -> list[dict[str, Any]]:
    views = shown["parts"][part]["views"]
    alone = at is not None or shown["parts"][part]["ofAll"]
    mine = views[at or 0] if alone else views[RUNS.index((policy, seed))]
    found = next(each for each in mine["tables"] if each["title"].startswith(title))
    labels = [column["label"] for column in found["columns"]]
    return [dict(zip(labels, row, strict=True)) for row in found["rows"]]


def without(run: RunData, *tables: str) -> RunData:
    return dataclasses.replace(run, **{name: schema_of(name).to_frame() for name in tables})


# -- several policies and seeds


def test_policies_and_seeds_are_on_one_page(shown: Any) -> None:
    assert list(shown["parts"]) == PARTS
    assert shown["policies"] == ["fifo", "las", "srtf"]
    assert [(each["policy"], each["seed"]) for each in shown["runs"]] == RUNS
    for name in ("verdict", "held", "fairness", "speed", "cluster", "decisions"):
        assert len(shown["parts"][name]["views"]) == len(RUNS)
    for name in ("policies", "provenance"):
        assert shown["parts"][name]["ofAll"]


def test_of_many_runs_the_page_shows_the_first_seed_of_each_policy(
    write_simulation: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_simulation(tmp_path / "run", seeds=3, jobs=6, policies=("fifo", "las", "srtf"))
    found = page_of(RunData.load(folder))
    assert [(each["policy"], each["seed"]) for each in found["runs"]] == [("fifo", 0), ("las", 0), ("srtf", 0)]
    assert {row["seeds"] for row in table(found, "policies", "All policies")} == {3}


def test_a_page_of_one_policy_and_one_seed_has_no_comparison(
    write_simulation: Callable[..., Path], tmp_path: Path
) -> None:
    page = render(RunData.load(write_simulation(tmp_path / "run", policies=("fifo",), seeds=1, jobs=8)))
    assert list(json.loads(Data(page).scripts[0])["parts"]) == [name for name in PARTS if name != "policies"]
    assert "Which policy?" not in page


def test_a_page_of_one_policy_with_several_seeds_shows_each_seed(
    write_simulation: Callable[..., Path], tmp_path: Path
) -> None:
    found = page_of(RunData.load(write_simulation(tmp_path / "run", policies=("las",), seeds=2, jobs=8)))
    assert "policies" not in found["parts"]
    assert [each["name"] for each in found["runs"]] == ["las, seed 0", "las, seed 1"]


def test_bars_are_the_means_of_the_summary_with_t_intervals(shown: Any, simulated: RunData) -> None:
    summary = summarise(simulated)
    metrics = {each["label"]: each for each in shown["parts"]["policies"]["views"][0]["data"]["metrics"]}
    for label, column in (
        ("mean JCT", "jct_mean_seconds"),
        ("worst ρ, mean of seeds", "rho_worst"),
        ("makespan", "makespan_seconds"),
    ):
        for policy, (mean, low, high) in zip(shown["policies"], metrics[label]["rows"], strict=True):
            a, b = summary.filter(pl.col("policy") == policy)[column].to_list()
            assert mean == pytest.approx((a + b) / 2, abs=1e-3)
            assert low == pytest.approx(2 * mean - high, abs=1e-2)
            assert high - mean == pytest.approx(
                12.7062 * abs(a - b) / 2, rel=1e-4, abs=1e-3
            )  # t with one degree of freedom


def test_the_best_of_each_metric_is_marked(shown: Any) -> None:
    for metric in shown["parts"]["policies"]["views"][0]["data"]["metrics"]:
        means = [row[0] for row in metric["rows"]]
        best = max(means) if metric["better"] == "high" else min(means)
        assert [mean for mean, mark in zip(means, metric["best"], strict=True) if mark] == [best]


def test_the_page_opens_with_the_policy_of_the_shortest_mean_jct(shown: Any, simulated: RunData) -> None:
    means = summarise(simulated).group_by("policy").agg(pl.col("jct_mean_seconds").mean()).sort("jct_mean_seconds")
    assert shown["runs"][shown["first"]]["policy"] == means["policy"][0]
    assert "Shortest mean JCT" in Data(render(simulated)).text


def test_policies_with_different_loads_are_not_compared(simulated: RunData) -> None:
    assert simulated.facts is not None
    facts = dataclasses.replace(simulated.facts, loads={"srtf": 2.0})
    text = Data(render(dataclasses.replace(simulated, facts=facts))).text
    told = re.findall(r"Shortest mean JCT[^.]*", text)
    assert told and any("las" in each or "fifo" in each for each in told)
    assert not any("srtf" in each for each in told)  # it met another load alone, so it is not compared


# -- speed


def test_the_distribution_of_jct_equals_that_of_the_jobs(shown: Any, simulated: RunData) -> None:
    for policy, seed in RUNS:
        jobs = simulated.only(policy, seed).jobs["jct_seconds"].sort().to_list()
        points = view(shown, "speed", policy, seed)["data"]["distribution"]
        assert [value for value, _ in points] == pytest.approx(jobs, rel=1e-5)
        assert points[-1][1] == 1.0
        named = view(shown, "speed", policy, seed)["data"]["named"]
        assert dict(named) == pytest.approx(
            dict(simulated.only(policy, seed).apps.select("app", "jct_seconds").iter_rows()), abs=0.01
        )


def test_wait_and_run_by_gang_add_up_to_the_jct(shown: Any, simulated: RunData) -> None:
    jobs = simulated.only("las", 1).jobs
    for size in view(shown, "speed", "las", 1)["data"]["sizes"]:
        mine = jobs.filter(pl.col("slots_asked") == int(size["label"]))
        assert size["jobs"] == mine.height
        assert size["wait"] == pytest.approx(mine["wait_seconds"].mean(), abs=0.01)
        assert size["wait"] + size["run"] == pytest.approx(mine["jct_seconds"].mean(), abs=0.02)


def test_many_gang_sizes_are_grouped_by_powers_of_two() -> None:
    gangs = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17]
    jobs = pl.DataFrame(
        {"slots_asked": gangs, "jct_seconds": [10.0] * 11, "wait_seconds": [4.0] * 11, "start_seconds": [4.0] * 11,
         "arrival_seconds": [0.0] * 11}
    )  # fmt: skip
    found = by_size(jobs)
    assert found["label"].to_list() == ["1", "2", "3 to 4", "5 to 8", "9 to 16", "17 to 32"]
    assert found["len"].to_list() == [1, 1, 2, 4, 2, 1]
    assert found["run"].to_list() == [6.0] * 6


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=2000), st.randoms(use_true_random=False))
def test_every_point_of_a_thinned_distribution_is_exact(values: list[float], random: Any) -> None:
    random.shuffle(values)
    points = distribution(np.array(values))
    ordered = sorted(values)
    assert len(points) <= max(300, min(len(values), 300))
    assert points[-1][0] == pytest.approx(ordered[-1], rel=1e-5)
    assert points[0][0] == pytest.approx(ordered[0], rel=1e-5)
    for value, share in points:
        rank = round(share * len(values))
        assert ordered[rank - 1] == pytest.approx(value, rel=1e-5)


# -- cluster and queue


def test_slots_in_use_equal_those_of_the_leases(simulated: RunData, shown: Any) -> None:
    logged = {line["name"]: line for line in view(shown, "cluster")["data"]["lines"]}
    counted_again = page_of(without(simulated, "queue"))
    lines = {line["name"]: line for line in view(counted_again, "cluster")["data"]["lines"]}
    run = simulated.only("fifo", 0)
    for time, busy in run.queue.select("time_seconds", "busy_gpus").iter_rows():
        for line in (logged["busy_gpus"], lines["busy_gpus"]):
            assert [level for at, level in line["points"] if at <= time + 1e-3][-1] == busy


def test_waiting_by_reason_user_and_plugin_equals_that_of_the_waits(simulated: RunData, shown: Any) -> None:
    run = simulated.only("las", 0)
    spans = run.waits.join(run.jobs.select("job", "user"), on="job").with_columns(
        ((pl.col("end_seconds") - pl.col("start_seconds")) / 3600).alias("hours")
    )
    found = view(shown, "cluster", "las", 0)["data"]["waiting"]
    for key in ("reason", "plugin", "user"):
        expected = dict(spans.group_by(key).agg(pl.col("hours").sum()).iter_rows())
        assert {name: hours for name, _, hours in found[key]} == pytest.approx(expected, abs=1e-4)
    rows = table(shown, "cluster", "Waiting by reason", "las", 0)
    assert sum(each["hours"] for each in rows) == pytest.approx(spans["hours"].sum(), abs=1e-2)


def test_pauses_by_apps_do_not_count_as_waiting(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    key = {"policy": "p", "seed": 0}
    folder.write("jobs", [JobRow(app="a", job="a", state="finished", jct_seconds=9.0)], **key)
    waits = [("outranked", 0.0, 3600.0), ("paused_by_app", 3600.0, 9999.0)]
    folder.write("waits", [WaitRow(job="a", start_seconds=s, end_seconds=e, reason=r) for r, s, e in waits], **key)
    found = page_of(RunData.load(folder.path))["parts"]["cluster"]["views"][0]["data"]
    assert found["waiting"]["reason"] == [["outranked", "others came first", 1.0]]
    assert found["lines"][0]["points"] == [[0.0, 1.0], [3600.0, 0.0]]


def test_users_are_counted_from_apps_if_the_run_has_no_user_table(simulated: RunData, shown: Any) -> None:
    apps = simulated.only("srtf", 1).apps
    rows = table(shown, "cluster", "Users", "srtf", 1)
    assert {each["user"] for each in rows} == {"ana", "ben", "cho"}
    assert sum(each["of all"] for each in rows) == pytest.approx(1.0, abs=1e-3)
    for each in rows:
        mine = apps.filter(pl.col("user") == each["user"])
        assert each["apps"] == mine.height
        assert each["mean JCT"] == pytest.approx(mine["jct_seconds"].mean(), abs=1e-3)
        assert each["worst ρ, this seed"] == pytest.approx(mine["rho"].max(), abs=1e-3)


def test_users_are_shown_as_in_the_table_of_users(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    key = {"policy": "p", "seed": 0}
    folder.write("apps", [AppRow(app="a", user="ben", state="finished", jct_seconds=5.0)], **key)
    users = [
        UserRow(user=name, apps=1, slot_seconds=held, slot_share=held / 5e8)
        for name, held in (("ana", 1e8), ("ben", 4e8))
    ]
    folder.write("users", users, **key)
    rows = table(page_of(RunData.load(folder.path)), "cluster", "Users", at=0)
    assert [(each["user"], each["of all"]) for each in rows] == [("ben", 0.8), ("ana", 0.2)]
    assert set(rows[0]) == {"user", "apps", "slot time", "of all"}  # what nobody knows has no column


def test_shares_of_slot_time_add_up_to_one(shown: Any, simulated: RunData) -> None:
    summary = summarise(simulated)
    for policy, seed in RUNS:
        spent = view(shown, "cluster", policy, seed)["data"]["slotTime"]
        used = summary.filter((pl.col("policy") == policy) & (pl.col("seed") == seed))["slots_in_use_share"].item()
        assert sum(spent.values()) == pytest.approx(1.0, abs=1e-3)
        assert 1 - spent["free"] == pytest.approx(used, abs=1e-3)


def test_slot_time_of_a_run_with_segments_has_every_overhead(sample: RunData) -> None:
    spent = page_of(sample)["parts"]["cluster"]["views"][0]["data"]["slotTime"]
    segments = sample.segments.with_columns((pl.col("end_seconds") - pl.col("start_seconds")).alias("seconds"))
    total = segments["seconds"].sum()
    held = 1 - spent["free"]
    for activity in ("start", "save", "restore", "idle"):
        expected = segments.filter(pl.col("activity") == activity)["seconds"].sum() / total
        assert spent[activity] / held == pytest.approx(expected, abs=1e-3)
    assert sum(spent.values()) == pytest.approx(1.0, abs=1e-3)


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 50)), min_size=1, max_size=80))
def test_counted_levels_keep_the_total_length_of_intervals(spans: list[tuple[float, float]]) -> None:
    starts = np.array([start for start, _ in spans])
    ends = starts + np.array([length for _, length in spans])
    moments, levels = counted(starts, ends)
    assert np.all(np.diff(moments) > 0)
    assert levels[-1] == 0
    area = float((levels[:-1] * np.diff(moments)).sum())
    assert area == pytest.approx(math.fsum(ends - starts), abs=1e-6)


@given(st.integers(MOST_STEPS + 1, 4 * MOST_STEPS), st.integers(0, 2**32 - 1))
def test_buckets_of_a_level_keep_its_area_and_extremes(size: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    moments = np.unique(draw.uniform(0, 1e5, size))
    levels = np.cumsum(draw.integers(1, 3, len(moments)) * draw.choice([-1, 1], len(moments))).astype(float)
    found = steps(moments, levels, 1.1e5)
    if "points" in found:
        return
    rows, width = np.array(found["bands"]), found["width"]
    assert len(rows) == BUCKETS
    area = float((levels * np.diff(np.append(moments, 1.1e5))).sum())
    assert (rows[:, 1] * width).sum() == pytest.approx(area, rel=1e-4, abs=1e-4 * np.abs(levels).max() * 1.1e5)
    slack = 1e-4 * np.abs(levels).max()
    assert np.all(rows[:, 2] <= rows[:, 1] + slack)
    assert np.all(rows[:, 1] <= rows[:, 3] + slack)
    assert rows[:, 3].max() == pytest.approx(max(levels.max(), 0.0), rel=1e-5)
    assert rows[:, 2].min() == pytest.approx(min(levels.min(), 0.0), rel=1e-5)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from("xy"), st.floats(0, 9)), max_size=40))
def test_sums_by_keys_count_every_row(rows: list[tuple[str | None, str, float]]) -> None:
    frame = pl.DataFrame(rows, schema={"k": pl.String(), "l": pl.String(), "v": pl.Float64()}, orient="row")
    found = sums_by(frame, ["k", "l"], "v")
    assert found["len"].sum() == frame.height
    for key, letter, number, total in found.iter_rows():
        mine = [value for *group, value in rows if group == [key, letter]]
        assert (number, total) == (len(mine), pytest.approx(math.fsum(mine)))
    assert found.select("k", "l").rows() == sorted(found.select("k", "l").rows(), key=lambda k: (k[0] is not None, k))


def test_slot_use_is_judged_over_the_time_in_which_jobs_waited(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    folder.write_facts(RunFacts(kind="simulate", command=("x",), slots=4))
    key = {"policy": "p", "seed": 0}
    app = AppRow(app="a", state="finished", jct_seconds=1000.0, finish_seconds=1000.0, slot_seconds=1240.0)
    folder.write("apps", [app], **key)
    folder.write("jobs", [JobRow(app="a", job="a", state="finished", slot_seconds=1240.0)], **key)
    levels = [(0.0, 2, 4), (60.0, 1, 3), (80.0, 0, 1), (1000.0, 0, 0)]
    rows = [QueueRow(time_seconds=at, waiting_jobs=waiting, busy_gpus=busy) for at, waiting, busy in levels]
    folder.write("queue", rows, **key)
    text = Data(render(RunData.load(folder.path))).text
    assert "93.8 % busy while jobs waited" in text  # (60 x 4 + 20 x 3) / (80 x 4)
    assert "31.0 % were held" in text


# -- large clusters


def wide_run(tmp_path: Path, machines: int = 100, slots: int = 2) -> RunData:
    """A cluster of which only the first machines are ever used, the first throughout."""
    folder = ResultFolder.create(tmp_path / "run")
    cluster = f'machines = [{{ names = "m[001-{machines:03}]", gpus = "{slots}xV100" }}]\n'
    folder.write_facts(RunFacts(kind="simulate", command=("x",), slots=machines * slots, cluster=cluster))
    key = {"policy": "p", "seed": 0}
    folder.write("apps", [AppRow(app="a", state="finished", jct_seconds=100.0, finish_seconds=100.0)], **key)
    spans = [("m001", 0, 0, 100), ("m001", 1, 0, 100), ("m002", 0, 25, 75)]
    spans += [(f"m{at:03}", 0, 0, 10) for at in range(3, 71)]
    leases = [
        LeaseRow(app="a", job="a", machine=name, slot=slot, start_seconds=start, end_seconds=end, ended_by="released")
        for name, slot, start, end in spans
    ]
    folder.write("leases", leases, **key)
    return RunData.load(folder.path)


def test_machines_are_drawn_as_a_heat_map_above_64_slots(tmp_path: Path) -> None:
    heat = page_of(wide_run(tmp_path))["parts"]["held"]["views"][0]["data"]["heat"]
    assert [each["name"] for each in heat["rows"][:2]] == ["m001 to m002", "m003 to m004"]
    assert heat["rows"][-1]["name"] == "m099 to m100"
    assert heat["rows"][-1]["used"] == 0.0  # described, and never used
    assert sum(each["slots"] for each in heat["rows"]) == 200
    first = heat["rows"][0]
    assert first["used"] == pytest.approx((100 + 100 + 50) / 400)
    assert {first["levels"][at] for at in range(51, 149)} == {"7"}  # three of four slots: the seventh ninth
    used = sum(each["used"] * each["slots"] for each in heat["rows"]) * heat["until"]
    assert used == pytest.approx(250 + 68 * 10, rel=1e-3)
    assert [0, 0.0, 100.0, "a", 0.5] in heat["stripes"]


def test_an_unreadable_cluster_is_shown_by_the_machines_in_use(tmp_path: Path) -> None:
    run = wide_run(tmp_path)
    assert run.facts is not None
    odd = dataclasses.replace(run, facts=dataclasses.replace(run.facts, cluster="machines = 3"))
    heat = page_of(odd)["parts"]["held"]["views"][0]["data"]["heat"]
    assert sum(each["slots"] for each in heat["rows"]) == 2 + 69


def test_100000_jobs_make_a_small_page(large_run: RunData) -> None:
    page = render(large_run)
    assert len(page.encode()) < 1_500_000
    found = json.loads(Data(page).scripts[0])
    assert list(found["parts"]) == [name for name in PARTS if name != "policies"]
    assert found["appCount"] == 100_000
    assert len(found["apps"]) < 2_000
    speed = found["parts"]["speed"]["views"][0]["data"]
    assert (speed["count"], speed["named"]) == (100_000, [])
    assert speed["distribution"][-1][0] == pytest.approx(large_run.jobs["jct_seconds"].max(), rel=1e-5)
    worst = found["parts"]["fairness"]["views"][0]
    assert len(worst["data"]["final"]) == 10
    assert worst["data"]["final"][0][1] == pytest.approx(large_run.apps["rho"].max(), rel=1e-4)
    named = set(found["apps"])
    assert all(row[0] in named for row in worst["tables"][0]["rows"])


def test_for_a_large_run_only_the_worst_apps_are_listed(large_run: RunData) -> None:
    found = page_of(large_run)["parts"]["verdict"]["views"][0]["tables"][0]
    assert found["title"] == "Apps, the 600 with the worst ρ of 100,000"
    rho = [row[[column["label"] for column in found["columns"]].index("ρ")] for row in found["rows"]]
    assert rho == pytest.approx(large_run.apps["rho"].sort(descending=True).head(600).to_list(), abs=1e-3)


def test_apps_without_a_rho_come_last_in_the_table(simulated: RunData) -> None:
    hidden = pl.when(pl.col("app") < "job-005").then(None).otherwise(pl.col("rho")).alias("rho")
    found = page_of(dataclasses.replace(simulated, apps=simulated.apps.with_columns(hidden)))
    rows = table(found, "verdict", "Apps")
    assert len(rows) == 60
    assert [each["app"] for each in rows[-5:]] == [f"job-00{at}" for at in range(5)]
    assert rows[0]["ρ"] == max(each["ρ"] for each in rows[:-5])


def test_the_same_tables_in_another_order_give_the_same_page(large_run: RunData) -> None:
    few = dataclasses.replace(
        large_run,
        **{name: large_run.table(name).head(3000) for name in ("jobs", "apps", "leases", "waits", "queue", "rounds")},
    )
    assert render(few) == render(few)
    turned = dataclasses.replace(few, waits=few.waits.reverse(), leases=few.leases.reverse())
    assert page_of(turned)["parts"]["held"] == page_of(few)["parts"]["held"]


def test_with_too_many_segments_leases_are_drawn_and_of_those_the_longest(
    sample: RunData, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = sample.leases.height
    assert sample.segments.height > leases > 50
    held = page_of(sample)["parts"]["held"]["views"][0]["data"]
    assert (len(held["bars"]["row"]), held["drawn"]) == (sample.segments.height, "")
    monkeypatch.setattr("eunomia_testbed.report.who_held_what.MOST_BARS_OF_ONE", leases)
    held = page_of(sample)["parts"]["held"]["views"][0]["data"]
    assert held["bars"]["activities"] == ["run"]
    assert held["drawn"] == f"A bar a lease: {sample.segments.height} stretches are too many to draw apart."
    drawn = sum(held["bars"]["length"])
    assert drawn == pytest.approx((sample.leases["end_seconds"] - sample.leases["start_seconds"]).sum(), abs=0.1)
    monkeypatch.setattr("eunomia_testbed.report.who_held_what.MOST_BARS_OF_ONE", 50)
    held = page_of(sample)["parts"]["held"]["views"][0]["data"]
    assert len(held["bars"]["row"]) == 50
    assert held["drawn"].startswith("The shortest ")
    assert min(held["bars"]["length"]) >= (sample.leases["end_seconds"] - sample.leases["start_seconds"]).median()
    small = held["occupied"]
    share = [sum("0123456789A".index(each) for each in row["levels"]) for row in small["rows"]]
    assert sum(share) > 0
    assert len(small["rows"]) == len(held["rows"])


def test_slots_with_too_many_leases_to_draw_are_drawn_as_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    turns = [(f"a{at % 7}", float(at), float(at + 1)) for at in range(200)]
    leases = [LeaseRow(app=app, machine="m", slot=0, start_seconds=start, end_seconds=end) for app, start, end in turns]
    folder.write("leases", leases, policy="p", seed=0)
    monkeypatch.setattr("eunomia_testbed.report.who_held_what.MOST_BARS_OF_ONE", 20)
    held = page_of(RunData.load(tmp_path / "run"))["parts"]["held"]["views"][0]["data"]
    drawn = {int(start) for start in held["bars"]["start"]}
    levels = held["occupied"]["rows"][0]["levels"]
    each = len(levels) // 200
    assert len(drawn) == 20
    assert {levels[at * each] for at in range(200) if at not in drawn} == {"A"}


# -- odd runs


def test_the_page_of_a_run_without_a_finished_job_has_no_part_fairness_or_speed(simulated: RunData) -> None:
    lost: dict[str, pl.DataFrame] = {}
    for name in ("jobs", "apps"):
        unknown = pl.lit(None, pl.Float64)
        lost[name] = simulated.table(name).with_columns(
            state=pl.lit("waiting"), finish_seconds=unknown, jct_seconds=unknown, rho=unknown, rho_static=unknown
        )
    page = render(dataclasses.replace(simulated, **lost))
    found = json.loads(Data(page).scripts[0])
    assert {"fairness", "speed"}.isdisjoint(found["parts"])
    assert "0 of 60 apps finished" in page
    assert "Which policy?" not in page


def test_a_policy_without_data_for_a_part_does_not_hide_it_for_others(simulated: RunData) -> None:
    unknown = pl.when(pl.col("policy") == "las").then(None).otherwise(pl.col("rho")).alias("rho")
    odd = dataclasses.replace(simulated, apps=simulated.apps.with_columns(unknown))
    views = page_of(odd)["parts"]["fairness"]["views"]
    assert [each is None for each in views] == [policy == "las" for policy, _ in RUNS]


def test_a_rho_of_nan_counts_as_unknown(simulated: RunData) -> None:
    first = pl.col("app") == "job-000"
    odd = dataclasses.replace(
        simulated, apps=simulated.apps.with_columns(pl.when(first).then(float("nan")).otherwise("rho").alias("rho"))
    )
    found = page_of(odd)
    assert view(found, "fairness")["data"]["count"] == 59
    assert "NaN" not in json.dumps(found["parts"]["policies"]["views"][0]["data"]["scatter"])


def test_the_page_judges_a_run_by_the_kind_of_rho_in_its_facts(simulated: RunData) -> None:
    assert simulated.facts is not None
    apps = simulated.apps.with_columns((pl.col("rho") * 2).alias("rho_static"))
    facts = dataclasses.replace(simulated.facts, rho="static")
    found = page_of(dataclasses.replace(simulated, facts=facts, apps=apps))
    worst = apps.filter((pl.col("policy") == "fifo") & (pl.col("seed") == 0))["rho_static"].max()
    assert view(found, "fairness")["data"]["final"][0][1] == pytest.approx(worst, abs=1e-3)
    assert view(found, "fairness")["data"]["kind"] == "static ρ"
    rows = table(found, "fairness", "Worst off")
    assert rows[0]["static ρ"] == pytest.approx(2 * rows[0]["Themis' ρ"], abs=1e-2)


def test_a_run_with_a_single_app_gives_a_page(simulated: RunData) -> None:
    only = pl.col("app") == "job-003"
    jobs = simulated.only("fifo", 0)
    alone = dataclasses.replace(
        without(jobs, "rounds", "queue"),
        apps=jobs.apps.filter(only),
        jobs=jobs.jobs.filter(only),
        leases=jobs.leases.filter(only),
        waits=jobs.waits.filter(pl.col("job") == "job-003"),
    )
    found = page_of(alone)
    assert found["parts"]["speed"]["views"][0]["data"]["count"] == 1
    assert found["apps"] == ["job-003"]


def test_the_page_of_300_apps_under_three_policies_stays_below_5_mb(
    write_simulation: Callable[..., Path], tmp_path: Path
) -> None:
    policies = ("fifo", "las", "srtf")
    report = write_report(write_simulation(tmp_path / "run", jobs=300, seeds=1, policies=policies))
    assert report.stat().st_size < 3_000_000


def test_names_with_markup_are_shown_as_text_in_every_part(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    bad = "</script><img src=x onerror=alert(1)>"
    folder.write_facts(RunFacts(kind="simulate", command=("x",), profiles={bad: "", "p": ""}, notes=(bad,), slots=100))
    for policy, jct in ((bad, 5.0), ("p", 9.0)):
        key = {"policy": policy, "seed": 0}
        names = [f"{bad}{at}" for at in range(3)]
        folder.write(
            "apps",
            [
                AppRow(app=each, user=each, state="finished", rho=2.0, jct_seconds=jct, slot_seconds=1.0)
                for each in names
            ],
            **key,
        )
        jobs = [
            JobRow(app=each, job=each, user=each, state="finished", slots_asked=1, jct_seconds=jct) for each in names
        ]
        folder.write("jobs", jobs, **key)
        folder.write("queue", [QueueRow(time_seconds=0.0, waiting_jobs=1, busy_gpus=2)], **key)
        folder.write(
            "leases",
            [
                LeaseRow(app=names[0], machine=f"{bad}{at}", slot=0, start_seconds=0.0, end_seconds=5.0)
                for at in range(99)
            ],
            **key,
        )
        folder.write(
            "waits", [WaitRow(job=names[0], start_seconds=0.0, end_seconds=9.0, reason=bad, plugin=bad)], **key
        )
    page = render(RunData.load(folder.path))
    assert page.count("<script") == 2
    assert "<img" not in page
    found = json.loads(Data(page).scripts[0])
    assert found["policies"] == [bad, "p"]
    assert list(found["parts"]) == ["verdict", "policies", "held", "fairness", "speed", "cluster", "provenance"]
