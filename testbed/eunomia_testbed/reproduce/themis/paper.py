"""Themis as a paper of ``eunomia reproduce``."""

import dataclasses
from collections.abc import Sequence

from eunomia_testbed.reproduce.paper import Paper
from eunomia_testbed.reproduce.themis.cells import COSTS, POLICIES, Cell, Figures, make_cluster, run_cell
from eunomia_testbed.reproduce.themis.claims import claims
from eunomia_testbed.reproduce.themis.grid import Grid
from eunomia_testbed.reproduce.themis.pictures import pictures


def fixed(grid: Grid) -> Sequence[str]:
    """What is decided before the first run."""
    testbed, simulator = make_cluster("testbed"), make_cluster("simulator")
    usual = Cell(policy="themis", seed=0)
    return (
        f"Figures 9 to 14 and Table 5: testbed of {testbed.gpus} GPUs on {len(testbed.machines)} machines in "
        f"{len(testbed.racks)} racks, {grid.testbed_apps} apps of the paper's 85, as densely in time",
        f"Figures 15 to 19: {simulator.gpus} GPUs on {len(simulator.machines)} machines in {len(simulator.racks)} "
        f"racks (footnote 6 adds up to 168, not 256), {grid.simulator_apps} apps of workload 2, as full as the testbed",
        f"lease {usual.lease_seconds / 60:g} min, f {usual.fairness_knob:g}, reports off by up to {usual.error:.0%}; "
        f"a change of GPUs takes {COSTS.start:g} s, a checkpoint {COSTS.checkpoint:g} s (§6.2.3)",
        f"apps have 1/{usual.shorter:g} of Figure 3's GPU time and come {usual.shorter:g} times as densely: they then "
        "last as long, in leases and restarts, as §6.2.3 has them last",
        f"GPUs that become free are pooled for {usual.pooled_seconds:g} s before a round, under every policy",
        "workload 2: a trial can use its most GPUs in every phase, as in the example of §4.3.3",
        "distance slows network-intensive models by 1.1 across machines and 1.3 across racks (footnote 3)",
        "policies: " + ", ".join(f"{name} (preset {preset})" for name, (preset, _) in POLICIES.items()),
    )


def said(cell: Cell, figures: Figures) -> str:
    """A cell by what differs from the usual one, and its worst ρ."""
    left = f", {figures.unfinished} apps unfinished" if figures.unfinished else ""
    usual = Cell(policy=cell.policy, seed=cell.seed)
    fields = (field.name for field in dataclasses.fields(cell) if field.name not in ("policy", "apps"))
    other = [f"{name} {getattr(cell, name)}" for name in fields if getattr(cell, name) != getattr(usual, name)]
    what = ", ".join([cell.policy, f"seed {cell.seed}", *other])
    return f"{what}: worst ρ {figures.worst_rho:.2f}{left}"


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
