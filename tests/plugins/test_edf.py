from hypothesis import given
from hypothesis import strategies as st

from eunomia import Scores
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.orders.edf import Edf, EdfOptions


def deadlines(world: World, *, now: float = 0.0, **options: object) -> tuple[list[str], dict[str, float]]:
    snapshot = world.snapshot(now=now)
    menus = Fixed().eunomia_elasticity(snapshot)
    answer = Edf(EdfOptions.model_validate(options)).eunomia_valuation(snapshot, menus, world.offer(now))
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    scores = answer.form(Scores)
    return [names[index] for index in scores.ranking()], dict(zip(names, scores.score[:, 0].tolist(), strict=True))


def test_a_deadline_is_the_arrival_plus_slack_times_the_declared_run_time() -> None:
    # a: 100 iterations of 4 s on 4 GPUs are 100 s: due at 10 + 200; b: 30 s on one GPU: due at 100 + 60.
    world = World().job("a/1", gpus=(1, 4), iterations=100, seconds_per_iteration=4.0, arrived=10.0)
    world.job("b/1", iterations=30, seconds_per_iteration=1.0, arrived=100.0)
    assert deadlines(world, now=100.0) == (["b/1", "a/1"], {"a/1": 210.0, "b/1": 160.0})
    assert deadlines(world, now=100.0, slack=1.0)[0] == ["a/1", "b/1"]


def test_a_job_without_a_declared_run_time_is_due_after_a_fixed_time() -> None:
    world = World().job("a/1", arrived=10.0).job("b/1", iterations=10, arrived=0.0)
    assert deadlines(world, now=20.0, otherwise="1h")[1] == {"a/1": 3610.0, "b/1": 3600.0}


@given(st.floats(0.0, 1e5), st.floats(0.0, 1.0), st.floats(0.0, 10.0))
def test_a_deadline_never_moves(now: float, done: float, rate: float) -> None:
    world = World().job("a/1", gpus=2, iterations=100, seconds_per_iteration=1.0, done=100 * done, rate=rate, since=0.0)
    assert deadlines(world, now=now)[1] == {"a/1": 100.0}
