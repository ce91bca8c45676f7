import numpy as np

from eunomia import Scope, Scores, Valuations
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.orders.fifo import Fifo
from eunomia_plugins.orders.las import Las, LasOptions


def valued(plugin: Fifo | Las, world: World, *, now: float = 0.0, scope: Scope = Scope.FREE) -> Valuations:
    snapshot = world.snapshot(now=now)
    return plugin.eunomia_valuation(snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(now, scope=scope))


def served(world: World, plugin: Fifo | Las, *, now: float = 100.0, scope: Scope = Scope.FREE) -> list[str]:
    valuations = valued(plugin, world, now=now, scope=scope)
    ids = world.snapshot().jobs.id
    return [str(ids[row]) for row in valuations.claims.rows[valuations.form(Scores).ranking()]]


def test_fifo_orders_by_arrival_and_keeps_the_order_of_ties() -> None:
    world = World().job("c/1", arrived=5.0).job("a/1", arrived=3.0).job("b/1", arrived=3.0)
    assert served(world, Fifo()) == ["a/1", "b/1", "c/1"]


def test_las_puts_jobs_that_received_least_first_and_breaks_ties_by_arrival() -> None:
    world = World("1x2 V100, 1x2 P100")
    world.job("a/1", received=(10.0, 10.0)).job("b/1", arrived=2.0, received=5.0).job("c/1", arrived=1.0, received=5.0)
    assert served(world, Las(LasOptions())) == ["c/1", "b/1", "a/1"]


def test_las_with_queues_orders_by_arrival_within_a_queue() -> None:
    world = World().job("a/1", arrived=1.0, received=90.0).job("b/1", arrived=2.0, received=10.0)
    world.job("c/1", arrived=0.0, received=500.0)
    assert served(world, Las(LasOptions(queues=(100.0,)))) == ["a/1", "b/1", "c/1"]
    assert served(world, Las(LasOptions(queues=(50.0,)))) == ["b/1", "c/1", "a/1"]


def test_las_wakes_when_the_first_running_job_enters_its_next_queue() -> None:
    world = World("1x4 V100").job("a/1", gpus=2, received=80.0).job("b/1", received=95.0).job("c/1", received=500.0)
    world.holds("a/1", 0, 1).holds("b/1", 2).holds("c/1", 3)
    answer = valued(Las(LasOptions(queues=(100.0,))), world, now=7.0)
    assert answer.wake_at == 12.0  # b reaches 100 after 5 s, a after 20 GPU-seconds on two GPUs after 10 s


def test_las_never_wakes_at_the_current_time() -> None:
    world = World().job("a/1", received=100.0 - 1e-12).holds("a/1", 0)
    answer = valued(Las(LasOptions(queues=(100.0,))), world, now=7.0)
    assert answer.wake_at > 7.0


def test_las_by_seconds_does_not_count_gpus() -> None:
    world = World("1x4 V100").job("a/1", gpus=4, received=100.0).job("b/1", gpus=1, received=30.0)
    assert served(world, Las(LasOptions(attained="gpu_seconds"))) == ["b/1", "a/1"]
    answer = valued(Las(LasOptions(attained="seconds")), world, now=1.0)
    assert np.all(answer.form(Scores).score[:, 0] == 0.0)


def test_an_order_returns_an_empty_valuation_for_an_empty_offer() -> None:
    world = World()
    for plugin in (Fifo(), Las(LasOptions()), Las(LasOptions(queues=(5.0,)))):
        assert valued(plugin, world).claims.rows.size == 0
