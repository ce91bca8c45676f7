"""What a change of size costs a simulated job, by hand: with a pause, live, and by a restart."""

import pytest
from simulator_lab import several, watched

from eunomia_testbed import Costs, SimulationOptions
from eunomia_testbed.simulator import SimulatedRun
from eunomia_testbed.simulator.options import Resizes

COSTS = Costs(start=2.0, checkpoint=1.0, restore=3.0, join=3.0, pause=0.5, release=0.25)


def run_of(resizes: Resizes, costs: Costs = COSTS) -> SimulatedRun:
    """Run job a, alone on two GPUs until b takes one of them, and again after b."""
    workload = several([(0.0, [(1, 2, 40.0)]), (10.0, [(1, 1, 6.0)])])
    options = SimulationOptions(costs=costs, resizes=resizes)
    return watched(workload, "1x2 V100", "max_min", options)


def test_a_live_job_stands_still_for_its_pauses_alone() -> None:
    # a makes steps from 2 on, 8 s of 40 by 10. It stands still until 10.5 and goes on with one GPU; the other is free
    # at 10.75. b starts in 2 s, ends at 18.75, and its GPU is free at 19. a runs on as it is for 3 s, stands still for
    # 0.5 s, and has two GPUs from 22.5 on: 8 + 11.5 / 2 = 13.75 s of 40 are done.
    run = run_of("live")
    assert run.finish_seconds.tolist() == pytest.approx([22.5 + 26.25, 18.75])
    assert run.run_seconds.tolist() == pytest.approx([8.0 + 11.5 + 26.25, 6.0])
    assert (run.resizes.tolist(), run.restarts.tolist()) == ([2, 0], [0, 0])


def test_a_job_that_restarts_saves_starts_and_restores_at_each_change() -> None:
    # a saves from 10 to 11, starts and restores until 16 on one GPU; the other one is free at 11.25. b ends at 19.25,
    # and its GPU is free at 19.5. a saves until 20.5, and has two GPUs from 25.5 on.
    run = run_of("restart")
    assert run.finish_seconds.tolist() == pytest.approx([25.5 + 40.0 - 8.0 - 3.5 / 2.0, 19.25])
    assert (run.resizes.tolist(), run.restarts.tolist()) == ([2, 0], [2, 0])


def test_a_change_by_restart_is_never_free_where_starts_are_not() -> None:
    free = Costs(start=2.0, restore=3.0)
    assert run_of("restart", free).finish_seconds[0] > run_of("pause", free).finish_seconds[0] + 2.0


def test_without_costs_all_ways_are_alike() -> None:
    ways: tuple[Resizes, ...] = ("pause", "live", "restart")
    assert len({tuple(run_of(way, Costs()).finish_seconds.tolist()) for way in ways}) == 1


def test_a_live_job_that_loses_all_its_gpus_saves() -> None:
    # Under least attained service a and b take turns on one GPU.
    workload = several([(0.0, [(1, 1, 4.0)]), (1.0, [(1, 1, 2.0)])])
    ways: tuple[Resizes, ...] = ("live", "pause")
    runs = [watched(workload, "1x1 V100", "srtf", SimulationOptions(costs=COSTS, resizes=way)) for way in ways]
    assert runs[0].finish_seconds.tolist() == runs[1].finish_seconds.tolist()


@pytest.mark.parametrize("way", ["live", "restart"])
@pytest.mark.parametrize("policy", ["coddl", "afs_p", "max_min"])
def test_many_elastic_jobs_finish(way: Resizes, policy: str) -> None:
    """The GPUs have one holder each in every step, and every job makes its iterations."""
    apps = [(3.0 * number, [(1, 4, 20.0 + 7.0 * (number % 3))]) for number in range(8)]
    run = watched(several(apps), "1x4 V100", policy, SimulationOptions(costs=COSTS, resizes=way))
    assert set(run.state.tolist()) == {"finished"}
    assert run.resizes.sum() > 0
    assert (run.restarts.sum() > 0) or way == "live"
