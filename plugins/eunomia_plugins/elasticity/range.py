"""Any size from a job's least to its most."""

from typing import ClassVar, Literal

import numpy as np

from eunomia import Contract, Feature, Menus, PluginOptions, Snapshot, Stage, hookimpl
from eunomia.contracts import Contracts
from eunomia.units import Ints, Rows
from eunomia_plugins.elasticity.curves import linear_curves, one_gpu_rate, with_measured


class RangeOptions(PluginOptions):
    """Options of ``range``."""

    sizes: Literal["all", "powers_of_two"] = "all"
    """Which sizes between a job's least and most are on its menu; least and most always are."""


class Range:
    """Every size between a job's least and most GPUs; jobs alike share a curve."""

    name = "range"
    api = 1
    options_type = RangeOptions
    contracts: ClassVar[Contracts] = {Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES, Feature.MANY_SIZES}))}

    def __init__(self, options: RangeOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give each active job the curve of its kind: sizes and, where something is known of it, rates."""
        jobs, active = snapshot.jobs, snapshot.active
        one_gpu = one_gpu_rate(snapshot, active)
        alike = _alike(jobs.least[active], jobs.most[active], one_gpu)
        if snapshot.measured:
            measured = np.isin(active, np.fromiter(snapshot.measured, np.int64, len(snapshot.measured)))
            alike = np.where(measured, active + alike.max(initial=0) + 1, alike)
        _, first, inverse = np.unique(alike, return_index=True, return_inverse=True)
        curve = np.full(jobs.least.size, -1, np.int32)
        curve[active] = inverse
        owner, gpus = _sizes(jobs.least[active[first]], jobs.most[active[first]])
        if self.options.sizes == "powers_of_two":
            ends = (gpus == jobs.least[active[first]][owner]) | (gpus == jobs.most[active[first]][owner])
            chosen = ends | ((gpus & (gpus - 1)) == 0)
            owner, gpus = owner[chosen], gpus[chosen]
        points = linear_curves(owner, gpus, one_gpu[first][owner])
        return Menus(curve=curve, points=with_measured(points, snapshot, curve) if snapshot.measured else points)


def _alike(least: Ints, most: Ints, one_gpu: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Ints:
    """Numbers that are equal for jobs of equal least, most and rate."""
    rates = np.unique(one_gpu, return_inverse=True)[1] if one_gpu.size else np.empty(0, np.int64)
    span = int(most.max(initial=0)) + 1
    return ((rates * span + least) * span + most).astype(np.int64)


def _sizes(least: Ints, most: Ints) -> tuple[Rows, Ints]:
    """Curve and GPUs of every size from least to most, curve by curve."""
    counts = np.maximum(most - least + 1, 0)
    owner = np.repeat(np.arange(least.size, dtype=np.int32), counts)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, least[owner] + offset
