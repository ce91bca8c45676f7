"""Answers by goal: the set of best policies, what decides it, and what no run can claim."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia_testbed.evidence.draws import NO_DRAWS, DrawKind, Draws
from eunomia_testbed.evidence.evidence import Evidence
from eunomia_testbed.evidence.goals import FAIRNESS, MEAN_JCT, Goal, fairness_goals
from eunomia_testbed.evidence.intervals import end_errors
from eunomia_testbed.evidence.judging import GoalAnswer, judge, judge_goal
from eunomia_testbed.evidence.wording import ONE_RUN, lines_of, method

MOVES = Goal(name="moves", label="Fewest moves", figure="moves_per_job", relative=False)


def evidence(kind: DrawKind, /, **jcts: list[float]) -> Evidence:
    rows = [
        {
            "policy": policy,
            "seed": seed,
            "apps": 10,
            "apps_finished": 10,
            "jct_mean_seconds": each,
            "moves_per_job": each,
        }
        for policy, values in jcts.items()
        for seed, each in enumerate(values)
    ]
    most = max(len(values) for values in jcts.values())
    return Evidence(draws=Draws(kind=kind, count=most), drawn=pl.DataFrame(rows))


def answer(found: Evidence, goal: Goal = MEAN_JCT) -> GoalAnswer:
    policies = found.drawn["policy"].unique(maintain_order=True).to_list()
    judged = judge_goal(found, policies, goal)
    assert judged is not None
    return judged


def test_a_policy_that_is_better_in_every_seed_is_the_answer() -> None:
    found = answer(evidence(DrawKind.SEEDS, las=[100.0, 110.0, 90.0], srtf=[80.0, 88.0, 73.0]))
    assert (found.best, found.decided) == (("srtf",), True)
    assert found.against["las"].value == pytest.approx(math.log(1.2442), abs=1e-3)


def test_policies_that_seeds_cannot_separate_are_all_best_and_more_seeds_are_suggested() -> None:
    found = answer(evidence(DrawKind.SEEDS, a=[100.0, 100.0, 100.0, 100.0], b=[104.0, 97.0, 103.0, 100.0]))
    assert (found.best, found.decided, found.shows_chance) == (("a", "b"), False, True)
    assert found.factor is not None
    assert found.factor > 1.0


@pytest.mark.parametrize(
    ("errors", "best"), [(-0.5, ("a", "b")), (1.0, ("a", "b")), (4.0, ("a",))], ids=["holds 0", "near 0", "clear of 0"]
)
def test_a_policy_is_tied_if_its_interval_ends_within_its_error_of_zero(errors: float, best: tuple[str, ...]) -> None:
    """The lower end of ln(b / a) lies this many of its Monte Carlo errors above 0."""
    noise = np.random.default_rng(5).normal(0.0, 0.01, 200)
    low, high = np.percentile(noise, [2.5, 97.5], method="weibull").tolist()
    ratios = noise - low + errors * end_errors(noise.tolist())[0] * (high - low)
    given = evidence(DrawKind.RESAMPLES, a=[100.0] * 200, b=(100.0 * np.exp(ratios)).tolist())
    found = answer(given)
    assert (found.best, found.decided) == (best, len(best) == 1)
    told = lines_of(judge(given, ["a", "b"]), given.draws)
    lines = [line.text for line in told if line.label == "Shortest mean JCT"]
    assert [line.endswith("further resamples might decide") for line in lines] == [errors == 1.0]


def test_one_run_names_the_policy_with_the_least_figure_but_claims_nothing() -> None:
    found = answer(evidence(DrawKind.ONE, a=[100.0], b=[200.0]))
    assert (found.best, found.decided, found.shows_chance) == (("a",), False, False)
    lines = lines_of(judge(evidence(DrawKind.ONE, a=[100.0], b=[200.0]), ["a", "b"]), NO_DRAWS)
    assert [line.supported for line in lines] == [False] * len(lines)
    assert method(NO_DRAWS) == ONE_RUN


def test_a_policy_under_which_fewer_apps_finish_is_left_out_and_named() -> None:
    found = evidence(DrawKind.ONE, a=[100.0], b=[50.0])
    less = found.drawn.with_columns(apps_finished=pl.when(pl.col("policy") == "b").then(9).otherwise(10))
    answers = judge(Evidence(draws=NO_DRAWS, drawn=less), ["a", "b"])
    assert [each.policy for each in answers.unfinished] == ["b"]
    judged = answers.of("mean_jct")
    assert judged is not None
    assert judged.best == ("a",)


def test_policies_with_figures_of_zero_are_compared_by_differences() -> None:
    found = answer(evidence(DrawKind.SEEDS, fifo=[0.0, 0.0, 0.0], las=[2.0, 2.1, 1.9]), MOVES)
    assert (found.best, found.decided) == (("fifo",), True)
    assert found.against["las"].value == pytest.approx(2.0)


def test_a_policy_without_randomness_is_compared_with_every_seed_of_another() -> None:
    rows = evidence(DrawKind.SEEDS, las=[100.0], random=[120.0, 130.0, 125.0])
    draws = Draws(kind=DrawKind.SEEDS, count=3, fixed=("las",))
    found = answer(Evidence(draws=draws, drawn=rows.drawn))
    assert (found.best, found.decided) == (("las",), True)


def test_the_front_has_the_policies_that_no_other_beats_in_speed_and_fairness() -> None:
    rows = pl.DataFrame(
        {
            "policy": ["fast", "fair", "neither"],
            "seed": [0, 0, 0],
            "apps": [5, 5, 5],
            "apps_finished": [5, 5, 5],
            "jct_mean_seconds": [10.0, 20.0, 25.0],
            "rho_themis_p90": [2.0, 1.0, 1.5],
            "rho_static_p90": [1.0, 2.0, 3.0],
        }
    )
    answers = judge(Evidence(draws=NO_DRAWS, drawn=rows), ["fast", "fair", "neither"])
    assert answers.front == ("fast", "fair")
    assert answers.fronts == {"themis": ("fast", "fair"), "static": ("fast",)}
    assert answers.fairest_by_kind() == {"themis": ("fair",), "static": ("fast",)}
    told = [line.text for line in lines_of(answers, NO_DRAWS) if line.label == "Fairest"]
    assert told == ["it depends on ρ: Themis' fair; static fast (what each asks: docs/explanation/fairness.md)"]


def test_the_99th_percentile_of_rho_is_judged_only_with_300_or_more_apps() -> None:
    assert len(fairness_goals("themis", 299)) == 3
    assert fairness_goals("themis", 300)[-1].figure == "rho_themis_p99"
    assert not any(goal.figure.endswith("worst") for goal in fairness_goals("themis", 300))


values = st.lists(st.floats(min_value=1.0, max_value=1e6), min_size=2, max_size=6)


@given(st.lists(values, min_size=2, max_size=4).filter(lambda all: len({len(each) for each in all}) == 1), st.randoms())
def test_the_judgement_does_not_depend_on_the_order_of_policies(jcts: list[list[float]], luck: Any) -> None:
    named = {f"p{at}": each for at, each in enumerate(jcts)}
    if len({np.mean(each) for each in jcts}) < len(jcts):
        return
    shuffled = list(named)
    luck.shuffle(shuffled)
    found = evidence(DrawKind.SEEDS, **named)
    one, other = judge_goal(found, list(named), MEAN_JCT), judge_goal(found, shuffled, MEAN_JCT)
    assert one is not None
    assert other is not None
    assert (set(one.best), one.best[0], one.decided) == (set(other.best), other.best[0], other.decided)


@given(values)
def test_identical_policies_are_all_best(jcts: list[float]) -> None:
    found = answer(evidence(DrawKind.SEEDS, a=jcts, b=jcts, c=jcts))
    assert (set(found.best), found.decided) == ({"a", "b", "c"}, True)


@given(st.floats(min_value=-1.0, max_value=1.0), st.floats(min_value=0.01, max_value=1.0))
def test_a_policy_is_ruled_out_exactly_if_the_interval_excludes_zero(shift: float, spread: float) -> None:
    one = [100.0] * 8
    other = [100.0 * math.exp(shift + spread * (each - 3.5) / 8) for each in range(8)]
    found = answer(evidence(DrawKind.SEEDS, a=one, b=other))
    against = next(iter(found.against.values()))
    assert (len(found.best) == 2) == against.holds_zero


def test_fairness_is_judged_by_the_kind_of_rho_of_the_run() -> None:
    rows = pl.DataFrame(
        {"policy": ["a", "b"], "seed": [0, 0], "rho_themis_p90": [1.0, 2.0], "rho_static_p90": [2.0, 1.0]}
    )
    answers = judge(Evidence(draws=NO_DRAWS, drawn=rows), ["a", "b"], kind="static")
    found = answers.of(FAIRNESS)
    assert found is not None
    assert found.best == ("b",)


def text_of(found: Evidence, policies: list[str]) -> str:
    return next(
        line.text for line in lines_of(judge(found, policies), found.draws) if line.label == "Shortest mean JCT"
    )


def test_policies_count_as_equal_only_if_every_interval_is_narrow() -> None:
    near = evidence(DrawKind.SEEDS, a=[100.0, 100.0, 100.0, 100.0], b=[100.1, 99.9, 100.2, 99.81])
    assert text_of(near, ["a", "b"]).endswith("as good as equal here")
    far = evidence(DrawKind.SEEDS, a=[100.0, 100.0, 100.0, 100.0], b=[150.0, 67.0, 140.0, 71.3])
    assert text_of(far, ["a", "b"]).endswith("; 100 times as many seeds probably would not be enough")


def test_two_policies_without_randomness_have_no_interval_even_if_a_third_has() -> None:
    rows = evidence(DrawKind.SEEDS, a=[100.0], b=[126.0], c=[180.0, 190.0, 200.0])
    found = Evidence(draws=Draws(kind=DrawKind.SEEDS, count=3, fixed=("a", "b")), drawn=rows.drawn)
    assert (
        text_of(found, ["a", "b", "c"]) == "not decided: b against a +26 %; no interval for b, whose runs draw nothing"
    )
