"""Any size from a job's least to its most."""

from typing import ClassVar, Literal

from eunomia import Contract, Feature, Menus, PluginOptions, Snapshot, Stage, hookimpl
from eunomia.contracts import Contracts
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
        curve, first = kinds_of_curves(snapshot, one_gpu)
        owner, gpus = sizes_between(jobs.least[active[first]], jobs.most[active[first]])
        if self.options.sizes == "powers_of_two":
            ends = (gpus == jobs.least[active[first]][owner]) | (gpus == jobs.most[active[first]][owner])
            chosen = ends | ((gpus & (gpus - 1)) == 0)
            owner, gpus = owner[chosen], gpus[chosen]
        points = linear_curves(owner, gpus, one_gpu[first][owner])
        return Menus(curve=curve, points=with_measured(points, snapshot, curve) if snapshot.measured else points)
