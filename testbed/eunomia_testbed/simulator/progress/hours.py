"""Finds the GPU types on which a workload's times were measured; a single type of the cluster is the default."""

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
"""The model name of a job that names no model."""


@builds
class Hours:
    """The GPU type to which each of a workload's times refers.

    Attributes:
        types: the cluster's GPU types, followed by further types of times, as written in the trace.
        measured: [job] index into ``types``; -1: unknown.
    """

    types: tuple[str, ...]
    measured: Ints

    def of(self, job: int) -> int:
        """Return the index of the GPU type of a job's times; -1: unknown."""
        return int(self.measured[job])


def times_of(workload: Workload, cluster: Cluster) -> Hours:
    """Return the GPU type of each job's times: the required one, or its ``measured_on``, or the workload's.

    If the trace has none and the cluster has a single type, the times refer to that type.
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
    """Return a mask by job row: whether a performance model determines the job's speeds.

    The times of a job without a model apply if it runs on one GPU type only: the cluster's only one, or the one it
    requires.
    """
    looked: Bools = workload.jobs.model >= 0
    if len(cluster.gpu_types) > 1:
        named = workload.jobs.gpu_type or [None] * workload.size
        looked = looked | np.array([not name for name in named], dtype=bool)
    return looked


def has_time(workload: Workload) -> Bools:
    """Return a mask by job row: whether the workload gives a time per iteration, at first or in any regime."""
    timed: Bools = np.isfinite(workload.jobs.seconds_per_iteration)
    for job, regimes in workload.regimes.items():
        timed[job] |= any(np.isfinite(regime.seconds_per_iteration) for regime in regimes)
    return timed


def without_hours(workload: Workload, cluster: Cluster, models: PerformanceModel, taken: Sequence[str | None]) -> Ints:
    """Return the rows of jobs whose speed depends on the GPU type of their times if that type is unknown.

    Args:
        workload: the workload.
        cluster: the cluster with the GPU types.
        models: the performance model.
        taken: [job] the name under which the job's speed is looked up; None: its own times hold on every GPU type.
    """
    if len(cluster.gpu_types) == 1:
        return np.zeros(0, dtype=np.int64)
    alike = {name: name is None or ignores_type(models, name) for name in set(taken)}
    scaled = np.array([not alike[name] for name in taken], dtype=bool)
    return np.flatnonzero((times_of(workload, cluster).measured < 0) & has_time(workload) & scaled)


def check_regimes(workload: Workload, own_times: Sequence[bool]) -> None:
    """Check that jobs that change their batch size have a time, or a performance model's speed, at each batch size.

    Args:
        workload: the workload.
        own_times: [job] whether the job's own times apply instead of a performance model.

    Raises:
        InputError: a time is missing; the error names the first such job and batch size.
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
