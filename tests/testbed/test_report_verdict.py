"""What the verdict says of a choice that the seeds leave open, and of costs that were not given."""

import dataclasses
from typing import Any

import numpy as np
import polars as pl
import pytest

from eunomia_testbed import Costs, SimulationOptions, Workload, simulate
from eunomia_testbed.report import render
from eunomia_testbed.report.choice import choose
from eunomia_testbed.report.policies import policies
from eunomia_testbed.report.verdict import verdict
from eunomia_testbed.report.view import whole_of
from eunomia_testbed.results import RunData


def row(policy: str, jct: float, rho: float, *, seed: int) -> dict[str, Any]:
    whole = {"policy": policy, "seed": seed, "apps": 10, "apps_finished": 10}
    return whole | {"jct_mean_seconds": jct, "rho_worst": rho}


def test_the_seeds_that_would_decide_follow_from_the_spread_of_the_differences() -> None:
    pairs = [(100.0, 104.0), (100.0, 97.0), (100.0, 103.0), (100.0, 100.0)]  # mean 1, deviation sqrt(10)
    rows = [row(name, jct, 2.0, seed=at) for at, both in enumerate(pairs) for name, jct in zip("ab", both, strict=True)]
    found = choose(pl.DataFrame(rows), ["a", "b"])
    assert found is not None
    assert found.because.endswith(
        "these seeds do not distinguish a from b; about 41 seeds would decide"
    )  # 2.0211 sqrt(10/41) < 1


def test_equal_policies_are_undecided_and_no_number_of_seeds_is_made_up() -> None:
    rows = [row(name, 100.0 + seed, 2.0, seed=seed) for seed in (0, 1, 2) for name in "ab"]
    found = choose(pl.DataFrame(rows), ["a", "b"])
    assert found is not None
    assert not found.decided
    assert "1,000 seeds would not distinguish it from b either" in found.because
    assert "would decide" not in found.because


def test_an_undecided_page_ticks_no_policy(simulated: RunData) -> None:
    rows = [row(name, 100.0 + seed, 2.0, seed=seed) for seed in (0, 1) for name in ("las", "fifo", "srtf")]
    choice = choose(pl.DataFrame(rows), ["las", "fifo", "srtf"])
    assert choice is not None
    whole = dataclasses.replace(whole_of(simulated), choices={1.0: choice})
    part = policies(whole)
    assert part is not None
    assert part.data["taken"] == []
    assert "Undecided: las, fifo or srtf" in part.html
    answer = verdict(dataclasses.replace(whole.views[0], choice=choice))
    assert answer is not None
    assert '<li class="plain"><p class="asks">Which policy?</p>' in answer.html


@pytest.mark.parametrize(
    ("given", "told"), [(False, "Not modelled"), (None, "Not modelled"), (True, "0.0 % of slot time")]
)
def test_costs_that_were_not_given_are_not_told_as_none(sample: RunData, given: bool | None, told: str) -> None:
    assert sample.facts is not None
    facts = dataclasses.replace(sample.facts, costs_given=given, clock="virtual")
    free = sample.segments.with_columns(activity=pl.lit("run"))
    text = render(dataclasses.replace(sample, facts=facts, segments=free))
    assert told in text
    assert ("0.0 % of slot time" in text) == (given is True)


@pytest.mark.parametrize(("seconds", "given"), [(0.0, False), (20.0, True)])
def test_a_simulation_says_whether_costs_were_given(seconds: float, given: bool) -> None:
    two = Workload.single_jobs(
        "two", ids=["long", "short"], arrival_seconds=np.array([0.0, 10.0]), gpus=np.array([1, 1]),
        iterations=np.array([1000.0, 50.0]), seconds_per_iteration=np.array([1.0, 1.0]),
    )  # fmt: skip
    options = SimulationOptions(costs=Costs(start=seconds))
    facts = simulate(two, "1x1 V100", policies=["srtf"], options=options).run.facts
    assert facts is not None
    assert facts.costs_given is given


def test_one_seed_decides_and_says_so() -> None:
    found = choose(pl.DataFrame([row("a", 100.0, 2.0, seed=0), row("b", 200.0, 2.0, seed=0)]), ["a", "b"])
    assert found is not None
    assert found.answer == "Take a"
    assert found.because.endswith("of one seed: several seeds show whether that is more than chance")
