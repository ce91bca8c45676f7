"""The cells that ``reproduce shockwave`` runs, by figure."""

import dataclasses

from eunomia.model.shapes import value
from eunomia_testbed.reproduce.paper import Claim, Runs
from eunomia_testbed.reproduce.shockwave.cells import ShockwaveCell, ShockwaveFigures

FAIR = ("themis", "gavel", "allox")
"""The fair baselines of most figures."""
USUAL = ("shockwave", "shockwave_urgent", *FAIR, "mst", "ossp")
LARGE = ("shockwave", *FAIR, "gandiva_fair", "ossp")
FRESH = (
    *("shockwave", "shockwave_urgent", "ossp", "mst", "allox", "gavel", "themis", "gandiva_fair"),
    *("themis_auction", "srtf", "index_rule"),
)
ERRORS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.99)
"""Errors of Figure 13; an error of 100 % would make work nothing."""
MIXES = (1.0, 0.6, 0.0)
"""Parts of static jobs of Figure 10."""
CONTENTIONS = (3.0, 2.0, 1.5)
SETTINGS = ((2.5, 4.0), (1.25, 4.0), (5.0, 4.0), (2.5, 2.0), (2.5, 8.0))
"""k and λ: the preset's, then half and double of each."""
PUBLISHED_TRACE = (
    *(("shockwave_urgent", True), ("shockwave_urgent", False), ("shockwave", True), ("shockwave", False)),
    *(("index_rule", True), ("srtf", True)),
)
"""Policies on the trace of Figure 7, with and without a forecast."""
CANONICAL_SEED = 25


@value
class ShockwaveGrid:
    """The settings of the reproduction, fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    throughputs: str = "tacc_throughputs.json.gz"
    """File of measured rates in Gavel's format: theirs is not part of Eunomia."""
    scales: tuple[int, ...] = (64, 128)
    """GPUs of Figure 9; the paper's third cluster has 256."""
    fresh_seed: int = 11
    """Generator's seed of the first fresh trace."""

    def cell(self, policy: str, seed: int) -> ShockwaveCell:
        """Return a cell of Figure 7 with seed 0 (120 jobs on 32 GPUs), or of another trace with another seed."""
        return ShockwaveCell(policy=policy, seed=seed, throughputs=self.throughputs, trace_seed=CANONICAL_SEED + seed)

    def known(self, policy: str, know: str, seed: int) -> ShockwaveCell:
        """Return a cell of Figures 2 and 4; ``know`` states what is known of coming regimes."""
        return dataclasses.replace(self.cell(policy, seed), know=know)

    def makespan(self, know: str, seed: int) -> ShockwaveCell:
        """Return a cell of Figure 4: the planner with only the makespan bound.

        It has no forecast unless regimes are known.
        """
        cell = dataclasses.replace(self.known("shockwave", know, seed), k=0.0, regularizer=1000.0)
        return dataclasses.replace(cell, forecast=know == "regimes")

    def published(self, policy: str, *, forecast: bool = True) -> ShockwaveCell:
        """Return a cell with the trace of Figure 7, for any seeds."""
        cell = self.cell(policy, self.seeds[0])
        return dataclasses.replace(cell, trace_seed=CANONICAL_SEED, forecast=forecast)

    def setting(self, k: float, regularizer: float, seed: int) -> ShockwaveCell:
        """Return a cell on the trace of Figure 7 with other values of k and λ."""
        return dataclasses.replace(
            self.cell("shockwave", seed), trace_seed=CANONICAL_SEED, k=k, regularizer=regularizer
        )

    def batch(self, policy: str, seed: int) -> ShockwaveCell:
        """Return a cell of Figure 8: 50 jobs that arrive together on 14 GPUs, the paper's smaller cluster."""
        return dataclasses.replace(self.cell(policy, seed), jobs=50, gpus=14, interarrival_seconds=0.0)

    def scaled(self, gpus: int, policy: str, seed: int) -> ShockwaveCell:
        """Return a cell of Figure 9: the same contention on more GPUs."""
        jobs = {64: 220, 128: 460, 256: 900}.get(gpus, round(3.6 * gpus))
        gap = 40.0 * 32 / gpus
        return dataclasses.replace(self.cell(policy, seed), jobs=jobs, gpus=gpus, interarrival_seconds=gap)

    def mixed(self, static: float, policy: str, seed: int) -> ShockwaveCell:
        """Return a cell of Figure 10."""
        return dataclasses.replace(self.cell(policy, seed), static=static)

    def crowd(self, jobs: int, seed: int) -> ShockwaveCell:
        """Return a cell of Figure 12: a number of jobs that arrive together on 256 GPUs, one round."""
        cell = dataclasses.replace(self.cell("shockwave", seed), jobs=jobs, gpus=256, interarrival_seconds=0.0)
        return dataclasses.replace(cell, until_seconds=60.0)

    def error(self, error: float, seed: int) -> ShockwaveCell:
        """Return a cell of Figure 13."""
        return dataclasses.replace(self.cell("shockwave", seed), error=error)

    def contended(self, contention: float, policy: str, seed: int) -> ShockwaveCell:
        """Return a cell of Figure 16: 14 GPUs."""
        gap = 40.0 * 32 / 14
        cell = dataclasses.replace(self.cell(policy, seed), jobs=round(contention * 14), gpus=14)
        return dataclasses.replace(cell, interarrival_seconds=gap)

    def fresh(self, policy: str, seed: int) -> ShockwaveCell:
        """Return the cells of fresh traces: three of 120 jobs, one of 220 and one of 460.

        Every policy solves at every event.
        """
        gpus = {3: 64, 4: 128}.get(seed % 5, 32)
        cell = self.cell(policy, seed) if gpus == 32 else self.scaled(gpus, policy, seed)
        return dataclasses.replace(cell, trace_seed=self.fresh_seed + seed, least_between_seconds=0.0)


ShockwaveRuns = Runs[ShockwaveGrid, ShockwaveCell, ShockwaveFigures]
ShockwaveClaim = Claim[ShockwaveGrid, ShockwaveCell, ShockwaveFigures]
