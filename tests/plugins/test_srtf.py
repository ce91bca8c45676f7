import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Menus, Scores, Snapshot
from eunomia.contract.menus import Regimes
from eunomia.testing.builders import World
from eunomia.units import Reals
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.orders.remaining import LengthOptions
from eunomia_plugins.orders.srsf import Srsf
from eunomia_plugins.orders.srtf import Srtf


def ranked(
    world: World, plugin: Srtf, *, now: float = 0.0, menus: Menus | None = None
) -> tuple[list[str], dict[str, float]]:
    snapshot = world.snapshot(now=now)
    answer = plugin.eunomia_valuation(
        snapshot, Fixed().eunomia_elasticity(snapshot) if menus is None else menus, world.offer(now)
    )
    scores = answer.form(Scores)
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    return [names[index] for index in scores.ranking()], dict(zip(names, scores.score[:, 0].tolist(), strict=True))


def srtf(**options: object) -> Srtf:
    return Srtf(LengthOptions.model_validate(options))


def test_the_job_with_the_least_time_left_at_its_own_size_comes_first() -> None:
    # 100 iterations of 4 s on 4 GPUs: 100 s; 60 of 1 s on 1 GPU: 60 s, less 10 done: 50 s.
    world = World().job("a/1", gpus=4, iterations=100, seconds_per_iteration=4.0)
    world.job("b/1", gpus=1, iterations=60, seconds_per_iteration=1.0, done=10, arrived=5.0)
    order, seconds = ranked(world, srtf(), now=7.0)
    assert order == ["b/1", "a/1"]
    assert seconds == {"a/1": 100.0, "b/1": 50.0}


def test_ties_are_broken_by_arrival_and_an_option_places_unknown_lengths() -> None:
    world = World().job("late/1", iterations=5, seconds_per_iteration=1.0, arrived=3.0)
    world.job("early/1", iterations=5, seconds_per_iteration=1.0, arrived=2.0).job("unknown/1", arrived=0.0)
    assert ranked(world, srtf())[0] == ["early/1", "late/1", "unknown/1"]
    assert ranked(world, srtf(unknown="first"))[0] == ["unknown/1", "early/1", "late/1"]


@pytest.mark.parametrize("rate", [0.25, 1.0, 4.0])
def test_the_current_rate_of_a_job_does_not_change_its_length(rate: float) -> None:
    """A job on one GPU of the four that it could use must not look four times as long."""
    world = World("1x8 V100").job(
        "a/1", gpus=(1, 4), iterations=100, seconds_per_iteration=4.0, done=40.0, rate=rate, since=50.0
    )
    menus = Range(RangeOptions()).eunomia_elasticity(world.snapshot(now=50.0))
    assert ranked(world, srtf(), now=50.0, menus=menus)[1]["a/1"] == 60.0


def test_only_a_rate_measured_on_one_machine_changes_the_length() -> None:
    from eunomia import Locality

    world = World("2x4 V100").job("a/1", gpus=4, iterations=100, seconds_per_iteration=4.0)
    world.measures("a/1", 4, 0.1, locality=Locality.CLUSTER)
    assert ranked(world, srtf())[1]["a/1"] == 100.0
    world.measures("a/1", 4, 2.0)
    assert ranked(world, srtf())[1]["a/1"] == 50.0


_JOBS = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 500), st.floats(0.1, 10.0)), min_size=1, max_size=15)


@given(_JOBS)
def test_seconds_left_computed_for_all_jobs_equal_those_of_each_job(jobs: list[tuple[int, int, float]]) -> None:
    world = World("1x8 V100")
    for number, (gpus, iterations, seconds) in enumerate(jobs):
        world.job(
            f"a/{number:02d}", gpus=gpus, iterations=iterations, seconds_per_iteration=seconds, arrived=float(number)
        )
    order, seconds_left = ranked(world, srtf())
    expected = [iterations * seconds / gpus for gpus, iterations, seconds in jobs]
    assert np.allclose([seconds_left[f"a/{number:02d}"] for number in range(len(jobs))], expected)
    assert order == sorted(order, key=lambda name: (seconds_left[name], name))


def test_srtf_gives_no_scores_without_jobs() -> None:
    world = World()
    snapshot: Snapshot = world.snapshot()
    assert srtf().eunomia_valuation(snapshot, Fixed().eunomia_elasticity(snapshot), world.offer()).claims.rows.size == 0


def _with_regimes(world: World, regimes: list[tuple[int, float, float]], now: float) -> Menus:
    """The menus of a world with coming regimes: job row, iterations, rate."""
    job, iterations, rate = (np.array(column) for column in zip(*regimes, strict=True))
    known: dict[str, Reals] = {"iterations": iterations.astype(float), "rate": rate.astype(float)}
    menus = Fixed().eunomia_elasticity(world.snapshot(now=now))
    return Menus(
        curve=menus.curve, points=menus.points, one_size=True, regimes=Regimes(job=job.astype(np.int32), **known)
    )


# 100 iterations: 50 at 1 a second, then 30 at 2 and 20 at 4 a second: 50 + 15 + 5 s.
REGIMES = [(0, 30.0, 2.0), (0, 20.0, 4.0)]


@pytest.mark.parametrize(
    ("done", "seconds"), [(0.0, 70.0), (40.0, 30.0), (50.0, 20.0), (60.0, 15.0), (80.0, 5.0), (96.0, 1.0), (100.0, 0.0)]
)
def test_each_coming_regime_counts_at_its_own_rate(done: float, seconds: float) -> None:
    world = World().job("a/1", gpus=1, iterations=100, seconds_per_iteration=1.0, done=done)
    world.job("b/1", gpus=1, iterations=25, seconds_per_iteration=1.0)
    menus = _with_regimes(world, REGIMES, 0.0)
    order, left = ranked(world, srtf(), menus=menus)
    assert left == {"a/1": seconds, "b/1": 25.0}
    assert order[0] == ("a/1" if seconds < 25.0 else "b/1")


def test_keys_of_running_jobs_are_valid_until_their_next_regime() -> None:
    """At every moment that a key holds, it is the time that the work left takes."""
    world = World().job("a/1", gpus=2, iterations=100, seconds_per_iteration=2.0, done=0.0, rate=1.0, since=10.0)
    for plugin, times in ((srtf(), 1.0), (Srsf(LengthOptions()), 2.0)):
        snapshot = world.snapshot(now=20.0)
        answer = plugin.eunomia_valuation(snapshot, _with_regimes(world, REGIMES, 20.0), world.offer(20.0))
        linear = answer.form(Scores).linear_key
        assert linear is not None
        key = linear(np.array([0], dtype=np.int32))
        assert key.at(20.0).tolist() == pytest.approx([60.0 * times])
        assert np.asarray(key.valid_until).tolist() == [60.0]  # 50 iterations are done at 60 s
        assert key.at(60.0).tolist() == pytest.approx([20.0 * times])
