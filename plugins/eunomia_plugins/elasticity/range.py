"""The plugin ``range``: all sizes between a job's minimum and maximum."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from eunomia import Contract, Feature, Menus, PluginOptions, Snapshot, Stage, curve_points, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.contract.snapshot import Measured
from eunomia.units import Reals
from eunomia_plugins.elasticity.by_kind import with_kinds
from eunomia_plugins.elasticity.curves import (
    kinds_of_curves,
    linear_curves,
    one_gpu_rate,
    sizes_between,
    with_measured,
)


class RangeOptions(PluginOptions):
    """Options of ``range``."""

    sizes: Literal["all", "powers_of_two"] = "all"
    """The sizes on a job's menu: all from its minimum to its maximum, or these two and the powers of two between."""


class Range:
    """All sizes between a job's minimum and maximum number of GPUs; jobs with equal sizes and rates share a curve."""

    name = "range"
    api = 1
    options_type = RangeOptions
    contracts: ClassVar[Contracts] = {
        Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES, Feature.MANY_SIZES, Feature.CPU_POINTS}))
    }

    def __init__(self, options: RangeOptions) -> None:
        self.options = options
        self._cache = _Cache()

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give each active job the curve of its group: its sizes, with rates if they are known."""
        one_gpu = one_gpu_rate(snapshot, snapshot.active)
        if not self._cache.holds(snapshot, one_gpu):
            self._cache.keep(snapshot, one_gpu, self._menus(snapshot, one_gpu))
        return with_kinds(snapshot, self._cache.menus)

    def _menus(self, snapshot: Snapshot, one_gpu: Reals) -> Menus:
        jobs, active = snapshot.jobs, snapshot.active
        curve, first = kinds_of_curves(snapshot, one_gpu)
        owner, gpus = sizes_between(jobs.least[active[first]], jobs.most[active[first]])
        if self.options.sizes == "powers_of_two":
            ends = (gpus == jobs.least[active[first]][owner]) | (gpus == jobs.most[active[first]][owner])
            chosen = ends | ((gpus & (gpus - 1)) == 0)
            owner, gpus = owner[chosen], gpus[chosen]
        points = linear_curves(owner, gpus, one_gpu[first][owner])
        return Menus(
            curve=curve, points=with_measured(points, snapshot, curve) if snapshot.reports.measured else points
        )


class _Cache:
    """A cache of the last menus, with the inputs from which they were built."""

    def __init__(self) -> None:
        self.menus = Menus(
            curve=np.empty(0, np.int32), points=curve_points(np.empty(0, np.int32), np.empty(0, np.int64))
        )
        self._columns: tuple[Any, ...] = ()
        self._measured: Mapping[int, tuple[Measured, ...]] = {}

    def holds(self, snapshot: Snapshot, one_gpu: Reals) -> bool:
        """Return whether the inputs are unchanged; an unknown rate counts as changed."""
        if not self._columns or self._measured != snapshot.reports.measured:
            return False
        jobs = snapshot.jobs
        now: tuple[Any, ...] = snapshot.active, jobs.least, jobs.most, one_gpu
        return all(np.array_equal(old, new) for old, new in zip(self._columns, now, strict=True))

    def keep(self, snapshot: Snapshot, one_gpu: Reals, menus: Menus) -> None:
        """Cache new menus and their inputs."""
        jobs = snapshot.jobs
        self._columns = snapshot.active, jobs.least.copy(), jobs.most.copy(), one_gpu
        self._measured, self.menus = dict(snapshot.reports.measured), menus
