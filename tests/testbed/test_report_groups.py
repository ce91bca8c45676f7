"""Colours of "Who held what" by user, model and length class, where there are more apps than colours."""

import dataclasses
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.testbed.test_report import data_of, part_of
from tests.testbed.test_report_browser import needs_browser, opened

from eunomia_testbed.report import render
from eunomia_testbed.report.groups import LENGTHS, MOST_GROUPS, OTHERS, groups_of, with_length
from eunomia_testbed.results import ResultFolder, RunData, RunFacts
from eunomia_testbed.results.tables import JobRow, LeaseRow

MODELS = ["VGG-16", "ResNet-50", "bert base"]


@pytest.fixture
def mixed(simulated: RunData) -> RunData:
    """The made-up simulation, of 60 jobs by three users, with three models."""
    at = pl.col("job").str.slice(4).cast(pl.Int64)
    model = at.replace_strict({row: MODELS[row % 3] for row in range(60)})
    return dataclasses.replace(simulated, jobs=simulated.jobs.with_columns(model=model))


def use(run: RunData, folder: Path, address: str = "") -> Any:
    page = folder / "report.html"
    page.write_text(render(run), encoding="utf-8")
    found = opened(page, address, script="use_groups.js")
    assert found["errors"] == []
    assert found["broken"] == 0
    return found


def test_every_bar_has_the_user_model_and_length_of_its_job(mixed: RunData) -> None:
    page = render(mixed)
    groups, bars = data_of(page)["groups"], part_of(page, "held")["bars"]
    assert list(groups) == list(bars["by"]) == ["user", "model", "length"]
    jobs = {row["job"]: row for row in mixed.only("fifo", 0).jobs.iter_rows(named=True)}
    assert len(bars["jobs"]) == 60
    for at, (job, _) in enumerate(bars["jobs"]):
        assert groups["user"]["names"][bars["by"]["user"][at]] == jobs[job]["user"]
        assert groups["model"]["names"][bars["by"]["model"][at]] == jobs[job]["model"]
        label = groups["length"]["names"][bars["by"]["length"][at]]
        low, _, high = label.partition(" to ")
        bounds = {word: bound for bound, word in LENGTHS}
        assert bounds[low] <= jobs[job]["ideal_seconds"] < bounds[high]


def test_users_and_models_are_ordered_by_their_gpu_time_over_all_runs(mixed: RunData) -> None:
    for way in ("user", "model"):
        held = mixed.jobs.group_by(way).agg(pl.col("slot_seconds").sum()).sort("slot_seconds", descending=True)
        assert list(groups_of(mixed).names[way]) == held[way].to_list()


def test_jobs_are_classified_by_ideal_time_if_known_and_by_run_time_otherwise(mixed: RunData) -> None:
    found = with_length(mixed.jobs.with_columns(ideal_seconds=pl.lit(None, pl.Float64), run_seconds=pl.lit(3_600.0)))
    assert set(found["length"]) == {"1 h to 6 h"}
    found = with_length(mixed.jobs.with_columns(ideal_seconds=pl.lit(5.0)))
    assert set(found["length"]) == {"under 10 s"}
    unknown = [pl.lit(None, pl.Float64).alias(name) for name in ("ideal_seconds", "exclusive_seconds", "run_seconds")]
    assert set(with_length(mixed.jobs.with_columns(unknown))["length"]) == {None}


def test_colouring_by_a_single_group_is_not_offered_and_excess_groups_are_grey(simulated: RunData) -> None:
    assert list(groups_of(simulated).names) == ["user", "length"]  # one model
    many = dataclasses.replace(simulated, jobs=simulated.jobs.with_columns(user=pl.col("job")))
    groups = groups_of(many)
    assert (len(groups.names["user"]), groups.others["user"]) == (MOST_GROUPS, 60 - MOST_GROUPS)
    found = groups.of(many.jobs, many.only("fifo", 0).jobs["job"])["user"]
    assert sorted(found) == [OTHERS] * (60 - MOST_GROUPS) + list(range(MOST_GROUPS))


