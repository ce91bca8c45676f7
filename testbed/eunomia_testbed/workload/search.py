"""A hyperparameter search for simulation: its tuner, and the loss curves of its trials."""

import dataclasses
from collections.abc import Mapping

from eunomia.model.shapes import value


@value
class SimulatedSearch:
    """The settings of a simulated search; its trials are the jobs of its app, in order."""

    tuner: str
    """A tuner's kind, such as ``successive_halving``."""
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)
    metric: str = "loss"
    mode: str = "min"
    """The better direction: ``min`` or ``max``."""
    curves: tuple[tuple[float, ...], ...] = ()
    """By trial: asymptote, amplitude, exponent of ``asymptote + amplitude * (iteration + 1) ** -exponent``."""
    every: int = 1
    """Iterations between two values of a curve."""
