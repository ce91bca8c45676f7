import numpy as np
import pytest

from eunomia import Scores
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.orders.index_rule import IndexRule, IndexRuleOptions


def index(world: World, *, now: float = 0.0, **options: float) -> dict[str, float]:
    """By job, the index."""
    weights = dict.fromkeys(("short", "critical", "deadline", "stay"), 0.0)
    rule = IndexRule(IndexRuleOptions.model_validate({**weights, **options}))
    snapshot = world.snapshot(now=now)
    answer = rule.eunomia_valuation(snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(now))
    scores = answer.form(Scores).score[:, 0]
    return {str(snapshot.jobs.id[row]): float(-score) for row, score in zip(answer.claims.rows, scores, strict=True)}


def two() -> World:
    """On two GPUs: 100 s on one, and 300 s on two."""
    world = World("1x2 V100").job("a/1", iterations=100, seconds_per_iteration=1.0)
    return world.job("b/1", gpus=2, iterations=300, seconds_per_iteration=2.0)


def test_the_term_short_is_mean_time_left_over_mean_plus_own_time_left() -> None:
    assert index(two(), short=1.0) == pytest.approx({"a/1": 200 / 300, "b/1": 200 / 500})


def test_the_critical_path_is_total_work_over_all_gpus_if_that_is_longest() -> None:
    # 100 GPU-seconds and 600 on two GPUs take 350 s, more than the 300 s of the longest.
    assert index(two(), critical=1.0, critical_power=1.0) == pytest.approx({"a/1": 100 / 350, "b/1": 300 / 350})
    world = (
        World("1x4 V100")
        .job("a/1", iterations=100, seconds_per_iteration=1.0)
        .job("b/1", iterations=300, seconds_per_iteration=1.0)
    )
    assert index(world, critical=1.0, critical_power=2.0) == pytest.approx({"a/1": (1 / 3) ** 2, "b/1": 1.0})


def test_the_deadline_is_where_rho_would_be_one() -> None:
    # Twice the run time may pass; at 50 s the first has 150 s for 100 s of work, the second 550 s for 300 s.
    at_50 = index(two(), now=50.0, deadline=1.0, deadline_power=1.0, contention=2.0)
    assert at_50 == pytest.approx({"a/1": 100 / 150, "b/1": 300 / 550})
    # A job that can no longer meet its deadline, or has passed it, has the greatest urgency.
    assert index(two(), now=400.0, deadline=1.0, contention=2.0) == {"a/1": 1.0, "b/1": 1.0}


def test_without_a_known_contention_the_deadline_follows_from_the_jobs_that_shared_the_cluster() -> None:
    world = World("1x2 V100")
    for number in range(6):
        world = world.job(f"a/{number}", iterations=100, seconds_per_iteration=1.0)
    assert index(world, deadline=1.0, deadline_power=1.0) == pytest.approx({f"a/{n}": 100 / 300 for n in range(6)})
    alone = World("1x2 V100").job("a/1", iterations=100, seconds_per_iteration=1.0)
    assert index(alone, deadline=1.0, deadline_power=1.0) == pytest.approx({"a/1": 1.0})


def test_a_running_job_is_preferred_by_the_weight_of_staying() -> None:
    world = two().job("c/1", iterations=100, seconds_per_iteration=1.0).holds("c/1", 0, ends_at=0.0)
    found = index(world, stay=0.25)
    assert found == {"a/1": 0.0, "b/1": 0.0, "c/1": 0.25}


def test_the_index_is_the_weighted_sum_of_its_terms() -> None:
    one = [index(two(), **{term: 1.0}) for term in ("short", "critical", "deadline")]
    both = index(two(), short=1.0, critical=2.0, deadline=3.0)
    for job in both:
        assert both[job] == pytest.approx(one[0][job] + 2.0 * one[1][job] + 3.0 * one[2][job])


def test_an_option_places_jobs_of_unknown_length_first_or_last() -> None:
    world = two().job("unknown/1")
    rule = {where: IndexRule(IndexRuleOptions(unknown=where)) for where in ("first", "last")}
    snapshot = world.snapshot()
    menus = Fixed().eunomia_elasticity(snapshot)
    for where, place in (("first", 0), ("last", -1)):
        answer = rule[where].eunomia_valuation(snapshot, menus, world.offer())
        order = answer.claims.rows[answer.form(Scores).ranking()]
        assert str(snapshot.jobs.id[order[place]]) == "unknown/1"


def test_unknown_work_and_an_empty_queue_cause_no_error() -> None:
    assert index(World()) == {}
    with np.errstate(all="raise"):
        assert index(World().job("a/1"), short=1.0)["a/1"] == -np.inf
