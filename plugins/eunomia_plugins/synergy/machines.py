"""The CPUs and memory on machines of a GPU type: the share of each GPU, and the maximum of a job."""

import numpy as np

from eunomia import Cluster
from eunomia.units import Ints


class Machines:
    """CPUs and memory of machines by GPU type (-1: any type); a type without machines counts as any type.

    Args:
        cluster: the cluster; the CPUs and memory of every machine must be known.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        sizes = np.diff(cluster.machine_start)
        self._sizes = sizes
        self._each = np.column_stack([cluster.machine_cpus / sizes, cluster.machine_memory_gib / sizes])
        self._totals = np.column_stack([cluster.machine_cpus, cluster.machine_memory_gib])

    def share(self, gpu_type: int) -> tuple[float, float]:
        """Return the proportional CPUs and GiB per GPU: the smallest share on machines of a type."""
        cpus, memory_gib = self._each[self._of_type(gpu_type)].min(axis=0).tolist()
        return cpus, memory_gib

    def most(self, gpus: int, gpu_type: int) -> tuple[float, float]:
        """Return the maximum CPUs and GiB on the fewest machines that have this number of GPUs."""
        of_type = self._of_type(gpu_type)
        totals, sizes = self._totals[of_type], self._sizes[of_type]
        machines = int(np.searchsorted(np.cumsum(np.sort(sizes)[::-1]), gpus)) + 1
        cpus, memory_gib = (totals.max(axis=0) * min(machines, sizes.size)).tolist()
        return cpus, memory_gib

    def _of_type(self, gpu_type: int) -> Ints:
        machines = self._cluster.machine_type
        found = np.flatnonzero((machines == gpu_type) | (gpu_type < 0))
        return found if found.size else np.arange(machines.size)
