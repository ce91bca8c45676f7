import pytest

from eunomia import Scores
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.orders.remaining import UnknownOptions
from eunomia_plugins.orders.themis_rho import ThemisRho


def rho(world: World, *, now: float = 0.0) -> tuple[list[str], dict[str, float]]:
    snapshot = world.snapshot(now=now)
    answer = ThemisRho(UnknownOptions()).eunomia_valuation(
        snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(now)
    )
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    scores = answer.form(Scores)
    return [names[index] for index in scores.ranking()], dict(zip(names, (-scores.score[:, 0]).tolist(), strict=True))


def test_rho_is_the_shared_time_over_the_time_alone_times_the_contention() -> None:
    # a runs 100 s alone and came 300 s ago: (300 + 100) / (100 * 2) = 2; b runs 400 s: (300 + 400) / (400 * 2).
    world = World().app("a", contention=2.0).app("b", contention=2.0)
    world.job("a/1", iterations=100, seconds_per_iteration=1.0).job("b/1", iterations=400, seconds_per_iteration=1.0)
    order, values = rho(world, now=300.0)
    assert order == ["a/1", "b/1"]
    assert values == {"a/1": 2.0, "b/1": pytest.approx(0.875)}


def test_an_app_with_more_contention_comes_after_one_with_less() -> None:
    world = World().app("a", contention=4.0).app("b", contention=1.0)
    for app in ("a", "b"):
        world.job(f"{app}/1", iterations=100, seconds_per_iteration=1.0)
    assert rho(world, now=50.0)[0] == ["b/1", "a/1"]


def test_of_two_jobs_that_waited_equally_long_the_short_one_has_the_worse_rho() -> None:
    world = World().job("long/1", iterations=1000, seconds_per_iteration=1.0)
    world.job("short/1", iterations=10, seconds_per_iteration=1.0)
    assert rho(world, now=20.0)[0] == ["short/1", "long/1"]


def test_a_new_app_has_no_contention_and_unknown_lengths_come_last() -> None:
    world = World().app("a", contention=float("nan")).job("a/1", iterations=10, seconds_per_iteration=1.0).job("b/1")
    order, values = rho(world)
    assert values["a/1"] == 1.0
    assert order == ["a/1", "b/1"]
