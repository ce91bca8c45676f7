"""The report: one page, complete, safe and the same every time; each part only where there is data for it."""

import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.contract.verdicts import Reason
from eunomia_testbed.report import render, write_report
from eunomia_testbed.report.page import SCRIPTS, embed
from eunomia_testbed.report.thin import thin
from eunomia_testbed.report.waiting import waiting_by_app, waits_with_apps
from eunomia_testbed.report.words import REASONS, duration
from eunomia_testbed.results import ResultFolder, RunData
from eunomia_testbed.results.tables import (
    TABLES,
    AppRow,
    EventRow,
    JobRow,
    LeaseRow,
    MetricRow,
    RhoRow,
    RoundRow,
    SegmentRow,
    WaitRow,
    schema_of,
)  # fmt: skip

ALL_PARTS = ["verdict", "held", "fairness", "speed", "cluster", "searches", "decisions", "provenance"]
NODE = shutil.which("node")


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text within scripts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script":
            self.scripts[-1] += data


def data_of(page: str) -> Any:
    return json.loads(Elements(page).scripts[0])


def part_of(page: str, name: str, at: int = 0) -> Any:
    """What a part of the page draws, of the run at this place."""
    return data_of(page)["parts"][name]["views"][at]["data"]


def parts_of(page: str) -> list[str]:
    sections = [attributes["id"] for tag, attributes in Elements(page).found if tag == "section"]
    assert sections == list(data_of(page)["parts"])
    return [str(section) for section in sections]


def without(run: RunData, *tables: str) -> RunData:
    return dataclasses.replace(run, **{table: schema_of(table).to_frame() for table in tables})


def test_the_page_of_a_complete_run_has_every_part(sample: RunData) -> None:
    assert parts_of(render(sample)) == ALL_PARTS


@pytest.mark.parametrize(
    ("part", "tables"),
    [
        ("verdict", ["apps", "jobs"]),
        ("held", ["segments", "leases"]),
        ("fairness", ["rho", "apps", "jobs"]),
        ("speed", ["apps", "jobs"]),
        ("cluster", ["apps", "jobs", "leases", "waits", "queue", "users", "segments", "rounds"]),
        ("searches", ["metrics"]),
    ],
)
def test_a_part_of_the_page_without_data_is_left_out(sample: RunData, part: str, tables: list[str]) -> None:
    shown = parts_of(render(without(sample, *tables)))
    assert part not in shown
    assert "provenance" in shown


def test_the_part_on_decisions_needs_rounds_or_a_record(sample: RunData) -> None:
    no_record = dataclasses.replace(sample, records={})
    assert "decisions" in parts_of(render(no_record))
    assert "decisions" in parts_of(render(without(sample, "rounds")))
    assert "decisions" not in parts_of(render(without(no_record, "rounds")))


def test_a_run_without_data_still_gives_a_page(tmp_path: Path) -> None:
    page = render(RunData.load(ResultFolder.create(tmp_path / "run").path))
    assert "This run left no data." in page
    assert parts_of(page) == []


def test_each_table_alone_is_enough_for_a_page(sample: RunData) -> None:
    for table in TABLES:
        alone = without(sample, *(name for name in TABLES if name != table))
        render(dataclasses.replace(alone, records={}, facts=None))


def test_bars_are_drawn_from_leases_if_segments_are_missing(sample: RunData) -> None:
    held = part_of(render(without(sample, "segments")), "held")
    assert sum(held["bars"]["length"]) == pytest.approx(
        (sample.leases["end_seconds"] - sample.leases["start_seconds"]).sum(), abs=0.1
    )
    assert held["bars"]["activities"] == ["run"]


