"""The known rates of each kind of job by CPUs and memory, and the next point to measure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eunomia import Basis, Feature, KnownRate, Snapshot
from eunomia.contract.snapshot import Measured
from eunomia.units import NONE, Rows
from eunomia_plugins.synergy.machines import Machines
from eunomia_plugins.synergy.profiled_kinds import Kind, Running, by_cpus, kinds_of, rates_of
from eunomia_plugins.synergy.searching import NextPoint, next_point
from eunomia_plugins.synergy.storage import DataSet


class MatrixPoint(NamedTuple):
    """A point of a curve: CPUs and GiB for all GPUs together, and the rate in iterations per second."""

    gpus: int
    gpu_type: int
    cpus: float
    memory_gib: float
    rate: float
    basis: int


class Asked(NamedTuple):
    """A setting at which a job should be measured."""

    job: int
    gpus: int
    gpu_type: int
    cpus: float
    memory_gib: float


class Storage(NamedTuple):
    """The data sets and the storage bandwidth from which rates by memory are computed."""

    data_sets: Mapping[str, DataSet]
    """Data set of each kind of job."""
    bandwidth_gib: float
    """Read bandwidth of a job from storage in GiB per second."""
    step_gib: float
    """Difference between memory amounts in GiB."""


class Profiling:
    """The kinds of job of one round, with their known rates and next measurements.

    Args:
        snapshot: the current state; the CPUs and memory of every machine must be known.
        storage: data sets and bandwidth.
        threshold: minimum relative speedup by more CPUs for which the search continues.

    Attributes:
        kinds: job rows of each kind.
    """

    def __init__(self, snapshot: Snapshot, storage: Storage, threshold: float) -> None:
        self._snapshot, self._storage, self._threshold = snapshot, storage, threshold
        self._needed = Feature.CPU_POINTS in snapshot.needs
        cluster = snapshot.cluster
        self._machines, self._running = Machines(cluster), Running(snapshot)
        self._of_type: list[int] = cluster.capacity.tolist()
        self.kinds = kinds_of(snapshot)

    # --- points to measure -------------------------------------------------------------------------------------------

    def next_of(self, kind: Kind, jobs: Rows) -> tuple[int, NextPoint]:
        """Return the job with which a kind is measured, and the next point, on the GPU type that it uses or can use."""
        arrived = self._snapshot.jobs.arrived
        found = self._running.roomiest(jobs)
        first = min(jobs.tolist(), key=lambda job: (float(arrived[job]), job)) if found is None else found
        types = self._types_of(kind, first)
        if not self._needed or not types:
            return first, NextPoint()
        rates = rates_of(self._snapshot, kind, jobs, types[0])
        if any(rate.known is Basis.DECLARED for rate in rates):
            return first, NextPoint()
        share, most = self._cpus(kind, types[0])
        seen = by_cpus(rates, kind.gpus, self._full(kind, types[0]))
        return first, next_point(seen, share, most, self._threshold)

    def asked(self, kind: Kind, job: int, point: NextPoint) -> Iterator[Asked]:
        """Yield settings at which to measure a running job: the preferred number of CPUs, then acceptable ones."""
        gpu_type = self._running.type_of.get(job)
        if gpu_type is not None:
            memory = self._full(kind, gpu_type)
            for cpus in point.cpus:
                yield Asked(job, kind.gpus, gpu_type, float(cpus * kind.gpus), memory)

    def held_back(self, jobs: Rows, first: int) -> list[int]:
        """Return the jobs of a kind without GPUs that must wait until its first job has been measured."""
        return [job for job in jobs.tolist() if job != first and job not in self._running.type_of]

    # --- known points ------------------------------------------------------------------------------------------------

    def points(self, kind: Kind, jobs: Rows) -> list[MatrixPoint]:
        """Return the known points of a kind, fastest first."""
        seconds = float(self._snapshot.jobs.seconds_per_iteration[jobs[0]])
        declared = kind.gpus / seconds if seconds > 0.0 else math.nan
        how = Basis.ASSUMED if math.isnan(declared) else Basis.DECLARED
        found: list[MatrixPoint] = []
        for gpu_type in self._types(kind) or [NONE]:
            here = self._on(kind, jobs, gpu_type)
            plain = MatrixPoint(kind.gpus, gpu_type, math.nan, math.nan, declared, int(how))
            if here and not self._needed:
                best = max(here, key=lambda point: point.rate)
                here = [best._replace(cpus=math.nan, memory_gib=math.nan)]
            found += here or [plain]
        return sorted(found, key=_fastest_first)

    def room(self, kind: Kind, job: int, known: Sequence[MatrixPoint]) -> list[MatrixPoint]:
        """Return the curve of a job during its measurement.

        The curve reserves the CPUs and memory with which the search begins.
        """
        rate = max((point.rate for point in known if point.rate > 0.0), default=math.nan)
        if math.isnan(rate):
            return list(known)
        made = []
        for gpu_type in self._types_of(kind, job):
            share, full = self._machines.share(gpu_type)[1] * kind.gpus, self._full(kind, gpu_type)
            cpus = float(self._cpus(kind, gpu_type)[1] * kind.gpus)
            memory = share if math.isnan(full) else full
            made.append(MatrixPoint(kind.gpus, gpu_type, cpus, memory, rate, int(Basis.ASSUMED)))
        return made

    def _on(self, kind: Kind, jobs: Rows, gpu_type: int) -> list[MatrixPoint]:
        """Return the points of the sensitivity matrix on a GPU type: imported, else derived from measurements."""
        if gpu_type == NONE:
            return []
        rates = rates_of(self._snapshot, kind, jobs, gpu_type)
        imported = [rate for rate in rates if rate.known is Basis.DECLARED]
        found = (
            [MatrixPoint(kind.gpus, gpu_type, one.cpus, one.memory_gib, one.rate, int(one.known)) for one in imported]
            if imported
            else self._matrix(kind, gpu_type, rates)
        )
        return [point for point in found if point.rate > 0.0]

    def _matrix(self, kind: Kind, gpu_type: int, rates: Iterable[KnownRate | Measured]) -> Iterator[MatrixPoint]:
        """Yield points of each measured number of CPUs with several amounts of memory; storage may limit rates."""
        full, data = self._full(kind, gpu_type), self._data(kind)
        amounts = np.array([self._machines.share(gpu_type)[1] * kind.gpus])
        bound = np.array([math.inf])
        if data is not None:
            steps = np.arange(kind.gpus * data.process, full, self._storage.step_gib)
            amounts = np.unique(np.append(steps, [min(float(amounts[0]), full), full]))
            batch = kind.batch_size if kind.batch_size > 0.0 else math.nan
            bound = data.bound(amounts, kind.gpus, batch, self._storage.bandwidth_gib)
        for cpus, measured in by_cpus(rates, kind.gpus, full).items():
            for memory, served in zip(amounts.tolist(), bound.tolist(), strict=True):
                how = Basis.MEASURED if memory == amounts[-1] else Basis.ASSUMED
                yield MatrixPoint(kind.gpus, gpu_type, float(cpus * kind.gpus), memory, min(measured, served), int(how))

    # --- limits of a kind --------------------------------------------------------------------------------------------

    def _data(self, kind: Kind) -> DataSet | None:
        sets = self._storage.data_sets
        return sets.get(self._snapshot.kinds[kind.kind]) if sets else None

    def _full(self, kind: Kind, gpu_type: int) -> float:
        """Return the GiB with which the whole data set is cached, at most the available memory.

        It is NaN if the data set is not known.
        """
        data = self._data(kind)
        return math.nan if data is None else min(data.full(kind.gpus), self._machines.most(kind.gpus, gpu_type)[1])

    def _cpus(self, kind: Kind, gpu_type: int) -> tuple[int, int]:
        """Return the proportional and the maximum whole CPUs per GPU."""
        share = max(1, math.floor(self._machines.share(gpu_type)[0] + 1e-9))
        return share, max(share, math.floor(self._machines.most(kind.gpus, gpu_type)[0] / kind.gpus + 1e-9))

    def _types_of(self, kind: Kind, job: int) -> list[int]:
        on = self._running.type_of.get(job)
        return self._types(kind) if on is None else [on]

    def _types(self, kind: Kind) -> list[int]:
        wanted = range(len(self._of_type)) if kind.gpu_type == NONE else (kind.gpu_type,)
        return [gpu_type for gpu_type in wanted if self._of_type[gpu_type] >= kind.gpus]


def _fastest_first(point: MatrixPoint) -> tuple[float, float, float]:
    least = (math.inf if math.isnan(amount) else amount for amount in (point.cpus, point.memory_gib))
    return (-math.inf if math.isnan(point.rate) else -point.rate, *least)  # type: ignore[return-value]
