"""Decides whether a workload can show a claim on ρ, by the lower bound (floor) of ρ and by T_id in leases."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from eunomia.model.shapes import value
from eunomia.units import Reals
from eunomia_testbed.reproduce.claims import Guarded
from eunomia_testbed.reproduce.paper import Runs
from eunomia_testbed.reproduce.themis.cells import ALONE, Cell, Figures

LARGEST_PART = 0.8
"""Largest ratio of the floor to the worst ρ at which a claim counts as measurable."""


@value
class Floor:
    """Lower bounds of the worst ρ under Themis for one cell; tuples have an item for each seed."""

    worst: tuple[float, ...]
    """The worst ρ under Themis."""
    floor: tuple[float, ...]
    """Largest ratio of an app's time alone on the empty cluster, including starts, to its T_id."""
    alone: tuple[float, ...]
    """The worst ρ of an app that runs alone, relative to T_cluster, since no other app shares the cluster."""
    leases: tuple[float, ...]
    """T_id of the app with the worst ρ, in leases."""

    @property
    def part(self) -> float:
        """Return the mean floor relative to the mean worst ρ."""
        return fmean(self.floor) / fmean(self.worst)

    @property
    def measurable(self) -> bool:
        """Return whether the policy, rather than the app alone or a single lease, determines the worst ρ."""
        return self.part <= LARGEST_PART and min(self.leases) >= 1.0

    @property
    def text(self) -> str:
        """Return the mean values in words."""
        return (
            f"Floor {fmean(self.floor):.2f}, {self.part:.2f} of Themis' worst ρ {fmean(self.worst):.2f} (over "
            f"T_cluster alone {fmean(self.alone):.2f}); T_id of the worst app at least {min(self.leases):.1f} leases"
        )

    @property
    def by_seed(self) -> Mapping[str, tuple[float, ...]]:
        """Return the ratios, by name one for each seed."""
        return {"floor": self.floor, "ρ alone": self.alone, "T_id over lease": self.leases}


def guard(runs: Runs[Any, Cell, Figures], own: Sequence[Sequence[Cell]]) -> Guarded | None:
    """Return whether the workload can show a claim on ρ; None: the cells that run apps alone are missing.

    Args:
        runs: the finished cells.
        own: Themis's cells, [seed][setting]; the setting with the least measurable ρ counts.
    """
    floors = floors_of(runs, own)
    if not floors:
        return None
    least = max(floors, key=lambda one: (not one.measurable, one.part))
    return least.measurable, least.text, least.by_seed


def floors_of(runs: Runs[Any, Cell, Figures], own: Sequence[Sequence[Cell]]) -> list[Floor]:
    """Return the floors of Themis's cells, for seeds that have also run the apps alone."""
    found = [_floor(runs, cells) for cells in zip(*own, strict=True)]
    return [one for one in found if one is not None]


def alone_of(cell: Cell) -> Cell:
    """Return the cell that runs each app of another cell alone."""
    return Cell(
        policy=ALONE,
        seed=cell.seed,
        workload=cell.workload,
        cluster=cell.cluster,
        shrink=cell.shrink,
        apps=cell.apps,
        shorter=cell.shorter,
        network_intensive=cell.network_intensive,
        slowdowns=cell.slowdowns,
    )


def _floor(runs: Runs[Any, Cell, Figures], cells: Sequence[Cell]) -> Floor | None:
    pairs = [(cell, runs.done.get(cell.key), runs.done.get(alone_of(cell).key)) for cell in cells]
    known = [(cell, one, alone) for cell, one, alone in pairs if one and alone]
    if not known:
        return None
    return Floor(
        worst=tuple(one.worst_rho for _, one, _ in known),
        floor=tuple(float(np.nanmax(np.array(alone.jct_seconds) / ideals(one))) for _, one, alone in known),
        alone=tuple(alone.worst_rho for _, _, alone in known),
        leases=tuple(float(ideals(one)[np.nanargmax(one.rho)]) / cell.lease_seconds for cell, one, _ in known),
    )


def ideals(one: Figures) -> Reals:
    """Return T_id of each app, in seconds."""
    seconds: Reals = np.array(one.jct_seconds) / np.array(one.rho)
    return seconds
