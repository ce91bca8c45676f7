from hypothesis import given
from hypothesis import strategies as st

from eunomia import Scope, Scores
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.orders.remaining import LengthOptions
from eunomia_plugins.orders.srsf import Srsf


def service(world: World, *, now: float = 0.0) -> tuple[list[str], dict[str, float]]:
    snapshot = world.snapshot(now=now)
    answer = Srsf(LengthOptions()).eunomia_valuation(
        snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(now, scope=Scope.ALL)
    )
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    scores = answer.form(Scores)
    return [names[index] for index in scores.ranking()], dict(zip(names, scores.score[:, 0].tolist(), strict=True))


def test_a_short_job_on_many_gpus_comes_after_a_longer_one_on_few() -> None:
    # 8 GPUs for 100 s are 800 GPU-seconds; 1 GPU for 300 s is 300: remaining time alone would turn them round.
    world = World("1x8 V100").job("wide/1", gpus=8, iterations=100, seconds_per_iteration=8.0)
    world.job("long/1", gpus=1, iterations=300, seconds_per_iteration=1.0)
    assert service(world) == (["long/1", "wide/1"], {"wide/1": 800.0, "long/1": 300.0})


def test_work_done_since_the_last_report_counts() -> None:
    world = World().job("a/1", gpus=2, iterations=100, seconds_per_iteration=2.0, done=10.0, since=5.0, rate=1.0)
    world.holds("a/1", 0, 1)
    assert service(world, now=25.0)[1]["a/1"] == 2 * (100 - 10 - 20)


@given(st.floats(0.1, 10.0), st.integers(1, 1000), st.integers(1, 4))
def test_with_linear_speed_service_does_not_depend_on_the_size(seconds: float, iterations: int, gpus: int) -> None:
    world = World().job("a/1", gpus=gpus, iterations=iterations, seconds_per_iteration=seconds)
    assert abs(service(world)[1]["a/1"] - iterations * seconds) < 1e-6 * iterations * seconds
