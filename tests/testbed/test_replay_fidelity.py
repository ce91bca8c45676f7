"""The difference between a real and a simulated run, split by cause."""

import pytest
import random_journals
from hypothesis import given
from hypothesis import strategies as st

from eunomia_testbed import Costs, SimulationOptions
from eunomia_testbed.replay.fidelity import (
    MAKESPAN,
    MEAN_JCT,
    UNEXPLAINED,
    UNFAIR,
    RunFigures,
    Stage,
    figures_in,
    over_repeats,
    rho_error,
    split,
    words_of,
)

CAUSES = ("rates", "costs", "arrivals")


def _figures(makespan: float, jct: float, unfair: float = 0.0, **rho: float) -> RunFigures:
    return RunFigures(figures={MAKESPAN: makespan, MEAN_JCT: jct, UNFAIR: unfair}, rho=rho)


def test_each_cause_explains_what_its_replacement_moves() -> None:
    stages = [
        Stage(cause="", figures=_figures(90.0, 40.0, 0.10)),
        Stage(cause="rates", figures=_figures(96.0, 44.0, 0.12)),
        Stage(cause="costs", figures=_figures(99.0, 43.0, 0.12)),
    ]
    found = {each.figure: each for each in split(_figures(100.0, 50.0, 0.15), stages)}
    assert found[MAKESPAN].parts == {"rates": 6.0, "costs": 3.0, UNEXPLAINED: 1.0}
    assert found[MEAN_JCT].parts == {"rates": 4.0, "costs": -1.0, UNEXPLAINED: 7.0}
    assert found[MAKESPAN].left == pytest.approx(0.01)
    assert found[UNFAIR].left == pytest.approx(3.0)  # points


@given(st.floats(1.0, 1e4), st.lists(st.floats(1.0, 1e4), min_size=1, max_size=4))
def test_the_parts_always_sum_to_the_whole_difference(real: float, simulated: list[float]) -> None:
    stages = [
        Stage(cause=cause, figures=_figures(each, each)) for cause, each in zip(("", *CAUSES), simulated, strict=False)
    ]
    for each in split(_figures(real, real), stages):
        assert sum(each.parts.values()) == pytest.approx(each.whole, abs=1e-6)
        assert list(each.parts) == [*(stage.cause for stage in stages[1:]), UNEXPLAINED]


def test_the_error_of_rho_is_by_app() -> None:
    real, simulated = _figures(1.0, 1.0, a=1.0, b=2.0, c=1.0), _figures(1.0, 1.0, a=1.1, b=1.5, d=9.0)
    found = rho_error(real, simulated)
    assert found is not None
    assert (found.apps, found.worst_app) == (2, "b")
    assert (found.median_error, found.worst_error) == (pytest.approx(0.175), pytest.approx(-0.25))
    assert rho_error(real, _figures(1.0, 1.0)) is None


def test_differences_over_repeats_have_intervals_and_words() -> None:
    splits = [
        split(
            _figures(real, real / 2.0),
            [Stage(cause="", figures=_figures(90.0, 45.0)), Stage(cause="rates", figures=_figures(95.0, 47.5))],
        )
        for real in (100.0, 102.0, 104.0)
    ]
    rows = over_repeats({"las": splits})
    by_cause = {(row[1], row[2]): row for row in rows}
    policy, _, _, repeats, difference, low, high = by_cause[MAKESPAN, "whole"]
    assert (policy, repeats) == ("las", 3)
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert low < difference < high
    assert words_of(rows)[0].startswith(
        "las, makespan_seconds: real is +11.7% from simulated: rates +4.9%, unexplained"
    )


def test_the_figures_of_a_simulation_are_those_of_its_summary() -> None:
    run = random_journals.simulated(3, "las", SimulationOptions(costs=Costs(start=2.0)), cluster="2x2 V100")
    found = figures_in(run, "las", 0)
    assert found.figures[MAKESPAN] == pytest.approx(float(run.apps["finish_seconds"].max()))  # type: ignore[arg-type]
    assert set(found.rho) == set(run.apps["app"])
    (same,) = {part for each in split(found, [Stage(cause="", figures=found)]) for part in each.parts.values()}
    assert same == 0.0
