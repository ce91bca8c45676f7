"""Utility by rounds and weights, on jobs worked by hand (equations 7 and 9)."""

import dataclasses

import numpy as np
import pytest

from eunomia import Menus, OverTime, Profile, Stage, Valuations
from eunomia.contract.menus import announced
from eunomia.errors import InputErrors
from eunomia.model.adaptations import ComingRegime
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.present import Present
from eunomia_plugins.shockwave.outlook import outlook
from eunomia_plugins.shockwave.utility import ShockwaveUtility, ShockwaveUtilityOptions


def valued(world: World, *, now: float = 0.0, **options: object) -> Valuations:
    snapshot = world.snapshot(now=now)
    plugin = ShockwaveUtility(ShockwaveUtilityOptions.model_validate({"window": 3, "round_length": "100s", **options}))
    return plugin.eunomia_valuation(snapshot, menus_of(world, now), world.offer(now))


def menus_of(world: World, now: float = 0.0) -> Menus:
    snapshot = world.snapshot(now=now)
    return dataclasses.replace(Fixed().eunomia_elasticity(snapshot), regimes=announced(snapshot.coming_regimes))


def test_progress_counts_whole_rounds_until_the_work_is_done() -> None:
    # 250 s of 400 s are left: two rounds of 100 s and the last one, which counts as a whole one.
    world = World().job("a/1", iterations=400.0, done=150.0, seconds_per_iteration=1.0)
    utility = valued(world).form(OverTime).utility
    assert utility[0] == pytest.approx(np.array([150, 250, 350, 450]) / 400)


def test_a_coming_regime_has_its_own_rate() -> None:
    # 100 iterations at 1 a second, then 300 at 3 a second: 200 s. Progress counts iterations.
    world = World().job("a/1", iterations=400.0, seconds_per_iteration=1.0)
    world.announces("a/1", ComingRegime(iterations=300.0, rate=3.0))
    assert valued(world).form(OverTime).utility[0] == pytest.approx([0.0, 0.25, 1.0, 1.0])
    snapshot = world.snapshot()
    seen = outlook(snapshot, menus_of(world), snapshot.active)
    assert seen.left.tolist() == [200.0]


def test_in_its_last_regime_a_job_has_only_the_rest_of_this_regime_left() -> None:
    world = World().job("a/1", iterations=400.0, done=250.0, seconds_per_iteration=1.0)
    world.announces("a/1", ComingRegime(iterations=100.0, rate=2.0), ComingRegime(iterations=200.0, rate=3.0))
    snapshot = world.snapshot()
    seen = outlook(snapshot, menus_of(world), snapshot.active)
    assert seen.iterations.tolist() == [[0.0, 0.0, 150.0]]
    assert seen.left.tolist() == [50.0]


def test_finished_epochs_follow_from_the_batch_sizes_that_a_job_had() -> None:
    # 10 epochs of 100 samples: 20 steps of 10 samples are 2 epochs, 10 steps of 20 samples two more; 30 steps are left.
    epochs = {"epochs": 10.0, "samples_per_epoch": 100.0, "batch_size": 10.0}
    world = World().job("a/1", iterations=60.0, done=30.0, seconds_per_iteration=1.0, **epochs)
    world.adapts("a/1", 20.0, iterations_done=20.0)
    snapshot = world.snapshot()
    assert outlook(snapshot, menus_of(world), snapshot.active).progress.tolist() == [0.4]


