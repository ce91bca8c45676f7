"""Machines drain, leave and come back under another number; a checkpoint and a journal of the run stay readable."""

import json
import zlib

import pytest
from tests.core.test_growing_clusters import FIRST, arbiter_of, arrival, joining

from eunomia.arbiter import Arbiter
from eunomia.contract.codec import decode, encode
from eunomia.contract.decisions import TransitionKind
from eunomia.contract.events import (
    Event,
    JobFinished,
    MachineBack,
    MachineDraining,
    MachineJoined,
    MachineKept,
    MachineLeft,
    MachineLost,
    Released,
    Started,
)
from eunomia.explain.facts import facts_of
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.leases import GpuState
from eunomia.units import Epoch, JobId, LeaseId, Seconds

FREE, HELD, DOWN = GpuState.FREE, GpuState.HELD, GpuState.DOWN


def states(arbiter: Arbiter) -> list[GpuState]:
    return [GpuState(state) for state in arbiter.state.holdings.live.state.tolist()]


def running(*sizes: int) -> Arbiter:
    """Return an arbiter of machines of 2 and 3 GPUs, after jobs of these sizes have started."""
    arbiter = arbiter_of(Cluster.build(FIRST), "fifo")
    decision = arbiter.step(
        Seconds(0.0), [event for number, size in enumerate(sizes) for event in arrival(number, size)]
    )
    arbiter.step(Seconds(1.0), [Started(lease=order.lease, epoch=order.epoch) for order in decision.transitions])
    return arbiter


def release(arbiter: Arbiter, lease: int, at: float, *, ends: bool = True) -> list[list[int]]:
    """Give a lease's GPUs back, at its job's end or to let it go on elsewhere; return the GPUs of jobs that start."""
    held = arbiter.view.lease(lease)
    assert held is not None
    gpus = tuple(sorted({*held.gpus.tolist(), *arbiter.state.owners.leaving.get(lease, ())}))
    events: list[Event] = [Released(lease=LeaseId(lease), epoch=Epoch(held.epoch), gpus=gpus)]
    events += [JobFinished(job=arbiter.view.job_id(held.job))] if ends else []
    return [order.gpus.tolist() for order in arbiter.step(Seconds(at), events).transitions]


def test_no_lease_begins_on_a_draining_machine_and_running_leases_continue() -> None:
    arbiter = running(2, 2)  # on GPUs 0, 1 and 2, 3
    decision = arbiter.step(Seconds(2.0), [MachineDraining(machine="a2"), *arrival(9, 1)])
    assert not decision.transitions
    assert not decision.orders
    assert states(arbiter) == [HELD, HELD, HELD, HELD, DOWN]
    assert arbiter.state.capacity.in_service.tolist() == [4]
    assert release(arbiter, 1, 3.0) == [[0]], "the job that waits gets a GPU of the other machine"
    release(arbiter, 2, 4.0)
    assert states(arbiter)[2:] == [DOWN, DOWN, DOWN]


def test_a_job_is_ordered_off_a_draining_machine_in_time_and_restarts_elsewhere() -> None:
    arbiter = running(2)
    grace = arbiter.chosen.rounds.suspend_grace
    decision = arbiter.step(Seconds(2.0), [MachineDraining(machine="a1", until=Seconds(100.0))])
    assert decision.wake_at == 100.0 - grace
    (order,) = arbiter.step(decision.wake_at).orders
    assert (order.kind, order.leaving.tolist(), order.deadline) == (TransitionKind.SUSPEND, [0, 1], 100.0)
    assert release(arbiter, 1, 90.0, ends=False) == [[2, 3]]
    assert states(arbiter) == [DOWN, DOWN, HELD, HELD, FREE]


def test_a_lease_on_a_draining_machine_is_not_renewed() -> None:
    arbiter = arbiter_of(Cluster.build(FIRST), "fifo", lease=10.0)
    (order,) = arbiter.step(Seconds(0.0), arrival(1, 2)).transitions
    arbiter.step(Seconds(1.0), [Started(lease=order.lease, epoch=order.epoch), MachineDraining(machine="a1")])
    decision = arbiter.step(Seconds(10.0))
    assert [order.leaving.tolist() for order in decision.orders] == [[0, 1]]
    assert not decision.renewals


def test_a_machine_whose_drain_is_cancelled_is_used_again_unless_it_is_lost() -> None:
    arbiter = running(2)
    arbiter.step(Seconds(2.0), [MachineDraining(machine="a1"), MachineDraining(machine="a2")])
    assert states(arbiter) == [HELD, HELD, DOWN, DOWN, DOWN]
    arbiter.step(Seconds(3.0), [MachineLost(machine="a2", gpus=(4,))])
    arbiter.step(Seconds(4.0), [MachineKept(machine="a1"), MachineKept(machine="a2")])
    assert states(arbiter) == [HELD, HELD, FREE, FREE, DOWN]
    arbiter.step(Seconds(5.0), [MachineDraining(machine="a2")])
    arbiter.step(Seconds(6.0), [MachineBack(machine="a2")])
    assert states(arbiter)[2:] == [DOWN, DOWN, DOWN], "a machine that comes back while it drains stays out of service"
    arbiter.step(Seconds(7.0), [MachineKept(machine="a2")])
    assert states(arbiter)[2:] == [FREE, FREE, FREE]
    assert release(arbiter, 1, 8.0) == []
    assert states(arbiter)[:2] == [FREE, FREE]


