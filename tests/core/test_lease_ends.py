"""The index of lease ends equals the one made from the leases, and a fault in it is found."""

import dataclasses
import random

import pytest

from assembling import assemble
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, JobAdded, SingleJobArrived
from eunomia.contract.stages import Rounds, Stages
from eunomia.model.cluster import Cluster
from eunomia.model.leases import Lease, LeaseState
from eunomia.platform.registry import default_registry
from eunomia.round.invariants import StateError, check_state
from eunomia.store.indexes import LeaseEnds
from eunomia.units import NEVER, AppId, Cause, JobId, Seconds, UserId
from strength import examples


def a_lease(number: int, ends_at: float, protected_until: float = 0.0) -> Lease:
    gpus = [number]
    terms = {"ends_at": Seconds(ends_at), "protected_until": Seconds(protected_until)}
    return Lease(id=number, epoch=number, app=0, gpus=gpus, state=LeaseState.ACTIVE, **terms)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_after_any_change_of_leases_the_index_equals_its_rebuild(seed: int) -> None:
    luck, leases = random.Random(seed), dict[int, Lease]()
    index, ended = LeaseEnds(leases), 0
    for step in range(200):
        now, number = Seconds(float(step)), luck.randrange(8)
        lease = leases.get(number)
        if lease is None:
            leases[number] = a_lease(number, now + luck.choice([1.0, 4.0, NEVER]), now + luck.choice([0.0, 2.0]))
            index.granted(leases[number], now)
        elif lease.state is LeaseState.LEAVING:
            del leases[number]
        elif luck.random() < 0.5:
            lease.ends_at, lease.protected_until = Seconds(now + 3.0), Seconds(now + 1.0)
            index.granted(lease, now)
        else:
            lease.state = LeaseState.LEAVING
            index.overdue.discard(number)
        ended += index.take_ended(now)
        assert index.same(index.rebuild(now), now)
        ends = [lease.ends_at for lease in leases.values() if lease.state is not LeaseState.LEAVING]
        assert index.next_end() == min((end for end in ends if end > now), default=NEVER)
        assert index.take_unguarded(now).isdisjoint(number for number in leases if leases[number].protected_until > now)
    assert ended > 3


def stages(lease: float) -> Stages:
    registry = default_registry()
    parts = {"elasticity": "fixed", "valuation": "fifo", "allocation": "ordered", "placement": "packed"}
    made = {stage: registry.make(name, {}, alias=name, place=str) for stage, name in parts.items()}
    return assemble(**made, rounds=Rounds(lease=Seconds(lease)))


def running() -> Arbiter:
    """An arbiter with one job on a lease that ends at 60 s."""
    arbiter = Arbiter(Cluster.parse("1x2 V100"), stages(60.0), stages(60.0))
    job = JobAdded(job=JobId("a/0"), app=AppId("a"), least=1, most=1, iterations=100.0, seconds_per_iteration=1.0)
    arbiter.step(Seconds(0.0), [SingleJobArrived(arrival=AppArrived(app=AppId("a"), user=UserId("u")), job=job)])
    return arbiter


@pytest.mark.parametrize("fault", ["an entry is missing", "a lease is overdue that is not"])
def test_a_fault_in_the_index_is_found(fault: str) -> None:
    arbiter = running()
    check_state(arbiter.state)
    index = arbiter.state.lease_ends
    if fault == "an entry is missing":
        index.ends.clear()
    else:
        index.overdue.add(1)
    with pytest.raises(StateError, match="the ends of leases must be those that the leases give"):
        check_state(arbiter.state)


def test_a_lease_overdue_when_an_arbiter_stops_causes_no_further_round_after_recovery() -> None:
    arbiter = running()
    lease = arbiter.state.leases[1]
    renewed = dataclasses.replace(lease)
    arbiter.step(Seconds(60.0))
    assert lease.ends_at == 2 * renewed.ends_at  # the round at 60 s renewed it
    lease.ends_at = Seconds(60.0)  # as if a round that is still open had not
    arbiter.state.lease_ends = arbiter.state.lease_ends.rebuild(arbiter.state.now)
    assert arbiter.state.lease_ends.overdue == {1}
    again = running()
    again.load(arbiter.save())
    assert again.state.lease_ends.overdue == {1}
    decisions = [one.step(Seconds(61.0)) for one in (arbiter, again)]
    assert [decision.causes for decision in decisions] == [frozenset(), frozenset()]
    assert Cause.LEASE_ENDED not in again.state.counters.causes
