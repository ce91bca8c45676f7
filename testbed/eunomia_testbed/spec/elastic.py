"""Reads ``--elastic 1..8``, which gives every job of a trace a range of sizes, and a speed at its largest."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import value
from eunomia.units import Locality, Reals
from eunomia.words import shown
from eunomia_testbed.performance import PerformanceModel, Setting
from eunomia_testbed.performance.names import SpeedNames
from eunomia_testbed.simulator.progress.hours import UNKNOWN_MODEL, looked_up_in, times_of
from eunomia_testbed.spec.fitting import one_size_each
from eunomia_testbed.workload import Workload

_SIZES: Final = re.compile(r"(\d{1,6})\.\.(\d{1,6})")


@value
class Sizes:
    """The least and the most GPUs that every job can use."""

    least: int
    most: int


def sizes_of(text: str, cluster: Cluster, *, place: str = "--elastic") -> Sizes:
    """Parse a range of sizes, such as ``1..8``.

    Raises:
        InputError: the text has another form, the range descends or has one size, or exceeds the cluster's GPUs.
    """
    match = _SIZES.fullmatch(text.strip())
    least, most = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= least < most:
        raise InputError("elastic must be a range of GPUs such as 1..8", value=shown(text), place=place)
    if most > cluster.gpus:
        raise InputError(f"elastic must end within the cluster's {cluster.gpus} GPUs", value=shown(text), place=place)
    return Sizes(least=least, most=most)


def with_sizes(
    workloads: Mapping[int, Workload], sizes: Sizes, cluster: Cluster, models: PerformanceModel | None
) -> tuple[dict[int, Workload], str]:
    """Return the workloads with these sizes for every job, and a sentence on how the jobs' speeds scale.

    A job's time at its new largest size follows its model's curve, if the speed source has one; otherwise it scales
    linearly from the trace's size.

    Raises:
        InputError: a job of the trace already has several sizes.
    """
    if not one_size_each(workloads.values()):
        rule = "--elastic must stand with a trace in which every job has one size"
        raise InputError(rule, value="jobs with least_gpus below most_gpus", place="--elastic")
    made: dict[int, Workload] = {}
    by_id: dict[int, Workload] = {}
    linear = total = 0
    for seed, workload in workloads.items():
        if id(workload) not in by_id:
            factor, known = _factors(workload, sizes, cluster, models)
            linear, total = linear + int((~known).sum()), total + workload.size
            by_id[id(workload)] = _resized(workload, sizes, factor)
        made[seed] = by_id[id(workload)]
    said = "by the curves of their models" if not linear else "linearly" if linear == total else ""
    said = said or f"by the curves of their models, {linear:,} of {total:,} of them linearly"
    return made, f"every job may run on {sizes.least} to {sizes.most} GPUs; speeds scale {said}"


def _factors(
    workload: Workload, sizes: Sizes, cluster: Cluster, models: PerformanceModel | None
) -> tuple[Reals, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Return each job's time at the largest new size relative to the trace's, and whether a curve determines it."""
    jobs = workload.jobs
    factor = jobs.most / float(sizes.most)
    known = np.zeros(workload.size, dtype=bool)
    if models is None:
        return factor, known
    names, hours = SpeedNames(models, workload.assumed_speeds), times_of(workload, cluster)
    looked_up = looked_up_in(workload, cluster).tolist()
    for job, row in enumerate(jobs.model.tolist()):
        batch = None if jobs.batch_size is None or math.isnan(jobs.batch_size[job]) else float(jobs.batch_size[job])
        model = workload.models[row] if row >= 0 else UNKNOWN_MODEL
        taken = names.of(model, batch) if looked_up[job] else None
        if taken is None:
            continue
        kind = hours.types[max(0, hours.of(job))]  # the type is unknown only if types do not matter
        setting = Setting(gpus=sizes.most, gpu_type=kind, locality=Locality.ISLAND, batch_size=taken.batch_size)
        before = dataclasses.replace(setting, gpus=int(jobs.most[job]))
        at = [models.rate(taken.name, each) for each in (before, setting)]
        if min(at) > 0.0:
            factor[job], known[job] = at[0] / at[1], True
    return factor, known


def _resized(workload: Workload, sizes: Sizes, factor: Reals) -> Workload:
    jobs = dataclasses.replace(
        workload.jobs,
        least=np.full(workload.size, sizes.least, dtype=np.int64),
        most=np.full(workload.size, sizes.most, dtype=np.int64),
        seconds_per_iteration=workload.jobs.seconds_per_iteration * factor,
    )
    regimes = {
        job: tuple(
            dataclasses.replace(part, seconds_per_iteration=part.seconds_per_iteration * float(factor[job]))
            for part in life
        )
        for job, life in workload.regimes.items()
    }
    alone = workload.exclusive_seconds
    exclusive = None if alone is None else alone * factor
    return dataclasses.replace(workload, jobs=jobs, regimes=regimes, exclusive_seconds=exclusive)
