"""The predicted distribution of a metric: a mixture of Student's t distributions, one for each plausible curve."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


class Prediction(NamedTuple):
    """The distribution of a metric (lower is better) at one iteration."""

    families: Sequence[str]
    """Names of the families, indexed by ``family``."""
    family: NDArray[np.int64]
    """[curve] index into the names; the number of names stands for a component of no family."""
    weight: Reals
    """[curve] weight; the weights sum to 1."""
    centre: Reals
    """[curve] predicted value."""
    scale: Reals
    """[curve] scale, above 0: uncertainty of the curve, and noise of the metric around it."""
    freedom: Reals
    """[curve] degrees of freedom."""

    def below(self, value: float) -> float:
        """Return the probability that the metric is below a value."""
        return float(np.minimum(self.weight @ self._below(value), 1.0))

    def below_by_family(self, value: float) -> Mapping[str, float]:
        """Return the probability that the metric is below a value by each family alone, for families with a weight."""
        probability = self.weight * self._below(value)
        mass = np.bincount(self.family, self.weight)
        better = np.bincount(self.family, probability)
        return {name: float(better[row] / mass[row]) for row, name in enumerate(self.families) if mass[row] > 0.0}

    def quantile(self, probability: float) -> float:
        """Return the value below which the metric is with this probability, found by bisection."""
        low, high = self._bracket(probability)
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.below(middle) < probability else (low, middle)
        return 0.5 * (low + high)

    def interval(self, coverage: float) -> tuple[float, float]:
        """Return the central interval that contains the metric with probability ``coverage``."""
        return self.quantile(0.5 - 0.5 * coverage), self.quantile(0.5 + 0.5 * coverage)

    def _below(self, value: float) -> Reals:
        """Return the probability of being below a value by each curve separately: [curve]."""
        from scipy.special import stdtr

        return np.asarray(stdtr(self.freedom, (value - self.centre) / self.scale))

    def _bracket(self, probability: float) -> tuple[float, float]:
        """Return the least and the greatest quantile of the components, between which the mixture's quantile is."""
        from scipy.special import stdtrit

        quantiles = self.centre + self.scale * stdtrit(self.freedom, probability)
        return float(quantiles.min()), float(quantiles.max())
