"""The cells that ``reproduce oef`` runs, by figure."""

import dataclasses

from eunomia.model.shapes import value
from eunomia_testbed.reproduce.oef.cells import ALLOCATION, COMPLETION, OVERHEAD, ROUNDS, OefCell, OefFigures
from eunomia_testbed.reproduce.oef.tenants import GAVEL, PRINTED
from eunomia_testbed.reproduce.paper import Claim, Runs

LIE = 1.5
"""What tenant 1 multiplies its speedup on the fastest type by; the paper does not give it."""
ERRORS = (0.0, 0.1, 0.2, 0.3)
"""Profiling errors of Figure 10(b)."""
SIZES = (30, 100, 300)
"""Tenants of Figure 10(a)."""
BASELINES = ("gavel", "gandiva_fair")
SPREAD = "spread"
"""The placement that takes hosts in turn: what the paper's baselines are said to lack is a placement that packs."""


@value
class OefGrid:
    """The settings of the reproduction, fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0, 1, 2)
    throughputs: str = ""
    """File of Gavel's measured rates; without one the claims on them are left out."""
    four_tenants: int = 4
    """Tenants of §6.2."""
    twenty_tenants: int = 20
    """Tenants of §6.3.1."""
    fifty_tenants: int = 50
    """Tenants of §6.3.2."""
    hours: float = 8.0
    """Simulated time of jobs that do not end."""

    @property
    def sets(self) -> tuple[str, ...]:
        """Return the names of the sets of speeds."""
        return (GAVEL, PRINTED) if self.throughputs else (PRINTED,)

    def cell(self, what: str, policy: str, speeds: str, seed: int) -> OefCell:
        """Return a cell with four tenants."""
        return OefCell(
            what=what,
            policy=policy,
            seed=seed,
            tenants=self.four_tenants,
            speeds=speeds,
            throughputs=self.throughputs if speeds == GAVEL else "",
            hours=self.hours,
        )

    def lying(self, what: str, speeds: str, seed: int) -> OefCell:
        """Return a cell of Figure 4(b)."""
        return dataclasses.replace(self.cell(what, "noncooperative", speeds, seed), lie=LIE)

    def changing(self, what: str, change: str, speeds: str, seed: int) -> OefCell:
        """Return a cell of Figure 4(a) or 5(b)."""
        return dataclasses.replace(self.cell(what, "noncooperative", speeds, seed), change=change)

    def twenty(self, what: str, policy: str, speeds: str, seed: int) -> OefCell:
        """Return a cell of Figures 7 and 8."""
        return dataclasses.replace(self.cell(what, policy, speeds, seed), tenants=self.twenty_tenants)

    def spread(self, policy: str, speeds: str, seed: int) -> OefCell:
        """Return a cell of Figures 7 and 8, under a placement that uses hosts in turn."""
        return dataclasses.replace(self.twenty(ROUNDS, policy, speeds, seed), placement=SPREAD)

    def fifty(self, policy: str, speeds: str, seed: int) -> OefCell:
        """Return a cell of Figure 9."""
        return dataclasses.replace(self.cell(COMPLETION, policy, speeds, seed), tenants=self.fifty_tenants)

    def overhead(self, policy: str, tenants: int, seed: int) -> OefCell:
        """Return a cell of Figure 10(a)."""
        return dataclasses.replace(self.cell(OVERHEAD, policy, PRINTED, seed), tenants=tenants)

    def wrong(self, what: str, error: float, speeds: str, seed: int) -> OefCell:
        """Return a cell of Figure 10(b): cooperative, twenty tenants."""
        return dataclasses.replace(self.twenty(what, "cooperative", speeds, seed), error=error)


OefClaim = Claim[OefGrid, OefCell, OefFigures]
OefRuns = Runs[OefGrid, OefCell, OefFigures]
WHATS = (ALLOCATION, ROUNDS)
NAMES = {ALLOCATION: "estimated", ROUNDS: "actual"}
"""The paper's words: shares alone, and rounded and placed."""
