"""The speed of each job on each GPU type, relative to the type on which its times were measured."""

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia_testbed.performance import PerformanceModel
from eunomia_testbed.simulator.progress.truth import Speeds
from eunomia_testbed.workload import Workload


class TrueTypeSpeeds:
    """The true speeds of a workload's jobs by GPU type, at their largest gang on one machine, in their first regime.

    Speeds are relative to the GPU type of a job's times; without times, to the type on which the job is fastest.

    Args:
        workload: the workload with the jobs.
        cluster: the cluster with the GPU types.
        models: the performance model; None: all types are equally fast.
    """

    def __init__(self, workload: Workload, cluster: Cluster, models: PerformanceModel | None) -> None:
        self._speeds = Speeds(workload, cluster, models)
        self._plain = models is None
        jobs = workload.jobs
        columns = (jobs.model, jobs.most, jobs.seconds_per_iteration, jobs.batch_size, jobs.cpus_per_gpu)
        self._alike = [each for each in (*columns, jobs.memory_gib_per_gpu) if each is not None]
        self._known: dict[tuple[object, ...], float] = {}

    def reference(self, job: int) -> str | None:
        """Return the GPU type to which a job's speeds are relative."""
        return self._speeds.reference_type(job)

    def speed(self, job: int, kind: int) -> float:
        """Return a job's speed on a GPU type relative to its reference type; NaN: the job cannot run on that type."""
        if self._plain:
            return 1.0
        key = (kind, self.reference(job), *(column[job] for column in self._alike))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._speeds.against_reference(job, kind)
        return found if 0.0 < found < np.inf else float("nan")


def type_speeds(workload: Workload, cluster: Cluster, models: PerformanceModel | None) -> TrueTypeSpeeds | None:
    """Return the speeds of a workload's jobs by GPU type; None: the cluster has only one type."""
    return None if len(cluster.gpu_types) < 2 else TrueTypeSpeeds(workload, cluster, models)
