"""Demands of jobs: the minimum and maximum CPUs and memory of a grant."""

import numpy as np

from eunomia import Menus, Snapshot
from eunomia.units import Ints, Reals
from eunomia_plugins.synergy.machines import Machines
from eunomia_plugins.synergy.matrices import Matrix, demand
from eunomia_plugins.synergy.points import Points, points_of

Known = dict[tuple[object, ...], tuple[float, float]]
"""A cache of demands by all inputs on which they depend."""
MANY = 4096


class Demands:
    """The demands of the jobs of one round.

    Args:
        snapshot: the current state; the CPUs and memory of every machine must be known.
        menus: menus with points by CPUs and memory.
        saturation: fraction of the best rate that a demand reaches.
        known: cached demands of earlier rounds, to which new ones are added.
    """

    def __init__(self, snapshot: Snapshot, menus: Menus, saturation: float, known: Known) -> None:
        self.snapshot, self.menus = snapshot, menus
        self._saturation, self._known = saturation, known
        self._machines = Machines(snapshot.cluster)
        if len(known) > MANY:
            known.clear()

    def share(self, gpu_type: int) -> tuple[float, float]:
        """Return the proportional CPUs and GiB per GPU: the smallest share on machines of a type (-1: any type)."""
        return self._machines.share(gpu_type)

    def of_jobs(self, jobs: Ints, gpus: Ints, gpu_types: Ints) -> tuple[Reals, Reals]:
        """Return the minimum and the maximum CPUs and GiB of jobs at these sizes, each [job, 2]."""
        curve = self.menus.curve[jobs].astype(np.int64)
        alike = np.column_stack([curve, gpus, gpu_types])
        _, first, inverse = np.unique(alike, axis=0, return_index=True, return_inverse=True)
        pairs = [self._of_job(int(jobs[at]), int(gpus[at]), int(gpu_types[at])) for at in first]
        table = np.array(pairs, float).reshape(-1, 2, 2)[inverse.reshape(-1)]
        table_of_jobs = self.snapshot.jobs
        for at, column in enumerate((table_of_jobs.cpus[jobs], table_of_jobs.memory_gib[jobs])):
            asked = ~np.isnan(column)
            table[asked, :, at] = (column * gpus)[asked, None]
        return table[:, 0], table[:, 1]

    def points(self, job: int, gpus: int, gpu_type: int) -> Points | None:
        """Return the points of a job that are no slower than its share; None if its menu has no CPUs or memory."""
        matrix = Matrix.of(self.menus, job, gpus, gpu_type)
        if matrix is None:
            return None
        cpus, memory_gib = (amount * gpus for amount in self.share(gpu_type))
        return points_of(matrix, (cpus, memory_gib), self._machines.most(gpus, gpu_type))

    def _of_job(self, job: int, gpus: int, gpu_type: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the minimum and the maximum CPUs and GiB of one job."""
        cpus, memory = (amount * gpus for amount in self.share(gpu_type))
        matrix = Matrix.of(self.menus, job, gpus, gpu_type) if gpus else None
        if matrix is None:
            return (cpus, memory), (cpus, memory)
        most = self._machines.most(gpus, gpu_type)
        key = (matrix.cpus.tobytes(), matrix.memory_gib.tobytes(), matrix.rate.tobytes(), cpus, memory, most)
        if key not in self._known:
            self._known[key] = demand(matrix, (cpus, memory), most, self._saturation)
        wanted = self._known[key]
        return (min(wanted[0], cpus), min(wanted[1], memory)), wanted
