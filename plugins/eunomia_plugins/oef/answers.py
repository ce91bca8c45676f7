"""The result of OEF's programmes: GPUs by claim and type, and a certificate of optimality."""

import math

from eunomia.model.shapes import builds
from eunomia.units import Reals


@builds
class Answer:
    """Shares of GPUs with a certificate.

    Attributes:
        gpus: [claim, type] GPUs held on average.
        objective: the sum over claims of speedup times GPUs.
        bound: no allocation that meets the programme's constraints has a greater objective.
        path: the algorithm that found it.
        rounds: linear programmes solved.
        envy: the most that a claim would gain with another's GPUs, each per unit of weight, as a fraction of its own
            throughput; NaN: not computed.
        shortfall: the most that a claim lacks of the throughput of an equal share, as a fraction of that; below 0:
            every claim has more; NaN: not computed.
        bundles: number of different bundles of GPUs per unit of weight; 0: every claim has its own.
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
        """Relative distance between objective and bound."""
        return max(0.0, self.bound - self.objective) / max(abs(self.bound), 1e-12)
