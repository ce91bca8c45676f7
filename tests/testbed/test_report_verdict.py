"""What the verdict marks, with and without intervals, and what it says of costs that were not given."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eunomia_testbed import Costs, SimulationOptions, Workload, simulate
from eunomia_testbed.report import render
from eunomia_testbed.report.fairness import fairness
from eunomia_testbed.report.policies import policies
from eunomia_testbed.report.verdict import verdict
from eunomia_testbed.report.view import whole_of
from eunomia_testbed.results import RunData


def test_with_one_run_no_policy_is_ticked_and_no_interval_drawn(
    write_simulation: Callable[..., Path], tmp_path: Path
) -> None:
    """A tick beside a policy is a claim that another draw could overturn."""
    whole = whole_of(RunData.load(write_simulation(tmp_path / "run", seeds=1)))
    part, answer = policies(whole), verdict(whole.views[0])
    assert part is not None
    assert answer is not None
    assert "nothing is known about chance" in part.html
    assert [row for metric in part.data["metrics"] for row in metric["rows"] if row and row[1] is not None] == []
    assert '<li class="plain"><p class="asks">Which policy?</p>' in answer.html
    assert "Take " not in part.html + answer.html


TICKED = re.compile(r'<li class="(?:good|poor|bad)"><p class="asks">([^<]*)</p>')


def test_a_simulation_without_intervals_ticks_only_facts(write_simulation: Callable[..., Path], tmp_path: Path) -> None:
    for view in whole_of(RunData.load(write_simulation(tmp_path / "run", seeds=1))).views:
        answer = verdict(view)
        assert answer is not None
        assert set(TICKED.findall(answer.html)) <= {"Did all finish?", "Can it be trusted?"}


def test_a_policy_is_ticked_if_intervals_show_it_to_be_best(simulated: RunData) -> None:
    whole = whole_of(simulated)
    shown = {policy for found in whole.answers.values() for goal in found.goals if goal.decided for policy in goal.best}
    for view in whole.views:
        answer = verdict(view)
        assert answer is not None
        ticked = '<li class="good"><p class="asks">Which policy?</p>' in answer.html
        assert ticked == (view.policy in shown)


@pytest.mark.parametrize(
    ("given", "told"), [(False, "Not modelled"), (None, "Not modelled"), (True, "0.0 % of slot time")]
)
def test_without_given_costs_slot_time_does_not_show_a_cost_of_zero(
    sample: RunData, given: bool | None, told: str
) -> None:
    assert sample.facts is not None
    facts = dataclasses.replace(sample.facts, costs_given=given, clock="virtual")
    free = sample.segments.with_columns(activity=pl.lit("run"))
    text = render(dataclasses.replace(sample, facts=facts, segments=free))
    assert told in text
    assert ("0.0 % of slot time" in text) == (given is True)


@pytest.mark.parametrize(("seconds", "given"), [(0.0, False), (20.0, True)])
def test_the_page_states_whether_costs_were_given(seconds: float, given: bool) -> None:
    two = Workload.single_jobs(
        "two", ids=["long", "short"], arrival_seconds=np.array([0.0, 10.0]), gpus=np.array([1, 1]),
        iterations=np.array([1000.0, 50.0]), seconds_per_iteration=np.array([1.0, 1.0]),
    )  # fmt: skip
    options = SimulationOptions(costs=Costs(start=seconds))
    facts = simulate(two, "1x1 V100", policies=["srtf"], options=options).run.facts
    assert facts is not None
    assert facts.costs_given is given


def test_page_and_verdict_give_every_kind_of_rho(simulated: RunData) -> None:
    view = whole_of(simulated).views[0]
    summary, told = view.summary.flat(), verdict(view)
    part = fairness(view)
    assert told is not None
    assert part is not None
    table = part.tables[0]
    assert [row[0] for row in table.rows] == ["ρ", "static ρ"]  # the made-up run has no other kind
    for kind, row in zip(("themis", "static"), table.rows, strict=True):
        names = [f"rho_{kind}_{way}" for way in ("p90", "p99", "worst", "above_1_share")]
        assert row[1:5] == pytest.approx([summary[name] for name in names], abs=1e-4)
        p90, p99, worst, above = (float(str(summary[name])) for name in names)
        assert f"{row[0]} {p90:.2f}, {p99:.2f}, {worst:.2f}, {100 * above:.1f} %" in told.html


def test_the_page_of_one_run_calls_policies_best_only_for_this_run(
    write_simulation: Callable[..., Path], tmp_path: Path
) -> None:
    part = policies(whole_of(RunData.load(write_simulation(tmp_path / "run", seeds=1))))
    assert part is not None
    price = next(table for table in part.tables if table.title.startswith("The price"))
    words = {cell for row in price.rows for cell in row[1:] if isinstance(cell, str) and "best" in cell}
    assert words <= {"best in this run", "among the best"}
    assert "best in this run" in words
    assert "in this run, no other policy is better" in part.html
    assert not any(any(metric["best"]) for metric in part.data["metrics"])
