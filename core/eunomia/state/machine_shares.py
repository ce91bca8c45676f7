"""The CPUs and the memory that belong to each GPU if its machine divides them equally among its GPUs."""

import functools

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.units import Ints, Reals


class MachineShares:
    """The share of its machine that each GPU has. Callers must not write to the arrays.

    Args:
        cluster: with the machines.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nothing: Reals = np.zeros(cluster.gpus)
        self._nothing.flags.writeable = False

    @functools.cached_property
    def by_gpu(self) -> tuple[Reals, Reals]:
        """By GPU: its share of its machine's CPUs and memory in GiB; 0 where unknown."""
        cluster = self._cluster
        size = np.diff(cluster.machine_start).astype(float)
        cpus = np.nan_to_num(cluster.machine_cpus / size)
        memory_gib = np.nan_to_num(cluster.machine_memory_gib / size)
        return cpus[cluster.machine], memory_gib[cluster.machine]

    @functools.cached_property
    def are_known(self) -> bool:
        """Whether the CPUs or the memory of any machine are known."""
        return any(part.any() for part in self.by_gpu)

    def of(self, gpus: Ints) -> tuple[Reals, Reals]:
        """The shares of CPUs and of memory in GiB of these GPUs."""
        if self.are_known:
            cpus, memory_gib = self.by_gpu
            return cpus[gpus], memory_gib[gpus]
        nothing = self._nothing[: gpus.size]
        return nothing, nothing
