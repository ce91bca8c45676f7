"""The plugin ``fixed``: every job has a single size, its whole gang."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from eunomia import Basis, Contract, EunomiaError, Feature, JobState, Menus, Snapshot, Stage, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.contract.snapshot import Measured
from eunomia.model.shapes import Deferred
from eunomia.model.workload import Jobs
from eunomia.units import Reals, Version
from eunomia_plugins.elasticity.by_kind import with_kinds
from eunomia_plugins.elasticity.curves import linear_curves, one_gpu_rate, with_measured

_INACTIVE = (int(JobState.EMPTY), int(JobState.PAUSED))
_ASSUMED, _DECLARED = int(Basis.ASSUMED), int(Basis.DECLARED)


class Fixed:
    """Every job runs at its maximum number of GPUs or not at all; smaller sizes of elastic jobs are not used."""

    name = "fixed"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES, Feature.CPU_POINTS}))}

    def __init__(self) -> None:
        self._cache = _Cache()

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give each job row a curve with one size; rates are measured ones if available, else declared ones.

        Menus whose rates no stage needs are built only if a stage reads them.
        """
        cache, reports = self._cache, snapshot.reports
        if not (Feature.RATES in snapshot.needs or reports.measured or reports.profiles):
            cache.snapshot = snapshot
            return cache.unread or cache.not_read_yet()
        menus, changed = cache.declared(snapshot)
        if reports.measured:
            menus = cache.with_measured(snapshot, changed=changed)
        return with_kinds(snapshot, menus) if reports.profiles else menus


def menus_of(snapshot: Snapshot) -> Menus:
    """Return the menus of all job rows, built from scratch."""
    rows = np.arange(snapshot.jobs.most.size, dtype=np.int32)
    declared = _linear(snapshot, one_gpu_rate(snapshot, rows))
    if not snapshot.measured:
        return declared
    return Menus(curve=declared.curve, points=with_measured(declared.points, snapshot, declared.curve))


def declared_menus(snapshot: Snapshot) -> Menus:
    """Return the menus of all job rows, from declared rates only."""
    return _linear(snapshot, 1.0 / snapshot.jobs.seconds_per_iteration)


def _linear(snapshot: Snapshot, one_gpu: Reals) -> Menus:
    size = one_gpu.size
    points = linear_curves(np.arange(size, dtype=np.int32), snapshot.jobs.most.copy(), one_gpu)
    curve = np.full(size, -1, np.int32)
    curve[snapshot.active] = snapshot.active
    return Menus(curve=curve, points=points, one_size=True)


class _Cache:
    """A cache of the last menus; only rows that changed are rewritten."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        """The present state, for menus that are read later in the round."""
        self.unread: Menus | None = None
        """Menus of declared rates that no stage has read since they were made."""
        self._jobs: Jobs | None = None
        self._menus: Menus | None = None
        self._given: tuple[Any, ...] = ()
        """Cells of the job columns from which menus are built."""
        self._made: tuple[Any, ...] = ()
        """Cells of the columns of the menus."""
        self._version = Version(0)
        self._measured: Mapping[int, tuple[Measured, ...]] = {}
        self._merged: Menus | None = None

    def not_read_yet(self) -> Menus:
        """Return menus of declared rates whose columns are built on first read; until then, rounds reuse the menus."""
        curve: Any = Deferred(lambda: self._read().curve)
        points: Any = Deferred(lambda: self._read().points)
        self.unread = Menus(curve=curve, points=points, one_size=True)
        return self.unread

    def _read(self) -> Menus:
        self.unread = None
        if self.snapshot is None:
            raise EunomiaError("menus must be read in a round")
        return self.declared(self.snapshot)[0]

    def with_measured(self, snapshot: Snapshot, *, changed: bool) -> Menus:
        """Return the menus with measured rates; ``changed``: whether declared menus differ from last round's."""
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
        """Return the menus from declared rates only, and whether they differ from last round's."""
        known, jobs = self._menus, snapshot.jobs
        same = known is not None and self._jobs is jobs and known.curve.size == jobs.most.size
        changes = snapshot.source.find_changes(self._version) if same else None
        self._version = snapshot.version
        if known is None or changes is None:
            self._jobs, self._menus = jobs, declared_menus(snapshot)
            self._given = _cells(jobs.state, jobs.most, jobs.seconds_per_iteration)
            points = self._menus.points
            self._made = _cells(self._menus.curve, points.gpus, points.rate, points.basis)
            return self._menus, True
        changed, (states, most, each), (curves, sizes, rates, bases) = False, self._given, self._made
        for row in set(changes.touched):  # as ``declared_menus`` would make them
            gpus, seconds = most[row], each[row]
            rate = gpus * (1.0 / seconds if seconds else math.inf)
            curve = -1 if states[row] in _INACTIVE else row
            if (curve, gpus, rate) != (curves[row], sizes[row], rates[row]):
                changed, curves[row], sizes[row], rates[row] = True, curve, gpus, rate
                bases[row] = _ASSUMED if rate != rate else _DECLARED
        return known, changed


def _cells(*columns: Any) -> tuple[Any, ...]:
    """Return columns as memory views, for fast access by cell; a view is valid until the table of its column grows."""
    return tuple([memoryview(column) for column in columns])
