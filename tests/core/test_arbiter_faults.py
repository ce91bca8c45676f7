"""Faults of plugins: contained, named, journaled, and followed by the fallback."""

from typing import Any, ClassVar

import numpy as np
import pytest

from assembling import assemble
from eunomia import Allocation, Menus, Offer, Reason, Snapshot, Stage, hookimpl
from eunomia.arbiter import Arbiter
from eunomia.contract.allocations import DeviceShares, Grants
from eunomia.contract.claims import Claims
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded, JobReported, ProfileChanged, Started
from eunomia.contract.placements import Placement
from eunomia.contract.stages import Rounds, Stages
from eunomia.errors import EunomiaError
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import default_registry
from eunomia.testing.drive import Drive
from eunomia.units import AppId, JobId, Seconds, Unit, UserId


def made(name: str, **options: object) -> Any:
    return default_registry().make(name, options, alias=name, place=str)


class Broken:
    """Answers the allocation, wrongly in one way."""

    name = "broken"
    api = 1
    contracts: ClassVar[dict[Stage, Any]] = {}

    def __init__(self, way: str) -> None:
        self.way = way

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        rows = offer.candidates
        claims = Claims(unit=Unit.JOB, rows=rows)
        order = np.arange(rows.size, dtype=np.int32)
        ones = np.ones(rows.size, dtype=np.int64)
        answers = {
            "none": lambda: None,
            "another type": lambda: [1, 2],
            "raises": lambda: 1 // 0,
            "not whole": lambda: Allocation(claims=claims, amount=Grants(gpus=ones * 0.5), order=order),  # type: ignore[arg-type]
            "negative": lambda: Allocation(claims=claims, amount=Grants(gpus=-ones), order=order),
            "shares": lambda: Allocation(
                claims=claims, amount=DeviceShares(gpus=np.ones((rows.size, 1)), since=snapshot.now), order=order
            ),
            "twice": lambda: Allocation(
                claims=Claims(unit=Unit.JOB, rows=np.repeat(rows, 2)),
                amount=Grants(gpus=np.repeat(ones, 2)),
                order=order,
            ),
            "nobody": lambda: Allocation(
                claims=Claims(unit=Unit.JOB, rows=rows + 99), amount=Grants(gpus=ones), order=order
            ),
            "past wake": lambda: Allocation(
                claims=claims, amount=Grants(gpus=ones), order=order, wake_at=Seconds(snapshot.now)
            ),
        }
        return answers[self.way]()


class BrokenPlacement:
    """Places as it should not."""

    name = "broken_placement"
    api = 1
    contracts: ClassVar[dict[Stage, Any]] = {}

    def __init__(self, way: str) -> None:
        self.way = way

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Placement:
        first = np.array([0], dtype=np.int32)
        gpus = {
            "twice": np.array([0, 0], dtype=np.int64),
            "off the offer": np.array([0, 7], dtype=np.int64),
            "half a gang": np.array([0], dtype=np.int64),
            "offsets": np.array([0, 1], dtype=np.int64),
        }[self.way]
        begin = 1 if self.way == "offsets" else 0
        return Placement(claim=first, gpus=gpus, start=np.array([begin, gpus.size], dtype=np.int64))


def stages(*, allocation: Any = None, placement: Any = None, rounds: Rounds | None = None) -> Stages:
    return assemble(
        elasticity=made("fixed"),
        valuation=made("fifo"),
        allocation=allocation or made("ordered"),
        placement=placement or made("packed"),
        rounds=rounds or Rounds(suspend_grace=Seconds(5.0)),
    )


def script() -> list[tuple[float, Event]]:
    return [
        (0.0, AppArrived(app=AppId("ana"), user=UserId("ana"), divides=False)),
        (0.0, JobAdded(job=JobId("ana/0"), app=AppId("ana"), least=2, most=2)),
        (1.0, AppArrived(app=AppId("ben"), user=UserId("ben"), divides=False)),
        (1.0, JobAdded(job=JobId("ben/0"), app=AppId("ben"), least=2, most=2)),
    ]


WORK = {JobId("ana/0"): 20.0, JobId("ben/0"): 20.0}
WAYS = ["none", "another type", "raises", "not whole", "negative", "shares", "twice", "nobody", "past wake"]


@pytest.mark.parametrize("way", WAYS)
def test_a_broken_allocation_is_named_in_the_fault_and_the_fallback_serves_every_app(way: str) -> None:
    arbiter = Arbiter(Cluster.parse("1x2 V100"), stages(allocation=Broken(way)), stages())
    outcome = Drive(arbiter, work=dict(WORK)).run(script(), until=500.0)
    faulty = [decision for decision in outcome.decisions if decision.faulty]
    assert len(faulty) == 3  # [rounds].faults_allowed
    assert all(fault.plugin == "broken" for decision in faulty for fault in decision.faults)
    assert all(not decision.transitions for decision in faulty)
    assert arbiter.state.counters.fallen_back
    assert set(outcome.finished) == set(WORK)


