"""The drawings of the report in a browser: names beside their dots, logarithmic axes, and the front by kind of ρ."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.testbed.test_report import data_of
from tests.testbed.test_report_browser import needs_browser, opened

from eunomia_testbed.report import render
from eunomia_testbed.results import RunData

WIDE = 30.0


def look(run: RunData, folder: Path) -> tuple[Any, Any]:
    """What the browser shows of a run's page, and the data of the page."""
    page = folder / "report.html"
    page.write_text(render(run), encoding="utf-8")
    found = opened(page, script="use_drawings.js")
    assert found["errors"] == []
    return found, data_of(page.read_text(encoding="utf-8"))


def scaled(run: RunData, factors: dict[str, float], *columns: str) -> RunData:
    """The run with these columns of apps and jobs multiplied by policy."""
    factor = pl.col("policy").replace_strict(factors, default=1.0, return_dtype=pl.Float64)
    changed = {
        name: run.table(name).with_columns(pl.col(each) * factor for each in columns if each in run.table(name).columns)
        for name in ("apps", "jobs")
    }
    return dataclasses.replace(run, **changed)


def is_wide(values: list[float]) -> bool:
    known = [value for value in values if value > 0.0]
    return len(known) > 1 and max(known) > WIDE * min(known)


def many(run: RunData, number: int) -> RunData:
    """The run with so many policies of nearly the same figures."""
    one = run.only("fifo", 0)
    tables = {}
    for name in ("apps", "jobs"):
        copies = [
            one.table(name).with_columns(
                pl.lit(f"policy-with-a-long-name-{at}").alias("policy"),
                pl.col("jct_seconds") * (1.0 + 0.004 * at),
                pl.col("rho") * (1.0 + 0.003 * (at % 3)),
            )
            for at in range(number)
        ]
        tables[name] = pl.concat(copies)
    return dataclasses.replace(one, facts=None, **tables)


@needs_browser
@pytest.mark.parametrize("number", [2, 7, 12])
def test_labels_are_next_to_their_dots_and_not_cut_off(simulated: RunData, number: int, tmp_path: Path) -> None:
    found, _ = look(many(simulated, number), tmp_path)
    named = [each for each in found["drawings"] if each["names"]]
    assert {"policies", "fairness", "speed"} <= {each["part"] for each in named}
    for each in named:
        assert (each["onDots"], each["onNames"], each["cutOff"]) == ([], [], []), each["title"]
    trade = next(each for each in named if each["part"] == "policies")
    assert trade["dots"] == len(trade["names"]) == number


@needs_browser
def test_every_drawing_on_the_page_has_a_visible_area(sample: RunData, simulated: RunData, tmp_path: Path) -> None:
    """Those of slot time and of the best value so far, which are as wide as the page, were once hidden."""
    for run in (sample, simulated):
        found, _ = look(run, tmp_path)
        titles = [each["title"] for each in found["drawings"]]
        assert any(title.startswith("Slot time") for title in titles)
        assert any(title.startswith("Best val/") for title in titles) == (run is sample)
        assert [each["title"] for each in found["drawings"] if each["area"] < 10_000] == []


@needs_browser
def test_labels_of_few_apps_are_next_to_their_dots(write_sample: Callable[..., Path], tmp_path: Path) -> None:
    run = RunData.load(write_sample(tmp_path / "run"))
    for rho in (None, 1.0):
        apps = run.apps if rho is None else run.apps.with_columns(rho=pl.lit(rho))
        found, _ = look(dataclasses.replace(run, apps=apps), tmp_path)
        fair = next(each for each in found["drawings"] if each["part"] == "fairness")
        assert len(fair["names"]) == fair["dots"] == 4
        assert (fair["onDots"], fair["onNames"], fair["cutOff"]) == ([], [], [])


@needs_browser
def test_axes_of_values_that_span_more_than_30_times_are_logarithmic(simulated: RunData, tmp_path: Path) -> None:
    wide = scaled(simulated, {"las": 100.0}, "jct_seconds", "rho", "finish_seconds", "wait_seconds")
    wide = dataclasses.replace(wide, queue=simulated.queue.with_columns(pl.col("waiting_jobs") * 50))
    for run, expected in ((simulated, False), (wide, True)):
        found, data = look(run, tmp_path)
        by_title = {(each["part"], each["title"].removesuffix(", logarithmic")): each for each in found["drawings"]}
        metrics = data["parts"]["policies"]["views"][0]["data"]["metrics"]
        logs = []
        for metric in metrics:
            more = " (more is better)" if metric["better"] == "high" else ""
            drawn = by_title["policies", metric["label"] + more]
            logs.append(drawn["title"].endswith(", logarithmic"))
            assert logs[-1] == is_wide([row[0] for row in metric["rows"] if row]), metric["label"]
        assert logs[0] == expected
        at = data["first"]
        seed = data["runs"][at]["seed"]
        same = [place for place, each in enumerate(data["runs"]) if each["seed"] == seed]
        for line in data["parts"]["cluster"]["views"][at]["data"]["lines"]:
            title = f"{line['title']}: {line['hint']}" if line["hint"] else line["title"]
            levels = [
                row[-1]
                for place in same
                for other in data["parts"]["cluster"]["views"][place]["data"]["lines"]
                if other["name"] == line["name"]
                for row in other.get("bands") or other["points"]
            ]
            logarithmic = any("logarithmic" in label for label in by_title["cluster", title]["axes"])
            assert logarithmic == (line["name"] != "busy_gpus" and is_wide(levels)), title
        shown = [data["parts"]["speed"]["views"][place]["data"] for place in same]
        sizes = [size["wait"] + size["run"] for each in shown for size in each["sizes"]]
        drawn = by_title["speed", "Where the time of finished jobs went, by gang size"]
        assert drawn["title"].endswith(", logarithmic") == is_wide(sizes)
        reasons = [row[2] for row in data["parts"]["cluster"]["views"][at]["data"]["waiting"]["reason"]]
        drawn = by_title["cluster", "Job-hours waited, by reason"]
        assert drawn["title"].endswith(", logarithmic") == is_wide(reasons)


