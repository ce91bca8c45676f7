import numpy as np
import pytest

from eunomia import Scores
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.orders.laxity import Laxity, LaxityOptions
from eunomia_plugins.present import Present


def scores(world: World, *, now: float = 0.0, **options: object) -> dict[str, tuple[float, float]]:
    """By job, its class (0 critical, 1 late, 2 the rest, 3 unknown) and its key within the class."""
    rule = Laxity(LaxityOptions.model_validate(options))
    snapshot = world.snapshot(now=now)
    answer = rule.eunomia_valuation(snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(now))
    columns = answer.form(Scores).score
    names = snapshot.jobs.id[answer.claims.rows].tolist()
    return {str(name): (float(row[0]), float(row[1])) for name, row in zip(names, columns, strict=True)}


def order(world: World, *, now: float = 0.0, **options: object) -> list[str]:
    """Names of jobs, first served first."""
    rule = Laxity(LaxityOptions.model_validate(options))
    snapshot = world.snapshot(now=now)
    answer = rule.eunomia_valuation(snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(now))
    return [str(snapshot.jobs.id[row]) for row in answer.claims.rows[answer.form(Scores).ranking()]]


def three() -> World:
    """On two GPUs: 100 s and 200 s on one, 400 s on one; the longest alone sets the path of 400 s."""
    world = World("1x2 V100").job("a/1", iterations=100, seconds_per_iteration=1.0)
    world = world.job("b/1", iterations=200, seconds_per_iteration=1.0)
    return world.job("c/1", iterations=400, seconds_per_iteration=1.0)


def test_a_job_as_long_as_the_critical_path_comes_first() -> None:
    found = scores(three(), contention=10.0)
    assert {job: kind for job, (kind, _) in found.items()} == {"a/1": 2.0, "b/1": 2.0, "c/1": 0.0}
    assert order(three(), contention=10.0) == ["c/1", "a/1", "b/1"]


def test_the_critical_path_is_at_least_total_work_over_all_gpus() -> None:
    world = three()
    for number in range(4):
        world = world.job(f"d/{number}", iterations=390, seconds_per_iteration=1.0)
    # 100 + 200 + 400 + 4 x 390 GPU-seconds on two GPUs are 1130 s: no job is critical.
    assert {kind for kind, _ in scores(world, contention=10.0).values()} == {2.0}


def test_among_critical_jobs_the_longest_comes_first() -> None:
    world = World("1x2 V100").job("a/1", iterations=95, seconds_per_iteration=1.0)
    world = world.job("b/1", iterations=100, seconds_per_iteration=1.0)
    assert order(world, contention=10.0) == ["b/1", "a/1"]


def test_a_job_that_must_run_without_a_break_to_be_fair_is_late() -> None:
    # A fair share doubles run times. At 150 s a/1 has 50 s for 100 s of work, b/1 has 250 s for 200 s.
    found = scores(three(), now=150.0, contention=2.0)
    assert found["a/1"][0] == 1.0
    assert found["b/1"] == (2.0, pytest.approx(200 * (1 - 200 / 250) * (1 - 0.5**8)))
    assert order(three(), now=150.0, contention=2.0) == ["c/1", "a/1", "b/1"]


def test_among_late_jobs_the_one_with_the_greatest_rho_comes_first() -> None:
    # At 250 s and without a break from then on: a/1 ends at 350 s for 100 s of work, b/1 at 450 s for 200 s.
    found = scores(three(), now=250.0, contention=1.0)
    assert found["a/1"] == (1.0, pytest.approx(-3.5))
    assert found["b/1"] == (1.0, pytest.approx(-2.25))
    held = scores(three().holds("b/1", 0, ends_at=0.0), now=250.0, contention=1.0)
    assert held["b/1"][1] == pytest.approx(-2.25 / 0.9)


def test_without_the_option_late_the_deadline_has_no_effect() -> None:
    found = scores(three(), now=150.0, contention=2.0, late=False)
    assert found["a/1"] == (2.0, pytest.approx(100 * (1 - 0.25**8)))


