"""Rounds in which apps get no slots of some nodes, whatever policy decides.

Policies know nothing of it: after the placement has chosen GPUs, those that an app does not get are exchanged for
others on which its job or app fits, and what is left goes to jobs that wait.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from eunomia.contract.allocations import Allocation, Grants
from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import PlacementStage, Stages
from eunomia.contract.verdicts import NO_VERDICTS
from eunomia.units import Ints, Unit
from eunomia_appmaster.service.left_out_repair import Repair

NAME = "left_out_nodes"
Barred = Callable[[], Mapping[int, Ints]]
"""Returns by the row of an app the GPUs that it does not get."""


def without_slots_left_out(stages: Stages, barred: Barred) -> Stages:
    """Return stages whose rounds give no app a GPU that it does not get; leases that it holds there go on."""
    placing = _Placing(stages.placement, barred)

    def elasticity(snapshot: Snapshot) -> Menus:
        return _without_probes(snapshot, stages.elasticity(snapshot), barred())

    return dataclasses.replace(
        stages,
        elasticity=elasticity,
        refiners=(*stages.refiners, placing.refine),
        refiner_names=(*stages.refiner_names, NAME),
        placement=placing.place,
    )


class _Placing:
    """The last refiner, which places already, and the placement, which answers what the refiner has found.

    One is needed for what an allocation grants, the other for where.
    """

    def __init__(self, inner: PlacementStage, barred: Barred) -> None:
        self._inner, self._barred = inner, barred
        self._made: tuple[Allocation, Placement] | None = None

    def refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """See ``eunomia_refine``; memo, record and verdicts stay those of the stage before."""
        self._made, barred = None, self._barred()
        plain = dataclasses.replace(allocation, memo=None, record=None, verdicts=NO_VERDICTS)
        claims = allocation.claims
        if not isinstance(allocation.amount, Grants) or claims.unit not in (Unit.JOB, Unit.APP) or not claims.rows.size:
            return plain
        apps = snapshot.jobs.app[claims.rows] if claims.unit is Unit.JOB else claims.rows
        if not barred.keys() & set(apps.tolist()):
            return plain
        placement = self._inner(snapshot, menus, offer, plain)
        self._made = Repair(snapshot, menus, offer, plain, placement, barred).run() or (plain, placement)
        return self._made[0]

    def place(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """See ``eunomia_placement``."""
        made, self._made = self._made, None
        if made is not None and made[0] is allocation:
            return made[1]
        return self._inner(snapshot, menus, offer, allocation)


def _without_probes(snapshot: Snapshot, menus: Menus, barred: Mapping[int, Ints]) -> Menus:
    """Return menus that ask for no measurement of these apps' jobs, whose GPUs no placement would choose."""
    probes = menus.probe
    if probes is None:
        return menus
    kept = ~np.isin(snapshot.jobs.app[probes.jobs], list(barred))
    columns = ("jobs", "gpus", "gpu_type", "locality", "cpus", "memory_gib")
    given = {name: column[kept] for name in columns if (column := getattr(probes, name)) is not None}
    return dataclasses.replace(menus, probe=dataclasses.replace(probes, **given) if kept.any() else None)
