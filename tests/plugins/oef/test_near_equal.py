"""Cooperative OEF for many claims: bundles of nearly equal claims, their certificate, and bounds of the objective."""

import math

import numpy as np
import pytest

from eunomia_plugins.oef import cooperative
from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.cooperative import ALMOST, envy, solve_cooperative, solve_exactly, solve_nearly
from eunomia_plugins.oef.envy_bounds import close_bound, quick_bound
from eunomia_plugins.oef.groups import Groups
from eunomia_plugins.oef.near_equal import certificate, nearly_equal, solve_bundles
from eunomia_plugins.oef.noncooperative import solve_noncooperative


def drawn(seed: int, claims: int, types: int, noise: float = 0.08) -> Groups:
    """Speedups of a power law with noise; some claims cannot run on some type; weights differ."""
    luck = np.random.default_rng(seed)
    speed = np.sort(luck.uniform(1.0, 8.0, types))
    table = speed ** luck.uniform(0.0, 1.2, (claims, 1)) * luck.lognormal(0.0, noise, (claims, types))
    if noise:
        table[luck.random(table.shape) < 0.03] = 0.0
        table[table.max(axis=1) == 0.0, 0] = 1.0
    return Groups(
        speedup=table, weight=luck.integers(1, 4, claims).astype(float), gpus=luck.integers(5, 40, types).astype(float)
    )


def greatest_envy(of: Groups, answer: Answer) -> float:
    """Relative envy from the shares alone, claim by claim."""
    own = (of.speedup * answer.gpus).sum(axis=1) / of.weight
    return float((envy(of, answer.gpus).max(axis=1) / own).max())


@pytest.mark.parametrize("seed", range(5))
def test_the_certificate_equals_the_envy_and_shortfall_of_the_shares(seed: int) -> None:
    of = drawn(seed, 90, 3 + seed % 3)
    answer = solve_nearly(of)
    assert (answer.gpus >= -1e-9).all()
    assert (answer.gpus.sum(axis=0) <= of.gpus * (1.0 + 1e-7)).all()
    assert answer.envy == pytest.approx(max(0.0, greatest_envy(of, answer)), abs=1e-9)
    assert answer.envy <= ALMOST * (1.0 + 1e-3)
    own = (of.speedup * answer.gpus).sum(axis=1)
    fair = of.speedup @ of.gpus * of.weight / of.weight.sum()
    assert answer.shortfall == pytest.approx(float((1.0 - own / fair).max()), abs=1e-9)
    assert answer.shortfall <= ALMOST
    assert answer.objective == pytest.approx(float(own.sum()))
    each = np.unique(np.round(answer.gpus / of.weight[:, None], 9), axis=0)
    assert each.shape[0] <= answer.bundles <= 100


@pytest.mark.parametrize("seed", range(4))
def test_the_bounds_for_equal_groups_are_never_below_the_optimum(seed: int) -> None:
    of = drawn(10 + seed, 70, 4)
    best = solve_exactly(of).objective
    for groups in (1, 7, 35, 70):
        owner = nearly_equal(of, groups)
        assert owner.max() == groups - 1
        quick, _ = quick_bound(of, owner)
        close = close_bound(of, owner, solves=20)
        assert best * (1.0 - 1e-7) <= close <= quick * (1.0 + 1e-7)
    assert close == pytest.approx(best, rel=1e-6), "a group for each claim: every row of the programme"


def test_bundles_without_allowed_envy_do_not_exceed_the_exact_optimum() -> None:
    of = drawn(21, 60, 4)
    found = solve_bundles(of, envy=0.0)
    envies, shortfall = certificate(of, found)
    assert envies <= 1e-5
    assert shortfall <= 1e-5
    assert found.objective <= solve_exactly(of).objective * (1.0 + 1e-4)


def test_claims_ordered_by_speedup_lose_at_most_one_percent_of_the_objective() -> None:
    of = drawn(5, 300, 6, noise=0.0)
    answer = solve_nearly(of)
    assert answer.objective >= 0.99 * solve_exactly(of).objective
    assert answer.gap <= 0.02


def test_claims_are_merged_only_beyond_a_given_number(monkeypatch: pytest.MonkeyPatch) -> None:
    of = drawn(6, 40, 3)
    assert solve_cooperative(of).path == "rows by envy"
    monkeypatch.setattr(cooperative, "MOST", 39)
    answer = solve_cooperative(of)
    assert answer.path == "bundles of nearly equal claims"
    assert answer.rounds > 1


def test_exact_answers_have_an_envy_of_zero() -> None:
    answer = solve_exactly(drawn(7, 30, 3))
    assert answer.envy <= 1e-6
    assert answer.shortfall <= 1e-6
    assert answer.bundles == 0
    assert math.isnan(solve_noncooperative(drawn(7, 30, 3)).envy)
