"""A cluster that gets machines decides as one that had these from the start, and had lost them until then."""

import dataclasses
import json
import random
import zlib
from typing import Any

import pytest
from tests.core.test_compound_events import acknowledged

from assembling import assemble
from eunomia.arbiter import Arbiter
from eunomia.contract.codec import encode
from eunomia.contract.events import (
    AppArrived,
    Event,
    JobAdded,
    MachineBack,
    MachineJoined,
    MachineLost,
    ProfileChanged,
    SingleJobArrived,
    SingleJobEnded,
)
from eunomia.contract.stages import Rounds
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.leases import LeaseState
from eunomia.platform.registry import default_registry
from eunomia.units import NEVER, AppId, JobId, LeaseId, Seconds, UserId

FIRST = (Machine(name="a1", gpu_type="V100", gpus=2), Machine(name="a2", gpu_type="V100", gpus=3))
LATER = (
    Machine(name="b1", gpu_type="A100", gpus=4, rack="r2"),
    Machine(name="a0", gpu_type="V100", gpus=2, rack="r0"),
    Machine(name="c1", gpu_type="K80", gpus=1, rack="r2"),
)


def arbiter_of(
    cluster: Cluster, order: str, *, preemptive: bool = False, deadline: float | None = None, lease: float | None = None
) -> Arbiter:
    registry = default_registry()
    stages = assemble(
        elasticity=registry.make("fixed", {}, alias="fixed", place=str),
        valuation=registry.make(order, {}, alias=order, place=str),
        allocation=registry.make("ordered", {"preemptive": preemptive}, alias="ordered", place=str),
        placement=registry.make("packed", {}, alias="packed", place=str),
        rounds=Rounds(
            bid_deadline=None if deadline is None else Seconds(deadline),
            lease=None if lease is None else Seconds(lease),
        ),
    )
    arbiter = Arbiter(cluster, stages, stages)
    arbiter.strict = True
    return arbiter


def arrival(number: int, gpus: int, *, divides: bool = False) -> list[Event]:
    app = AppId(f"app{number}")
    job = JobAdded(
        job=JobId(f"app{number}/0"),
        app=app,
        least=gpus,
        most=gpus,
        iterations=9.0 + number % 7,
        seconds_per_iteration=1.0,
    )
    came = AppArrived(app=app, user=UserId("ana"), divides=divides)
    return [came, job] if divides else [SingleJobArrived(arrival=came, job=job)]


def ends(arbiter: Arbiter, luck: random.Random) -> list[Event]:
    state = arbiter.state
    return [
        SingleJobEnded(
            app=state.app_id(lease.app),
            job=state.job_id(lease.job),
            lease=LeaseId(lease.id),
            epoch=lease.epoch,  # type: ignore[arg-type]
            gpus=tuple(lease.gpus),
        )
        for lease in list(state.leases.values())
        if lease.state is LeaseState.ACTIVE and luck.random() < 0.2
    ]


def joining(machine: Machine) -> MachineJoined:
    return MachineJoined(machine=machine.name, gpu_type=machine.gpu_type, gpus=machine.gpus, rack=machine.rack)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("order", "preemptive"), [("fifo", False), ("srtf", True), ("las", True)])
def test_joining_machines_give_the_same_decisions_as_machines_that_come_back(
    order: str, preemptive: bool, seed: int
) -> None:
    luck = random.Random(seed)
    whole = Cluster.build((*FIRST, *LATER), types=("V100", "A100", "K80"), racks=("r1", "r2"))
    grows, waits = (arbiter_of(cluster, order, preemptive=preemptive) for cluster in (Cluster.build(FIRST), whole))
    grows.step(Seconds(0.0), [ProfileChanged(profile="fifo")])
    waits.step(Seconds(0.0), [MachineLost(machine=machine.name) for machine in LATER])
    joins = dict(zip(sorted(luck.sample(range(10, 90), len(LATER))), LATER, strict=True))
    late: list[Event] = []
    held: set[int] = set()
    for at in range(1, 120):
        now, events = Seconds(float(at)), late
        events += [
            event
            for _ in range(luck.choice([0, 0, 1, 2]))
            for event in arrival(luck.getrandbits(40), luck.randint(1, 4))
        ]
        events += ends(waits, luck)
        back: list[Event] = []
        if at in joins:
            back = [MachineBack(machine=joins[at].name)]
        decision = waits.step(now, [*events, *back])
        came = [joining(joins[at])] if at in joins else []
        assert encode(grows.step(now, [*events, *came])) == encode(decision)
        late = acknowledged(decision, now)
        held |= {gpu for transition in decision.transitions for gpu in transition.gpus.tolist()}
    used = waits.state.jobs.used
    assert (grows.state.jobs.live.received[:used] == waits.state.jobs.live.received[:used]).all()
    assert held >= set(range(11))  # the last GPU is alone of its type
    assert content(grows.save()) == content(waits.save()) | {"machines": content(grows.save())["machines"]}
    again = arbiter_of(Cluster.build(FIRST), order, preemptive=preemptive)
    again.load(grows.save())
    assert again.save() == grows.save()


