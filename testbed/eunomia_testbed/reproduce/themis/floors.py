"""Whether a claim on ρ can be measured on a workload: its floor, and T_id in leases."""

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
"""Part of the worst ρ above which a floor makes a claim not measurable: every policy has most of that ρ."""

Bases = Callable[[int], Sequence[Cell]]
"""Themis' cells of a claim, with a seed."""
Measure = Callable[[ThemisRuns], Measured]


@value
class Floor:
    """What bounds the worst ρ of a cell of Themis from below; numbers by seed."""

    worst: tuple[float, ...]
    """Themis' worst ρ."""
    floor: tuple[float, ...]
    """The greatest part of an app's T_id that the app takes alone on the empty cluster, starts included."""
    alone: tuple[float, ...]
    """The worst ρ of an app alone, whose T_id is T_cluster: no other app shares the cluster."""
    leases: tuple[float, ...]
    """T_id of the app with the worst ρ, in leases."""

    @property
    def part(self) -> float:
        """Mean floor over mean worst ρ."""
        return fmean(self.floor) / fmean(self.worst)

    @property
    def measurable(self) -> bool:
        """Whether the policy, and neither the app alone nor a single lease, decides the worst ρ."""
        return self.part <= LARGEST_PART and min(self.leases) >= 1.0

    @property
    def text(self) -> str:
        """The means, in a sentence."""
        return (
            f"Floor {fmean(self.floor):.2f}, {self.part:.2f} of Themis' worst ρ {fmean(self.worst):.2f} (over "
            f"T_cluster alone {fmean(self.alone):.2f}); T_id of the worst app at least {min(self.leases):.1f} leases"
        )

    @property
    def by_seed(self) -> Mapping[str, tuple[float, ...]]:
        """The numbers by name."""
        return {"floor": self.floor, "ρ alone": self.alone, "T_id over lease": self.leases}


def with_floor(measure: Measure, bases: Bases) -> Measure:
    """The measure of a claim, whose verdict says so where the claim cannot be measured.

    Args:
        measure: as the paper has it.
        bases: Themis' cells; the one that can least be measured counts.
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
    """The floors of Themis' cells of a claim, for the seeds that have been run alone as well."""
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
    """T_id of each app, in seconds."""
    seconds: Reals = np.array(one.jct_seconds) / np.array(one.rho)
    return seconds
