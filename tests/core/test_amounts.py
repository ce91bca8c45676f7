"""Orders about CPUs and memory around a lease that waits for its machine."""

from eunomia.model.cluster import Cluster
from eunomia.model.columns import Table
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.store.amounts import Amounts
from eunomia.store.facts import Counters
from eunomia.store.tables import GpuRows
from eunomia.units import Seconds

LIMIT = 10.0


def _growing() -> tuple[Amounts, Table[GpuRows], Lease]:
    """A lease that runs on GPU 0 with 4 CPUs and is to have 1 there and 6 on GPU 1, next to a lease that uses 4."""
    cluster = Cluster.parse(f"1x3 V100 {LIMIT:g}cpu 48GB")
    holdings = Table(GpuRows, capacity=cluster.gpus)
    for _ in range(cluster.gpus):
        holdings.add()
    held = holdings.live
    held.lease[:3], held.state[:3] = [1, 1, 2], GpuState.HELD
    held.cpus[:3], held.cpus_in_use[:3] = [1.0, 6.0, 4.0], [4.0, 0.0, 4.0]
    lease = Lease(id=1, epoch=5, app=0, job=0, gpus=[0, 1], ends_at=Seconds(60.0), granted_at=Seconds(0.0))
    return Amounts(cluster, holdings, Counters(seed=0, last_epoch=5)), holdings, lease


def test_a_pending_lease_whose_amounts_are_lowered_gets_another_order_when_it_begins() -> None:
    amounts, holdings, lease = _growing()
    amounts.refresh(lease)
    assert (lease.state, lease.tuned) == (LeaseState.PENDING, 6)
    amounts.confirm(lease, 6)
    assert holdings.live.cpus_in_use[:3].tolist() == [1.0, 0.0, 4.0]
    holdings.live.cpus[:2] = 0.5
    amounts.retune(lease)
    # Executors hold the order of epoch 6 for newer than the lease's own, so a third one has to say what it begins with.
    assert (lease.state, lease.tuned) == (LeaseState.ORDERED, 7)
    amounts.begun(lease)
    assert holdings.live.cpus_in_use[:3].tolist() == [1.0, 0.5, 4.0]
    amounts.confirm(lease, 7)
    assert holdings.live.cpus_in_use[:3].tolist() == [0.5, 0.5, 4.0]


def test_a_lease_whose_amounts_rise_while_it_waits_for_room_gets_another_order() -> None:
    amounts, holdings, lease = _growing()
    amounts.refresh(lease)
    amounts.confirm(lease, 6)
    holdings.live.cpus_in_use[2] = 3.0
    amounts.refresh(lease)
    assert (lease.state, lease.tuned) == (LeaseState.ORDERED, 7)
    assert amounts.given(lease)[0].tolist() == [1.0, 6.0]


def test_a_newer_order_for_gpus_that_are_not_released_ends_the_wait_for_room() -> None:
    amounts, holdings, lease = _growing()
    amounts.refresh(lease)
    assert amounts.tight == amounts.waiting({1: lease}) == {1}
    holdings.live.state[1] = GpuState.LEAVING
    amounts.overtake(lease)
    amounts.refresh(lease)
    assert (amounts.tight, amounts.tuning, lease.tuned) == (set(), set(), -1)
    assert amounts.waiting({1: lease}) == set()