def test_an_explanation_leaves_out_the_gpus_of_a_machine_that_was_removed() -> None:
    arbiter = running(2)
    arbiter.step(Seconds(2.0), [MachineLeft(machine="a1"), *arrival(9, 5)])
    assert facts_of(arbiter, 1, None, None).in_service == "3"
    arbiter.step(Seconds(3.0), [MachineLost(machine="a2")])
    assert facts_of(arbiter, 1, None, None).in_service == "0 in service of 3 (3 down)"


def test_a_machine_that_left_returns_as_a_new_one_under_its_old_name() -> None:
    arbiter = running(2)
    arbiter.step(Seconds(2.0), [MachineLeft(machine="a1"), *arrival(9, 1)])
    assert states(arbiter) == [DOWN, DOWN, HELD, HELD, HELD], "both jobs run on the other machine"
    cluster = arbiter.state.cluster
    assert (cluster.capacity.tolist(), cluster.left, cluster.number_of("a1")) == ([3], {0}, -1)
    assert arbiter.view.cluster is cluster
    again = Machine(name="a1", gpu_type="A100", gpus=1)
    arbiter.step(Seconds(3.0), [joining(again)])
    assert arbiter.state.cluster.number_of("a1") == 2
    assert states(arbiter) == [DOWN, DOWN, HELD, HELD, HELD, FREE]
    arbiter.step(Seconds(4.0), [MachineLost(machine="a1")])
    assert states(arbiter)[-1] == DOWN
    for one in (arbiter_of(Cluster.build(FIRST), "fifo"), arbiter_of(arbiter.state.cluster, "fifo")):
        one.load(arbiter.save())
        assert one.save() == arbiter.save()
        assert one.state.cluster.left == {0}


@pytest.mark.parametrize("until", [Seconds(8.0), None])
def test_an_arbiter_loaded_in_the_middle_of_a_drain_decides_as_the_original_one(until: Seconds | None) -> None:
    arbiter = running(2, 1)
    drain = MachineDraining(machine="a1") if until is None else MachineDraining(machine="a1", until=until)
    arbiter.step(Seconds(2.0), [drain, MachineLost(machine="a2", gpus=(4,))])
    again = arbiter_of(Cluster.build(FIRST), "fifo")
    again.load(arbiter.save())
    later: list[list[Event]] = [
        [],
        [MachineKept(machine="a1")],
        [MachineBack(machine="a2")],
        [MachineLeft(machine="a2")],
    ]
    for at, events in enumerate(later):
        now = Seconds(3.0 + at)
        assert encode(again.step(now, events)) == encode(arbiter.step(now, events))
    assert again.save() == arbiter.save()


def test_a_replay_reproduces_the_state_of_the_run() -> None:
    arbiter, replayed = arbiter_of(Cluster.build(FIRST), "fifo"), arbiter_of(Cluster.build(FIRST), "fifo")
    script: list[list[Event]] = [
        arrival(1, 2),
        [joining(Machine(name="c1", gpu_type="A100", gpus=2)), *arrival(2, 2)],
        [MachineDraining(machine="a1", until=Seconds(30.0))],
        [MachineLeft(machine="a2")],
        [MachineJoined(machine="a2", gpu_type="V100", gpus=4, rack="r7", cpus=8.0, memory_gib=64.0, island=2)],
        [MachineLeft(machine="a1"), *arrival(3, 4)],
    ]
    for at, events in enumerate(script):
        journaled = [decode(json.loads(json.dumps(encode(event)))) for event in events]
        decision = arbiter.step(Seconds(float(at)), events)
        replayed.replay(Seconds(float(at)), journaled, decode(json.loads(json.dumps(encode(decision)))))
    assert json.loads(zlib.decompress(replayed.save())) == json.loads(zlib.decompress(arbiter.save()))


@pytest.mark.parametrize(
    ("event", "rule"),
    [
        (MachineLeft(machine="x"), 'MachineLeft: an event must name a machine of the cluster, but got "x"'),
        (MachineDraining(machine="x"), 'MachineDraining: an event must name a machine of the cluster, but got "x"'),
        (MachineKept(machine="a1"), 'MachineKept: a machine that is kept must be draining, but got "a1"'),
        (
            MachineJoined(machine="b1", gpu_type="V100", gpus=0),
            "MachineJoined: gpus must be at least 1, but got 0 (b1)",
        ),
    ],
)
def test_an_event_that_contradicts_the_cluster_is_refused(event: Event, rule: str) -> None:
    arbiter = running(2)
    before = json.loads(zlib.decompress(arbiter.save()))
    decision = arbiter.step(Seconds(1.0), [event])
    assert [fault.what for fault in decision.faults] == [rule]
    after = json.loads(zlib.decompress(arbiter.save()))
    assert {**after, "scalars": 0} == {**before, "scalars": 0}


def test_the_last_machine_cannot_leave() -> None:
    arbiter = running(1)
    decision = arbiter.step(Seconds(2.0), [MachineLeft(machine="a1"), MachineLeft(machine="a2")])
    (fault,) = decision.faults
    assert fault.what == 'MachineLeft: a cluster must have at least one machine, but got "a2" leaves'
    assert arbiter.view.job_row(JobId("app0/0")) >= 0
