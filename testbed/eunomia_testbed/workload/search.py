"""A hyperparameter search for simulation: its tuner, and the loss curves of its trials."""

import dataclasses
from collections.abc import Mapping

from eunomia.model.shapes import value


@value
class SimulatedSearch:
    """The settings of a simulated search; its trials are the jobs of its app, in order."""

    tuner: str
    """Kind of tuner, such as ``successive_halving``."""
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)
    metric: str = "loss"
    mode: str = "min"
    """Direction in which the metric improves: ``min`` or ``max``."""
    curves: tuple[tuple[float, ...], ...] = ()
    """[trial] (asymptote, amplitude, exponent) of the loss ``asymptote + amplitude * (iteration + 1) ** -exponent``."""
    every: int = 1
    """Number of iterations between two points of a curve."""
