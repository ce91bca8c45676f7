"""Finds the GPU types on which a workload's times were measured; they are never inferred from the cluster."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.units import Bools, Ints
from eunomia_testbed.performance import PerformanceModel
from eunomia_testbed.performance.names import ignores_type
from eunomia_testbed.performance.reading import plain
from eunomia_testbed.workload import Workload

UNKNOWN_MODEL: Final = ""
"""The name of the model of a job that names none."""


@builds
class Hours:
    """The GPU types of a workload's times.

    Attributes:
        types: the cluster's GPU types, followed by those of times that the cluster lacks, as the trace writes them.
        measured: [job] index into ``types``; -1: unknown.
    """

    types: tuple[str, ...]
    measured: Ints

    def of(self, job: int) -> int:
        """Return the type of a job's times; -1: unknown."""
        return int(self.measured[job])


def times_of(workload: Workload, cluster: Cluster) -> Hours:
    """Find the GPU type of each job's times: the one that it requires, else its own, else the workload's.

    Where the trace names none and the cluster has one type, the times are of that type.
    """
    jobs, types = workload.jobs, list(cluster.gpu_types)
    index = {plain(name): number for number, name in enumerate(types)}

    def number_of(name: str | None) -> int:
        if not name:
            return -1
        if plain(name) not in index:
            index[plain(name)] = len(types)
            types.append(name)
        return index[plain(name)]

    usual = number_of(workload.reference_type)
    if usual < 0 and len(cluster.gpu_types) == 1:
        usual = 0
    measured: Ints = np.full(workload.size, usual, dtype=np.int64)
    for column in (jobs.measured_on, jobs.gpu_type):
        for job, name in enumerate(column or ()):
            if name:
                measured[job] = number_of(name)
    return Hours(types=tuple(types), measured=measured)


def looked_up_in(workload: Workload, cluster: Cluster) -> Bools:
    """Return by job whether a performance model gives its speeds.

    The times of a job that names no model hold where it runs on one GPU type: the only one, or the one it requires.
    """
    looked: Bools = workload.jobs.model >= 0
    if len(cluster.gpu_types) > 1:
        named = workload.jobs.gpu_type or [None] * workload.size
        looked = looked | np.array([not name for name in named], dtype=bool)
    return looked


def has_time(workload: Workload) -> Bools:
    """Return by job whether the workload gives a time of an iteration, at its start or in a regime."""
    timed: Bools = np.isfinite(workload.jobs.seconds_per_iteration)
    for job, regimes in workload.regimes.items():
        timed[job] |= any(np.isfinite(regime.seconds_per_iteration) for regime in regimes)
    return timed


def without_hours(workload: Workload, cluster: Cluster, models: PerformanceModel, taken: Sequence[str | None]) -> Ints:
    """Return the jobs with a time of which the GPU type is unknown, although their speed depends on it.

    Args:
        workload: the workload.
        cluster: the cluster with the GPU types.
        models: the performance model.
        taken: [job] the name whose speeds the job takes; None: its own times hold on every GPU type.
    """
    if len(cluster.gpu_types) == 1:
        return np.zeros(0, dtype=np.int64)
    alike = {name: name is None or ignores_type(models, name) for name in set(taken)}
    scaled = np.array([not alike[name] for name in taken], dtype=bool)
    return np.flatnonzero((times_of(workload, cluster).measured < 0) & has_time(workload) & scaled)


def check_regimes(workload: Workload, own_times: Sequence[bool]) -> None:
    """Refuse jobs that change their batch size without a time at each one, where no performance model gives it.

    Args:
        workload: the workload.
        own_times: [job] whether the job's own times hold, so that no performance model gives its speed.

    Raises:
        InputError: names the first such job and batch size.
    """
    for job, regimes in workload.regimes.items():
        untimed = [regime for regime in regimes if np.isnan(regime.seconds_per_iteration)]
        if untimed and own_times[job]:
            rule = "a job that changes its batch size must have a time at each (--throughputs, --speeds or regimes)"
            value = f"none at batch size {untimed[0].batch_size:g}"
            raise InputError(rule, value=value, place=f"{workload.name}, job {workload.jobs.id[job]}")


def no_hours(cluster: Cluster, place: str) -> InputError:
    """Return the error for times of an unknown GPU type."""
    rule = "a trace of times must say on which GPU type they were measured where the cluster has several"
    return InputError(rule, value=f"none; the cluster has {', '.join(cluster.gpu_types)}", place=place)
