"""Simulated apps use what they win as their bids value it: GPUs that slow a job down stay idle or go to other jobs."""

import dataclasses

import numpy as np
import pytest
from simulator_lab import several, watched

from eunomia import Profile
from eunomia.model.cluster import Cluster, Machine
from eunomia_appmaster.master.division import Slowdown
from eunomia_testbed.performance import DeclaredModel, DeclaredSpeeds
from eunomia_testbed.simulator import Costs, Reports, SimulatedRun, SimulationOptions
from eunomia_testbed.workload import Workload

RACKS = Cluster.build(
    [Machine(name="a", gpu_type="V100", gpus=3, rack="ra"), Machine(name="b", gpu_type="V100", gpus=1, rack="rb")]
)
SLOWDOWN = (1.0, 1.0, 1.1, 11.9)
ORACLE = Reports(know="oracle", profiles=False)


def of_one_model(workload: Workload) -> Workload:
    jobs = dataclasses.replace(workload.jobs, model=np.zeros(len(workload.jobs.id), np.int64))
    return dataclasses.replace(workload, jobs=jobs, models=("far",))


def run(workload: Workload, slowdown: Slowdown = SLOWDOWN, **options: object) -> SimulatedRun:
    profile = Profile.load("themis", settings={"rounds.bid_deadline": "none", "stages.elasticity": "range"})
    speeds = DeclaredSpeeds({"far": DeclaredModel(seconds_per_iteration=1.0, slowdown=slowdown)})
    made = SimulationOptions(reports=ORACLE, **options)  # type: ignore[arg-type]
    return watched(of_one_model(workload), RACKS, profile, made, models=speeds)


@pytest.mark.parametrize("agents", [False, True])
def test_a_job_runs_for_as_long_as_its_bid_states(agents: bool) -> None:
    """Three GPUs of one rack do 1000 serial seconds in 333 s; with the fourth, in another rack, in 2975 s."""
    alone = run(several([(0.0, [(1, 4, 250.0)])]), agents=agents)
    assert alone.finish_seconds.tolist() == pytest.approx([1000.0 / 3.0])


def test_a_running_job_is_not_widened_over_racks() -> None:
    ended = run(several([(0.0, [(1, 4, 750.0), (1, 1, 10.0)])]), costs=Costs(start=5.0))
    assert ended.finish_seconds[0] <= 3000.0 / 3.0 + 30.0
    assert ended.finish_seconds[1] <= 20.0


@pytest.mark.parametrize("agents", [False, True])
def test_a_job_uses_gpus_of_several_machines_if_they_speed_it_up(agents: bool) -> None:
    """As the papers' apps do; a live app keeps a job to one node unless its file allows more."""
    alone = run(several([(0.0, [(1, 4, 250.0)])]), (1.0, 1.0, 1.0, 1.0), agents=agents)
    assert alone.finish_seconds.tolist() == pytest.approx([1000.0 / 4.0])
