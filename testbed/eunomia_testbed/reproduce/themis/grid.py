"""The cells that ``reproduce themis`` runs, by figure."""

import dataclasses

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.words import shown
from eunomia_testbed.reproduce.paper import Claim, Runs
from eunomia_testbed.reproduce.themis.cells import ALONE, Cell, Figures
from eunomia_testbed.reproduce.themis.speeds import SLOWDOWNS

CONTENTIONS = (1, 2, 4)
NETWORK_PARTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
NETWORK_POLICIES = ("themis", "gandiva", "tiresias")
"""Policies of Figures 15 and 16: Themis, and one policy each for efficiency and for fairness."""
ERRORS = (0.0, 0.1, 0.2)
ERRED = ("iterations", "slowdown")
"""Quantities that a report's error can affect."""
SHORTER = {"1": 6.0, "2": 3.0, "flat": 3.0}
"""By workload, ``Cell.shorter``: with these a median app of workloads 1 and 2 lasts 4 to 6 hours under Themis."""
LIES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
KNOBS = (0.0, 0.4, 0.8, 1.0)
LEASES = (300.0, 600.0, 1200.0)


@value
class Grid:
    """The settings of the reproduction, fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    testbed_apps: int = 20
    """Apps on the testbed cluster; the paper's snapshot has 85."""
    simulator_apps: int = 12
    """Apps on the simulator's cluster."""
    slowdowns: str = ",".join(SLOWDOWNS)
    """Slowdown models, separated by commas; each claim is measured under each of them."""

    def __post_init__(self) -> None:
        """Refuse an unknown model of slowdowns."""
        for name in self.models:
            if name not in SLOWDOWNS:
                raise InputError(f"slowdowns must be of: {', '.join(SLOWDOWNS)}", value=shown(name), place="slowdowns")

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names of the slowdown models."""
        return tuple(self.slowdowns.split(","))

    def under(self, slowdowns: str) -> "Grid":
        """Return the grid with one of the slowdown models."""
        return dataclasses.replace(self, slowdowns=slowdowns)

    # --- by figure --------------------------------------------------------------------------------------------------

    def testbed(self, workload: str, policy: str, seed: int, shrink: int = 1) -> Cell:
        """Return a cell of Figures 9 to 14 and Table 5."""
        return Cell(
            policy=policy,
            seed=seed,
            workload=workload,
            shrink=shrink,
            apps=self.testbed_apps,
            shorter=SHORTER[workload],
            slowdowns=self.models[0],
        )

    def network(self, part: float, policy: str, seed: int) -> Cell:
        """Return a cell of Figures 15 and 16."""
        return dataclasses.replace(self.simulated(policy, seed), network_intensive=part)

    def error(self, error: float, on: str, seed: int) -> Cell:
        """Return a cell of Figure 17: an error on the quantity ``on``, with all other reports true."""
        iterations, slowdown = (error if what == on else 0.0 for what in ERRED)
        made = self.simulated("themis", seed)
        return dataclasses.replace(made, iterations_error=iterations, slowdown_error=slowdown)

    def lie(self, lie: float, seed: int) -> Cell:
        """Return a cell of Figure 18."""
        return Cell(
            policy="themis",
            seed=seed,
            workload="identical",
            cluster="lying",
            apps=8,
            slowdowns=self.models[0],
            iterations_error=0.0,
            slowdown_error=0.0,
            lie=lie,
        )

    def knob(self, fairness_knob: float, lease_seconds: float, seed: int) -> Cell:
        """Return a cell of Figure 19."""
        made = self.simulated("themis", seed)
        return dataclasses.replace(made, fairness_knob=fairness_knob, lease_seconds=lease_seconds)

    def simulated(self, policy: str, seed: int) -> Cell:
        """Return a cell with the workload without a floor."""
        return Cell(
            policy=policy,
            seed=seed,
            workload="flat",
            cluster="simulator",
            apps=self.simulator_apps,
            shorter=SHORTER["flat"],
            slowdowns=self.models[0],
        )


def alone_of(cell: Cell) -> Cell:
    """Return the cell that runs each app of another cell alone."""
    return Cell(
        policy=ALONE,
        seed=cell.seed,
        workload=cell.workload,
        cluster=cell.cluster,
        shrink=cell.shrink,
        apps=cell.apps,
        shorter=cell.shorter,
        network_intensive=cell.network_intensive,
        slowdowns=cell.slowdowns,
    )


ThemisRuns = Runs[Grid, Cell, Figures]
ThemisClaim = Claim[Grid, Cell, Figures]
