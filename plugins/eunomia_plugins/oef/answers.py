"""The result of OEF's programmes: GPUs by claim and type, and a certificate of optimality."""

import math

from eunomia.model.shapes import builds
from eunomia.units import Reals


@builds
class Answer:
    """GPU shares of claims with a certificate of optimality.

    Attributes:
        gpus: [claim, type] average number of GPUs held.
        objective: sum over claims of speedup times GPUs.
        bound: upper bound on the objective of any feasible allocation.
        path: name of the algorithm.
        rounds: number of linear programmes solved.
        envy: largest gain of a claim with another's GPUs, each per unit of weight, as a fraction of its own
            throughput; NaN: not computed.
        shortfall: largest deficit of a claim below the throughput of an equal share, as a fraction of that;
            negative if every claim has more; NaN: not computed.
        bundles: number of distinct bundles of GPUs per unit of weight; 0: every claim has its own.
    """

    gpus: Reals
    objective: float
    bound: float
    path: str
    rounds: int = 0
    envy: float = math.nan
    shortfall: float = math.nan
    bundles: int = 0

    @property
    def gap(self) -> float:
        """Return the relative distance between objective and bound."""
        return max(0.0, self.bound - self.objective) / max(abs(self.bound), 1e-12)