def test_equation_9_gives_the_value_computed_by_hand() -> None:
    # At 300 s a job of 200 s, of which it ran 100 s, with N = 2: (300 + 100 * 2) / (200 * 2).
    world = World().app("a", arrived=0.0).job("a/1", iterations=200.0, done=100.0, seconds_per_iteration=1.0)
    world.job("b/1", arrived=300.0, iterations=50.0, seconds_per_iteration=1.0)
    answer = valued(world, now=300.0, k=3.0, contention=2.0)
    weight = answer.claims.weight
    assert weight is not None
    seen = outlook(world.snapshot(now=300.0), menus_of(world, 300.0), answer.claims.rows)
    rho = (300.0 + 100.0 * 2.0) / ((seen.attained[0] + 100.0) * 2.0)
    assert weight == pytest.approx([rho**3, 1.0])
    urgent = valued(world, now=300.0, k=3.0, contention=2.0, ahead="alone").claims.weight
    assert urgent is not None
    assert urgent == pytest.approx([((300.0 + 100.0) / ((seen.attained[0] + 100.0) * 2.0)) ** 3, 0.5**3])


def test_jobs_of_unknown_length_have_weight_one_and_progress_evenly() -> None:
    answer = valued(World().job("a/1"))
    assert answer.form(OverTime).utility[0] == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0])
    assert answer.claims.weight is not None
    assert answer.claims.weight.tolist() == [1.0]


def test_a_huge_power_keeps_weights_finite() -> None:
    world = World().job("a/1", iterations=1.0, seconds_per_iteration=1.0)
    weight = valued(world, now=1e9, k=100.0).claims.weight
    assert weight is not None
    assert np.isfinite(weight).all()


def test_the_fair_share_counts_all_arrivals_even_after_jobs_left() -> None:
    # On one GPU a/1 meets b/1, which leaves, and c/1 arrives: a/1 has shared with three jobs, and c/1 with two.
    world = World("1x1 V100").job("a/1", iterations=400.0, seconds_per_iteration=1.0)
    world.job("b/1", iterations=10.0, seconds_per_iteration=1.0)
    first = valued(world, k=1.0, sharing="arrived")
    assert isinstance(first.memo, Present)
    assert first.claims.weight == pytest.approx([1.0, 1.0])
    later = World("1x1 V100").job("a/1", iterations=400.0, seconds_per_iteration=1.0)
    later.job("c/1", arrived=900.0, iterations=300.0, seconds_per_iteration=1.0)
    later.remembers("shockwave_utility", Stage.VALUATION, first.memo)
    found = valued(later, now=900.0, k=1.0, sharing="arrived").claims.weight
    assert found == pytest.approx([(900.0 + 400.0 * 3.0) / (400.0 * 3.0), 1.0])


def test_the_average_of_equation_9_needs_no_memo() -> None:
    world = World("1x1 V100").job("a/1", iterations=400.0, seconds_per_iteration=1.0)
    assert valued(world).memo is None
    assert valued(world, sharing="arrived", contention=2.0).memo is None


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("shockwave_utility.sharing", "fair", 'sharing must be "average" or "arrived"'),
        ("shockwave_utility.window", 0, "window must be between 1 and 1000, but got 0"),
        ("shockwave_utility.k", -1.0, "k must be between 0 and 100, but got -1.0"),
        ("shockwave_utility.k", 1e9, "k must be between 0 and 100, but got 1000000000.0"),
        ("shockwave_utility.round_length", "0s", "round_length must be greater than 0, but got"),
        ("shockwave.regularizer", -0.1, "regularizer must be between 0 and 1e+06, but got -0.1"),
        ("shockwave.regularizer", 1e7, "regularizer must be between 0 and 1e+06, but got 10000000.0"),
        ("shockwave.log_points", [0.0, 0.5], "the second of them above log_origin (1e-06), but got [0.0, 0.5]"),
        ("shockwave.nodes", 0, "nodes must be at least 1, but got 0"),
        ("shockwave.mode", "eager", 'mode must be "reactive" or "lazy"'),
    ],
)
def test_bad_options_are_refused_with_the_rule_and_the_value(setting: str, value: object, message: str) -> None:
    with pytest.raises(InputErrors) as refused:
        Profile.load("shockwave", settings={f"plugins.{setting}": value})
    assert message in str(refused.value)