def test_existing_machines_gpus_types_and_racks_keep_their_numbers() -> None:
    small = Cluster.build(FIRST)
    grown = small.grown(LATER[:1]).grown(LATER[1:])
    for column in ("machine", "island", "rack", "gpu_type"):
        assert getattr(grown, column)[: small.gpus].tolist() == getattr(small, column).tolist()
    assert (grown.gpu_types, grown.racks) == (("V100", "A100", "K80"), ("r1", "r2", "r0"))
    assert [machine.name for machine in grown.machines] == ["a1", "a2", "b1", "a0", "c1"]


def test_a_checkpoint_of_a_grown_cluster_names_its_machines() -> None:
    arbiter = arbiter_of(Cluster.build(FIRST), "fifo")
    arbiter.step(Seconds(0.0), arrival(1, 5))
    before = arbiter.save()
    arbiter.step(Seconds(1.0), [joining(machine) for machine in LATER])
    again = arbiter_of(arbiter.state.cluster, "fifo")
    again.load(before)  # of the first machines
    assert again.state.capacity.in_service.tolist() == [7, 4, 1]
    for other in (Cluster.build(FIRST[:1]), Cluster.build((*LATER, *FIRST))):
        with pytest.raises(InputError, match="a checkpoint must be of this cluster"):
            arbiter_of(other, "fifo").load(older(before))


def content(checkpoint: bytes) -> Any:
    """Return what stands in a checkpoint."""
    return json.loads(zlib.decompress(checkpoint))


def older(checkpoint: bytes) -> bytes:
    """Return a checkpoint as versions wrote it that named a machine, its type and its GPUs alone."""
    made = content(checkpoint)
    made["machines"] = [row[:3] for row in made["machines"]]
    return json.dumps(made).encode()


def test_an_older_checkpoint_without_machine_names_matches_only_the_whole_cluster() -> None:
    arbiter = arbiter_of(Cluster.build(FIRST), "fifo")
    arbiter.step(Seconds(0.0), arrival(1, 5))
    old = content(arbiter.save())
    del old["machines"]
    arbiter.load(json.dumps(old).encode())
    with pytest.raises(InputError, match="a checkpoint must be of this cluster of 12 GPUs"):
        arbiter_of(Cluster.build((*FIRST, *LATER)), "fifo").load(json.dumps(old).encode())


def test_a_machine_name_already_in_use_is_refused_and_changes_nothing() -> None:
    arbiter = arbiter_of(Cluster.build(FIRST), "fifo")
    arbiter.step(Seconds(0.0), arrival(1, 5))
    before = content(arbiter.save())
    decision = arbiter.step(Seconds(0.0), [joining(FIRST[0])])
    assert [fault.what for fault in decision.faults] == [
        'MachineJoined: machine names must be unique, but got "a1" twice (a1)'
    ]
    assert content(arbiter.save())["tables"] == before["tables"]
    assert not decision.causes


def test_a_join_closes_the_open_offer_and_the_next_round_offers_the_new_gpus_too() -> None:
    arbiter = arbiter_of(Cluster.build(FIRST), "fifo", deadline=60.0)
    opened = arbiter.step(Seconds(0.0), arrival(1, 1, divides=True))
    assert [offer.gpus.tolist() for offer in opened.offers] == [[0, 1, 2, 3, 4]]
    (offer,) = arbiter.step(Seconds(1.0), [joining(LATER[0])]).offers
    assert offer.gpus.tolist() == list(range(9))
    assert offer.closes_at == 61.0 != NEVER


def test_a_job_gets_the_type_and_number_of_gpus_that_it_needs_once_they_join() -> None:
    arbiter = arbiter_of(Cluster.build(FIRST), "fifo")
    (alone,) = arrival(1, 1)
    absent = dataclasses.replace(alone, job=dataclasses.replace(alone.job, gpu_type="A100"))
    (wide,) = arrival(2, 3)
    wide = dataclasses.replace(wide, job=dataclasses.replace(wide.job, most=20))
    decision = arbiter.step(Seconds(0.0), [absent, wide])
    started = {order.job: order.gpus.tolist() for order in decision.transitions}
    assert started == {"app2/0": [0, 1, 2, 3, 4]}, "a job of an absent type waits, one with room to grow starts"
    again = arbiter_of(Cluster.build(FIRST), "fifo")
    again.load(arbiter.save())
    for one in (arbiter, again):
        decision = one.step(Seconds(1.0), [joining(LATER[0])])
        assert [(order.job, order.gpus.tolist()) for order in decision.transitions] == [("app1/0", [5])]
        jobs = one.state.jobs.cells
        assert jobs.most[one.state.job_row(JobId("app2/0"))] == 9
        one.step(Seconds(2.0), [joining(LATER[1])])
        assert jobs.most[one.state.job_row(JobId("app2/0"))] == 11
        assert list(one.state.reports.wishes.values()) == [(None, 20)]
