"""Which cells of a plan are run: resamples within a budget of CPU time, the same under every policy."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia_testbed.evidence.draws import DrawKind, Draws
from eunomia_testbed.evidence.evidence import Evidence
from eunomia_testbed.evidence.intervals import FEWEST_RESAMPLES
from eunomia_testbed.evidence.judging import judge
from eunomia_testbed.evidence.wording import method
from eunomia_testbed.running.dispatch import OVERRUN, Limits, Rationed
from eunomia_testbed.running.plan import Cell


def rationed(
    costs: Mapping[str, float],
    budget: float,
    *,
    count: int = 100,
    workers: int = 1,
    done: int = 0,
    enough: Callable[[int], bool] | None = None,
    failing: str = "",
) -> tuple[Rationed, dict[str, int]]:
    """Run cells of given CPU times, ``workers`` at once, the longest-running one ends last; count the resamples."""
    cells = [Cell(policy=policy, seed=0) for policy in costs] if not done else []
    cells += [Cell(policy=p, seed=number, resampled=True) for number in range(done + 1, count + 1) for p in costs]
    before = {(policy, number) for policy in costs for number in range(1, done + 1)}
    found = Rationed(cells, count, before, Limits(budget_seconds=budget, enough=enough))
    running: list[Cell] = []
    ran = dict.fromkeys(costs, 0)
    while True:
        while len(running) < workers and (cell := found.next()) is not None:
            running.append(cell)
        if not running:
            return found, ran
        cell = min(running, key=lambda each: costs[each.policy])
        running.remove(cell)
        ran[cell.policy] += cell.resampled
        found.ended(cell, costs[cell.policy], failed=cell.policy == failing and not cell.resampled)


def test_without_a_limit_all_resamples_run() -> None:
    found, ran = rationed({"a": 1.0, "b": 2.0}, math.inf)
    assert ran == {"a": 100, "b": 100}
    assert not found.cut


def test_a_smaller_budget_gives_every_policy_the_same_number_of_resamples() -> None:
    found, ran = rationed({"a": 1.0, "b": 2.0}, 3.0 + 60 * 3.0)
    assert ran == {"a": 60, "b": 60}
    assert found.cut and not found.without


def test_the_slowest_policies_get_no_resamples_if_39_do_not_fit() -> None:
    found, ran = rationed({"slow": 50.0, "a": 1.0, "slowest": 60.0, "b": 2.0}, 300.0)
    assert found.without == ["slowest", "slow"]
    assert (ran["slow"], ran["slowest"]) == (0, 0)
    assert ran["a"] == ran["b"] == (300 - 113) // 3
    assert found.needed_seconds == pytest.approx(found.spent_seconds + 39 * 110.0)


def test_a_budget_spent_on_the_trace_itself_leaves_no_resamples() -> None:
    found, ran = rationed({"a": 1.0, "b": 2.0}, 2.0)
    assert ran == {"a": 0, "b": 0}
    assert sorted(found.without) == ["a", "b"]


def test_a_policy_that_fails_on_the_trace_is_not_resampled() -> None:
    found, ran = rationed({"a": 1.0, "b": 2.0}, 1000.0, failing="b")
    assert ran == {"a": 100, "b": 0}
    assert not found.without


def test_resamples_of_an_earlier_run_count_and_are_not_repeated() -> None:
    found, ran = rationed({"a": 1.0, "b": 2.0}, 30.0, done=50)
    assert ran == {"a": 10, "b": 10}
    assert found.cut


def test_resampling_ends_once_there_are_enough_resamples() -> None:
    asked: list[int] = []

    def enough(count: int) -> bool:
        asked.append(count)
        return count >= 80

    found, ran = rationed({"a": 1.0, "b": 2.0}, math.inf, count=400, workers=3, enough=enough)
    assert asked == [39, 59, 89]
    assert ran == {"a": 89, "b": 89}
    assert found.suffice and not found.cut


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0.1, 100.0), min_size=1),
    st.floats(1.0, 20_000.0),
    st.integers(1, 5),
)
def test_all_policies_have_the_same_resamples_or_none(costs: dict[str, float], budget: float, workers: int) -> None:
    found, ran = rationed(costs, budget, workers=workers)
    kept = {ran[policy] for policy in costs if policy not in found.without}
    assert len(kept) <= 1
    assert all(number >= FEWEST_RESAMPLES for number in kept)
    # One policy at a time is the slowest: what exceeds the budget is the trace itself and the cells that were running.
    most = max(budget * OVERRUN, math.fsum(costs.values())) + workers * max(costs.values())
    assert found.spent_seconds <= most + 1e-6


def test_policies_without_resamples_for_lack_of_budget_are_reported_and_not_compared() -> None:
    draws = Draws(
        kind=DrawKind.RESAMPLES, count=40, source="jobs.csv", block_apps=8, asked=100, budget_seconds=600.0,
        without=("themis",), needed_seconds=4000.0,
    )  # fmt: skip
    said = method(draws)
    assert "40 resamples of jobs.csv by circular blocks of 8 apps: 95 % intervals are percentiles." in said
    assert "10 min of CPU time allowed no more (100 were asked for)." in said
    assert "No resamples of themis, whose runs take too long for 10 min of CPU time (about 67 min would do" in said
    names = ["fifo", "las", "themis"]
    whole = pl.DataFrame({"policy": names, "seed": 0, "jct_mean_seconds": [2.0, 3.0, 1.0]})
    rows = [("fifo", at, 2.0 + 0.001 * at) for at in range(40)] + [("las", at, 3.0 + 0.002 * at) for at in range(40)]
    drawn = pl.DataFrame(rows, schema=["policy", "seed", "jct_mean_seconds"], orient="row")
    answer = judge(Evidence(draws=draws, drawn=drawn, whole=whole), names).of("mean_jct")
    assert answer is not None and answer.best == ("fifo",) and answer.decided
    alone = dataclasses.replace(draws, without=("themis", "las"))
    answer = judge(Evidence(draws=alone, drawn=drawn.filter(policy="fifo"), whole=whole), names).of("mean_jct")
    assert answer is not None and answer.best == ("themis",) and not answer.shows_chance  # in this trace
    assert "nothing is known about chance. 10 min of CPU time allow no 39 resamples" in method(
        Draws(asked=100, budget_seconds=600.0, needed_seconds=4000.0)
    )
    assert Draws.from_plain(draws.to_plain()) == draws
