"""Gandiva's packing by placement preference, as Themis §6.1 describes it, by hand."""

import numpy as np
import pytest

from eunomia import Allocation, Cluster, Grants, Locality, Profile, Reason, Scope
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.testing.builders import World
from eunomia_plugins.allocations.gandiva import Gandiva, GandivaOptions
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.orders.fifo import Fifo
from eunomia_testbed.simulator import SimulatedRun, simulate_one
from eunomia_testbed.workload import Workload


def allocated(
    world: World, *, now: float = 0.0, scope: Scope = Scope.FREE, **options: object
) -> tuple[dict[str, dict[int, int]], Allocation]:
    """By job, GPUs by machine; and the answer."""
    snapshot, offer = world.snapshot(now=now), world.offer(now, scope=scope)
    menus = Fixed().eunomia_elasticity(snapshot)
    plugin = Gandiva(GandivaOptions.model_validate(options))
    answer = plugin.eunomia_allocation(snapshot, menus, offer, Fifo().eunomia_valuation(snapshot, menus, offer))
    assert isinstance(answer.amount, Grants) and answer.amount.pins is not None
    pins = answer.amount.pins
    found: dict[str, dict[int, int]] = {}
    for claim, machine, gpus in zip(pins.claim.tolist(), pins.machine.tolist(), pins.gpus.tolist(), strict=True):
        found.setdefault(str(snapshot.jobs.id[answer.claims.rows[claim]]), {})[machine] = gpus
    return found, answer


def sensitive(world: World, app: str, rack: float, *, gpus: int, **columns: float) -> World:
    """An app of one job that is ``rack`` times as slow across machines."""
    job = JobForecast(iterations_left=100.0, seconds_per_iteration=1.0, most=gpus, slowdown=(1.0, 1.0, rack, rack))
    world.app(app, forecast=Forecast(phases=(Phase(jobs=(job,)),), total_gpu_seconds=100.0, most=gpus))
    return world.job(f"{app}/1", gpus=gpus, iterations=100.0, seconds_per_iteration=1.0, **columns)


def test_a_job_is_placed_where_it_runs_fastest() -> None:
    world = World("2x4 V100").job("old/1").holds("old/1", 0).job("a/1", gpus=3, arrived=1.0)
    assert allocated(world)[0] == {"a/1": {0: 3}}


def test_the_job_with_the_best_placement_comes_first_whatever_the_arrival() -> None:
    """Two GPUs are free on each of two machines: the gang of four would be split, the pairs are not."""
    world = World("2x4 V100").job("old/1", gpus=2).holds("old/1", 0, 1).job("old/2", gpus=2).holds("old/2", 4, 5)
    world.job("big/1", gpus=4, arrived=1.0).job("a/1", gpus=2, arrived=2.0).job("b/1", gpus=2, arrived=3.0)
    placed, answer = allocated(world)
    assert set(placed) == {"a/1", "b/1"}
    assert [str(answer.claims.rows.size), answer.verdicts.reasons.tolist()] == ["3", [int(Reason.OUTRANKED)]]


def test_of_jobs_that_must_be_split_the_one_slowed_down_less_comes_first() -> None:
    world = World("2x4 V100").job("old/1", gpus=2).holds("old/1", 0, 1).job("old/2", gpus=2).holds("old/2", 4, 5)
    sensitive(world, "vgg", 1.5, gpus=4, arrived=1.0)
    sensitive(world, "inception", 1.01, gpus=4, arrived=2.0)
    assert allocated(world)[0] == {"inception/1": {0: 2, 1: 2}}


def test_jobs_of_equal_preference_are_placed_in_the_order_of_the_valuation() -> None:
    world = World("1x2 V100").job("a/1", arrived=3.0).job("b/1", arrived=1.0).job("c/1", arrived=2.0)
    assert set(allocated(world)[0]) == {"b/1", "c/1"}


def test_a_job_that_is_placed_badly_moves_when_gpus_are_freed() -> None:
    """Another job left machine 0; the gang on both machines moves together."""
    world = sensitive(World("2x4 V100"), "vgg", 1.3, gpus=4)
    world.holds("vgg/1", 0, 1, 4, 5, ends_at=1e9)
    placed, _ = allocated(world, now=10.0, scope=Scope.ALL)
    assert placed in ({"vgg/1": {0: 4}}, {"vgg/1": {1: 4}})
    assert allocated(world, now=10.0, scope=Scope.ALL, migrate=False)[0] == {"vgg/1": {0: 2, 1: 2}}
    assert allocated(world, now=10.0, scope=Scope.ALL, least_gain=0.5)[0] == {"vgg/1": {0: 2, 1: 2}}


