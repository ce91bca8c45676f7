"""Computes completion times of the measured jobs, and the use of CPUs and GPUs, from a simulation."""

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.units import Ints, Reals
from eunomia_testbed.performance import SynergyProfiles
from eunomia_testbed.simulator import SimulatedRun
from eunomia_testbed.workload import Workload

SHORT_SECONDS = 4.0 * 3600.0
"""Duration below which a job is short (§5.3.1), here at proportional shares, so that every scheme has the same short
jobs."""


def by_length(workload: Workload, jct: Reals, first: int) -> tuple[Reals, Reals]:
    """Return the completion times in seconds of the short and of the long measured jobs.

    Args:
        workload: the jobs.
        jct: [job] completion time in seconds.
        first: index of the first measured job.
    """
    jobs = workload.jobs
    seconds = (jobs.iterations * jobs.seconds_per_iteration)[first:]
    short = seconds < SHORT_SECONDS
    return jct[first:][short], jct[first:][~short]


def use(
    run: SimulatedRun, workload: Workload, cluster: Cluster, profiles: SynergyProfiles, first: int
) -> tuple[float, float]:
    """Return the fractions of the CPUs and of the GPUs in use, from the first measured arrival to the last.

    A job uses the CPUs that its speed needs according to its model's profile with full memory; further CPUs that it
    holds are idle. A GPU is in use while its job runs.

    Args:
        run: the simulated run, with its segments.
        workload: its jobs.
        cluster: its cluster.
        profiles: speeds by CPUs and memory.
        first: index of the first measured job.
    """
    start, end = float(workload.jobs.arrival_seconds[first]), float(workload.jobs.arrival_seconds[-1])
    rows = run.segments
    length = np.maximum(np.minimum(rows.end_seconds, end) - np.maximum(rows.start_seconds, start), 0.0)
    if end <= start:
        return 0.0, 0.0
    gpu_seconds = length * rows.gpus
    cpus = needed_cpus(workload, profiles, rows.job, rows.seconds_per_iteration)
    span = end - start
    whole = float(cluster.machine_cpus.sum())
    return float((gpu_seconds * cpus).sum() / (whole * span)), float(gpu_seconds.sum() / (cluster.gpus * span))


def needed_cpus(workload: Workload, profiles: SynergyProfiles, jobs: Ints, seconds_per_iteration: Reals) -> Reals:
    """Return [row] the fewest CPUs per GPU with which jobs run as fast as given, at the largest profiled memory.

    Args:
        workload: the jobs.
        profiles: speeds by CPUs and memory.
        jobs: [row] index of a job.
        seconds_per_iteration: [row] the job's time per iteration, in seconds.
    """
    needed = np.zeros(jobs.size)
    model_of = workload.jobs.model[jobs]
    for at in np.unique(model_of).tolist():
        name, rows = workload.models[at], model_of == at
        cpus, memory = profiles.amounts(name)
        curve = np.array([profiles.relative(name, float(each), float(memory[-1])) for each in cpus])
        levels, least = np.unique(curve, return_index=True)
        relative = profiles.demand(name).seconds_per_iteration / seconds_per_iteration[rows]
        below = np.minimum(1.0, relative / levels[0])
        needed[rows] = np.interp(relative, levels, cpus[least]) * below
    return needed
