"""Any size from a job's least to its most."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from eunomia import Contract, Feature, Menus, PluginOptions, Snapshot, Stage, hookimpl
from eunomia.contracts import Contracts
from eunomia.snapshot import Measured
from eunomia.units import Reals
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
    """Which sizes between a job's least and most are on its menu; least and most always are."""


class _Last(NamedTuple):
    """The menus of the last round, and all that they follow from."""

    columns: tuple[Any, ...]
    measured: Mapping[int, tuple[Measured, ...]]
    menus: Menus


def _equal(ones: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Say whether all columns are the same; one with a rate that is not known never is."""
    return all(np.array_equal(one, other) for one, other in zip(ones, others, strict=True))


class Range:
    """Every size between a job's least and most GPUs; jobs alike share a curve."""

    name = "range"
    api = 1
    options_type = RangeOptions
    contracts: ClassVar[Contracts] = {Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES, Feature.MANY_SIZES}))}

    def __init__(self, options: RangeOptions) -> None:
        self.options = options
        self._last: _Last | None = None

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give each active job the curve of its kind: sizes and, where something is known of it, rates."""
        jobs, active = snapshot.jobs, snapshot.active
        one_gpu = one_gpu_rate(snapshot, active)
        columns = active, jobs.least, jobs.most, one_gpu
        last = self._last
        if last is None or last.measured != snapshot.measured or not _equal(last.columns, columns):
            kept = (active, jobs.least.copy(), jobs.most.copy(), one_gpu)
            last = self._last = _Last(kept, dict(snapshot.measured), self._menus(snapshot, one_gpu))
        return last.menus

    def _menus(self, snapshot: Snapshot, one_gpu: Reals) -> Menus:
        jobs, active = snapshot.jobs, snapshot.active
        curve, first = kinds_of_curves(snapshot, one_gpu)
        owner, gpus = sizes_between(jobs.least[active[first]], jobs.most[active[first]])
        if self.options.sizes == "powers_of_two":
            ends = (gpus == jobs.least[active[first]][owner]) | (gpus == jobs.most[active[first]][owner])
            chosen = ends | ((gpus & (gpus - 1)) == 0)
            owner, gpus = owner[chosen], gpus[chosen]
        points = linear_curves(owner, gpus, one_gpu[first][owner])
        return Menus(curve=curve, points=with_measured(points, snapshot, curve) if snapshot.measured else points)
