"""Tiny workloads whose finish times were worked out by hand."""

import dataclasses
import math
from typing import ClassVar

import numpy as np
import pytest
from tests.testbed.simulator_lab import runs, several, watched

from eunomia import Allocation, Menus, Offer, Reason, Seconds, Snapshot, Valuations, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.errors import EunomiaError, InputError
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import default_registry
from eunomia_testbed.simulator import Costs, SimulationOptions, simulate_one

THREE = runs([(0.0, 1, 10.0), (1.0, 1, 3.0), (2.0, 2, 4.0)])


@pytest.mark.parametrize(
    ("policy", "finish"),
    [
        ("fifo", [10.0, 4.0, 14.0]),  # c waits for both GPUs
        ("srtf", [14.0, 4.0, 8.0]),  # at 4 s c has 4 s left and a 6: a makes room, and runs on from 8
        ("las", [14.0, 8.0, 6.0]),  # c has attained least: both make room at 2
    ],
)
def test_finish_times_equal_those_computed_by_hand(policy: str, finish: list[float]) -> None:
    run = watched(THREE, "1x2 V100", Profile.load(policy, settings={"rounds.protected": "none"}))
    assert run.finish_seconds.tolist() == finish
    assert run.state.tolist() == ["finished"] * 3
    assert run.faults == ()


def test_times_by_job_equal_those_computed_by_hand() -> None:
    run = watched(THREE, "1x2 V100", "srtf")
    assert run.start_seconds.tolist() == [0.0, 1.0, 4.0]
    assert run.run_seconds.tolist() == [10.0, 3.0, 4.0]
    assert run.wait_seconds.tolist() == [4.0, 0.0, 2.0]
    assert run.slot_seconds.tolist() == [10.0, 3.0, 8.0]
    assert run.restarts.tolist() == [1, 0, 0]
    assert run.ideal_seconds.tolist() == [10.0, 3.0, 4.0]
    assert run.app_finish_seconds.tolist() == run.finish_seconds.tolist()


def test_the_queue_is_logged_as_a_step_function() -> None:
    queue = watched(THREE, "1x2 V100", "srtf").queue
    assert queue.time_seconds.tolist() == [0.0, 1.0, 2.0, 4.0, 8.0, 14.0]
    assert queue.waiting_jobs.tolist() == [0, 0, 1, 1, 0, 0]
    assert queue.waiting_gpus.tolist() == [0, 0, 2, 1, 0, 0]
    assert queue.busy_gpus.tolist() == [1, 2, 2, 2, 1, 0]


def test_each_wait_has_a_reason() -> None:
    waits = watched(THREE, "1x2 V100", "srtf").waits
    assert list(zip(waits.job.tolist(), waits.start_seconds, waits.end_seconds, waits.reason, strict=True)) == [
        (2, 2.0, 4.0, "outranked"),
        (0, 4.0, 8.0, "outranked"),
    ]


def test_each_lease_records_why_it_ended() -> None:
    leases = watched(THREE, "1x2 V100", "srtf").leases
    ended = {
        (int(job), float(start)): word
        for job, start, word in zip(leases.job, leases.start_seconds, leases.ended_by, strict=True)
    }
    assert ended[0, 0.0] == "preempted"
    assert ended[0, 8.0] == ended[1, 1.0] == ended[2, 4.0] == "released"


def test_ends_and_arrivals_at_the_same_time_lead_to_one_decision() -> None:
    # At 5 s a ends, and b and c arrive: c is shorter and must not lose to b, nor b start before c was seen.
    run = watched(runs([(0.0, 1, 5.0), (5.0, 1, 9.0), (5.0, 1, 2.0)]), "1x1 V100", "srtf")
    assert run.finish_seconds.tolist() == [5.0, 16.0, 7.0]
    assert run.restarts.tolist() == [0, 0, 0]


def test_a_start_costs_time_and_a_restart_costs_more() -> None:
    # a runs from 1 (start) and is stopped at 2 with 9 s left; 3 s to save: b begins at 5, runs 6 to 7. a again: 7, and
    # start 1 and restore 2 later it runs on.
    options = SimulationOptions(costs=Costs(start=1.0, checkpoint=3.0, restore=2.0))
    run = watched(runs([(0.0, 1, 10.0), (2.0, 1, 1.0)]), "1x1 V100", "srtf", options)
    assert run.finish_seconds.tolist() == [19.0, 7.0]
    assert run.run_seconds.tolist() == [10.0, 1.0]
    assert run.slot_seconds.tolist() == [17.0, 2.0]


def test_gpus_are_free_only_after_the_release_time() -> None:
    options = SimulationOptions(costs=Costs(release=2.0))
    run = watched(runs([(0.0, 1, 10.0), (1.0, 1, 1.0)]), "1x1 V100", "fifo", options)
    assert run.finish_seconds.tolist() == [10.0, 13.0]


