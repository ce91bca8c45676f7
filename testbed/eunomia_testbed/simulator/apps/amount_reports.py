"""Reports the rates of job kinds by CPUs and memory, which the operator declares before a kind's first job."""

import math

import numpy as np

from eunomia.contract.events import KindProfiled
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.model.kind_profiles import MOST_POINTS, KnownRate
from eunomia.units import Basis, Locality, Reals
from eunomia_testbed.simulator.progress.truth import GangShape, Speeds
from eunomia_testbed.workload import Workload


class AmountReports:
    """Creates the events that declare the rates of job kinds; a job's kind is its model.

    Args:
        workload: the workload with the jobs.
        cluster: the cluster with the GPU types.
        speeds: the true speeds.
        known: whether app masters know these rates from the beginning.

    Attributes:
        are_due: whether some rates have not been reported yet.

    Raises:
        InputError: the rates should be known, but ``speeds`` has none for any model of the workload.
    """

    def __init__(self, workload: Workload, cluster: Cluster, speeds: Speeds, *, known: bool) -> None:
        self._workload, self._types, self._speeds = workload, cluster.gpu_types, speeds
        self._due = set(workload.jobs.model.tolist()) - {-1} if known else set[int]()
        self.are_due = bool(self._due)
        self._gpus = cluster.capacity.tolist()
        if known and not any(speeds.amounts(job) for job in self._first_jobs()):
            rule = "rates by CPUs and memory must be in --speeds where app masters know amounts"
            raise InputError(rule, value="no model of the workload has any", place="--know")

    def _first_jobs(self) -> list[int]:
        """Return one job of each kind."""
        first: list[int] = np.unique(self._workload.jobs.model, return_index=True)[1].tolist()
        return first

    def of(self, job: int) -> tuple[KindProfiled, ...]:
        """Return the event with the rates of an arriving job's kind; empty: already declared, or unknown."""
        kind = int(self._workload.jobs.model[job])
        grid = self._speeds.amounts(job) if kind in self._due else None
        self._due.discard(kind)
        self.are_due = bool(self._due)
        if grid is None:
            return ()
        points = grid[0].size * grid[1].size * len(self._types)
        rates = [rate for size in self._sizes(kind)[: MOST_POINTS // points] for rate in self._at(job, size, grid)]
        return (KindProfiled(kind=self._workload.models[kind], rates=tuple(rates)),) if rates else ()

    def _sizes(self, kind: int) -> list[int]:
        """Return the gang sizes that jobs of the kind can use: first their largest sizes, most frequent first."""
        jobs = self._workload.jobs
        mine = jobs.model == kind
        largest = jobs.most[mine].tolist()
        often = sorted(set(largest), key=lambda size: (-largest.count(size), size))
        spans = zip(jobs.least[mine].tolist(), largest, strict=True)
        others = {size for least, most in set(spans) for size in range(least, most)}
        return [size for size in (*often, *sorted(others - set(often))) if size <= max(self._gpus)]

    def _at(self, job: int, size: int, grid: tuple[Reals, Reals]) -> list[KnownRate]:
        """Return rates of a job of the kind at one size, by GPU type, CPUs and memory."""
        made = []
        for gpu_type, name in enumerate(self._types):
            if size > self._gpus[gpu_type]:
                continue
            gang = GangShape(size, gpu_type)
            for cpus in grid[0].tolist():
                for memory_gib in grid[1].tolist():
                    pace = self._speeds.at(job, gang, cpus=cpus, memory_gib=memory_gib)
                    if not math.isnan(pace):
                        made.append(_declared(size, name, 1.0 / pace, cpus * size, memory_gib * size))
        return made


def _declared(gpus: int, gpu_type: str, rate: float, cpus: float, memory_gib: float) -> KnownRate:
    return KnownRate(
        gpus=gpus,
        gpu_type=gpu_type,
        locality=Locality.ISLAND,
        rate=rate,
        known=Basis.DECLARED,
        cpus=cpus,
        memory_gib=memory_gib,
    )
