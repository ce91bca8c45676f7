"""Kinds of job, each of which is measured once for all its jobs, and their measured rates by CPUs."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from eunomia import Basis, KnownRate, Snapshot
from eunomia.contract.snapshot import Measured
from eunomia.units import NONE, Rows

_UNKNOWN = -1.0
"""Placeholder for an unknown batch size."""
_SAME = 1e-6


class Kind(NamedTuple):
    """The key of jobs that share measurements: kind, size, batch size and requested GPU type (-1: any)."""

    kind: int
    gpus: int
    batch_size: float
    """Batch size of the jobs; -1: not known."""
    gpu_type: int


def kinds_of(snapshot: Snapshot) -> dict[Kind, Rows]:
    """Return the rows of the active jobs of each kind, ascending."""
    jobs, rows = snapshot.jobs, snapshot.active
    if not rows.size:
        return {}
    batch = np.nan_to_num(jobs.batch_size[rows], nan=_UNKNOWN)
    keys = np.column_stack([jobs.job_kind[rows], jobs.most[rows], batch, jobs.gpu_type[rows]])
    found, owner = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(owner.ravel(), kind="stable")
    parts = np.split(rows[order], np.cumsum(np.bincount(owner.ravel(), minlength=len(found)))[:-1])
    made = [Kind(int(kind), int(gpus), size, int(wanted)) for kind, gpus, size, wanted in found.tolist()]
    return dict(zip(made, parts, strict=True))


def rates_of(snapshot: Snapshot, kind: Kind, jobs: Rows, gpu_type: int) -> list[KnownRate | Measured]:
    """Return the known rates of a kind by CPUs on a GPU type.

    For jobs without a declared kind, these are the measured rates of the jobs.
    """
    known: Iterable[KnownRate | Measured] = snapshot.profiles.get(kind.kind, ())
    if kind.kind not in snapshot.profiles and snapshot.measured:
        known = [rate for job in jobs.tolist() for rate in snapshot.measured.get(job, ())]
    name = snapshot.cluster.gpu_types[gpu_type]
    return [
        rate
        for rate in known
        if rate.gpus == kind.gpus
        and rate.gpu_type == name
        and not math.isnan(rate.cpus)
        and (math.isnan(rate.batch_size) or kind.batch_size in (_UNKNOWN, rate.batch_size))
    ]


def by_cpus(rates: Iterable[KnownRate | Measured], gpus: int, memory_gib: float) -> dict[int, float]:
    """Return rates by whole CPUs per GPU, measured with at least ``memory_gib``; NaN: with any memory."""
    found: dict[int, float] = {}
    for rate in rates:
        each = round(rate.cpus / gpus)
        enough = math.isnan(memory_gib) or rate.memory_gib >= memory_gib * (1.0 - _SAME)
        if rate.known is not Basis.DECLARED and enough and abs(each * gpus - rate.cpus) < _SAME:
            found[each] = rate.rate
    return found


class Running:
    """The GPU types of running jobs, and the CPUs that each job could have on its machines.

    Args:
        snapshot: the current state.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, cluster = snapshot, snapshot.cluster
        held = snapshot.holdings
        on = held.job[: cluster.gpus]
        self.type_of: dict[int, int] = {
            job: int(cluster.gpu_type[gpu]) for gpu, job in enumerate(on.tolist()) if job != NONE
        }
        given = np.bincount(cluster.machine, weights=held.cpus[: cluster.gpus], minlength=len(cluster.machines))
        self._free = np.nan_to_num(cluster.machine_cpus - given)
        self._on, self._cpus = on, held.cpus

    def roomiest(self, jobs: Rows) -> int | None:
        """Return the running job that could have the most CPUs, ties by arrival; None if no job runs."""
        rows = [job for job in jobs.tolist() if job in self.type_of]
        arrived = self._snapshot.jobs.arrived
        return min(rows, key=lambda job: (-self._room(job), float(arrived[job]), job)) if rows else None

    def _room(self, job: int) -> float:
        """Return the CPUs that the job holds plus the free CPUs of its machines.

        The sum does not change while the job is measured.
        """
        gpus = np.flatnonzero(self._on == job)
        machines = np.unique(self._snapshot.cluster.machine[gpus])
        return float(self._cpus[gpus].sum() + self._free[machines].sum())
