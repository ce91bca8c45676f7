"""Free GPUs as bit sets: one set of GPUs per machine, and one set of machines per number of free GPUs."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.units import Bools, Ints


class Space:
    """The free GPUs of a cluster, updated as GPUs are taken and returned; a placement takes GPUs from a copy.

    Args:
        cluster: the cluster.
        free: a mask of free GPUs, or a space of the same cluster to copy.
    """

    bits: list[int]
    """[machine] bit set of free GPUs; bit i is the machine's i-th GPU."""
    machines: list[list[int]]
    """[GPU type][number of free GPUs] bit set of machines with that many; bit m is machine m."""
    free: list[int]
    """[GPU type] number of free GPUs."""
    _start: list[int]
    _machine: list[int]
    _kind: list[int]

    __slots__ = ("_cluster", "_kind", "_machine", "_start", "bits", "free", "machines")

    def __init__(self, cluster: Cluster, free: "Bools | Space") -> None:
        self._cluster = cluster
        if isinstance(free, Space):
            self._start, self._machine, self._kind = free._start, free._machine, free._kind
            self.bits, self.free = free.bits.copy(), free.free.copy()
            self.machines = [by_count.copy() for by_count in free.machines]
            return
        self._start = cluster.machine_start.tolist()
        self._machine = cluster.machine.tolist()
        self._kind = cluster.machine_type.tolist()
        self.bits = [0] * len(cluster.machines)
        most = int(np.diff(cluster.machine_start).max())
        self.machines = [[0] * (most + 1) for _ in cluster.gpu_types]
        self.free = [0] * len(cluster.gpu_types)
        for machine, kind in enumerate(self._kind):
            self.machines[kind][0] |= 1 << machine
        self.give(np.flatnonzero(free).tolist())

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(self._cluster, self)

    def give(self, gpus: Sequence[int]) -> None:
        """Add GPUs to the free GPUs."""
        bits, machine_of, start, kinds = self.bits, self._machine, self._start, self._kind
        for gpu in gpus:
            machine = machine_of[gpu]
            before, bit = bits[machine], 1 << (gpu - start[machine])
            if not before & bit:
                bits[machine] = before | bit
                by_count, mark, many = self.machines[kinds[machine]], 1 << machine, before.bit_count()
                by_count[many] ^= mark
                by_count[many + 1] ^= mark
                self.free[kinds[machine]] += 1

    def take(self, gpus: Sequence[int]) -> None:
        """Remove GPUs from the free GPUs."""
        bits, machine_of, start, kinds = self.bits, self._machine, self._start, self._kind
        for gpu in gpus:
            machine = machine_of[gpu]
            before, bit = bits[machine], 1 << (gpu - start[machine])
            if before & bit:
                bits[machine] = before ^ bit
                by_count, mark, many = self.machines[kinds[machine]], 1 << machine, before.bit_count()
                by_count[many] ^= mark
                by_count[many - 1] ^= mark
                self.free[kinds[machine]] -= 1

    def best(self, kind: int, gpus: int) -> int:
        """Return the best fit: the first machine of a type with the fewest free GPUs, at least ``gpus``; -1: none."""
        for machines in self.machines[kind][gpus:]:
            if machines:
                return (machines & -machines).bit_length() - 1
        return -1

    def fit(self, kind: int, gpus: int) -> list[int]:
        """Return the first ``gpus`` free GPUs of the best-fit machine without taking them; empty if none fits."""
        by_count = self.machines[kind]
        found: list[int] = []
        for machines in by_count[gpus:]:
            if machines:
                machine = (machines & -machines).bit_length() - 1
                bits, start = self.bits[machine], self._start[machine]
                for _ in range(gpus):
                    low = bits & -bits
                    found.append(start + low.bit_length() - 1)
                    bits ^= low
                break
        return found

    def first(self, machine: int, count: int) -> list[int]:
        """Return the first ``count`` free GPUs of a machine without taking them."""
        bits, start, found = self.bits[machine], self._start[machine], []
        for _ in range(count):
            low = bits & -bits
            found.append(start + low.bit_length() - 1)
            bits ^= low
        return found

    def gpus(self) -> Ints:
        """Return all free GPUs, ascending."""
        found: list[int] = []
        for machine, bits in enumerate(self.bits):
            if bits:
                found += self.first(machine, bits.bit_count())
        return np.array(found, dtype=np.int64)

    def same(self, other: Self) -> bool:
        """Return whether both spaces have the same free GPUs."""
        return (self.bits, self.free, self.machines) == (other.bits, other.free, other.machines)
