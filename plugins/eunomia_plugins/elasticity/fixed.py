"""One size a job: its whole gang."""

from typing import ClassVar

import numpy as np

from eunomia import Contract, Feature, Menus, Snapshot, Stage, hookimpl
from eunomia.contracts import Contracts
from eunomia_plugins.elasticity.curves import linear_curves, one_gpu_rate, with_measured


class Fixed:
    """Every job runs at its most GPUs or not at all; what an elastic job could do with fewer is not used."""

    name = "fixed"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES}))}

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give each job row a curve of one size; rates are declared, or measured where they were."""
        size = snapshot.jobs.most.size
        rows = np.arange(size, dtype=np.int32)
        points = linear_curves(rows, snapshot.jobs.most.copy(), one_gpu_rate(snapshot, rows))
        curve = np.full(size, -1, np.int32)
        curve[snapshot.active] = snapshot.active
        if snapshot.measured:
            points = with_measured(points, snapshot, curve)
        return Menus(curve=curve, points=points)
