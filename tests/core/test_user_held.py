"""A held user's jobs are suspended and wait, whatever their app masters ask for; other users' jobs run on."""

from collections.abc import Iterable

import pytest

from eunomia import Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import (
    AppArrived,
    Event,
    JobAdded,
    JobFailed,
    JobPaused,
    JobResumed,
    Released,
    Started,
    UserHeld,
)
from eunomia.contract.verdicts import Reason
from eunomia.model.cluster import Cluster
from eunomia.model.workload import JobState
from eunomia.units import AppId, Epoch, JobId, LeaseId, Seconds, UserId

ANA, BOB = UserId("ana"), UserId("bob")
JOB = JobId("net/1")


class Made:
    """An arbiter whose launcher starts and releases at once, and a copy that replays what it did."""

    def __init__(self, policy: str = "default", *, divides: bool = False) -> None:
        self.cluster = Cluster.parse("1x4 V100")
        self.policy, self.divides = policy, divides
        self.arbiter, self.copy = self.new(), self.new()
        self.now = 0.0

    def new(self) -> Arbiter:
        stages = Profile.load(self.policy).stages(self.cluster)
        return Arbiter(self.cluster, stages, stages)

    def step(self, now: float, *events: Event) -> Decision:
        self.now = now
        first = self._step(list(events))
        for _ in range(5):
            done = list(self._carried_out())
            if not done:
                break
            self._step(done)
        return first

    def _step(self, events: list[Event]) -> Decision:
        decision = self.arbiter.step(Seconds(self.now), events)
        self.copy.replay(Seconds(self.now), events, decision)
        assert self.copy.save() == self.arbiter.save()
        assert decision.faults == ()
        return decision

    def _carried_out(self) -> Iterable[Event]:
        state = self.arbiter.state
        for lease in state.leases.values():
            leaving = state.owners.leaving.get(lease.id)
            if leaving:
                yield Released(lease=LeaseId(lease.id), epoch=Epoch(lease.epoch), gpus=tuple(sorted(leaving)))
            elif lease.job >= 0 and state.jobs.cells.state[lease.job] == JobState.STARTING:
                yield Started(lease=LeaseId(lease.id), epoch=Epoch(lease.epoch))

    def arrive(self, now: float, app: str, user: UserId, slots: int = 2) -> None:
        arrived = AppArrived(app=AppId(app), user=user, divides=self.divides)
        self.step(now, arrived, JobAdded(app=AppId(app), job=JobId(f"{app}/1"), least=slots, most=slots))

    def state(self, job: JobId = JOB) -> JobState:
        return JobState(self.arbiter.state.jobs.cells.state[self.arbiter.state.names.jobs[job]])

    def reason(self, job: JobId = JOB) -> int:
        return int(self.arbiter.state.jobs.cells.reason[self.arbiter.state.names.jobs[job]])

    def held(self, app: str) -> int:
        row = self.arbiter.state.names.apps[AppId(app)]
        return int((self.arbiter.state.holdings.live.app[:4] == row).sum())


def hold(until: float, user: UserId = ANA) -> UserHeld:
    return UserHeld(user=user, until=Seconds(until))


@pytest.fixture(params=[("default", False), ("default", True), ("themis", True), ("srtf", False)])
def made(request: pytest.FixtureRequest) -> Made:
    policy, divides = request.param
    return Made(policy, divides=divides)


def test_jobs_of_a_held_user_are_suspended_until_the_hold_ends(made: Made) -> None:
    made.arrive(0.0, "net", ANA)
    made.arrive(0.0, "own", BOB)
    while (due := float(made.arbiter.step(Seconds(made.now)).wake_at)) < 60.0:  # an auction closes
        made.copy.load(made.arbiter.save())
        made.step(due)
    made.copy.load(made.arbiter.save())
    assert (made.held("net"), made.held("own")) == (2, 2)
    decision = made.step(60.0, hold(100.0))
    assert [order.leaving.size for order in decision.orders] == [2]
    assert made.state() == JobState.PAUSED
    assert made.reason() == Reason.GPU_HOURS
    assert (made.held("net"), made.held("own")) == (0, 2)
    made.step(99.0)
    assert made.held("net") == 0
    assert float(made.arbiter.step(Seconds(99.5)).wake_at) <= 100.0
    made.copy = made.new()
    made.copy.load(made.arbiter.save())
    made.step(100.0)
    made.step(131.0)
    assert made.held("net") == 2
    assert made.arbiter.state.reports.held == {}


def test_requests_of_app_masters_do_not_end_the_hold(made: Made) -> None:
    made.arrive(0.0, "net", ANA)
    made.step(10.0, hold(100.0))
    for number, events in enumerate(
        (
            [JobResumed(job=JOB)],
            [JobPaused(job=JOB), JobResumed(job=JOB)],
            [JobFailed(job=JOB, again_in=Seconds(1.0))],
            [],
            [JobAdded(app=AppId("net"), job=JobId("net/2"), least=1, most=1)],
            [AppArrived(app=AppId("more"), user=ANA), JobAdded(app=AppId("more"), job=JobId("more/1"))],
        )
    ):
        made.step(20.0 + 5.0 * number, *events)
        assert made.held("net") == 0
        assert made.state() == JobState.PAUSED
    assert made.held("more") == 0
    assert made.reason(JobId("more/1")) == Reason.GPU_HOURS


def test_an_earlier_end_of_the_hold_applies_at_once_and_pauses_by_apps_remain(made: Made) -> None:
    made.arrive(0.0, "net", ANA, slots=1)
    made.arrive(0.0, "two", ANA, slots=1)
    made.step(10.0, hold(1000.0))
    made.step(11.0, JobPaused(job=JobId("two/1")))
    made.step(20.0, hold(20.0))
    made.step(60.0)
    assert made.held("net") == 1
    assert made.reason(JobId("two/1")) == Reason.PAUSED_BY_APP
    assert made.held("two") == 0


def test_a_hold_survives_a_checkpoint(made: Made) -> None:
    made.arrive(0.0, "net", ANA)
    made.step(10.0, hold(100.0))
    again = made.new()
    again.load(made.arbiter.save())
    assert again.state.reports.held == {ANA: 100.0}
    assert again.state.waiting_jobs.backing_off == made.arbiter.state.waiting_jobs.backing_off
    made.arbiter, made.copy = again, made.new()
    made.copy.load(again.save())
    made.step(50.0, JobResumed(job=JOB))
    assert made.held("net") == 0


def test_a_hold_without_a_time_is_refused() -> None:
    made = Made()
    made.arrive(0.0, "net", ANA)
    for until in (float("nan"), float("inf")):
        decision = made.arbiter.step(Seconds(1.0), [hold(until)])
        assert "a user must be held until a time" in decision.faults[0].what
    assert made.arbiter.state.reports.held == {}
