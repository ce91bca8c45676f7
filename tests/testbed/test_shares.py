"""No share of a run exceeds 1: of random histories, finished or cut off at any time, and of made-up ones."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import random_journals
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.testbed.test_report import data_of

from eunomia_testbed import Costs, SimulationOptions
from eunomia_testbed.commands.table import table_lines
from eunomia_testbed.evidence.evidence import evidence_of
from eunomia_testbed.report import render
from eunomia_testbed.report.view import whole_of
from eunomia_testbed.results import ResultFolder, RunData, RunFacts
from eunomia_testbed.results.summary import Summary, summaries_of, summarise
from eunomia_testbed.results.tables import AppRow, JobRow, LeaseRow
from strength import examples

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


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 2**31),
    st.sampled_from(["fifo", "las", "srtf"]),
    st.one_of(st.just(float("inf")), st.floats(1.0, 400.0)),
    st.sampled_from([Costs(), Costs(start=3.0, checkpoint=2.0, restore=2.0, release=4.0)]),
)
def test_no_share_of_a_random_history_exceeds_one(seed: int, policy: str, until: float, costs: Costs) -> None:
    run = random_journals.simulated(seed, policy, SimulationOptions(costs=costs, until=until), cluster="2x2 V100")
    above = {name: value for name, value in shares(run).items() if not -1e-9 <= value <= 1.0 + 1e-9}
    assert above == {}
    for view in whole_of(run).views:
        assert view.run.queue.is_empty() or float(view.run.queue["busy_gpus"].max() or 0) <= 4  # type: ignore[arg-type]


def test_a_lease_released_after_the_last_finish_counts_until_its_release(tmp_path: Path) -> None:
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


# -- whatever is printed with a percent sign

PERCENT = re.compile(r"(-?[\d,.]+) %")


def of_text(text: str, place: str) -> Iterator[tuple[str, float]]:
    """Every percentage of a text, as a fraction."""
    for found in PERCENT.finditer(text):
        yield f"{place}: {text[max(found.start() - 30, 0) : found.end()]}", float(found[1].replace(",", "")) / 100


def of_tables(tables: list[Any], place: str) -> Iterator[tuple[str, float]]:
    for table in tables:
        for at, column in enumerate(table["columns"]):
            if column["kind"] == "percent":
                for row in table["rows"]:
                    if row[at] is not None:
                        yield f"{place}, {column['label']}, {row[0]}", row[at]


def of_drawings(drawn: Any, part: str) -> Iterator[tuple[str, float]]:
    if part == "cluster" and drawn["slotTime"]:
        yield from drawn["slotTime"].items()
        yield "all slot time", sum(drawn["slotTime"].values()) - 5e-4  # rounded to four digits each
    if part == "types":
        yield from ((f"{each['name']} held", each["held"]) for each in drawn["types"] if each["held"] is not None)
    if part == "held" and "heat" in drawn:
        yield from ((f"heat, {each['name']}", each["used"]) for each in drawn["heat"]["rows"])
    if part in ("fairness", "speed"):
        yield from ((f"{part}, share at {value}", share) for value, share in drawn["distribution"])


def printed(page: str) -> dict[str, float]:
    """Every share on the page, as a fraction: in its sentences, its tables and its drawings."""
    body = page[page.index("<main>") : page.index('<script type="application/json"')]
    found = dict(of_text(re.sub(r"<[^>]+>", " ", body), "text"))
    for name, part in data_of(page)["parts"].items():
        for view in (each for each in part["views"] if each is not None):
            found |= dict(of_tables(view["tables"], name)) | dict(of_drawings(view["data"], name))
    return found


def outside(found: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in found.items() if not -1e-9 <= value <= 1.0 + 1e-6}


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**31))
def test_no_figure_on_the_page_of_a_random_journal_exceeds_100_percent(tmp_path: Path, seed: int) -> None:
    run = random_journals.live(seed, tmp_path / "run")
    found = printed(render(run)) | shares(run)
    assert len(found) > 5
    assert outside(found) == {}


@settings(max_examples=examples(8), deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from(["fifo", "las", "gandiva", "max_min_fairness"]),
    st.one_of(st.just(float("inf")), st.floats(1.0, 400.0)),
)
def test_no_figure_of_a_simulation_that_is_cut_off_exceeds_100_percent(seed: int, policy: str, until: float) -> None:
    """On the page and on the screen, of policies that share GPUs and on GPUs of two types as well."""
    options = SimulationOptions(until=until)
    run = random_journals.simulated(seed, policy, options, cluster="1x2 V100, 1x2 K80", speeds="equal")
    assert run.facts is not None
    metrics = summarise(run)
    screen = table_lines(metrics, run.timings, run.facts, evidence_of(run.facts, metrics))
    found = printed(render(run)) | shares(run) | dict(of_text("\n".join(screen), "screen"))
    assert outside(found) == {}
