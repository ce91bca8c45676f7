"""AFS for ``eunomia reproduce``: grid, claims, and descriptions."""

from collections.abc import Sequence

from eunomia_testbed.reproduce.afs.cells import CLUSTER, POLICIES, AfsCell, AfsFigures, run_cell
from eunomia_testbed.reproduce.afs.claims import claims
from eunomia_testbed.reproduce.afs.grid import AfsGrid, AfsRuns, number_of
from eunomia_testbed.reproduce.afs.measures import HOUR, found, jct
from eunomia_testbed.reproduce.paper import Paper, Picture


def fixed(grid: AfsGrid) -> Sequence[str]:
    """Return the decisions made before the first run."""
    return (
        f"the virtual clusters {', '.join(grid.names)} of Philly's trace, each on {CLUSTER} (64 GPUs, 4 a machine)",
        "seed 0: the models that the authors drew; a job has so many iterations that it takes as long as in the trace "
        "on the GPUs that it asked for; speeds are the authors' seconds per step, wherever a job's GPUs are",
        "policies know lengths and the speed at each size (--know sizes,types); starts cost nothing, except in the "
        f"claims named Costs: {grid.start_seconds:g} s each; sizes are not packed, except in the claims named Packing",
        "SRTF, SRSF and Tiresias-L give a job the GPUs it asked for and pass over a job that does not fit; elastic "
        "policies give it 1 to the most that its model scales to; SRTF-E and SRSF-E from the GPUs asked for on",
        "AFS-L scans the shortest job first; AFS-P's unit of time, Themis' lease and Max-Min's turn are 2 h",
        "policies: "
        + ", ".join(f"{name} (preset {recipe.preset}, {recipe.sizes})" for name, recipe in POLICIES.items()),
    )


def said(cell: AfsCell, figures: AfsFigures) -> str:
    """Describe a cell and its figures in a line."""
    cost = f", a start costs {cell.start_seconds:g} s" if cell.start_seconds else ""
    packed = ", sizes packed" if cell.packing else ""
    what = f"{cell.policy} on {number_of(cell.cluster)}, seed {cell.seed}{cost}{packed}"
    return f"{what}: mean JCT {figures.mean_jct_seconds / HOUR:.2f} h, {figures.restarts} restarts"


def pictures(runs: AfsRuns) -> Sequence[Picture]:
    """Return bars of the average JCT of each policy, by cluster; empty: no cell was run."""
    made = []
    for cluster in runs.grid.names:
        bars = {}
        for policy in POLICIES:
            here = found(runs, runs.grid.cell, (policy,), jct).get(cluster)
            if here is not None:
                bars[policy] = here[policy] / HOUR
        made.append(Picture(title=f"Average JCT in h, cluster {number_of(cluster)}", bars=bars))
    return made


PAPER = Paper(
    title="AFS (NSDI 2021)",
    grid=AfsGrid,
    figures=AfsFigures,
    claims=claims,
    run=run_cell,
    fixed=fixed,
    said=said,
    pictures=pictures,
)
