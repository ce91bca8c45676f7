"""Runs with many faults of machines and workers reach their end, and are not taken for runs without progress."""

from typing import ClassVar

import numpy as np
import pytest
from tests.testbed.simulator_lab import runs, watched

from eunomia import Allocation, Menus, Offer, Reason, Snapshot, Valuations, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import default_registry
from eunomia_testbed.simulator import Failures, Outage, SimulatedRun, SimulationOptions, WorkerFault

GUARD = "eunomia_testbed.simulator.livelock_guard"


def outages(machine: str, *times: float) -> list[Outage]:
    """A machine goes down at the first time, comes back at the second, and so on."""
    return [Outage(time_seconds=at, machine=machine, up=bool(number % 2)) for number, at in enumerate(times)]


def stop(at: float) -> WorkerFault:
    return WorkerFault(time_seconds=at, draw=0.0, stands_seconds=5.0, kills=False)


def ran(jobs: list[tuple[float, int, float]], cluster: str, failures: Failures) -> SimulatedRun:
    return watched(runs(jobs), cluster, "fifo", SimulationOptions(failures=failures))


def test_faults_that_no_job_may_have_any_more_do_not_count_as_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{GUARD}.STUCK_STEPS", 50)
    run = ran([(0.0, 1, 1000.0)], "1x1 V100", Failures(worker_faults=(stop(10.0), stop(20.0)), most_worker_faults=1))
    assert (run.state.tolist(), run.finish_seconds.tolist()) == (["finished"], [1005.0])
    assert run.steps < 50


def test_a_job_that_waits_for_a_machine_is_not_given_up_while_a_fault_waits_for_the_job() -> None:
    failures = Failures(
        outages=tuple(outages("m02", 100.0, 2100.0)), worker_faults=(stop(150.2),), checkpoint_every_seconds=1.0
    )
    run = ran([(0.0, 2, 1000.0)], "2x1 V100", failures)
    assert (run.state.tolist(), run.finish_seconds.tolist()) == (["finished"], [3005.0])


def test_failures_of_other_machines_do_not_end_the_run_of_a_long_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{GUARD}.STUCK_STEPS", 50)
    run = ran([(0.0, 1, 1000.0)], "2x1 V100", Failures(outages=tuple(outages("m02", *range(10, 110)))))
    assert (run.state.tolist(), run.finish_seconds.tolist()) == (["finished"], [1000.0])


def test_failures_of_other_machines_do_not_end_a_run_whose_machine_is_still_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{GUARD}.IDLE_STEPS", 5)
    events = outages("m01", 100.0, 2100.0) + outages("m02", *range(200, 220))
    failures = Failures(outages=tuple(events), checkpoint_every_seconds=1.0)
    run = ran([(0.0, 2, 1000.0)], "2x1 V100", failures)
    assert (run.state.tolist(), run.finish_seconds.tolist()) == (["finished"], [3000.0])


class Never:
    """Starts no job."""

    name = "never"
    api = 1
    contracts: ClassVar[Contracts] = {}

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        return Allocation.to_jobs(np.empty(0, np.int32), np.empty(0, np.int64), otherwise=Reason.OUTRANKED)


def test_endless_failures_do_not_prolong_a_run_in_which_no_job_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{GUARD}.IDLE_STEPS", 20)
    registry = default_registry().adding(Never)
    profile = Profile.load("default", settings={"stages.allocation": "never"}, registry=registry)
    (down,) = outages("m01", 0.0)
    options = SimulationOptions(failures=Failures(outages=(down,), between_seconds=100.0, repair_seconds=50.0))
    run = watched(runs([(0.0, 1, 10.0)]), "40x1 V100", profile, options)
    assert run.state.tolist() == ["rejected"]
    assert 20 < run.steps < 200
