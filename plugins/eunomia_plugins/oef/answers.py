"""The result of OEF's programmes: GPUs by claim and type, and a certificate of optimality."""

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
    """

    gpus: Reals
    objective: float
    bound: float
    path: str
    rounds: int = 0

    @property
    def gap(self) -> float:
        """Relative distance between objective and bound."""
        return max(0.0, self.bound - self.objective) / max(abs(self.bound), 1e-12)
