"""The slope of a sampled figure with its confidence interval, from means of blocks, which are nearly independent."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy import stats

from eunomia.model.shapes import value

BLOCKS: Final = 12
WARM_UP: Final = 0.25
"""Share of the samples that is left out: caches fill, and the first apps arrive."""
CONFIDENCE: Final = 0.95
HOUR: Final = 3600.0


@value
class Slope:
    """Growth in an hour.

    Attributes:
        mean: of the figure.
        per_hour: slope.
        low: end of its confidence interval.
        high: other end.
    """

    mean: float
    per_hour: float
    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Whether zero is in the interval; a figure that never changes has it, too."""
        return self.low <= 0.0 <= self.high

    @property
    def grows(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0.0


def slope(seconds: Sequence[float], values: Sequence[float]) -> Slope:
    """Return the slope of a figure (least squares over means of blocks, Student's t).

    Args:
        seconds: of the samples, ascending.
        values: of the figure, as many.

    Raises:
        ValueError: there are fewer samples than blocks.
    """
    start = int(WARM_UP * len(seconds))
    at, found = np.asarray(seconds[start:], dtype=float), np.asarray(values[start:], dtype=float)
    if len(at) < BLOCKS:
        raise ValueError(f"a slope needs at least {BLOCKS} samples after the warm-up, but got {len(at)}")
    blocks = np.array_split(np.arange(len(at)), BLOCKS)
    x, y = (np.array([part[block].mean() for block in blocks]) for part in (at, found))
    fit = stats.linregress(x, y)
    width = float(stats.t.ppf((1.0 + CONFIDENCE) / 2.0, BLOCKS - 2)) * float(fit.stderr)
    per_hour, width = HOUR * float(fit.slope), HOUR * (0.0 if math.isnan(width) else width)
    return Slope(mean=float(found.mean()), per_hour=per_hour, low=per_hour - width, high=per_hour + width)
