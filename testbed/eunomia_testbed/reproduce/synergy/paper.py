"""Synergy for ``eunomia reproduce``: grid, claims, and descriptions."""

from collections.abc import Sequence
from statistics import fmean

from eunomia_testbed.reproduce.paper import Paper, Picture
from eunomia_testbed.reproduce.synergy.cells import ORDERS, SynergyCell, SynergyFigures, run_cell
from eunomia_testbed.reproduce.synergy.claims import claims
from eunomia_testbed.reproduce.synergy.grid import (
    ALL,
    DYNAMIC_LOAD,
    DYNAMIC_TIMES,
    MULTI_LOAD,
    PHILLY_GPUS,
    SPLITS,
    SynergyGrid,
    SynergyRuns,
)
from eunomia_testbed.reproduce.synergy.jobs import STATIC


def fixed(grid: SynergyGrid) -> Sequence[str]:
    """Return the decisions made before the first run."""
    single, multi = (", ".join(f"{load:g}" for load in grid.loads_of(multi=many)) for many in (False, True))
    return (
        "servers of 8 V100, 24 CPUs (more in Figure 12) and 500 GB; rounds of 300 s; changes cost no time, as in the "
        "authors' simulator",
        f"Table 5: the authors' trace {STATIC} on 4 servers; its fourth column is iterations",
        f"drawn traces: {grid.jobs} jobs after {grid.warmup_jobs} that are not measured, Poisson arrivals, durations "
        f"10^x minutes; {grid.gpus} GPUs; jobs of one GPU at {single} an hour ({grid.jobs_per_hour:g} in "
        f"Figure 12), jobs of 1 to 8 GPUs (70, 10, 15, 5 %) at {multi} an hour ({MULTI_LOAD:g} in "
        "Figures 11 and 13)",
        f"Table 5's dynamic trace: {grid.dynamic_jobs} jobs of one GPU after {grid.dynamic_jobs} that are not "
        f"measured, 30-60-10, on 4 servers, {DYNAMIC_LOAD:g} an hour, durations times {DYNAMIC_TIMES:g}: as long as "
        "the static trace's on average, and a demand of 32 GPUs",
        f"Table 6a: jobs {grid.philly_first} to {grid.philly_first + grid.philly_jobs - 1} of Philly's trace by "
        f"submission, models drawn 20-70-10, on {PHILLY_GPUS} GPUs; the range was chosen by its demand, before a run",
        "a job of several GPUs is as fast a GPU as its model on one GPU, as in the authors' simulator",
        "durations hold at 3 CPUs and 62.5 GB a GPU, also where servers have more CPUs",
        "policies know the rates of each kind of job by CPUs and memory (--know amounts); saturation 0.9 under Tune, "
        "1 with fixed demands",
        "orders: " + ", ".join(f"{name} (valuation {valuation})" for name, valuation in ORDERS.items()),
    )


def said(cell: SynergyCell, figures: SynergyFigures) -> str:
    """Describe a cell by its scheme and order, with its figures."""
    drawn = f"{'multi' if cell.multi else 'single'}, {cell.cpus_per_gpu:g} CPUs a GPU, {cell.jobs_per_hour:g} an hour"
    kind = "static" if cell.static else "philly" if cell.trace else drawn
    return (
        f"{cell.scheme}, {cell.order}, {kind}, seed {cell.seed}: makespan {figures.makespan_hours:.2f} h, "
        f"mean JCT {figures.hours:.2f} h"
    )


def pictures(runs: SynergyRuns) -> Sequence[Picture]:
    """Return bars of Table 5 and of Figure 11; empty: no cell was run."""
    made = []
    by = runs.by_policy(lambda scheme, seed: runs.grid.static(scheme, "fifo", seed), ALL)
    bars = {scheme: done[0].makespan_hours for scheme, done in by.items() if done}
    made.append(Picture(title="Table 5: makespan in h", bars=bars))
    for split in SPLITS:
        found = runs.by_policy(lambda scheme, seed, split=split: runs.grid.split(split, scheme, seed), ALL)  # type: ignore[misc]
        hours = {scheme: fmean(one.hours for one in done) for scheme, done in found.items() if done}
        title = f"Figure 11: mean JCT in h, split {', '.join(f'{part:g}' for part in split)}"
        made.append(Picture(title=title, bars=hours))
    return made


PAPER = Paper(
    title="Synergy (OSDI 2022)",
    grid=SynergyGrid,
    figures=SynergyFigures,
    claims=claims,
    run=run_cell,
    fixed=fixed,
    said=said,
    pictures=pictures,
)
