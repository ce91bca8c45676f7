"""Themis for ``eunomia reproduce``: the settings, and the numbers to which its rows refer."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.words import shown
from eunomia_testbed.reproduce.claims import RowPaper, Variant, paper_of
from eunomia_testbed.reproduce.paper import setting
from eunomia_testbed.reproduce.rows import Fields, read_rows
from eunomia_testbed.reproduce.themis.alone import run_cell
from eunomia_testbed.reproduce.themis.cells import COSTS, Cell, Figures, make_cluster, recipe_of
from eunomia_testbed.reproduce.themis.floors import LARGEST_PART, alone_of, guard
from eunomia_testbed.reproduce.themis.speeds import SLOWDOWNS
from eunomia_testbed.reproduce.themis.table3 import bid_table


@value
class Grid:
    """The settings of the reproduction, which are fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    testbed_apps: int = setting(20, "Apps on the testbed cluster; the paper's snapshot has 85.", least=2)
    simulator_apps: int = setting(12, "Apps on the simulator's cluster.", least=2)
    slowdowns: str = setting(
        ",".join(SLOWDOWNS), "Models of what distance costs; the verdict under the first one counts."
    )

    def __post_init__(self) -> None:
        """Check that all slowdown models are known."""
        for name in self.models:
            if name not in SLOWDOWNS:
                raise InputError(f"slowdowns must be of: {', '.join(SLOWDOWNS)}", value=shown(name), place="slowdowns")

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names of the selected slowdown models."""
        return tuple(self.slowdowns.split(","))


def make_cell(grid: Grid, fields: Fields, seed: int) -> Cell:
    """Return a cell with these fields and seed."""
    return Cell(seed=seed, **fields)


def variants(grid: Grid) -> list[Variant]:
    """Return the slowdown models as variants; the one of footnote 3 is the paper's own."""
    return [Variant(name=SLOWDOWNS[name], fields={"slowdowns": name}) for name in grid.models]


def third(one: Figures, *, long: bool) -> float:
    """Return the mean ρ of the third of the apps with the most work (``long``), or with the least."""
    order, count = np.argsort(one.work_gpu_seconds), max(1, len(one.rho) // 3)
    return float(np.nanmean(np.array(one.rho)[order[-count:] if long else order[:count]]))


def placement_score(one: Figures) -> float:
    """Return the placement score of all apps, weighted by their GPU time."""
    weight, score = np.nan_to_num(np.array(one.gpu_seconds)), np.array(one.placement_score)
    known = np.isfinite(score)
    return float((score[known] * weight[known]).sum() / max(weight[known].sum(), 1e-9))


NUMBERS: Final[Mapping[str, Callable[[Figures], float]]] = {
    "worst ρ": lambda one: one.worst_rho,
    "90th percentile of ρ": lambda one: float(np.percentile(one.rho, 90.0)),
    "mean ρ": lambda one: fmean(one.rho),
    "variation of ρ": lambda one: float(np.std(one.rho) / np.mean(one.rho)),
    "GPU hours": lambda one: one.gpu_hours,
    "ρ of long apps": lambda one: third(one, long=True),
    "ρ of short apps": lambda one: third(one, long=False),
    "placement score": placement_score,
    "completion of the last app": lambda one: one.jct_seconds[-1],
    "mean completion of the others": lambda one: fmean(one.jct_seconds[:-1]),
    "arbiter, median": lambda one: float(np.median(one.arbiter_ms or math.nan)),
    "arbiter, 95th percentile": lambda one: float(np.percentile(one.arbiter_ms or math.nan, 95.0)),
    "agent, median": lambda one: float(np.median(one.agent_ms or math.nan)),
    "agent, 95th percentile": lambda one: float(np.percentile(one.agent_ms or math.nan, 95.0)),
    "unfinished apps": lambda one: float(one.unfinished),
}
"""Functions from a cell's results to a number, by the name that rows of claims use."""


STARVED: Final = 3.0
"""ρ above which an app counts as starved."""


def starved(figures: Mapping[str, Sequence[Figures]]) -> str:
    """Return as text the apps that Gandiva starves, with their largest ρ over seeds and the number of such seeds."""
    parts = []
    for label, by_seed in figures.items():
        if not label.startswith("gandiva"):
            continue
        rho: dict[str, list[float]] = {}
        for one in by_seed:
            for app, of_app in enumerate(one.rho):
                if of_app > STARVED:
                    rho.setdefault(f"app{app:02d}", []).append(of_app)
        worst = sorted(rho.items(), key=lambda item: -max(item[1]))
        names = ", ".join(f"{app} {max(each):.3g} in {len(each)}" for app, each in worst)
        parts.append(f"{label}: {names or 'none'}")
    return (
        f"apps with ρ above {STARVED:g}, their greatest and the number of seeds of {len(by_seed)}: {'; '.join(parts)}"
    )


def group(cell: Cell) -> str:
    """Return a cell's group for time estimates: the workload, and the divisor of the number of machines."""
    return f"{cell.workload} x{cell.shrink}"


def facts(grid: Grid) -> dict[str, str]:
    """Return texts that the fixed decisions refer to, in addition to the settings."""
    usual = Cell(policy="themis", seed=0)
    found = {"start": f"{COSTS.start:g}", "checkpoint": f"{COSTS.checkpoint:g}", "largest": f"{LARGEST_PART:g}"}
    for name in ("testbed", "simulator"):
        cluster = make_cluster(name)
        found[name] = f"{cluster.gpus} GPUs on {len(cluster.machines)} machines in {len(cluster.racks)} racks"
    found |= {"names": "; ".join(SLOWDOWNS[name] for name in grid.models), "error": f"{usual.iterations_error:.0%}"}
    return {**found, "lease": f"{usual.lease_seconds / 60:g} min, f {usual.fairness_knob:g}"}


ROWS: Final[RowPaper[Any, Any, Any]] = RowPaper(
    file=read_rows(Path(__file__).with_name("claims.toml")),
    cell=make_cell,
    numbers=NUMBERS,
    recipe=recipe_of,
    variants=variants,
    depends_on="S",
    guard=guard,
    behind=lambda cell: [alone_of(cell)],
    computed={"bid table": bid_table},
    notes={"starved apps": starved},
    group=group,
)
PAPER: Final = paper_of(
    ROWS,
    grid=Grid,
    figures=Figures,
    run=run_cell,
    facts=facts,
    shows={"worst ρ": "", "GPU hours": "h", "unfinished apps": ""},
    hidden=("apps",),
)
