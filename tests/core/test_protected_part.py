"""The protected part of a lease: nobody takes it, and when it ends those who wait are looked at again."""

from typing import Any

import pytest

from assembling import assemble
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.contract.events import AppArrived, Event, JobAdded, Started
from eunomia.contract.stages import Rounds
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import default_registry
from eunomia.units import NEVER, AppId, Cause, JobId, Seconds, UserId


def made(name: str, **options: object) -> Any:
    return default_registry().make(name, options, alias=name, place=str)


def fresh(
    *, preemptive: bool, lease: float | None = None, protected: float | None = 60.0, when_unprotected: bool = True
) -> Arbiter:
    stages = assemble(
        elasticity=made("fixed"),
        valuation=made("srtf"),
        allocation=made("ordered", preemptive=preemptive),
        placement=made("packed"),
        rounds=Rounds(
            lease=None if lease is None else Seconds(lease),
            protected=None if protected is None else Seconds(protected),
            when_unprotected=when_unprotected,
        ),
    )
    arbiter = Arbiter(Cluster.parse("1x2 V100"), stages, stages)
    arbiter.strict = True
    return arbiter


def arrive(name: str, seconds: float) -> list[Event]:
    app = AppId(name)
    work = {"iterations": seconds, "seconds_per_iteration": 2.0}
    job = JobAdded(job=JobId(f"{name}/0"), app=app, least=2, most=2, **work)  # type: ignore[arg-type]
    return [AppArrived(app=app, user=UserId("ana"), divides=False), job]


def begin(arbiter: Arbiter, name: str, seconds: float) -> None:
    order = arbiter.step(Seconds(0.0), arrive(name, seconds)).transitions[0]
    arbiter.step(Seconds(0.0), [Started(lease=order.lease, epoch=order.epoch)])


def kinds(decision: Decision) -> list[tuple[TransitionKind, str]]:
    return [(order.kind, str(order.job)) for order in decision.transitions]


def test_a_round_is_due_when_the_protected_part_ends_and_a_job_waits() -> None:
    arbiter = fresh(preemptive=True)
    begin(arbiter, "long", 1000.0)
    decision = arbiter.step(Seconds(10.0), arrive("short", 20.0))
    assert kinds(decision) == []
    assert decision.wake_at == 60.0
    decision = arbiter.step(Seconds(60.0))
    assert decision.causes == {Cause.LEASE_ENDED}
    assert kinds(decision) == [(TransitionKind.SUSPEND, "long/0"), (TransitionKind.START, "short/0")]


def test_no_round_is_due_when_the_protected_part_ends_and_no_job_waits() -> None:
    arbiter = fresh(preemptive=True)
    begin(arbiter, "long", 1000.0)
    assert arbiter.step(Seconds(10.0)).wake_at == NEVER


def test_without_a_round_at_the_end_of_the_protected_part_the_next_arrival_preempts() -> None:
    arbiter = fresh(preemptive=True, when_unprotected=False)
    begin(arbiter, "long", 1000.0)
    assert arbiter.step(Seconds(10.0), arrive("short", 20.0)).wake_at == NEVER
    assert arbiter.step(Seconds(60.0)).causes == frozenset()
    decision = arbiter.step(Seconds(61.0), arrive("last", 2000.0))
    assert decision.causes == {Cause.ARRIVED}
    assert kinds(decision) == [(TransitionKind.SUSPEND, "long/0"), (TransitionKind.START, "short/0")]


@pytest.mark.parametrize("lease", [30.0, 90.0])
def test_the_protected_part_is_no_longer_than_the_lease(lease: float) -> None:
    arbiter = fresh(preemptive=False, lease=lease)
    begin(arbiter, "long", 1000.0)
    now, decision = 10.0, arbiter.step(Seconds(10.0), arrive("short", 20.0))
    while not decision.transitions:
        assert now < decision.wake_at < NEVER
        now = float(decision.wake_at)
        decision = arbiter.step(Seconds(now))
    assert now == lease
    assert kinds(decision) == [(TransitionKind.SUSPEND, "long/0"), (TransitionKind.START, "short/0")]


def test_without_a_protected_part_the_shorter_job_preempts_at_once() -> None:
    arbiter = fresh(preemptive=True, protected=None)
    begin(arbiter, "long", 1000.0)
    assert len(arbiter.step(Seconds(10.0), arrive("short", 20.0)).transitions) == 2
