"""Shockwave for ``eunomia reproduce``: grid, claims, and descriptions."""

import dataclasses
from collections.abc import Sequence
from statistics import fmean

from eunomia_testbed.reproduce.paper import Paper, Picture
from eunomia_testbed.reproduce.shockwave.cells import POLICIES, ShockwaveCell, ShockwaveFigures, run_cell
from eunomia_testbed.reproduce.shockwave.claims import claims
from eunomia_testbed.reproduce.shockwave.grid import (
    CANONICAL_SEED,
    ERRORS,
    FRESH,
    SETTINGS,
    USUAL,
    ShockwaveGrid,
    ShockwaveRuns,
)


def fixed(grid: ShockwaveGrid) -> Sequence[str]:
    """Return the decisions made before the first run."""
    k, regularizer = SETTINGS[0]
    return (
        "round rules of the authors' simulator (--rules gavel): rounds of 120 s, a restart costs 20 s, a new solution "
        "of baselines at least 1000 s after the last; one GPU a machine",
        f"traces of their generator: 120 jobs on 32 GPUs, a job every 40 s, seeds from {CANONICAL_SEED}, which is the "
        "published trace, on; jobs come so much more densely on more GPUs",
        "policies know the work, and the rates that were measured (--know measured); ρ is the static one of their code",
        f"Shockwave: k {k:g}, λ {regularizer:g}, T 30, reactive, with the forecast of regimes at its defaults: batch "
        "sizes up to 8 times the first, rates at larger ones unknown until they are measured",
        "shockwave_urgent: the same forecast and planner, T 5, λ 0, budgets by urgency; chosen on the published trace "
        "and on those of seeds 26 and 27",
        "shockwave, shockwave_urgent and index_rule are given the contention of the trace, its jobs per GPU",
        f"fresh traces: generator's seeds {grid.fresh_seed} to {grid.fresh_seed + 4}, three of 120 jobs on 32 GPUs, "
        "one of 220 on 64, one of 460 on 128; every policy solves at every event",
        "policies: " + ", ".join(f"{name} (preset {preset})" for name, preset in POLICIES.items()),
    )


def said(cell: ShockwaveCell, figures: ShockwaveFigures) -> str:
    """Describe a cell by its fields other than defaults, with its figures."""
    usual = ShockwaveCell(
        policy=cell.policy, seed=cell.seed, throughputs=cell.throughputs, trace_seed=CANONICAL_SEED + cell.seed
    )
    numbers = {field.name: getattr(cell, field.name) for field in dataclasses.fields(cell)}
    changed = {name: item for name, item in numbers.items() if item != getattr(usual, name)}
    other = [f"{name} {item:g}" for name, item in changed.items() if isinstance(item, int | float)]
    known = [] if cell.know == usual.know else [f"know {cell.know}"]
    what = ", ".join([cell.policy, f"seed {cell.seed}", *known, *other])
    if cell.until_seconds < float("inf"):
        return f"{what}: {figures.plans} plans"
    return f"{what}: {figures.makespan_seconds:.0f} s, {figures.mean_jct:.0f} s, worst ρ {figures.worst_rho:.2f}"


def pictures(runs: ShockwaveRuns) -> Sequence[Picture]:
    """Return bars of Figures 7 and 13 and of the fresh traces; empty: no cell was run."""
    made = []
    for title, make, policies in (
        ("Figure 7", runs.grid.cell, USUAL),
        ("Fresh traces", runs.grid.fresh, FRESH),
    ):
        by = runs.by_policy(make, policies)
        for name, number in _NUMBERS.items():
            bars = {policy: fmean(map(number, found)) for policy, found in by.items() if found}
            made.append(Picture(title=f"{title}: {name}", bars=bars))
    by_error = {part: runs.of(lambda seed, part=part: runs.grid.error(part, seed)) for part in ERRORS}  # type: ignore[misc]
    bars = {
        f"{100 * part:.0f} %": fmean(one.makespan_seconds for one in found) for part, found in by_error.items() if found
    }
    return [*made, Picture(title="Figure 13: makespan in s by injected error", bars=bars)]


_NUMBERS = {
    "makespan in s": lambda one: one.makespan_seconds,
    "mean JCT in s": lambda one: one.mean_jct,
    "worst ρ": lambda one: one.worst_rho,
}

PAPER = Paper(
    title="Shockwave (NSDI 2023)",
    grid=ShockwaveGrid,
    figures=ShockwaveFigures,
    claims=claims,
    run=run_cell,
    fixed=fixed,
    said=said,
    pictures=pictures,
)