def test_the_length_of_a_gang_is_scaled_by_a_power_of_its_gpus() -> None:
    world = three().job("d/1", gpus=2, iterations=200, seconds_per_iteration=2.0)
    for power, length in ((0.0, 200.0), (0.5, 200.0 * np.sqrt(2.0)), (1.0, 400.0)):
        key = scores(world, contention=1e9, gang_power=power)["d/1"][1]
        path = 550.0  # 100 + 200 + 400 + 2 x 200 GPU-seconds on two GPUs
        assert key == pytest.approx(length * (1 - (200 / path) ** 8))


def test_a_running_job_counts_as_shorter_and_is_critical_earlier() -> None:
    world = three().job("d/1", iterations=330, seconds_per_iteration=1.0)
    assert scores(world, contention=1e9)["d/1"][0] == 2.0  # 330 s of a path of 515 s
    world = three().job("d/1", iterations=335, seconds_per_iteration=1.0).holds("d/1", 0, ends_at=0.0)
    for stay, kind in ((0.0, 2.0), (0.3, 0.0)):
        assert scores(world, contention=1e9, stay=stay)["d/1"][0] == kind
    waits = scores(three(), contention=1e9)["a/1"][1]
    runs = scores(three().holds("a/1", 0, ends_at=0.0), contention=1e9)["a/1"][1]
    assert runs == pytest.approx(0.9 * waits)


def test_jobs_of_unknown_length_come_last_and_an_empty_queue_is_no_error() -> None:
    assert order(three().job("u/1"), contention=10.0)[-1] == "u/1"
    assert scores(World()) == {}
    with np.errstate(all="raise"):
        assert scores(World().job("u/1"))["u/1"][0] == 3.0


def memo_after(world: World, memo: Present, *, now: float = 0.0) -> Present:
    return memo.after(world.snapshot(now=now))


def test_a_job_shares_the_cluster_with_jobs_present_at_its_arrival_and_later_ones() -> None:
    first = memo_after(three(), Present())
    assert (first.arrived, first.left) == (3, 0)
    # b/1 leaves, d/1 arrives: a/1 has shared the cluster with four jobs, d/1 with three.
    world = World("1x2 V100").job("a/1", iterations=100, seconds_per_iteration=1.0)
    world = world.job("c/1", iterations=400, seconds_per_iteration=1.0).job("d/1", iterations=1)
    second = memo_after(world, first)
    snapshot = world.snapshot(now=0.0)
    shared = dict(zip(snapshot.jobs.id.tolist(), second.shared_with(snapshot, snapshot.active), strict=False))
    assert shared == {"a/1": 4.0, "c/1": 4.0, "d/1": 3.0}
    assert memo_after(world, second) is second
    assert Present.from_bytes(1, second.to_bytes()) == second


def test_the_fair_share_follows_from_present_jobs_and_never_from_the_future() -> None:
    # Three jobs on two GPUs: a fair share takes 1.5 times as long; at 60 s a/1 has 90 s for 100 s of work.
    assert scores(three(), now=60.0)["a/1"][0] == 1.0
    assert scores(three(), now=40.0)["a/1"][0] == 2.0


def test_the_fair_share_can_be_computed_from_the_average_contention_as_in_shockwave() -> None:
    # The app of a/1 has seen six apps on average: on two GPUs a fair share takes three times as long.
    world = World("1x2 V100").app("a", contention=6.0).job("a/1", iterations=100, seconds_per_iteration=1.0)
    world = world.job("b/1", iterations=400, seconds_per_iteration=1.0)
    for sharing, kind in (("average", 2.0), ("arrived", 1.0)):
        assert scores(world, now=120.0, sharing=sharing)["a/1"][0] == kind
    rule = Laxity(LaxityOptions(sharing="average"))
    snapshot = world.snapshot(now=120.0)
    assert rule.eunomia_valuation(snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(120.0)).memo is None
