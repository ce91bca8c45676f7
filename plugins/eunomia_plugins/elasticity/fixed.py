"""One size per job: its whole gang."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from eunomia import Basis, Contract, Feature, JobState, Menus, Snapshot, Stage, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.contract.snapshot import Measured
from eunomia.model.workload import Jobs
from eunomia.units import Reals, Version
from eunomia_plugins.elasticity.by_kind import with_kinds
from eunomia_plugins.elasticity.curves import linear_curves, one_gpu_rate, with_measured

_INACTIVE = (int(JobState.EMPTY), int(JobState.PAUSED))
_ASSUMED, _DECLARED = int(Basis.ASSUMED), int(Basis.DECLARED)


class Fixed:
    """Every job runs at its most GPUs or not at all; smaller sizes of an elastic job are not used."""

    name = "fixed"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES, Feature.CPU_POINTS}))}

    def __init__(self) -> None:
        self._cache = _Cache()

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give each job row a curve of one size; rates are measured where measurements exist, else declared."""
        menus, changed = self._cache.declared(snapshot)
        if snapshot.measured:
            menus = self._cache.with_measured(snapshot, changed=changed)
        return with_kinds(snapshot, menus) if snapshot.profiles else menus


def menus_of(snapshot: Snapshot) -> Menus:
    """Return the menus of every job row, built from scratch."""
    rows = np.arange(snapshot.jobs.most.size, dtype=np.int32)
    declared = _linear(snapshot, one_gpu_rate(snapshot, rows))
    if not snapshot.measured:
        return declared
    return Menus(curve=declared.curve, points=with_measured(declared.points, snapshot, declared.curve))


def declared_menus(snapshot: Snapshot) -> Menus:
    """Return the menus of every job row from declared rates only."""
    return _linear(snapshot, 1.0 / snapshot.jobs.seconds_per_iteration)


def _linear(snapshot: Snapshot, one_gpu: Reals) -> Menus:
    size = one_gpu.size
    points = linear_curves(np.arange(size, dtype=np.int32), snapshot.jobs.most.copy(), one_gpu)
    curve = np.full(size, -1, np.int32)
    curve[snapshot.active] = snapshot.active
    return Menus(curve=curve, points=points, one_size=True)


class _Cache:
    """The menus of the last round; only the rows that changed are rewritten."""

    def __init__(self) -> None:
        self._jobs: Jobs | None = None
        self._menus: Menus | None = None
        self._cells: _Cells | None = None
        self._version = Version(0)
        self._measured: Mapping[int, tuple[Measured, ...]] = {}
        self._merged: Menus | None = None

    def with_measured(self, snapshot: Snapshot, *, changed: bool) -> Menus:
        """Return the menus with measured rates too; ``changed``: those from declared rates differ from last round's."""
        measured, declared = snapshot.measured, self._menus
        if changed or self._merged is None or self._measured != measured:
            if declared is None or np.isnan(snapshot.jobs.seconds_per_iteration[list(measured)]).any():
                self._merged = None
                return menus_of(snapshot)  # rates at other sizes follow from measured ones
            points = with_measured(declared.points, snapshot, declared.curve)
            self._merged = Menus(curve=declared.curve.copy(), points=points)
            self._measured = dict(measured)
        return self._merged

    def declared(self, snapshot: Snapshot) -> tuple[Menus, bool]:
        """Return the menus from declared rates only, and whether they differ from those of the last round."""
        known, jobs = self._menus, snapshot.jobs
        same = known is not None and self._jobs is jobs and known.curve.size == jobs.most.size
        changes = snapshot.find_changes(self._version) if same else None
        if known is None or changes is None or self._cells is None:
            known, changed = declared_menus(snapshot), True
            self._cells = _Cells(known, jobs)
        else:
            changed = self._cells.refresh(changes.touched)
        self._jobs, self._menus, self._version = jobs, known, snapshot.version
        return known, changed


class _Cells:
    """Cell-wise access to menus and the columns they are built from, for rewriting few rows at a time.

    Args:
        menus: of one size per job.
        jobs: the table that they were built from; its columns stay in place in memory until it grows.
    """

    __slots__ = ("_basis", "_curve", "_gpus", "_most", "_rate", "_seconds", "_state")

    def __init__(self, menus: Menus, jobs: Jobs) -> None:
        points = menus.points
        self._curve, self._gpus = _cells(menus.curve), _cells(points.gpus)
        self._rate, self._basis = _cells(points.rate), _cells(points.basis)
        self._state, self._most = _cells(jobs.state), _cells(jobs.most)
        self._seconds = _cells(jobs.seconds_per_iteration)

    def refresh(self, rows: list[int]) -> bool:
        """Rewrite the menus of these rows, as ``declared_menus`` would; return whether any of them changed."""
        changed = False
        for row in set(rows):
            gpus, seconds = self._most[row], self._seconds[row]
            rate = gpus * (1.0 / seconds if seconds else math.inf)
            curve = -1 if self._state[row] in _INACTIVE else row
            if (curve, gpus, rate) == (self._curve[row], self._gpus[row], self._rate[row]):
                continue
            changed = True
            self._curve[row], self._gpus[row], self._rate[row] = curve, gpus, rate
            self._basis[row] = _ASSUMED if rate != rate else _DECLARED
        return changed


def _cells(column: Any) -> Any:
    return memoryview(column)
