"""The time of each job's work on one GPU, to which Themis's rho and AFS's metrics refer."""

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.units import Reals
from eunomia_testbed.performance import PerformanceModel
from eunomia_testbed.simulator.progress.truth import GangShape, Speeds
from eunomia_testbed.workload import Regime, Workload


def serial_seconds(workload: Workload, cluster: Cluster, models: PerformanceModel | None) -> Reals | None:
    """Return the seconds of each job's total work on one GPU of the job's own type; NaN: its speed is unknown.

    A job that cannot run on one GPU is assumed to scale linearly up to its smallest gang. Without a performance model,
    None is returned, since then every job scales linearly from the workload's time.
    """
    if models is None:
        return None
    speeds = Speeds(workload, cluster, models)
    return np.array([_of(job, workload, speeds) for job in range(workload.size)])


def _of(job: int, workload: Workload, speeds: Speeds) -> float:
    regimes = speeds.regimes(job)
    whole: list[tuple[float, Regime | None]] = [(float(workload.jobs.iterations[job]), None)]
    stretches = [(one.iterations, one) for one in regimes] or whole
    kind = speeds.own_type(job)
    for gpus in (1, int(workload.jobs.least[job])):
        seconds = gpus * sum(work * speeds.at(job, GangShape(gpus, kind), regime=one) for work, one in stretches)
        if np.isfinite(seconds):
            return seconds
    return np.nan
