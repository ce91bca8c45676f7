"""Whether a claim on the worst ρ can be measured on a workload: its floor, and the length of leases."""

import dataclasses
from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np

from eunomia.model.shapes import value
from eunomia_testbed.reproduce.themis.cells import Cell, Figures
from eunomia_testbed.reproduce.themis.grid import Grid, ThemisRuns, alone_of
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

LARGEST_PART = 0.8
"""Of the worst ρ: a claim with a higher floor is not measured, since every policy has most of that ρ."""

Bases = Callable[[Grid, int], Sequence[Cell]]
"""Themis' cells of a claim, with a seed."""
Measure = Callable[[ThemisRuns], Measured]


@value
class Floor:
    """What bounds the worst ρ of a cell of Themis, seed by seed."""

    worst: tuple[float, ...]
    """Themis' worst ρ."""
    floor: tuple[float, ...]
    """The worst ρ of an app alone on the empty cluster."""
    leases: tuple[float, ...]
    """T_id of the app with the worst ρ, in leases."""

    @property
    def part(self) -> float:
        """Mean floor over mean worst ρ."""
        return fmean(self.floor) / fmean(self.worst)

    @property
    def measurable(self) -> bool:
        """Whether the policy, and not the app alone or a single lease, decides the worst ρ."""
        return self.part <= LARGEST_PART and min(self.leases) >= 1.0

    @property
    def text(self) -> str:
        """The figures, by seed."""
        return (
            f"by seed: Themis' worst ρ {_listed(self.worst)}; floor {_listed(self.floor)}, {self.part:.2f} of it; "
            f"T_id of that app {_listed(self.leases)} leases"
        )


def with_floor(measure: Measure, bases: Bases) -> Measure:
    """The measure of a claim, whose verdict says so where the claim cannot be measured.

    Args:
        measure: as the paper has it.
        bases: Themis' cells; the one with the highest floor counts.
    """

    def measured(runs: ThemisRuns) -> Measured:
        found = measure(runs)
        floors = floors_of(runs, bases)
        if found.verdict is Verdict.UNMEASURED or not floors:
            return found
        worst = max(floors, key=lambda one: (not one.measurable, one.part))
        verdict = found.verdict if worst.measurable else Verdict.NOT_MEASURABLE
        return dataclasses.replace(found, verdict=verdict, reason=f"{found.reason}. {_sentence(worst.text)}")

    return measured


def floors_of(runs: ThemisRuns, bases: Bases) -> list[Floor]:
    """The floors of Themis' cells of a claim, for the seeds that have been run; none where an app is not done."""
    count = len(bases(runs.grid, runs.grid.seeds[0]))
    found = [_floor(runs, [bases(runs.grid, seed)[at] for seed in runs.grid.seeds]) for at in range(count)]
    return [one for one in found if one is not None]


def _floor(runs: ThemisRuns, cells: Sequence[Cell]) -> Floor | None:
    pairs = [(cell, runs.done.get(cell.key), runs.done.get(alone_of(cell).key)) for cell in cells]
    known = [(cell, one, by_itself) for cell, one, by_itself in pairs if one and by_itself]
    if not known:
        return None
    return Floor(
        worst=tuple(one.worst_rho for _, one, _ in known),
        floor=tuple(by_itself.worst_rho for _, _, by_itself in known),
        leases=tuple(ideal_of_worst(one) / cell.lease_seconds for cell, one, _ in known),
    )


def ideal_of_worst(one: Figures) -> float:
    """T_id in seconds of the app with the worst ρ."""
    at = int(np.nanargmax(one.rho))
    return one.jct_seconds[at] / one.rho[at]


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
