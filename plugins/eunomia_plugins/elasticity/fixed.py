"""One size a job: its whole gang."""

import math
from typing import ClassVar

import numpy as np

from eunomia import Contract, Feature, Menus, Snapshot, Stage, hookimpl
from eunomia.contracts import Contracts
from eunomia.units import Basis, Version
from eunomia.workload import Jobs, JobState
from eunomia_plugins.elasticity.curves import linear_curves, one_gpu_rate, with_measured

_AWAY = (int(JobState.EMPTY), int(JobState.PAUSED))
_ASSUMED, _DECLARED = int(Basis.ASSUMED), int(Basis.DECLARED)


class Fixed:
    """Every job runs at its most GPUs or not at all; what an elastic job could do with fewer is not used."""

    name = "fixed"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES}))}

    def __init__(self) -> None:
        self._cache = _Cache()

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give each job row a curve of one size; rates are declared, or measured where they were."""
        return self._cache.menus(snapshot)


def menus_of(snapshot: Snapshot) -> Menus:
    """The menus of every job row, made from nothing."""
    size = snapshot.jobs.most.size
    rows = np.arange(size, dtype=np.int32)
    points = linear_curves(rows, snapshot.jobs.most.copy(), one_gpu_rate(snapshot, rows))
    curve = np.full(size, -1, np.int32)
    curve[snapshot.active] = snapshot.active
    if snapshot.measured:
        points = with_measured(points, snapshot, curve)
    return Menus(curve=curve, points=points, one_size=not snapshot.measured)


class _Cache:
    """The menus of the last round, of which only rows that were touched are written anew."""

    def __init__(self) -> None:
        self._jobs: Jobs | None = None
        self._menus: Menus | None = None
        self._cells: _Cells | None = None
        self._version = Version(0)

    def menus(self, snapshot: Snapshot) -> Menus:
        known, jobs = self._menus, snapshot.jobs
        same = known is not None and self._jobs is jobs and known.curve.size == jobs.most.size and known.one_size
        changes = snapshot.changed(self._version) if same and not snapshot.measured else None
        if known is None or changes is None or self._cells is None:
            known = menus_of(snapshot)
            self._cells = _Cells(known, jobs)
        else:
            self._cells.refresh(changes.jobs.tolist())
        self._jobs, self._menus, self._version = jobs, known, snapshot.version
        return known


class _Cells:
    """Menus and what they are made of, cell by cell: few rows at a time are written anew.

    Args:
        menus: of one size a job.
        jobs: the table that they were made of; as long as it has no more rows, its columns stay where they are.
    """

    __slots__ = ("_basis", "_curve", "_gpus", "_most", "_rate", "_seconds", "_state")

    def __init__(self, menus: Menus, jobs: Jobs) -> None:
        points = menus.points
        self._curve, self._gpus = memoryview(menus.curve), memoryview(points.gpus)
        self._rate, self._basis = memoryview(points.rate), memoryview(points.basis)
        self._state, self._most = memoryview(jobs.state), memoryview(jobs.most)
        self._seconds = memoryview(jobs.seconds_per_iteration)

    def refresh(self, rows: list[int]) -> None:
        """Write the menus of these rows anew, as ``menus_of`` writes them."""
        for row in rows:
            gpus, seconds = self._most[row], self._seconds[row]
            rate = gpus * (1.0 / seconds if seconds else math.inf)
            self._curve[row] = -1 if self._state[row] in _AWAY else row
            self._gpus[row], self._rate[row] = gpus, rate
            self._basis[row] = _ASSUMED if rate != rate else _DECLARED