def test_preferences_follow_from_measured_rates() -> None:
    world = World("2x4 V100").job("a/1", gpus=4, iterations=100.0, seconds_per_iteration=1.0)
    world.holds("a/1", 0, 1, 4, 5, ends_at=1e9).measures("a/1", 4, 3.99, locality=Locality.RACK)
    snapshot_menus = allocated(world, now=10.0, scope=Scope.ALL)[0]
    assert snapshot_menus == {"a/1": {0: 2, 1: 2}}  # measured: distance costs it nothing


def test_no_running_job_is_stopped_for_another() -> None:
    world = World("1x4 V100").job("a/1", gpus=4).holds("a/1", 0, 1, 2, 3, ends_at=1e9).job("b/1", arrived=1.0)
    assert allocated(world, now=10.0, scope=Scope.ALL)[0] == {"a/1": {0: 4}}


def test_a_job_at_a_size_that_is_no_longer_on_its_menu_is_resized() -> None:
    world = World("1x4 V100").job("a/1", gpus=2).holds("a/1", 0, 1, 2, ends_at=1e9)
    assert allocated(world, now=10.0, scope=Scope.ALL)[0] == {"a/1": {0: 2}}


def test_a_job_whose_lease_is_renewed_stays_where_it_is() -> None:
    world = World("2x4 V100").job("a/1", gpus=2, arrived=0.0).holds("a/1", 6, 7, ends_at=5.0)
    world.job("b/1", gpus=2, arrived=1.0)
    placed, _ = allocated(world, now=5.0)
    assert placed["a/1"] == {1: 2}


def test_jobs_take_turns_by_the_order_of_the_valuation_when_leases_end() -> None:
    """With an order by time run, the job that has had its turn is behind those that wait: time slicing."""
    from eunomia_plugins.orders.las import Las, LasOptions

    world = World("1x1 V100").job("ran/1", received=60.0).holds("ran/1", 0, ends_at=60.0).job("waits/1", arrived=30.0)
    snapshot, offer = world.snapshot(now=60.0), world.offer(60.0)
    menus = Fixed().eunomia_elasticity(snapshot)
    order = Las(LasOptions(attained="gpu_seconds")).eunomia_valuation(snapshot, menus, offer)
    answer = Gandiva(GandivaOptions()).eunomia_allocation(snapshot, menus, offer, order)
    assert [str(snapshot.jobs.id[answer.claims.rows[claim]]) for claim in answer.order] == ["waits/1"]


def test_a_job_waits_if_cpus_are_missing() -> None:
    world = World("1x2 V100 4cpu 64GB, 1x4 V100 16cpu 64GB").job("a/1", gpus=2, cpus=4.0)
    assert allocated(world)[0] == {"a/1": {1: 2}}
    assert np.all(allocated(World("1x2 V100 4cpu 64GB").job("a/1", gpus=2, cpus=4.0))[1].order.size == 0)


def of_jobs(preset: str, cluster: str, gpus: list[int], arrivals: list[float]) -> SimulatedRun:
    """Jobs of ten minutes each, in a simulation under a preset."""
    workload = Workload.single_jobs(
        "jobs",
        ids=[f"a{number}" for number in range(len(gpus))],
        arrival_seconds=np.array(arrivals),
        gpus=np.array(gpus),
        iterations=np.full(len(gpus), 600.0),
        seconds_per_iteration=np.ones(len(gpus)),
    )
    return simulate_one(workload, Cluster.parse(cluster), Profile.load(preset))


def test_only_the_preset_with_turns_shares_a_gpu_in_time() -> None:
    """Two jobs want the only GPU: as the paper has it, the first keeps it to its end; in turns, both end late."""
    paper = of_jobs("gandiva", "1x1 V100", [1, 1], [0.0, 1.0])
    assert paper.finish_seconds.tolist() == pytest.approx([600.0, 1200.0])
    turns = of_jobs("gandiva_turns", "1x1 V100", [1, 1], [0.0, 1.0])
    assert min(turns.finish_seconds) > 1100.0


def test_small_jobs_starve_a_gang_as_in_the_paper() -> None:
    """Jobs of one GPU come while others end: the gang of two finds both GPUs free only after the last of them."""
    starved = of_jobs("gandiva", "1x2 V100", [1, 1, 2, 1, 1], [0.0, 300.0, 310.0, 850.0, 1000.0])
    assert starved.start_seconds[2] == pytest.approx(starved.finish_seconds[4]) == pytest.approx(1600.0)
    alone = of_jobs("gandiva", "1x2 V100", [2], [0.0])
    assert alone.finish_seconds.tolist() == pytest.approx([600.0])
