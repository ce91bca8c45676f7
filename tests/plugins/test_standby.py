"""Standby: jobs that start on GPUs that a placement cannot use for the jobs ahead of them."""

from typing import Any

import numpy as np
import pytest

from combinations.contended import contended
from eunomia import Allocation, Claims, Grants, Profile, Reason, Scope, Unit
from eunomia.arbiter import Arbiter
from eunomia.errors import InputErrors
from eunomia.model.cluster import Cluster
from eunomia.testing.builders import World
from eunomia.testing.drive import Drive
from eunomia_plugins.allocations.ordered import Ordered, OrderedOptions
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.orders.fifo import Fifo
from eunomia_plugins.placement.packed import Packed
from eunomia_plugins.refine.divide import Divide, DivideOptions


def greedy() -> World:
    """The first job asks for more CPUs than there are; three others wait, each for more GPUs than are left."""
    world = World("1x4 V100 16cpu 64GB").job("a/1", gpus=2, cpus=16.0)
    world.job("b/1", gpus=3, arrived=1.0, cpus=1.0).job("c/1", gpus=(3, 4), arrived=2.0, cpus=1.0)
    return world.job("d/1", gpus=3, arrived=3.0, cpus=1.0)


def served(world: World, *, scope: Scope = Scope.FREE, **options: object) -> tuple[Allocation, dict[str, int]]:
    snapshot, offer = world.snapshot(now=100.0), world.offer(100.0, scope=scope)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    plugin = Ordered(OrderedOptions.model_validate(options))
    allocation = plugin.eunomia_allocation(snapshot, menus, offer, Fifo().eunomia_valuation(snapshot, menus, offer))
    placement = Packed().eunomia_placement(snapshot, menus, offer, allocation)
    names = [str(name) for name in snapshot.jobs.id[allocation.claims.rows]]
    sizes = {names[claim]: placement.of(at).size for at, claim in enumerate(placement.claim.tolist())}
    return allocation, {name: size for name, size in sizes.items() if size}


def standing_by(world: World, allocation: Allocation) -> dict[str, int]:
    assert isinstance(allocation.amount, Grants)
    assert allocation.standby is not None
    rows = allocation.claims.rows[allocation.standby]
    names = [str(name) for name in world.snapshot().jobs.id[rows]]
    return dict(zip(names, allocation.amount.gpus[allocation.standby].tolist(), strict=True))


def test_without_standby_gpus_stay_idle_behind_a_job_that_cannot_be_placed() -> None:
    allocation, placed = served(greedy())
    assert allocation.standby is None
    assert placed == {}


def test_the_first_waiting_jobs_stand_by_at_their_smallest_size() -> None:
    allocation, placed = served(greedy(), standby=2)
    assert standing_by(greedy(), allocation) == {"b/1": 3, "c/1": 3}
    assert placed == {"b/1": 3}
    assert set(allocation.verdicts.reasons.tolist()) == {int(Reason.OUTRANKED)}


def test_a_running_job_that_is_displaced_is_not_a_standby_job() -> None:
    world = World("1x4 V100").job("a/1", gpus=4).job("b/1", gpus=2, arrived=1.0).holds("b/1", 0, 1)
    allocation, placed = served(world, scope=Scope.ALL, standby=5, preemptive=True)
    assert standing_by(world, allocation) == {}
    assert placed == {"a/1": 4}


def test_a_standby_claim_loses_gpus_that_a_claim_ahead_of_it_gets() -> None:
    world = World("1x4 V100").job("a/1", gpus=4).job("b/1", gpus=2).holds("b/1", 0, 1)
    snapshot, offer = world.snapshot(), world.offer(scope=Scope.ALL)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    allocation = Allocation(
        claims=Claims(unit=Unit.JOB, rows=np.array([0, 1], np.int32)),
        amount=Grants(gpus=np.array([4, 2])),
        order=np.array([0], np.int32),
        standby=np.array([1], np.int32),
    )
    placement = Packed().eunomia_placement(snapshot, menus, offer, allocation)
    assert [placement.of(at).size for at in np.argsort(placement.claim)] == [4, 0]


def test_jobs_of_a_standby_claim_are_placed_as_standby_jobs() -> None:
    world = World("2x4 V100").job("a/1", gpus=3).job("b/1", gpus=2).job("b/2", gpus=2)
    snapshot, offer = world.snapshot(), world.offer()
    allocation = Allocation(
        claims=Claims(unit=Unit.APP, rows=np.array([0, 1], np.int32)),
        amount=Grants(gpus=np.array([4, 4])),
        order=np.array([0], np.int32),
        standby=np.array([1], np.int32),
    )
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    divided = Divide(DivideOptions()).eunomia_refine(snapshot, menus, offer, allocation)
    assert divided.claims.rows[divided.order].tolist() == [world.row("a/1")]
    assert standing_by(world, divided) == {"b/1": 2, "b/2": 2}


@pytest.mark.parametrize("misfit", ["stop", "easy", "conservative"])
def test_standby_is_refused_unless_jobs_that_do_not_fit_are_skipped(misfit: str) -> None:
    settings = {"plugins.ordered.standby": 4, "plugins.ordered.on_misfit": misfit}
    with pytest.raises(InputErrors, match='standby must be 0 unless on_misfit is "skip"'):
        Profile.load("default", settings=settings)


def started(cluster: str, **settings: Any) -> dict[str, float]:
    """By job, when a crowded cluster first started it."""
    scene, first = contended(cluster), dict[str, float]()
    stages = Profile.load("default", settings=settings).stages(Cluster.parse(scene.cluster))

    def watch(_: Drive, decision: Any) -> None:
        assert not decision.faults
        for order in decision.transitions:
            first.setdefault(str(order.job), float(decision.now))

    arbiter = Arbiter(Cluster.parse(scene.cluster), stages, stages, seed=3)
    Drive(arbiter, work=dict(scene.work), delays=scene.delays, seed=5, watch=watch, keep=False).run(
        scene.script, until=scene.until, steps=5_000
    )
    return first


def test_with_standby_more_jobs_start_in_a_crowded_cluster() -> None:
    cluster = "4x2 V100"
    without = started(cluster, **{"stages.placement": "consolidated"})
    with_standby = started(cluster, **{"stages.placement": "consolidated", "plugins.ordered.standby": 8})
    assert set(without) < set(with_standby)
