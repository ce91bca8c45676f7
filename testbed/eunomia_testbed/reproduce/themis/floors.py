"""Decides whether a workload can show a claim on ρ, from the lower bound (floor) of ρ, and T_id in leases."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import numpy as np

from eunomia.model.shapes import value
from eunomia.units import Reals
from eunomia_testbed.reproduce.themis.cells import Cell, Figures
from eunomia_testbed.reproduce.themis.grid import ThemisRuns, alone_of
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

LARGEST_PART = 0.8
"""Largest fraction of the worst ρ that a floor may have for a measurable claim."""

Bases = Callable[[int], Sequence[Cell]]
"""Returns Themis' cells of a claim for a seed."""
Measure = Callable[[ThemisRuns], Measured]


@value
class Floor:
    """Lower bounds of the worst ρ of one of Themis' cells; numbers by seed."""

    worst: tuple[float, ...]
    """Themis' worst ρ."""
    floor: tuple[float, ...]
    """Greatest ratio of an app's time alone on the empty cluster, starts included, to its T_id."""
    alone: tuple[float, ...]
    """The worst ρ of an app alone, whose T_id is T_cluster: no other app shares the cluster."""
    leases: tuple[float, ...]
    """T_id of the app with the worst ρ, in leases."""

    @property
    def part(self) -> float:
        """Return the mean floor over the mean worst ρ."""
        return fmean(self.floor) / fmean(self.worst)

    @property
    def measurable(self) -> bool:
        """Return whether the policy, rather than the app alone or a single lease, determines the worst ρ."""
        return self.part <= LARGEST_PART and min(self.leases) >= 1.0

    @property
    def text(self) -> str:
        """Return the mean values as a sentence."""
        return (
            f"Floor {fmean(self.floor):.2f}, {self.part:.2f} of Themis' worst ρ {fmean(self.worst):.2f} (over "
            f"T_cluster alone {fmean(self.alone):.2f}); T_id of the worst app at least {min(self.leases):.1f} leases"
        )

    @property
    def by_seed(self) -> Mapping[str, tuple[float, ...]]:
        """Return the numbers by name."""
        return {"floor": self.floor, "ρ alone": self.alone, "T_id over lease": self.leases}


def with_floor(measure: Measure, bases: Bases) -> Measure:
    """Wrap the measure of a claim, so that its verdict states if the workload cannot show the claim.

    Args:
        measure: the measure of the claim.
        bases: Themis' cells; the one with the highest floor counts.
    """

    def measured(runs: ThemisRuns) -> Measured:
        found = measure(runs)
        floors = floors_of(runs, bases)
        if found.verdict is Verdict.UNMEASURED or not floors:
            return found
        least = max(floors, key=lambda one: (not one.measurable, one.part))
        return dataclasses.replace(
            found,
            verdict=found.verdict if least.measurable else Verdict.NOT_MEASURABLE,
            reason=f"{found.reason}. {least.text}",
            by_seed={**found.by_seed, **least.by_seed},
        )

    return measured


def floors_of(runs: ThemisRuns, bases: Bases) -> list[Floor]:
    """Return the floors of a claim's Themis cells, for seeds that have also run the apps alone."""
    by_cell = zip(*(bases(seed) for seed in runs.grid.seeds), strict=True)
    found = [_floor(runs, cells) for cells in by_cell]
    return [one for one in found if one is not None]


def _floor(runs: ThemisRuns, cells: Sequence[Cell]) -> Floor | None:
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
