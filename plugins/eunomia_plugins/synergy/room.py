"""The GPUs, CPUs and memory that a placement may assign on each machine, and the jobs that hold them."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eunomia import Cluster, GpuState, Pool, Snapshot
from eunomia.units import Bools, Ints, Reals

SLACK = 1e-9
Vector = tuple[float, float]
"""CPUs and GiB of one GPU."""
Counts = list[tuple[int, int]]
"""Pairs of machine and number of GPUs."""


@dataclasses.dataclass(slots=True, eq=False)
class Holder:
    """A placed job or claim, with its present amounts and range of CPUs and GiB per GPU, equal on all its GPUs."""

    key: int
    """Index of the claim, or row of a job that is not a claim."""
    is_claim: bool
    gpus: Ints
    counts: Counts
    now: Vector
    least: Vector
    most: Vector

    @property
    def surplus(self) -> Vector:
        """Return the CPUs and GiB per GPU above the minimum."""
        return max(0.0, self.now[0] - self.least[0]), max(0.0, self.now[1] - self.least[1])


class Room:
    """The free GPUs, CPUs and memory of each machine while a placement is built.

    Args:
        snapshot: the current state.
        gpus: the GPUs that may be assigned; their holders keep only what is assigned to them here.
    """

    def __init__(self, snapshot: Snapshot, gpus: Ints) -> None:
        self.cluster: Cluster = snapshot.cluster
        self.pool = Pool(snapshot, gpus)
        self.free = self.pool.free
        self.cpus, self.memory_gib = self.pool.cpus, self.pool.memory_gib
        self.on: dict[int, list[Holder]] = {}
        """The holders on each machine that can be lowered and raised."""
        sizes = np.diff(self.cluster.machine_start).astype(np.float64)
        amounts = (sizes, self.cluster.machine_cpus, self.cluster.machine_memory_gib)
        self._scale = tuple(_one_over(each) for each in amounts)
        self._leaving = self._in_use_by_leavers(snapshot, gpus)

    def _in_use_by_leavers(self, snapshot: Snapshot, gpus: Ints) -> dict[int, Vector]:
        """Subtract the CPUs and memory that leaving jobs still use; the next holder of their GPUs takes them over."""
        held = snapshot.holdings
        leaving = gpus[held.state[gpus] == int(GpuState.LEAVING)]
        self.pool.spend(leaving, np.nan_to_num(held.cpus[leaving]), np.nan_to_num(held.memory_gib[leaving]))
        amounts = zip(held.cpus[leaving].tolist(), held.memory_gib[leaving].tolist(), strict=True)
        return dict(zip(leaving.tolist(), amounts, strict=True))

    def fits(self, each: Vector, machines: Ints | None = None) -> Ints:
        """Return how many GPUs with these amounts fit on each machine."""
        rows = slice(None) if machines is None else machines
        room = self.free[rows]
        for left, amount in ((self.cpus[rows], each[0]), (self.memory_gib[rows], each[1])):
            if amount > 0.0:
                room = np.minimum(room, np.floor(left / amount + SLACK).astype(np.int64))
        return np.maximum(room, 0)

    def free_fraction(self, machines: Ints) -> Reals:
        """Return the sum of the free fractions of GPUs, CPUs and memory of each machine."""
        gpus, cpus, memory = self._scale
        left: Reals = self.free[machines] * gpus[machines] + self.cpus[machines] * cpus[machines]
        return left + self.memory_gib[machines] * memory[machines]

    def of_type(self, gpu_type: int) -> Bools:
        """Return whether each machine has GPUs of a type (-1: any)."""
        mine: Bools = np.asarray((self.cluster.machine_type == gpu_type) | (gpu_type < 0))
        return mine

    def take(self, holder: Holder) -> None:
        """Subtract a holder's GPUs and amounts from the room."""
        self.pool.take(holder.gpus)
        for gpu in holder.gpus.tolist() if self._leaving else ():
            freed = self._leaving.pop(gpu, None)
            if freed is not None:
                self.pool.spend(np.array([gpu]), np.array([-freed[0]]), np.array([-freed[1]]))
        self._spend(holder, holder.now)
        self.add(holder)

    def add(self, holder: Holder) -> None:
        """Register a holder whose amounts are already subtracted, so that it can be lowered and raised."""
        for machine, _ in holder.counts:
            self.on.setdefault(machine, []).append(holder)

    def drop(self, holder: Holder) -> None:
        """Return a holder's GPUs and amounts to the room."""
        self.pool.give(holder.gpus)
        self._spend(holder, (-holder.now[0], -holder.now[1]))
        for machine, _ in holder.counts:
            self.on[machine].remove(holder)

    def change(self, holder: Holder, amounts: Vector) -> None:
        """Change a holder's amounts."""
        self._spend(holder, (amounts[0] - holder.now[0], amounts[1] - holder.now[1]))
        holder.now = amounts

    def _spend(self, holder: Holder, each: Vector) -> None:
        for machine, count in holder.counts:
            self.cpus[machine] -= count * each[0]
            self.memory_gib[machine] -= count * each[1]

    def lower(self, machine: int, count: int, each: Vector) -> bool:
        """Lower holders on a machine to their minimum until this number of GPUs with these amounts fits.

        The holder with the smallest sufficient surplus is lowered, else the one with the largest, repeatedly.

        Returns:
            Whether the GPUs fit now.
        """
        while True:
            short = count * each[0] - self.cpus[machine], count * each[1] - self.memory_gib[machine]
            if short[0] <= SLACK and short[1] <= SLACK:
                return True
            found = self._to_lower(machine, short)
            if found is None:
                return False
            self.change(found, (found.now[0] - found.surplus[0], found.now[1] - found.surplus[1]))

    def _to_lower(self, machine: int, short: Vector) -> Holder | None:
        best: tuple[bool, float] | None = None
        chosen = None
        for holder in self.on.get(machine, ()):
            here = next(count for place, count in holder.counts if place == machine)
            freed = holder.surplus[0] * here, holder.surplus[1] * here
            useful = sum(min(part, need) / need for part, need in zip(freed, short, strict=True) if need > SLACK)
            if useful <= SLACK:
                continue
            enough = freed[0] >= short[0] - SLACK and freed[1] >= short[1] - SLACK
            size = freed[0] / self.cluster.machine_cpus[machine] + freed[1] / self.cluster.machine_memory_gib[machine]
            rank = (not enough, size if enough else -useful)
            if best is None or rank < best:
                best, chosen = rank, holder
        return chosen

    def raise_all(self, holders: Sequence[Holder]) -> None:
        """Raise holders towards their maximum, in order, within the room on their machines."""
        for holder in holders:
            missing = holder.most[0] - holder.now[0], holder.most[1] - holder.now[1]
            if missing[0] <= SLACK and missing[1] <= SLACK:
                continue
            spare = [
                min((left[machine] / count for machine, count in holder.counts), default=0.0)
                for left in (self.cpus, self.memory_gib)
            ]
            more = [max(0.0, min(want, float(have))) for want, have in zip(missing, spare, strict=True)]
            if more[0] > SLACK or more[1] > SLACK:
                self.change(holder, (holder.now[0] + more[0], holder.now[1] + more[1]))


def _one_over(amounts: Reals) -> Reals:
    """Return 1 / amount of each machine; 0 for a machine that has left the cluster."""
    return np.divide(1.0, amounts, out=np.zeros_like(amounts), where=amounts > 0.0)