def test_the_page_needs_no_network(sample: RunData) -> None:
    page = render(sample)
    assert "http://" not in page
    assert "https://" not in page
    for tag, attributes in Elements(page).found:
        for name in ("src", "href", "srcset", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    assert "@import" not in page
    assert "fetch(" not in page


def test_the_same_run_gives_the_same_page(sample_folder: Path) -> None:
    assert render(RunData.load(sample_folder)) == render(RunData.load(sample_folder))


def test_writing_a_report_adds_one_file(write_sample: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "run")
    before = {path.name for path in folder.iterdir()}
    report = write_report(folder)
    assert {path.name for path in folder.iterdir()} == before | {"report.html"}
    assert report.stat().st_size < 1_000_000


def test_the_page_of_a_large_run_stays_below_5_mb(tmp_path: Path) -> None:
    """64 slots, 200 apps, 100,000 values: more than the page may hold as they are."""
    folder = ResultFolder.create(tmp_path / "run")
    apps = [f"app-with-a-long-name-{at:03}" for at in range(200)]
    key = {"policy": "p", "seed": 0}
    folder.write("apps", [AppRow(app=app, state="finished", rho=1.0, jct_seconds=9e3) for app in apps], **key)
    folder.write("jobs", [JobRow(app=app, job=app, state="finished") for app in apps], **key)
    spans = [(at, apps[at % 200], at % 64, at // 64 * 30.0) for at in range(9_900)]
    folder.write(
        "segments",
        [
            SegmentRow(job=app, app=app, slot=slot, machine="m", start_seconds=t, end_seconds=t + 29, activity="run")
            for _, app, slot, t in spans
        ],
        **key,
    )
    folder.write(
        "leases",
        [
            LeaseRow(app=app, job=app, machine="m", slot=slot, epoch=at, start_seconds=t, end_seconds=t + 30)
            for at, app, slot, t in spans
        ],
        **key,
    )
    folder.write(
        "waits",
        [WaitRow(job=app, start_seconds=t + 30.0, end_seconds=t + 60.0, reason="outbid") for _, app, _, t in spans],
        **key,
    )
    folder.write("rounds", [RoundRow(round=at, time_seconds=at * 1.0, trigger="freed") for at in range(5000)], **key)
    folder.write("events", [EventRow(time_seconds=at * 1.0, kind="x", text="y" * 90) for at in range(9000)], **key)
    points = [(app, at) for app in apps for at in range(500)]
    folder.write(
        "rho", [RhoRow(app=app, time_seconds=at * 9.0, rho=1 + at / 7 % 1, slots=1) for app, at in points], **key
    )
    folder.write(
        "metrics",
        [
            MetricRow(job=app, app=app, step=at, time_seconds=at * 9.0, tag="acc", value=at / 7 % 1)
            for app, at in points
        ],
        **key,
    )
    folder.write_record("p", [{"round": at, "app": apps[at % 200], "c": 0.5} for at in range(50_000)], **key)
    report = write_report(folder.path)
    assert parts_of(report.read_text()) == ALL_PARTS
    assert report.stat().st_size <= 5_000_000


def test_hostile_names_are_shown_as_text(hostile_folder: Path) -> None:
    page = render(RunData.load(hostile_folder))
    elements = Elements(page)
    assert [tag for tag, _ in elements.found].count("script") == 2
    assert not [tag for tag, _ in elements.found if tag == "img"]
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    assert "<!--" not in page
    assert page.count("<script") == 2
    assert data_of(page)["apps"] == RunData.load(hostile_folder).apps["app"].to_list()


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner), max_leaves=5))
def test_embedded_json_cannot_escape_its_element(data: Any) -> None:
    text = embed(data)
    assert not set("<>&") & set(text)
    assert json.loads(text) == data


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_scripts_of_the_page_parse_separately_and_joined(sample: RunData, tmp_path: Path) -> None:
    joined = tmp_path / "page.js"
    joined.write_text(Elements(render(sample)).scripts[1], encoding="utf-8")
    assets = resources.files("eunomia_testbed.report") / "assets"
    for path in [joined, *(Path(str(assets / name)) for name in SCRIPTS)]:
        done = subprocess.run([str(NODE), "--check", str(path)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_every_script_file_of_the_report_is_listed() -> None:
    assets = resources.files("eunomia_testbed.report") / "assets"
    assert sorted(SCRIPTS) == sorted(path.name for path in assets.iterdir() if path.name.endswith(".js"))


def test_scripts_never_build_markup_from_strings() -> None:
    """Names reach the page as text alone: nothing in the scripts makes markup of a string."""
    assets = resources.files("eunomia_testbed.report") / "assets"
    for name in SCRIPTS:
        text = (assets / name).read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), name


def test_every_reason_has_a_text() -> None:
    assert list(REASONS) == [reason.word for reason in Reason]


def sentences(page: str) -> str:
    return re.sub(r"<[^>]+>", " ", page[page.index('<ul class="statements">') : page.index("</ul>")])


def test_the_verdict_answers_in_sentences(sample: RunData) -> None:
    text = sentences(render(sample))
    for expected in (
        "All 4 apps finished",
        "Worst ρ 1.13",
        "% busy while jobs waited",
        "No slot held twice, no faults",
    ):
        assert expected in text


def test_the_verdict_reports_a_bad_run(sample: RunData) -> None:
    apps = sample.apps.with_columns(
        state=pl.when(pl.col("app") == "curves").then(pl.lit("failed")).otherwise("state"),
        rho=pl.when(pl.col("app") == "single").then(2.5).otherwise("rho"),
    )
    twice = pl.concat([sample.leases, sample.leases.head(1)])
    page = render(dataclasses.replace(sample, apps=apps, leases=twice))
    text = sentences(page)
    for expected in ("3 of 4 apps finished", "Worst ρ 2.50, single", "1 slot held twice"):
        assert expected in text
    assert page.count('<li class="bad">') == 3


def test_the_page_of_an_interrupted_run_states_the_interruption(sample: RunData) -> None:
    assert sample.facts is not None
    facts = dataclasses.replace(sample.facts, ended="interrupted")
    apps = sample.apps.with_columns(state=pl.lit("running"), finish_seconds=pl.lit(None, pl.Float64))
    text = sentences(render(dataclasses.replace(sample, facts=facts, apps=apps)))
    assert "0 of 4 apps finished" in text
    assert "the run was interrupted" in text.lower()


def test_waiting_is_counted_by_reason_without_pauses_by_apps(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    key = {"policy": "p", "seed": 0}
    waits = [
        ("a/1", 0, 3, "outbid"),
        ("a/2", 0, 3, "outbid"),
        ("a/1", 3, 8, "not_offered"),
        ("a/2", 3, 99, "paused_by_app"),
    ]
    folder.write(
        "waits",
        [WaitRow(job=job, start_seconds=a, end_seconds=b, reason=reason, plugin="x") for job, a, b, reason in waits],
        **key,
    )
    waiting = waiting_by_app(waits_with_apps(RunData.load(folder.path)))["a"]
    assert (waiting.seconds, waiting.reason, waiting.reason_seconds) == (11.0, "outbid", 6.0)


def notes(run: RunData) -> Iterator[str]:
    yield from part_of(render(run), "held")["notes"]


def test_a_bar_shows_why_its_job_waited_afterwards(sample: RunData) -> None:
    told = list(notes(sample))
    because = "because the slots were offered to other apps"
    shape = rf"lease expired at [\d.]+ s; then waited [\d.]+ s {because}.* \(says themis\).*"
    assert any(re.fullmatch(shape, text) for text in told)
    assert len(told) == len(set(told))


def test_the_best_value_so_far_only_improves_over_slot_time(sample: RunData) -> None:
    for panel in part_of(render(sample), "searches")["panels"]:
        spent, values = [point[0] for point in panel["best"]], [point[1] for point in panel["best"]]
        assert spent == sorted(spent)
        assert values == sorted(values)
        held = sample.apps.filter(pl.col("app") == panel["app"])["slot_seconds"].item()
        assert spent[-1] == pytest.approx(held, abs=0.01)


def test_a_restart_breaks_a_curve_once(sample: RunData) -> None:
    for panel in part_of(render(sample), "searches")["panels"]:
        for curve in panel["curves"]:
            starts = sample.segments.filter((pl.col("job") == curve["job"]) & (pl.col("activity") == "start"))
            assert sum(point[3] for point in curve["points"]) <= starts["start_seconds"].n_unique()
    assert any(point[3] for panel in [panel] for curve in panel["curves"] for point in curve["points"])


@given(st.lists(st.tuples(st.integers(), st.floats(-1e9, 1e9) | st.none()), max_size=300), st.integers(4, 40))
def test_thinning_keeps_first_last_and_extreme_values(points: list[tuple[int, float | None]], at_most: int) -> None:
    points = [(at, value) for at, (_, value) in enumerate(points)]
    kept = thin(points, at_most=at_most)
    assert len(kept) <= max(at_most, 0)
    assert kept == sorted(kept, key=lambda point: point[0])
    assert set(kept) <= set(points)
    if points:
        assert (kept[0], kept[-1]) == (points[0], points[-1])
        inner = [value for _, value in points[1:-1] if value is not None]
        if inner:
            assert {min(inner), max(inner)} <= {value for _, value in kept}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "unknown"), (4.23, "4.2 s"), (147.0, "2 min 27 s"), (11232.0, "3 h 7 min"), (180_000.0, "2 d 2 h")],
)
def test_durations_are_printed_in_a_readable_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