def test_a_job_that_cannot_run_is_rejected_with_the_rule() -> None:
    run = watched(runs([(0.0, 9, 10.0), (1.0, 1, 1.0)]), "1x8 V100", "fifo")
    assert run.state.tolist() == ["rejected", "finished"]
    assert [(unfit.job, unfit.rule, unfit.value) for unfit in run.dropped] == [
        (0, "a gang must be at most the cluster's 8 GPUs", "9")
    ]
    assert math.isnan(run.finish_seconds[0])


def test_a_job_of_a_missing_type_is_rejected() -> None:
    run = watched(runs([(0.0, 1, 10.0), (1.0, 1, 1.0)], gpu_type=["A100", None]), "1x8 V100", "fifo")
    assert run.state.tolist() == ["rejected", "finished"]
    assert run.dropped[0].rule == "gpu_type must be a type of the cluster"


def test_a_run_can_be_cut_off_at_a_given_time() -> None:
    run = watched(THREE, "1x2 V100", "fifo", SimulationOptions(until=5.0))
    assert run.state.tolist() == ["running", "finished", "waiting"]
    assert run.end_seconds <= 5.0


def test_two_runs_of_one_seed_are_equal() -> None:
    profile, cluster = Profile.load("las"), Cluster.parse("1x2 V100")
    one, other = (simulate_one(THREE, cluster, profile, seed=3) for _ in range(2))
    assert one.same_as(other)
    assert not one.same_as(simulate_one(THREE, cluster, Profile.load("fifo"), seed=3))


def test_impossible_options_are_refused() -> None:
    with pytest.raises(InputError, match="start must be at least 0 seconds, but got -1"):
        simulate_one(
            THREE, Cluster.parse("1x2 V100"), Profile.load("fifo"), options=SimulationOptions(costs=Costs(start=-1.0))
        )


def test_the_progress_of_a_run_is_reported_to_observers() -> None:
    told = []
    simulate_one(THREE, Cluster.parse("1x2 V100"), Profile.load("fifo"), progress=told.append)
    assert (told[-1].finished, told[-1].jobs, told[-1].time_seconds) == (3, 3, 14.0)


def test_a_run_without_jobs_ends_at_once() -> None:
    run = watched(runs([(0.0, 3, 1.0)]), "1x2 V100", "fifo")
    assert run.steps == 0
    assert np.isnan(run.start_seconds).all()


def test_an_elastic_job_grows_and_shrinks_at_the_given_costs() -> None:
    # a alone runs on two GPUs at full speed. b comes at 4: a stops for 1 s and runs on one GPU from 5 on, at half its
    # speed. b ends at 4 + 6 = 10: a then has 16 - 2.5 = 13.5 s left and runs on as it is for 3 s, until the second GPU
    # is ready, pauses 1 s, and has 12 s left from 14 on.
    workload = several([(0.0, [(1, 2, 20.0)]), (4.0, [(1, 1, 6.0)])])
    options = SimulationOptions(costs=Costs(join=3.0, pause=1.0))
    run = watched(workload, "1x2 V100", "max_min", options)
    assert run.finish_seconds.tolist() == [26.0, 10.0]
    assert run.run_seconds.tolist() == [4.0 + 8.0 + 12.0, 6.0]
    assert (run.rounds.grown.sum(), run.rounds.shrunk.sum()) == (1, 1)
    assert run.restarts.tolist() == [0, 0]


class Restless:
    """Asks for another round all the time, and starts nobody."""

    name = "restless"
    api = 1
    contracts: ClassVar[Contracts] = {}

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        nobody = np.empty(0, np.int32)
        return dataclasses.replace(
            Allocation.to_jobs(nobody, np.empty(0, np.int64), otherwise=Reason.OUTRANKED),
            wake_at=Seconds(snapshot.now + 1.0),
        )


def test_a_policy_that_starts_no_job_does_not_hang_the_run() -> None:
    # The run ends with its last event, not when the livelock guard gives up.
    registry = default_registry().adding(Restless)
    profile = Profile.load("default", settings={"stages.allocation": "restless"}, registry=registry)
    run = watched(runs([(0.0, 1, 1.0)]), "1x1 V100", profile)
    assert run.state.tolist() == ["rejected"]
    assert (run.dropped[0].rule, run.dropped[0].value) == ("default must be able to start a job", "outranked")
    assert run.end_seconds == 0.0


def test_a_policy_that_makes_no_progress_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eunomia_testbed.simulator.livelock_guard.STUCK_STEPS", 50)
    registry = default_registry().adding(Restless)
    profile = Profile.load("default", settings={"stages.allocation": "restless"}, registry=registry)
    with pytest.raises(EunomiaError, match=r"a policy must make progress, but got 51 steps .* \(default at 5\d.0 s\)"):
        watched(runs([(0.0, 1, 1.0), (1e6, 1, 1.0)]), "1x1 V100", profile)
