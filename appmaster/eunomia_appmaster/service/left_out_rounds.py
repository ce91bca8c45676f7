"""Wraps a policy's stages so that apps get no slots on their left-out nodes.

Policies need no change: after the placement has chosen GPUs, those that an app must not get are swapped for others
on which its job or app fits, and freed GPUs go to waiting jobs.
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
"""Returns the GPUs that each app must not get, by the app's row."""


def without_slots_left_out(stages: Stages, barred: Barred) -> Stages:
    """Wrap stages so that their rounds give no app a GPU that it must not get; leases held there continue."""
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
    """Computes the placement early, in the last refiner hook, and returns it in the placement hook.

    Both hooks are needed: only a refiner can change the granted sizes, and only the placement stage chooses the GPUs.
    """

    def __init__(self, inner: PlacementStage, barred: Barred) -> None:
        self._inner, self._barred = inner, barred
        self._made: tuple[Allocation, Placement] | None = None

    def refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Implement ``eunomia_refine``; memo, record and verdicts stay those of the previous stage."""
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
        """Implement ``eunomia_placement``: return the repaired placement if ``refine`` computed one."""
        made, self._made = self._made, None
        if made is not None and made[0] is allocation:
            return made[1]
        return self._inner(snapshot, menus, offer, allocation)


def _without_probes(snapshot: Snapshot, menus: Menus, barred: Mapping[int, Ints]) -> Menus:
    """Return menus without probes of the affected apps' jobs, since no placement is computed for a probe's GPUs."""
    probes = menus.probe
    if probes is None:
        return menus
    kept = ~np.isin(snapshot.jobs.app[probes.jobs], list(barred))
    columns = ("jobs", "gpus", "gpu_type", "locality", "cpus", "memory_gib")
    given = {name: column[kept] for name in columns if (column := getattr(probes, name)) is not None}
    return dataclasses.replace(menus, probe=dataclasses.replace(probes, **given) if kept.any() else None)
