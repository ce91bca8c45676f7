"""Themis for ``eunomia reproduce``: grid, claims, and descriptions."""

from collections.abc import Sequence

from eunomia_testbed.reproduce.paper import Paper
from eunomia_testbed.reproduce.themis.alone import run_cell
from eunomia_testbed.reproduce.themis.cells import COSTS, POLICIES, Cell, Figures, make_cluster
from eunomia_testbed.reproduce.themis.claims import claims
from eunomia_testbed.reproduce.themis.floors import LARGEST_PART
from eunomia_testbed.reproduce.themis.grid import SHORTER, Grid
from eunomia_testbed.reproduce.themis.pictures import pictures
from eunomia_testbed.reproduce.themis.speeds import SLOWDOWNS


def fixed(grid: Grid) -> Sequence[str]:
    """Return the decisions made before the first run."""
    testbed, simulator = make_cluster("testbed"), make_cluster("simulator")
    usual = Cell(policy="themis", seed=0)
    shorter = ", ".join(f"{factor:g} ({workload})" for workload, factor in SHORTER.items())
    return (
        f"Figures 9 to 14 and Table 5: testbed of {testbed.gpus} GPUs on {len(testbed.machines)} machines in "
        f"{len(testbed.racks)} racks, {grid.testbed_apps} apps of the paper's 85, as densely in time",
        f"Figures 15 to 17 and 19: {simulator.gpus} GPUs on {len(simulator.machines)} machines in "
        f"{len(simulator.racks)} racks (footnote 6 adds up to 168, not 256), {grid.simulator_apps} apps of a workload "
        "without a floor: no search, jobs of an app equally long, on up to 4 GPUs each and on three quarters of the "
        "GPUs together, tasks of 2 hours and more; as densely in GPUs as the testbed's",
        "Figure 18: eight apps alike on one machine of 8 GPUs and 28 of 2",
        f"lease {usual.lease_seconds / 60:g} min, f {usual.fairness_knob:g}, reports of iterations and of S each off "
        f"by up to {usual.iterations_error:.0%}; a change of GPUs takes {COSTS.start:g} s, a checkpoint "
        f"{COSTS.checkpoint:g} s (§6.2.3)",
        f"tasks and times between arrivals are divided by {shorter}: a median app of workloads 1 and 2 then lasts 4 to "
        "6 hours, and 35 s are 0.2 % of it (§6.2.3)",
        f"GPUs that become free are pooled for {usual.pooled_seconds:g} s before a round, under every policy",
        "workload 2: a trial can use one GPU in the first phase and twice as many in each following one (§4.3.2), "
        "under every policy",
        f"distance: {'; '.join(SLOWDOWNS[name] for name in grid.models)}; each claim under each",
        f"a claim on ρ is not measurable where the floor exceeds {LARGEST_PART:g} of Themis' worst ρ, or T_id of the "
        "app with that ρ is under a lease in any seed; the floor is the greatest part of an app's T_id that the app "
        "takes alone on the empty cluster, starts included",
        "policies: " + ", ".join(f"{name} (preset {preset})" for name, (preset, _) in POLICIES.items()),
    )


def said(cell: Cell, figures: Figures) -> str:
    """Describe a cell by its fields other than defaults, with its worst ρ."""
    left = f", {figures.unfinished} apps unfinished" if figures.unfinished else ""
    return f"{cell.label}, seed {cell.seed}: worst ρ {figures.worst_rho:.2f}{left}"


PAPER = Paper(
    title="Themis (NSDI 2020)",
    grid=Grid,
    figures=Figures,
    claims=claims,
    run=run_cell,
    fixed=fixed,
    said=said,
    pictures=pictures,
)
