"""CPUs and memory in use on each GPU; a start or an increase waits until its machine has enough.

The columns ``cpus`` and ``memory_gib`` of the holdings are the ordered amounts. The columns ``*_in_use`` are what
executors may still use: they rise when an order is sent to executors, and fall only when executors confirm less.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.model.columns import Table
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.store.facts import Counters
from eunomia.store.tables import GpuRows, JobRows
from eunomia.units import NONE, Ints, Reals

_LEAVING, _PENDING = int(GpuState.LEAVING), LeaseState.PENDING
_ROUNDING = 1.0 + 1e-9


class MachineShares:
    """Each GPU's equal share of the CPUs and memory of its machine.

    Args:
        cluster: the cluster.

    Attributes:
        by_gpu: two read-only arrays, [GPU]: CPUs, and memory in GiB, of each GPU's equal share; 0 if unknown.
        are_known: whether the CPUs or the memory of any machine are known.
    """

    def __init__(self, cluster: Cluster) -> None:
        size, machine = np.diff(cluster.machine_start).astype(float), cluster.machine
        cpus: Reals = np.nan_to_num(cluster.machine_cpus / size)[machine]
        memory_gib: Reals = np.nan_to_num(cluster.machine_memory_gib / size)[machine]
        cpus.flags.writeable = memory_gib.flags.writeable = False
        self.by_gpu = cpus, memory_gib
        self.are_known = bool(cpus.any() or memory_gib.any())


class Amounts:
    """The CPUs and memory in use on each GPU, and the leases that wait for CPUs or memory.

    Args:
        cluster: the cluster.
        holdings: the table of GPUs.
        counters: the counters, with the epochs of orders.

    Attributes:
        tight: numbers of the leases that wait for CPUs or memory, to begin or to get more.
        tuning: numbers of the leases with a retune that executors have not confirmed.
        shares: each GPU's equal share of the CPUs and memory of its machine.
        uneven: whether a job requested, or a lease held, other amounts than these shares since the last ``rebuild``.
    """

    def __init__(self, cluster: Cluster, holdings: Table[GpuRows], counters: Counters) -> None:
        self._holdings, self._counters = holdings, counters
        self.tight: set[int] = set()
        self.tuning: set[int] = set()
        self.uneven = False
        self.follow(cluster)

    def follow(self, cluster: Cluster) -> None:
        """Set the limits and shares to those of a cluster after machines have joined or left."""
        self._cluster, self.shares = cluster, MachineShares(cluster)
        limits = (cluster.machine_cpus, cluster.machine_memory_gib)
        self._limits = [np.where(np.isnan(limit), np.inf, limit) * _ROUNDING for limit in limits]
        self.are_known = not all(np.isinf(limit).all() for limit in self._limits)

    def in_use(self, gpus: Sequence[int] | Ints) -> tuple[Reals, Reals]:
        """Return the CPUs, and the memory in GiB, that executors may use on each of these GPUs."""
        held = self._holdings.live
        return held.cpus_in_use[gpus], held.memory_gib_in_use[gpus]

    def ordered(self, gpus: Sequence[int] | Ints) -> tuple[Reals, Reals]:
        """Return the CPUs, and the memory in GiB, ordered for each of these GPUs."""
        held = self._holdings.live
        return held.cpus[gpus], held.memory_gib[gpus]

    def given(self, lease: Lease) -> tuple[Reals, Reals]:
        """Return the CPUs, and the GiB, to set now on each GPU of a lease, without increases that still wait."""
        ordered = self.ordered(lease.gpus)
        if not self.are_known or (lease.state is _PENDING and lease.tuned == NONE):
            return ordered
        used = self.in_use(lease.gpus)
        return np.minimum(ordered[0], used[0]), np.minimum(ordered[1], used[1])

    def refresh(self, lease: Lease) -> None:
        """Set a pending lease to ORDERED if it holds all its GPUs and their machines have enough CPUs and memory."""
        if lease.state is not _PENDING:
            return
        held, number = self._holdings.cells, lease.id
        for gpu in lease.gpus:
            # A GPU that this lease is releasing and will get again counts only after its release.
            if held.lease[gpu] != number or held.state[gpu] == _LEAVING:
                return
        if not self.are_known or self.take(lease):
            lease.state = LeaseState.ORDERED

    def take(self, lease: Lease) -> bool:
        """Reserve a lease's CPUs and memory; return False if it must wait until other leases or its job use less."""
        lowered = lease.id in self.tight and any((used > 0.0).any() for used in self.in_use(lease.gpus))
        if self._raise(lease):
            if lease.tuned != NONE or lowered:
                # An order to lower amounts is newer than the lease's start order: executors apply the newest amounts.
                self._hand_over(lease)
            return True
        if lease.tuned == NONE and any(
            (used > ordered).any()
            for used, ordered in zip(self.in_use(lease.gpus), self.ordered(lease.gpus), strict=True)
        ):
            self._hand_over(lease)
        return False

    def retune(self, lease: Lease) -> None:
        """Apply a retune of a lease's CPUs or memory; higher amounts wait until its machines have enough.

        A lease that has not begun simply begins with its new amounts.
        """
        if lease.state is _PENDING:
            self.refresh(lease)
            if lease.state is _PENDING and lease.tuned != NONE:
                self._hand_over(lease)
            return
        self._raise(lease)
        self._hand_over(lease)

    def overtake(self, lease: Lease) -> None:
        """Cancel a lease's unconfirmed retune and its wait for CPUs or memory, as a newer order replaces both."""
        self._forget_order(lease)
        self.tight.discard(lease.id)

    def confirm(self, lease: Lease, epoch: int) -> None:
        """Record that executors have applied the retune of this epoch; epochs of older retunes are ignored."""
        if lease.tuned != epoch:
            return
        self._lower(lease)
        self._forget_order(lease)
        if lease.state is not _PENDING and self._wants(lease):
            self.tight.add(lease.id)

    def begun(self, lease: Lease) -> None:
        """Record that a lease runs with the ordered amounts; those in use are kept while a retune is unconfirmed."""
        if lease.tuned == NONE:
            self._lower(lease)

    def give_room(self, leases: Mapping[int, Lease]) -> None:
        """Retry all leases that wait for CPUs or memory, oldest first."""
        for number in sorted(self.tight):
            lease = leases.get(number)
            if lease is None or lease.state is LeaseState.LEAVING:
                self.tight.discard(number)
            elif lease.state is _PENDING:
                self.refresh(lease)
            elif self._raise(lease):
                self._hand_over(lease)

    def drop(self, lease: int) -> None:
        """Remove a lease that has ended."""
        self.tight.discard(lease)
        self.tuning.discard(lease)

    def rebuild(self, jobs: Table[JobRows], leases: dict[int, Lease]) -> None:
        """Recompute ``tuning``, ``tight`` and ``uneven`` from the tables and leases."""
        self.tuning = {number for number, lease in leases.items() if lease.tuned != NONE}
        self.tight = self.waiting(leases)
        asked = np.isfinite(jobs.live.cpus[: jobs.used]) | np.isfinite(jobs.live.memory_gib[: jobs.used])
        held, gpus, (cpus, memory_gib) = self._holdings.live, slice(self._cluster.gpus), self.shares.by_gpu
        other = (held.cpus[gpus] != cpus) | (held.memory_gib[gpus] != memory_gib)
        other |= (held.cpus_in_use[gpus] > cpus) | (held.memory_gib_in_use[gpus] > memory_gib)
        self.uneven = bool(asked.any() or (other & (held.lease[gpus] != NONE)).any())

    def waiting(self, leases: dict[int, Lease]) -> set[int]:
        """Return the numbers of the leases that wait for CPUs or memory, computed from the tables."""
        if not self.are_known:
            return set()
        return {number for number, lease in leases.items() if lease.gpus and self._waits(lease)}

    def _waits(self, lease: Lease) -> bool:
        held = self._holdings.live
        if lease.state is not _PENDING:
            return lease.state is not LeaseState.LEAVING and self._wants(lease)
        return bool((held.lease[lease.gpus] == lease.id).all() and (held.state[lease.gpus] != _LEAVING).all())

    def _wants(self, lease: Lease) -> bool:
        return any(
            (ordered > used).any()
            for used, ordered in zip(self.in_use(lease.gpus), self.ordered(lease.gpus), strict=True)
        )

    def _raise(self, lease: Lease) -> bool:
        """Reserve on each GPU the larger of the used and ordered amounts; return False if a machine has too little."""
        gpus, held, machine = np.array(lease.gpus, np.int64), self._holdings.live, self._cluster.machine
        columns = ((held.cpus_in_use, held.cpus), (held.memory_gib_in_use, held.memory_gib))
        wanted = [np.maximum(used[gpus], ordered[gpus]) for used, ordered in columns]
        starts = self._cluster.machine_start
        for (used, _), more, limits in zip(columns, wanted, self._limits, strict=True):
            added = more - used[gpus]
            for number in set(machine[gpus[added > 0.0]].tolist()):
                extra = added[machine[gpus] == number].sum()
                if used[starts[number] : starts[number + 1]].sum() + extra > limits[number]:
                    self.tight.add(lease.id)
                    return False
        self._holdings.set(gpus, cpus_in_use=wanted[0], memory_gib_in_use=wanted[1])
        self.tight.discard(lease.id)
        return True

    def _lower(self, lease: Lease) -> None:
        held = self._holdings.live
        gpus = [gpu for gpu in lease.gpus if held.lease[gpu] == lease.id]
        cpus = np.minimum(held.cpus_in_use[gpus], held.cpus[gpus])
        memory_gib = np.minimum(held.memory_gib_in_use[gpus], held.memory_gib[gpus])
        self._holdings.set(gpus, cpus_in_use=cpus, memory_gib_in_use=memory_gib)

    def _hand_over(self, lease: Lease) -> None:
        lease.tuned = int(self._counters.next_epoch())
        self.tuning.add(lease.id)

    def _forget_order(self, lease: Lease) -> None:
        lease.tuned = NONE
        self.tuning.discard(lease.id)
