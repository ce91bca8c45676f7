"""A hyperparameter search to be simulated: its tuner, and the loss curves that its trials will show."""

import dataclasses
from collections.abc import Mapping

from eunomia.shapes import value


@value
class SimulatedSearch:
    """What the simulated app master of a search is told; its trials are the jobs of its app, in their order."""

    tuner: str
    """A tuner's kind, such as ``successive_halving``."""
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)
    metric: str = "loss"
    mode: str = "min"
    """Which way is better: ``min`` or ``max``."""
    curves: tuple[tuple[float, ...], ...] = ()
    """By trial: asymptote, amplitude, exponent of ``asymptote + amplitude * (iteration + 1) ** -exponent``."""
    every: int = 1
    """Iterations between two values of a curve."""
