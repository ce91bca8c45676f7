"""A paused job that goes on may use more or fewer GPUs than before: its phase's."""

import pytest

from assembling import assemble
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, Event, JobAdded, JobPaused, JobResumed, Released, Started
from eunomia.contract.stages import Rounds
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import default_registry
from eunomia.units import AppId, JobId, Seconds, UserId

JOB = JobId("ana/1")


def arbiter_of(*events: Event) -> Arbiter:
    """An arbiter of eight GPUs with a job that runs on its most, which is 2; after the events."""
    registry = default_registry()
    stages = assemble(
        elasticity=registry.make("range", {}, alias="range", place=str),
        valuation=registry.make("fifo", {}, alias="fifo", place=str),
        allocation=registry.make("ordered", {}, alias="ordered", place=str),
        placement=registry.make("packed", {}, alias="packed", place=str),
        rounds=Rounds(),
    )
    arbiter = Arbiter(Cluster.parse("1x8 V100"), stages, stages)
    arbiter.strict = True
    arbiter.step(Seconds(0.0), [AppArrived(app=AppId("ana"), user=UserId("ana"), divides=False)])
    arbiter.step(Seconds(0.0), [JobAdded(job=JOB, app=AppId("ana"), least=1, most=2, iterations=100.0)])
    (lease,) = arbiter.state.leases.values()
    arbiter.step(Seconds(1.0), [Started(lease=lease.id, epoch=lease.epoch)])
    arbiter.step(Seconds(2.0), events)
    return arbiter


def paused() -> Arbiter:
    """The same job, paused and off its GPUs."""
    arbiter = arbiter_of(JobPaused(job=JOB))
    (lease,) = arbiter.state.leases.values()
    arbiter.step(Seconds(3.0), [Released(lease=lease.id, epoch=lease.epoch, gpus=(0, 1))])
    return arbiter


def granted(arbiter: Arbiter) -> list[int]:
    return [len(lease.gpus) for lease in arbiter.state.leases.values()]


@pytest.mark.parametrize(("most", "gpus"), [(None, 2), (1, 1), (5, 5), (100, 8)])
def test_a_resumed_job_gets_up_to_the_maximum_of_its_new_phase(most: int | None, gpus: int) -> None:
    arbiter = paused()
    arbiter.step(Seconds(4.0), [JobResumed(job=JOB, most=most)])
    assert granted(arbiter) == [gpus]


def test_a_maximum_below_the_minimum_is_refused_and_changes_nothing() -> None:
    arbiter = paused()
    decision = arbiter.step(Seconds(4.0), [JobResumed(job=JOB, most=0)])
    assert "the most GPUs of a job must be at least its least, 1" in decision.faults[0].what
    assert granted(arbiter) == []


def test_the_maximum_of_a_job_that_is_not_paused_is_unchanged() -> None:
    arbiter = arbiter_of(JobResumed(job=JOB, most=5))
    assert granted(arbiter) == [2]
