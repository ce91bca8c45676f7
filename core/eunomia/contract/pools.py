"""The GPUs that a placement may use, and a mutable pool of them by machine."""

import numpy as np

from eunomia.contract.allocations import Allocation
from eunomia.contract.claims import Claims
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.model.leases import GpuState
from eunomia.units import NONE, Bools, Ints, Reals, Rest, Rows, Unit

_LEAVING = int(GpuState.LEAVING)


def owners(snapshot: Snapshot, gpus: Ints, unit: Unit) -> Rows:
    """Return the row of the job, app or user that owns each GPU; -1: no owner.

    A GPU that is promised to a successor belongs to the successor even before the holder releases the GPU; a holder
    that must release a GPU no longer owns it.
    """
    held = snapshot.holdings
    promised = held.successor[gpus] != NONE
    stays = held.state[gpus] != _LEAVING
    job = unit is Unit.JOB
    now, then = (held.job, held.next_job) if job else (held.app, held.next_app)
    row = np.where(promised, then[gpus], np.where(stays, now[gpus], NONE))
    if unit in (Unit.USER, Unit.GROUP):
        row = np.where(row != NONE, snapshot.apps.user[row], NONE)
    return row.astype(np.int32)


def holders(snapshot: Snapshot, claims: Claims, gpus: Ints) -> Ints:
    """Return the index of the claim that owns each GPU, or -1 if none of these claims does."""
    row = owners(snapshot, gpus, claims.unit)
    rows = claims.rows
    index = np.full(2 + max(int(row.max(initial=NONE)), int(rows.max(initial=NONE))), NONE, np.int64)
    index[rows] = np.arange(rows.size)
    found: Ints = index[row]  # row -1 reads the last entry, which belongs to no row
    return found


def usable(snapshot: Snapshot, offer: Offer, claims: Claims) -> Ints:
    """Return the GPUs of the offer that have no owner or are owned by one of these claims."""
    if claims.unit is Unit.JOB and snapshot.index.settled:
        return _usable_by_jobs(snapshot, offer.gpus, claims.rows)
    owned: Bools = owners(snapshot, offer.gpus, Unit.APP) != NONE
    if not owned.any():
        return offer.gpus
    return offer.gpus[~owned | (holders(snapshot, claims, offer.gpus) >= 0)]


def _usable_by_jobs(snapshot: Snapshot, gpus: Ints, rows: Rows) -> Ints:
    """Return the usable GPUs for job claims if no GPU is being released or promised to another job."""
    job = snapshot.holdings.job[gpus]
    allowed: Bools = np.zeros(2 + max(int(job.max(initial=NONE)), int(rows.max(initial=NONE))), dtype=bool)
    allowed[rows] = allowed[NONE] = True  # job -1 (a free GPU) reads the last entry
    return gpus[allowed[job]]


def available(snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Ints:
    """Return the GPUs of the offer that a placement may use; with ``Rest.KEEP``, other claims keep theirs."""
    return offer.gpus if allocation.rest is Rest.RELEASE else usable(snapshot, offer, allocation.claims)


class Pool:
    """A mutable copy of the free GPUs, CPUs and memory of each machine.

    Attributes:
        free: [machine] number of GPUs left.
        cpus: [machine] CPUs left; inf: unknown and therefore not checked.
        memory_gib: [machine] memory left in GiB; inf: unknown and therefore not checked.
    """

    def __init__(self, snapshot: Snapshot, gpus: Ints) -> None:
        self._cluster = cluster = snapshot.cluster
        self._mask: Bools = np.zeros(cluster.gpus, dtype=bool)
        self._mask[gpus] = True
        machines = len(cluster.machines)
        self.free: Ints = np.bincount(cluster.machine[gpus], minlength=machines).astype(np.int64)
        others = ~self._mask
        where = cluster.machine[others]
        self.cpus = _left(cluster.machine_cpus, where, snapshot.holdings.cpus[others])
        self.memory_gib = _left(cluster.machine_memory_gib, where, snapshot.holdings.memory_gib[others])

    @property
    def gpus(self) -> int:
        """Return the number of GPUs left on all machines."""
        return int(self.free.sum())

    def room(self, gpu_type: int = NONE, cpus: float = np.nan, memory_gib: float = np.nan) -> Ints:
        """Return how many GPUs of a type fit on each machine, given CPUs and GiB per GPU (NaN: no request)."""
        room = self.free
        if gpu_type != NONE:
            room = np.where(self._cluster.machine_type == gpu_type, room, 0)
        for left, each in ((self.cpus, cpus), (self.memory_gib, memory_gib)):
            if each > 0.0:
                room = np.minimum(room, np.floor(np.minimum(left / each + 1e-9, 1e9))).astype(np.int64)
        return room

    def fair(self, machine: int, left: Reals, total: Reals) -> float:
        """Return the default amount per GPU of a machine: an equal part, or less if less is left; 0 if unknown."""
        whole = int(self._cluster.machine_start[machine + 1] - self._cluster.machine_start[machine])
        if np.isnan(total[machine]):
            return 0.0
        return max(0.0, min(float(total[machine]) / whole, float(left[machine]) / max(1, int(self.free[machine]))))

    def holds(self, gpus: Ints) -> Bools:
        """Return for each GPU whether it is still in the pool."""
        return self._mask[gpus]

    def on(self, machine: int) -> Ints:
        """Return the GPUs left on a machine, ascending."""
        start, end = self._cluster.machine_start[machine : machine + 2].tolist()
        here: Ints = self._mask[start:end].nonzero()[0] + start
        return here

    def choose(self, machine: int, count: int) -> Ints:
        """Return ``count`` GPUs of a machine in as few islands as possible, without taking them from the pool."""
        here = self.on(machine)
        if not self._cluster.has_islands or count >= here.size or count == 0:
            return here[:count]
        _, inverse, sizes = np.unique(self._cluster.island[here], return_inverse=True, return_counts=True)
        chosen: list[Ints] = []
        while count > 0:
            fits = np.flatnonzero(sizes >= count)
            best = int(fits[np.argmin(sizes[fits])]) if fits.size else int(np.argmax(sizes))
            part = here[inverse == best][:count]
            chosen.append(part)
            count -= part.size
            sizes[best] = 0
        return np.sort(np.concatenate(chosen))

    def take(self, gpus: Ints) -> None:
        """Remove these GPUs from the pool."""
        self._mask[gpus] = False
        if gpus.size == 1:
            self.free[self._cluster.machine[gpus[0]]] -= 1
        else:
            np.subtract.at(self.free, self._cluster.machine[gpus], 1)

    def give(self, gpus: Ints) -> None:
        """Put GPUs back into the pool."""
        self._mask[gpus] = True
        np.add.at(self.free, self._cluster.machine[gpus], 1)

    def spend(self, gpus: Ints, cpus: Reals, memory_gib: Reals) -> None:
        """Subtract the CPUs and GiB used with each of these GPUs from what the machines have left."""
        machines = self._cluster.machine[gpus]
        np.subtract.at(self.cpus, machines, cpus)
        np.subtract.at(self.memory_gib, machines, memory_gib)


def _left(total: Reals, machines: Rows, used: Reals) -> Reals:
    """Return ``total`` of each machine minus the use by GPUs outside the pool; inf where the total is unknown."""
    if np.isnan(total).all():
        return np.full(total.size, np.inf)
    spent = np.bincount(machines, weights=np.nan_to_num(used), minlength=total.size)
    return np.where(np.isnan(total), np.inf, total - spent)
