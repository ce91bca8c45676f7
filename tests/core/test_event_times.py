"""Events that tell when it was so: what they start, end or report counts from then on."""

import pytest

from assembling import assemble
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import TransitionKind
from eunomia.contract.events import AppArrived, Event, JobAdded, JobReported, Released, Resized, Started
from eunomia.contract.stages import Rounds
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import default_registry
from eunomia.units import AppId, JobId, LeaseId, Seconds, UserId


def fresh(cluster: str = "1x2 V100", *, preemptive: bool = False) -> Arbiter:
    registry = default_registry()
    options = {"preemptive": preemptive}
    stages = assemble(
        elasticity=registry.make("fixed", {}, alias="fixed", place=str),
        valuation=registry.make("srtf", {}, alias="srtf", place=str),
        allocation=registry.make("ordered", options, alias="ordered", place=str),
        placement=registry.make("packed", {}, alias="packed", place=str),
        rounds=Rounds(),
    )
    arbiter = Arbiter(Cluster.parse(cluster), stages, stages)
    arbiter.strict = True
    return arbiter


def arrive(name: str, gpus: int = 2, iterations: float = 100.0) -> list[Event]:
    app = AppId(name)
    job = JobAdded(
        job=JobId(f"{name}/0"), app=app, least=gpus, most=gpus, iterations=iterations, seconds_per_iteration=1.0
    )
    return [AppArrived(app=app, user=UserId("ana"), divides=False), job]


@pytest.mark.parametrize("kind", [Started, Resized])
def test_a_job_counts_as_running_since_the_time_in_its_start_event(kind: type[Started] | type[Resized]) -> None:
    arbiter = fresh()
    order = arbiter.step(Seconds(10.0), arrive("ana")).transitions[0]
    arbiter.step(Seconds(25.0), [kind(lease=order.lease, epoch=order.epoch, at=Seconds(10.0))])
    snapshot = arbiter.snapshot()
    assert snapshot.jobs.since[0] == 10.0
    assert snapshot.iterations_left(snapshot.active)[0] == 70.0
    assert snapshot.ledger.jobs.attained[0] == 15.0
    assert snapshot.ledger.jobs.received[0, 0] == 30.0
    arbiter.step(Seconds(30.0))
    assert arbiter.snapshot().ledger.jobs.attained[0] == 20.0


def test_event_times_later_than_the_step_are_cut_to_the_step() -> None:
    arbiter = fresh()
    order = arbiter.step(Seconds(10.0), arrive("ana")).transitions[0]
    arbiter.step(Seconds(12.0), [Started(lease=order.lease, epoch=order.epoch, at=Seconds(40.0))])
    assert arbiter.snapshot().jobs.since[0] == 12.0


def test_progress_counts_from_the_time_of_the_report() -> None:
    arbiter = fresh()
    order = arbiter.step(Seconds(0.0), arrive("ana")).transitions[0]
    arbiter.step(Seconds(20.0), [Started(lease=order.lease, epoch=order.epoch, at=Seconds(0.0))])
    report = JobReported(job=JobId("ana/0"), iterations_done=10.0, rate=3.0, at=Seconds(10.0))
    arbiter.step(Seconds(20.0), [report])
    snapshot = arbiter.snapshot()
    assert snapshot.iterations_left(snapshot.active)[0] == 60.0


def test_gpus_released_before_the_step_are_charged_to_the_next_lease_from_then_on() -> None:
    arbiter = fresh(preemptive=True)
    first = arbiter.step(Seconds(0.0), arrive("ana")).transitions[0]
    arbiter.step(Seconds(4.0), [Started(lease=first.lease, epoch=first.epoch, at=Seconds(0.0))])
    decision = arbiter.step(Seconds(10.0), arrive("bob", iterations=20.0))
    leaver = next(order for order in decision.transitions if order.kind is TransitionKind.SUSPEND)
    starter = next(order for order in decision.transitions if order.kind is TransitionKind.START)
    gone = Released(lease=leaver.lease, epoch=leaver.fence, gpus=(0, 1), at=Seconds(10.0))
    began = Started(lease=LeaseId(starter.lease), epoch=starter.epoch, at=Seconds(10.0))
    arbiter.step(Seconds(16.0), [gone, began])
    snapshot = arbiter.snapshot()
    assert snapshot.ledger.apps.gpu_seconds[:2].tolist() == [20.0, 12.0]
    assert snapshot.ledger.jobs.attained[:2].tolist() == [10.0, 6.0]
    assert snapshot.ledger.jobs.waited[:2].tolist() == [6.0, 0.0]
