"""What holds of every run, whatever it costs and whatever goes wrong: tried on random workloads, costs and faults."""

import dataclasses
import math
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.testbed.simulator_lab import AfterStep, check, several

from eunomia.contract.decisions import Decision
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_testbed.simulator import (
    Costs,
    Delays,
    Failures,
    Keep,
    SimulatedRun,
    SimulationOptions,
    SimulationState,
    assemble,
)
from eunomia_testbed.workload import Workload
from strength import examples

POLICIES = {
    name: Profile.load(name, settings=changed)
    for name, changed in {
        "fifo": {},
        "srtf": {},
        "las": {"rounds.lease": "40s"},
        "max_min": {},
        "max_min_time": {},
        "themis": {"rounds.lease": "30s"},
    }.items()
}
CLUSTERS = tuple(Cluster.parse(text) for text in ("1x2 V100", "2x2 V100", "1x4 V100, 2x1 V100"))
seconds = st.sampled_from([0.0, 0.0, 0.5, 3.0, 11.0])


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    apps = []
    for _ in range(draw(st.integers(1, 6))):
        jobs = []
        for _ in range(draw(st.integers(1, 3))):
            least = draw(st.integers(1, 2))
            most = draw(st.integers(least, 4))
            jobs.append((least, most, float(draw(st.integers(1, 60)))))
        apps.append((float(draw(st.integers(0, 90))), jobs))
    return several(sorted(apps, key=lambda app: app[0]))


@st.composite
def worlds(draw: st.DrawFn) -> SimulationOptions:
    costs = Costs(**{name: draw(seconds) for name in Costs.__dataclass_fields__ if name != "checkpoint_every"})
    costs = dataclasses.replace(costs, checkpoint_every=draw(st.sampled_from([math.inf, 1.5, 7.0])))
    delays = Delays()
    if draw(st.booleans()):
        delays = Delays(
            order=draw(seconds), jitter=draw(st.sampled_from([0.0, 0.5])), lost=draw(st.sampled_from([0.0, 0.3]))
        )
    failures = None
    if draw(st.booleans()):
        failures = Failures(
            between_seconds=120.0,
            repair_seconds=10.0,
            checkpoint_every_seconds=draw(st.sampled_from([2.0, 7.0]))
            if math.isinf(costs.checkpoint_every)
            else 1800.0,
        )
    agents = draw(st.booleans())
    answers = draw(st.sampled_from([0.0, 0.7, 5.0])) if agents else 0.0
    return SimulationOptions(
        costs=costs, delays=delays, failures=failures, agents=agents, answer_seconds=answers, keep=Keep(segments=True)
    )


def holders(sim: SimulationState, decision: Decision) -> None:
    """Nobody makes steps on a GPU that is not his, and what the arbiter believes is sound."""
    check(sim, decision)
    for job, gpus in enumerate(sim.work.on):
        for gpu in gpus:
            assert sim.gpus.job_on[gpu] == job
            assert sim.gpus.holder[gpu] >= 0
    assert sim.gpus.busy == sum(holder >= 0 for holder in sim.gpus.holder)
    assert sim.jobs.running == sim.jobs.state.count("running")
    assert sim.jobs.waiting == sim.jobs.state.count("waiting")


@settings(
    max_examples=int(os.environ.get("EXAMPLES", examples(25))),
    derandomize="EXAMPLES" not in os.environ,  # a new find is for whoever looks for one, not for whoever changes a word
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    workload=workloads(),
    cluster=st.sampled_from(CLUSTERS),
    policy=st.sampled_from(sorted(POLICIES)),
    options=worlds(),
    seed=st.integers(0, 3),
)
def test_every_run_finishes_its_jobs_holds_no_slot_twice_and_is_repeatable(
    workload: Workload, cluster: Cluster, policy: str, options: SimulationOptions, seed: int
) -> None:
    run = assemble(workload, cluster, POLICIES[policy], options, seed=seed, observers=[AfterStep(holders)]).run()
    lost = np.isin(np.arange(workload.size), [unfit.job for unfit in run.dropped])
    assert np.all((run.state == "finished") | lost), run.state
    assert not run.faults
    work_is_done(workload, run, ~lost)
    nothing_overlaps(run)
    gpu_time_is_conserved(run)
    again = assemble(workload, cluster, POLICIES[policy], options, seed=seed).run()
    assert run.same_as(again)


def work_is_done(workload: Workload, run: SimulatedRun, done: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> None:
    """Work done equals work asked, lost work done again; nobody is faster than alone."""
    np.testing.assert_allclose(run.iterations_done[done], workload.jobs.iterations[done])
    ran = (run.segments.end_seconds - run.segments.start_seconds) / run.segments.seconds_per_iteration
    by_job = np.bincount(run.segments.job, weights=ran, minlength=workload.size)
    np.testing.assert_allclose(by_job[done], (workload.jobs.iterations + run.iterations_lost)[done], rtol=1e-9)
    took = run.finish_seconds - workload.jobs.arrival_seconds
    assert np.all(took[done] >= run.ideal_seconds[done] * (1.0 - 1e-12))
    assert np.all(run.run_seconds[done] + run.wait_seconds[done] <= took[done] * (1.0 + 1e-9) + 1e-9)


def nothing_overlaps(run: SimulatedRun) -> None:
    """No GPU is held twice at one moment; read off the log, which shares nothing with the arbiter."""
    order = np.lexsort((run.leases.start_seconds, run.leases.gpu))
    gpu, start, end = run.leases.gpu[order], run.leases.start_seconds[order], run.leases.end_seconds[order]
    same = gpu[1:] == gpu[:-1]
    assert np.all(start[1:][same] >= end[:-1][same])


def gpu_time_is_conserved(run: SimulatedRun) -> None:
    """GPU time of jobs, of leases, and of the cluster as it was counted over time are the same."""
    ends = np.where(np.isnan(run.leases.end_seconds), run.end_seconds, run.leases.end_seconds)
    lasted = ends - run.leases.start_seconds
    with_job = run.leases.job >= 0
    np.testing.assert_allclose(run.slot_seconds.sum(), lasted[with_job].sum())
    times = np.append(run.queue.time_seconds, run.end_seconds)
    np.testing.assert_allclose((np.diff(times) * run.queue.busy_gpus).sum(), lasted.sum())


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - {"themis"}))  # its draws follow the number of rounds
def test_costs_of_zero_equal_a_run_without_costs(policy: str) -> None:
    """The path without costs and the path through the agenda come to the same: changes in no time are three zeros."""
    workload = several([(0.0, [(1, 2, 40.0), (1, 1, 20.0)]), (3.0, [(2, 4, 30.0)]), (11.0, [(1, 1, 9.0)] * 3)])
    runs = [
        assemble(
            workload,
            CLUSTERS[2],
            POLICIES[policy],
            SimulationOptions(costs=Costs(release=release)),
            observers=[AfterStep(holders)],
        ).run()
        for release in (0.0, 1e-7)
    ]
    np.testing.assert_allclose(runs[0].finish_seconds, runs[1].finish_seconds, atol=1e-3)