@needs_browser
@pytest.mark.parametrize(("factor", "expected"), [(1.0, False), (0.001, True)])
def test_axes_of_rho_and_of_search_metrics_are_logarithmic_if_their_range_is_wide(
    sample: RunData, factor: float, expected: bool, tmp_path: Path
) -> None:
    later = pl.col("time_seconds") > sample.rho["time_seconds"].max() / 2  # type: ignore[operator]
    rho = sample.rho.with_columns(pl.when(later).then(pl.col("rho") * factor).otherwise("rho").alias("rho"))
    small = pl.col("step") > sample.metrics["step"].median()
    metrics = sample.metrics.with_columns(
        pl.when(small).then(pl.col("value") * factor).otherwise("value").alias("value")
    )
    found, data = look(dataclasses.replace(sample, rho=rho, metrics=metrics), tmp_path)
    over = next(each for each in found["drawings"] if each["title"] == "ρ over time")
    assert any("logarithmic" in label for label in over["axes"]) == expected
    panels = data["parts"]["searches"]["views"][0]["data"]["panels"]
    curves = [each for each in found["drawings"] if each["part"] == "searches"]
    for panel, drawn in zip(panels, curves, strict=False):
        values = [point[2] for curve in panel["curves"] for point in curve["points"] if point[2] is not None]
        logarithmic = any("logarithmic" in label for label in drawn["axes"])
        assert logarithmic == (is_wide(values) and min(values) > 0.0), panel["app"]
    assert (
        any(is_wide([point[2] for curve in panel["curves"] for point in curve["points"]]) for panel in panels)
        == expected
    )


@needs_browser
def test_the_front_is_drawn_by_the_chosen_kind_of_rho(simulated: RunData, tmp_path: Path) -> None:
    """By Themis' rho one policy is both the fastest and the fairest; by the static one each is on the front."""
    by_policy = {"fifo": 1.0, "las": 4.0, "srtf": 16.0}
    factor = pl.col("policy").replace_strict(by_policy, return_dtype=pl.Float64)
    apps = simulated.apps.with_columns(
        jct_seconds=1000.0 / factor, rho=10.0 / factor, rho_static=factor / 8.0, rho_contention=pl.lit(None, pl.Float64)
    )
    found, data = look(dataclasses.replace(simulated, apps=apps), tmp_path)
    kinds = data["parts"]["policies"]["views"][0]["data"]["scatter"]["kinds"]
    assert [(each["label"], each["judges"], each["frontiers"]) for each in kinds] == [
        ("ρ", True, [["srtf"]]),
        ("static ρ", False, [["fifo", "las", "srtf"]]),
    ]
    drawn = {each["label"]: each for each in found["kinds"]}
    assert list(drawn) == ["ρ", "static ρ"]
    assert [(each["pressed"], each["points"], each["line"]) for each in drawn.values()] == [
        ("true", 1, 0),
        ("true", 3, 1),
    ]
    assert drawn["static ρ"]["title"] == "90th percentile of static ρ against mean JCT"
    html = data_of(render(dataclasses.replace(simulated, apps=apps)))
    assert html["parts"]["policies"]["views"][0]["tables"][1]["title"] == "Fairness by kind of ρ"


def test_the_page_names_the_front_by_every_kind_of_rho(simulated: RunData) -> None:
    by_policy = {"fifo": 1.0, "las": 4.0, "srtf": 16.0}
    factor = pl.col("policy").replace_strict(by_policy, return_dtype=pl.Float64)
    apps = simulated.apps.with_columns(jct_seconds=1000.0 / factor, rho=10.0 / factor, rho_static=factor / 8.0)
    page = render(dataclasses.replace(simulated, apps=apps))
    assert "both mean JCT and the 90th percentile of ρ: srtf by ρ; fifo, las, srtf by static ρ" in page
    table = data_of(page)["parts"]["policies"]["views"][0]["tables"][1]
    labels = [column["label"] for column in table["columns"]]
    assert labels == ["kind", "policy", "90th percentile", "99th percentile", "worst", "part above 1", "on the front"]
    on = {(row[0], row[1]): row[-1] for row in table["rows"]}
    assert on["ρ", "srtf"] == "yes"
    assert on["ρ", "fifo"] == "no"
    assert {on["static ρ", policy] for policy in by_policy} == {"yes"}
