"""Shockwave for ``eunomia reproduce``: the settings, and the numbers to which its rows refer."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.words import shown
from eunomia_testbed.metrics.fairness import UNFAIR_RHO
from eunomia_testbed.reproduce.claims import RowPaper, Variant, paper_of
from eunomia_testbed.reproduce.paper import setting
from eunomia_testbed.reproduce.rows import Fields, read_rows
from eunomia_testbed.reproduce.shockwave.cells import (
    OURS,
    PAPER_UNFAIR,
    ShockwaveCell,
    ShockwaveFigures,
    files_of,
    readings_of,
    recipe_of,
    run_cell,
)

CANONICAL_SEED: Final = 25
"""Seed of the authors' generator that gives the published trace."""
SIZES: Final = {64: 220, 128: 460, 256: 900}
"""Number of jobs by number of GPUs, in Figure 9."""


@value
class ShockwaveGrid:
    """The settings of the reproduction, which are fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    throughputs: str = setting(
        "tacc_throughputs.json.gz", "The file of measured rates in Gavel's format: theirs is not part of Eunomia."
    )
    scales: str = setting("64,128", "GPUs of the clusters of Figure 9; the paper's third cluster has 256.")
    fresh_seed: int = setting(11, "The generator's seed of the first fresh trace.", least=0)

    @property
    def each_scale(self) -> list[Fields]:
        """Return the clusters of Figure 9 as settings of a row: the same contention on more GPUs.

        Raises:
            InputError: a cluster's GPUs are not a positive whole number.
        """
        found = [part.strip() for part in self.scales.split(",")]
        if not all(part.isdecimal() and int(part) > 0 for part in found):
            rule = "scales must be numbers of GPUs, such as 64,128,256"
            raise InputError(rule, value=shown(self.scales), place="--set scales")
        return [scaled(gpus) for gpus in dict.fromkeys(map(int, found))]


def scaled(gpus: int) -> Fields:
    """Return cell fields for a number of GPUs, with jobs at the contention of the paper's testbed."""
    label = f"{gpus} GPUs"
    return {"gpus": gpus, "jobs": SIZES.get(gpus, round(3.6 * gpus)), "gap": 40.0 * 32 / gpus, "label": label}


def make_cell(grid: ShockwaveGrid, fields: Fields, seed: int) -> ShockwaveCell:
    """Return a cell; ``gap`` is the mean seconds between arrivals, and ``fresh`` selects a trace not used for tuning.

    Fresh traces cycle through five: three of 120 jobs on 32 GPUs, one of 220 jobs on 64, and one of 460 jobs on 128.
    """
    given = dict(fields)
    fresh = given.pop("fresh", False)
    if fresh and seed % 5 >= 3:
        given |= scaled({3: 64, 4: 128}[seed % 5])
        del given["label"]
    if "gap" in given:
        given["interarrival_seconds"] = given.pop("gap")
    trace = (grid.fresh_seed if fresh else CANONICAL_SEED) + seed
    cell = ShockwaveCell(seed=seed, throughputs=grid.throughputs, trace_seed=trace, **given)
    return cell if cell.policy in OURS else dataclasses.replace(cell, contention=False)


def worst_of_adapting(one: ShockwaveFigures) -> float:
    """Return the largest ρ of the jobs that change their batch size."""
    return max((rho for rho, adapts in zip(one.rho, one.adapts, strict=True) if adapts), default=0.0)


NUMBERS: Final[Mapping[str, Callable[[ShockwaveFigures], float]]] = {
    "makespan": lambda one: one.makespan_seconds,
    "mean JCT": lambda one: one.mean_jct,
    "worst ρ": lambda one: one.worst_rho,
    "worst ρ of jobs that adapt": worst_of_adapting,
    "jobs with ρ > 1": lambda one: one.part_above(PAPER_UNFAIR),
    "jobs with ρ > 1.05": lambda one: one.part_above(UNFAIR_RHO),
    "gap of a plan": lambda one: fmean(one.gaps) if one.gaps else 0.0,
    "CPU seconds of a plan": lambda one: one.cpu_seconds / max(1, one.plans),
}
"""Functions from a cell's results to a number, by the name that rows of claims use."""


def variants(grid: ShockwaveGrid) -> list[Variant]:
    """Return the variants: shipped presets, which determine verdicts, and presets that know the trace's contention."""
    return [Variant(name="as shipped"), Variant(name="knowing the trace's contention", fields={"contention": True})]


def group(cell: ShockwaveCell) -> str:
    """Return a cell's group for time estimates: the number of jobs, and the time limit of a simulation in seconds."""
    jobs = f"{cell.jobs} jobs"
    return jobs if cell.until_seconds == math.inf else f"{jobs}, {cell.until_seconds:g} s"


ROWS: Final[RowPaper[Any, Any, Any]] = RowPaper(
    file=read_rows(Path(__file__).with_name("claims.toml")),
    cell=make_cell,
    numbers=NUMBERS,
    recipe=recipe_of,
    variants=variants,
    group=group,
    depends_on="what our policies know",
)
PAPER: Final = paper_of(
    ROWS,
    grid=ShockwaveGrid,
    figures=ShockwaveFigures,
    run=run_cell,
    facts=lambda grid: {"canonical": str(CANONICAL_SEED), "last_fresh": str(grid.fresh_seed + 4)},
    shows={"makespan": "s", "mean JCT": "s", "worst ρ": ""},
    hidden=("throughputs", "trace_seed"),
    files=lambda cell: (*files_of(cell.throughputs), *readings_of(cell)),
)
