"""An executor that works in rounds: it says when one is over, and how long jobs were idle in it."""

import pytest

from eunomia import Cluster, Profile, Seconds
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, JobAdded, RoundEnded, Started
from eunomia.units import AppId, Cause, Epoch, JobId, LeaseId, UserId


def arbiter(**settings: object) -> Arbiter:
    site = Cluster.parse("1x4 V100")
    profile = Profile.load("default", settings={"rounds.on": [], **settings})
    return Arbiter(site, profile.stages(site), Profile.fallback().stages(site))


def run_one(made: Arbiter) -> None:
    """One job of two GPUs arrives at 0, is granted them with the round and runs from 0 on."""
    app, job = AppId("a"), JobId("a/0")
    came = (AppArrived(app=app, user=UserId("ana"), divides=False), JobAdded(job=job, app=app, least=2, most=2))
    decision = made.step(Seconds(0.0), [*came, RoundEnded()])
    (order,) = decision.transitions
    made.step(Seconds(0.0), [Started(lease=LeaseId(order.lease), epoch=Epoch(order.epoch))])


def test_a_round_is_due_only_when_the_executor_reports_the_end_of_its_round() -> None:
    made = arbiter()
    app = AppId("a")
    came = (AppArrived(app=app, user=UserId("ana"), divides=False), JobAdded(job=JobId("a/0"), app=app))
    decision = made.step(Seconds(0.0), came)
    assert not decision.causes
    assert made.step(Seconds(60.0)).causes == frozenset()
    decision = made.step(Seconds(120.0), [RoundEnded()])
    assert Cause.BOUNDARY in decision.causes
    assert len(decision.transitions) == 1
    assert made.step(Seconds(121.0)).causes == frozenset()


def test_time_in_which_a_job_did_not_run_is_subtracted_from_the_ledger() -> None:
    made = arbiter()
    run_one(made)
    made.step(Seconds(120.0), [RoundEnded(jobs=(JobId("a/0"),), idle_seconds=(Seconds(20.5),))])
    ledger = made.state.job_ledger
    row = made.state.job_row(JobId("a/0"))
    assert ledger.attained[row] == 99.5
    assert ledger.received[row].tolist() == [199.0]


def test_the_ledger_never_falls_below_zero_and_ended_jobs_are_ignored() -> None:
    made = arbiter()
    run_one(made)
    gone, here = JobId("gone/0"), JobId("a/0")
    decision = made.step(Seconds(10.0), [RoundEnded(jobs=(gone, here), idle_seconds=(Seconds(1.0), Seconds(50.0)))])
    assert decision.faults == ()
    row = made.state.job_row(here)
    assert made.state.job_ledger.attained[row] == 0.0
    assert made.state.job_ledger.received[row].tolist() == [0.0]


@pytest.mark.parametrize("idle", [(), (Seconds(-1.0),), (Seconds(float("nan")),)])
def test_an_impossible_report_of_a_round_changes_nothing(idle: tuple[Seconds, ...]) -> None:
    made = arbiter()
    run_one(made)
    decision = made.step(Seconds(10.0), [RoundEnded(jobs=(JobId("a/0"),), idle_seconds=idle)])
    assert len(decision.faults) == 1
    assert not decision.causes