class Overlaps(BrokenPlacement):
    """Grants two of three jobs two GPUs each, and places them by offsets in which both have the same GPU."""

    name = "overlaps"

    @hookimpl
    def eunomia_allocation(self, offer: Offer) -> Allocation:
        rows, order = offer.candidates, np.array([0, 2], dtype=np.int32)
        claims, gpus = Claims(unit=Unit.JOB, rows=rows), np.array([2, 0, 2], dtype=np.int64)
        return Allocation(claims=claims, amount=Grants(gpus=gpus[: rows.size]), order=order[: (rows.size + 1) // 2])

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Placement:
        three, start = np.arange(3), np.array([0, 2, 1, 3])
        return Placement(claim=three.astype(np.int32), gpus=three.astype(np.int64), start=start.astype(np.int64))


def test_offsets_of_a_placement_that_overlap_are_refused() -> None:
    overlaps = Overlaps("")
    arbiter = Arbiter(Cluster.parse("1x4 V100"), stages(allocation=overlaps, placement=overlaps), stages())
    events: list[Event] = []
    for name in ("ana", "ben", "eve"):
        events.append(AppArrived(app=AppId(name), user=UserId(name), divides=False))
        events.append(JobAdded(job=JobId(f"{name}/0"), app=AppId(name), least=2, most=2))
    decision = arbiter.step(Seconds(0.0), events)
    assert "the offsets of a placement must rise from 0 to the number of its GPUs, 3" in decision.faults[0].what
    assert not arbiter.state.leases


BAD_PLACEMENTS = {
    "twice": "a GPU must have one holder",
    "off the offer": "a placement must stay within the offer",
    "half a gang": "a gang must run whole, at a size on its menu",
    "offsets": "the offsets of a placement must rise from 0 to the number of its GPUs, 2",
}


@pytest.mark.parametrize("way", BAD_PLACEMENTS)
def test_a_plan_that_breaks_one_invariant_is_rejected_as_a_whole(way: str) -> None:
    arbiter = Arbiter(Cluster.parse("1x2 V100"), stages(placement=BrokenPlacement(way)), stages())
    decision = _last(Drive(arbiter, work=dict(WORK)), until=2.0)
    assert decision.faulty
    assert decision.faults[0].plugin == "broken_placement"
    assert BAD_PLACEMENTS[way] in decision.faults[0].what
    assert not arbiter.state.leases


def _last(drive: Drive, until: float) -> Decision:
    return drive.run(script(), until=until).decisions[-1]


def test_a_faulty_round_takes_no_gpu_from_a_running_job() -> None:
    rounds = Rounds(lease=Seconds(10.0), suspend_grace=Seconds(2.0), faults_allowed=100)
    arbiter = Arbiter(Cluster.parse("1x2 V100"), stages(rounds=rounds), stages())
    Drive(arbiter, work={JobId("ana/0"): 1000.0, JobId("ben/0"): 20.0}).run(script(), until=5.0)
    arbiter.use(stages(allocation=Broken("raises"), rounds=rounds))
    holder = arbiter.state.holdings.live.job.copy()
    for now in (10.0, 20.0, 30.0):
        decision = arbiter.step(Seconds(now))
        assert decision.faulty
        assert np.array_equal(arbiter.state.holdings.live.job, holder)
        assert arbiter.state.holdings.live.ends_at[0] == now + 10.0
    waiting = arbiter.state.job_row(JobId("ben/0"))
    assert arbiter.state.reason(waiting) is Reason.PLUGIN_FAULT


def test_the_chosen_profile_is_used_again_when_the_operator_asks_for_it() -> None:
    arbiter = Arbiter(Cluster.parse("1x2 V100"), stages(allocation=Broken("none")), stages())
    Drive(arbiter, work=dict(WORK)).run(script(), until=200.0)
    assert arbiter.state.counters.fallen_back
    arbiter.use(stages())
    arbiter.step(Seconds(1000.0), [ProfileChanged(profile="mended")])
    assert not arbiter.state.counters.fallen_back


def test_events_that_contradict_the_state_are_reported_and_change_nothing() -> None:
    arbiter = Arbiter(Cluster.parse("1x2 V100"), stages(), stages())
    arbiter.step(Seconds(0.0), [event for _, event in script()])
    before = arbiter.save()
    hostile: list[Event] = [
        JobReported(job=JobId("ana/0"), iterations_done=float("nan"), rate=1.0),
        JobReported(job=JobId("eve/0"), iterations_done=1.0, rate=1.0),
        JobAdded(job=JobId("ana/0"), app=AppId("ana")),
        JobAdded(job=JobId("ana/9"), app=AppId("eve")),
        AppArrived(app=AppId("ana"), user=UserId("eve")),
        Started(lease=99, epoch=99),  # type: ignore[arg-type]
    ]
    decision = arbiter.step(Seconds(0.0), hostile)
    assert len(decision.faults) == 5
    assert not decision.faulty
    after = Arbiter(Cluster.parse("1x2 V100"), stages(), stages())
    after.load(arbiter.save())
    arbiter.state.counters.version = after.state.counters.version = type(after.state.counters.version)(0)
    fresh = Arbiter(Cluster.parse("1x2 V100"), stages(), stages())
    fresh.load(before)
    fresh.state.counters.version = after.state.counters.version
    assert fresh.save() == after.save()


def test_the_clock_of_the_arbiter_never_goes_back() -> None:
    arbiter = Arbiter(Cluster.parse("1x2 V100"), stages(), stages())
    arbiter.step(Seconds(5.0))
    with pytest.raises(EunomiaError, match="time must not go backwards, but got"):
        arbiter.step(Seconds(4.0))