@needs_browser
def test_the_reader_can_choose_the_colouring_if_there_are_more_apps_than_colours(
    mixed: RunData, tmp_path: Path
) -> None:
    found = use(mixed, tmp_path)
    assert found["opened"]["pressed"] == ["user"]
    assert list(found["ways"]) == ["app", "user", "model", "length alone"]
    for name, shown in found["ways"].items():
        assert (shown["pressed"], shown["focus"]) == ([name], name)
        assert name.split()[0] in shown["address"]
    assert sorted(found["ways"]["model"]["names"]) == sorted(MODELS)
    assert len(found["ways"]["model"]["colours"]) == len(found["ways"]["user"]["colours"]) == 3
    assert "var(--grey)" in found["ways"]["app"]["colours"]
    assert not any("var(--grey)" in found["ways"][name]["colours"] for name in ("user", "model", "length alone"))
    assert any(label.startswith("job-") for label in found["opened"]["labels"])
    inks = {ink for name in ("user", "model") for ink in found["ways"][name]["inks"]}
    assert inks == {"rgb(27, 27, 27)", "rgb(255, 255, 255)"}  # dark on pale colours, white on dark ones
    assert 0 < found["alone"]["faded"] < found["alone"]["bars"]
    assert "group=" in found["alone"]["address"]
    assert (found["reset"]["faded"], found["reset"]["address"]) == (0, "#by=length")
    assert "user " in found["tip"]
    assert "model " in found["tip"]


@needs_browser
def test_a_link_opens_the_page_at_a_group(mixed: RunData, tmp_path: Path) -> None:
    found = use(mixed, tmp_path, "#by=model&group=VGG-16")
    assert found["opened"]["pressed"] == ["model"]
    assert 0 < found["opened"]["faded"] < found["opened"]["bars"]
    odd = use(mixed, tmp_path, "#by=nothing&group=nobody")
    assert odd["opened"]["pressed"] == ["user"]
    assert odd["opened"]["faded"] == 0


@needs_browser
def test_few_apps_keep_their_own_colours(sample: RunData, tmp_path: Path) -> None:
    assert use(sample, tmp_path)["opened"]["pressed"] in ([], ["app"])


@needs_browser
def test_a_heat_map_shows_the_group_that_held_most(large_run: RunData, tmp_path: Path) -> None:
    users = large_run.jobs["user"].str.slice(-1).alias("user")
    run = dataclasses.replace(large_run, jobs=large_run.jobs.with_columns(users))
    heat = part_of(render(run), "held")["heat"]
    assert {len(text) for text in heat["by"]["user"]} == {len(heat["rows"][0]["levels"])}
    found = use(run, tmp_path)
    assert found["opened"]["pressed"] == ["use"]
    assert found["ways"]["use"]["colours"] == [None]
    assert len({colour for colour in found["ways"]["user"]["colours"] if colour}) > 5
    assert "most by" in found["tip"]


def test_the_group_of_a_cell_is_the_one_with_the_most_slots(tmp_path: Path) -> None:
    """On one machine ana holds two of three held slots until half of the time; no slot of the other is held."""
    folder = ResultFolder.create(tmp_path / "run")
    cluster = 'machines = [{ names = "m[1-2]", gpus = "40xV100" }]\n'
    folder.write_facts(RunFacts(kind="simulate", command=("x",), slots=80, cluster=cluster))
    owners = {"a": "ana", "b": "ana", "c": "ben"}
    facts: dict[str, Any] = {"state": "finished", "arrival_seconds": 0.0, "finish_seconds": 100.0, "jct_seconds": 100.0}
    jobs = [JobRow(app=job, job=job, user=user, slot_seconds=100.0, **facts) for job, user in owners.items()]
    leases = [
        LeaseRow(app=job, job=job, machine="m1", slot=slot, start_seconds=start, end_seconds=end)
        for slot, (job, start, end) in enumerate([("a", 0.0, 50.0), ("b", 0.0, 50.0), ("c", 0.0, 100.0)])
    ]
    folder.write("jobs", jobs, policy="p")
    idle = [dataclasses.replace(leases[2], machine="m2", slot=at % 40, start_seconds=100.0) for at in range(40)]
    idle += [dataclasses.replace(leases[2], slot=at, start_seconds=100.0) for at in range(3, 40)]
    folder.write("leases", [*leases, *idle], policy="p")
    page = render(RunData.load(folder.path))
    names = data_of(page)["groups"]["user"]["names"]
    ana, ben = (chr(ord("a") + names.index(name)) for name in ("ana", "ben"))
    first, second = part_of(page, "held")["heat"]["by"]["user"]
    assert set(first[:99]) == {ana}
    assert set(first[101:]) == {ben}
    assert set(second) == {"."}
