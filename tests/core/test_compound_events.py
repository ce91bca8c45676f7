"""A compound event leaves the state and the decisions that the events it stands for leave."""

import random
from pathlib import Path

import pytest

from assembling import assemble
from eunomia.arbiter import Arbiter
from eunomia.contract.codec import encode
from eunomia.contract.decisions import Decision
from eunomia.contract.event_order import count_of, expanded, in_order
from eunomia.contract.events import (
    AppArrived,
    AppFinished,
    Event,
    JobAdded,
    JobFinished,
    MachineBack,
    MachineLost,
    Released,
    SingleJobArrived,
    SingleJobEnded,
    Started,
)
from eunomia.contract.stages import Rounds
from eunomia.fold.fold import FOLDS
from eunomia.journal.journal import Journal
from eunomia.model.cluster import Cluster
from eunomia.model.leases import LeaseState
from eunomia.platform.registry import default_registry
from eunomia.units import AppId, Epoch, JobId, LeaseId, Seconds, UserId


def fresh(order: str, *, preemptive: bool) -> Arbiter:
    registry = default_registry()
    stages = assemble(
        elasticity=registry.make("fixed", {}, alias="fixed", place=str),
        valuation=registry.make(order, {}, alias=order, place=str),
        allocation=registry.make("ordered", {"preemptive": preemptive}, alias="ordered", place=str),
        placement=registry.make("packed", {}, alias="packed", place=str),
        rounds=Rounds(),
    )
    arbiter = Arbiter(Cluster.parse("2x2 V100"), stages, stages)
    arbiter.strict = True
    return arbiter


def arrival(number: int, luck: random.Random) -> SingleJobArrived:
    app, gpus = AppId(f"app{number}"), luck.choice([1, 1, 2, 3])
    job = JobAdded(
        job=JobId(f"app{number}/0"),
        app=app,
        least=gpus,
        most=gpus,
        iterations=luck.uniform(1.0, 100.0),
        seconds_per_iteration=1.0,
    )
    return SingleJobArrived(arrival=AppArrived(app=app, user=UserId("ana"), divides=False), job=job)


def ends(arbiter: Arbiter, luck: random.Random) -> list[Event]:
    """Some of the running jobs end; now and then the release names an epoch that is too old."""
    state = arbiter.state
    found: list[Event] = []
    for lease in list(state.leases.values()):
        if lease.state is LeaseState.ACTIVE and luck.random() < 0.3:
            job, app = state.job_id(lease.job), state.app_id(lease.app)
            epoch = Epoch(lease.epoch - (luck.random() < 0.1))
            gpus = tuple(lease.gpus)
            found.append(SingleJobEnded(app=app, job=job, lease=LeaseId(lease.id), epoch=epoch, gpus=gpus))
    return found


def acknowledged(decision: Decision, now: Seconds) -> list[Event]:
    """The executor's answers: GPUs come back, and leases start."""
    found: list[Event] = []
    for order in (*decision.orders, *decision.transitions):
        if order.leaving.size:
            gpus = tuple(order.leaving.tolist())
            found.append(Released(lease=order.lease, epoch=order.fence, gpus=gpus, at=now))
        if order.gpus.size:
            found.append(Started(lease=order.lease, epoch=order.epoch, at=now))
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("order", "preemptive"), [("fifo", False), ("srtf", True)])
def test_compound_events_give_the_same_state_and_decisions_as_their_parts(
    order: str, preemptive: bool, seed: int
) -> None:
    luck = random.Random(seed)
    whole, single = fresh(order, preemptive=preemptive), fresh(order, preemptive=preemptive)
    late: list[Event] = []
    kept_whole = 0
    for step in range(150):
        now = Seconds(float(step))
        events, late = late, []
        events += [arrival(3 * step + more, luck) for more in range(luck.choice([0, 0, 1, 1, 2]))]
        events += ends(whole, luck)
        if luck.random() < 0.03:
            events.append(MachineLost(machine=whole.state.cluster.machines[0].name))
        elif luck.random() < 0.1:
            events.append(MachineBack(machine=whole.state.cluster.machines[0].name))
        luck.shuffle(events)
        kept_whole += any(isinstance(event, SingleJobArrived | SingleJobEnded) for event in in_order(events))
        decision = whole.step(now, events)
        assert encode(decision) == encode(single.step(now, expanded(events)))
        assert whole.save() == single.save()
        late = acknowledged(decision, now)
        if luck.random() < 0.2:
            luck.shuffle(late)
    assert kept_whole > 20


def test_a_second_arrival_under_the_same_id_is_refused_like_its_parts() -> None:
    whole, single = fresh("fifo", preemptive=False), fresh("fifo", preemptive=False)
    twice = arrival(0, random.Random(0))
    for now in (Seconds(0.0), Seconds(1.0)):
        decision = whole.step(now, [twice])
        assert encode(decision) == encode(single.step(now, expanded([twice])))
    assert [fault.what.split(":")[0] for fault in decision.faults] == ["AppArrived", "JobAdded"]
    assert whole.save() == single.save()


def test_the_end_of_an_unknown_job_is_refused_like_its_parts() -> None:
    whole, single = fresh("fifo", preemptive=False), fresh("fifo", preemptive=False)
    end = SingleJobEnded(app=AppId("ana"), job=JobId("ana/0"), lease=LeaseId(1), epoch=Epoch(1), gpus=(0,))
    decision = whole.step(Seconds(0.0), [end])
    assert encode(decision) == encode(single.step(Seconds(0.0), expanded([end])))
    assert [fault.what.split(":")[0] for fault in decision.faults] == ["JobFinished", "AppFinished"]


def test_a_compound_event_counts_as_all_of_its_parts() -> None:
    end = SingleJobEnded(app=AppId("ana"), job=JobId("ana/0"), lease=LeaseId(1), epoch=Epoch(1), gpus=(0,))
    both = [arrival(0, random.Random(0)), end]
    assert count_of(both) == len(expanded(both)) == 5
    assert set(map(type, expanded(both))) == {AppArrived, JobAdded, Released, JobFinished, AppFinished}
    assert {SingleJobArrived, SingleJobEnded} <= FOLDS.keys()


def test_the_journal_stores_the_parts_of_a_compound_event(tmp_path: Path) -> None:
    arbiter = fresh("fifo", preemptive=False)
    came = arrival(0, random.Random(0))
    decision = arbiter.step(Seconds(0.0), [came])
    with Journal.open(tmp_path / "journal.db") as journal:
        journal.append(Seconds(0.0), [came], decision)
        kept = [event for step in journal.steps() for event in step.events]
    assert kept == [came.arrival, came.job]
