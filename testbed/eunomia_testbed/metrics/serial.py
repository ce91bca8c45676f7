"""The time of each job's work on one GPU: the reference of Themis' rho and AFS' metrics."""

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.units import Reals
from eunomia_testbed.performance import PerformanceModel
from eunomia_testbed.simulator.progress.truth import GangShape, Speeds
from eunomia_testbed.workload import Regime, Workload


def serial_seconds(workload: Workload, cluster: Cluster, models: PerformanceModel | None) -> Reals | None:
    """Return by job the seconds of its whole work on one GPU of its own type; NaN: it does not run on one GPU.

    None: there is no performance model, so that every job scales linearly from the workload's time.
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
    seconds = sum(work * speeds.at(job, GangShape(1, kind), regime=one) for work, one in stretches)
    return seconds if np.isfinite(seconds) else np.nan
