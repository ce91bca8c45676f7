"""Random draws that generators share: one stream per quantity, so that an option affects only its own draws."""

import zlib
from collections.abc import Sequence

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import Ints, Reals


@value
class Steps:
    """A distribution whose CDF is given at points ``(value, cumulative probability)`` and is linear between them."""

    points: tuple[tuple[float, float], ...]
    source: str

    def at(self, uniform: Reals) -> Reals:
        """Return the quantiles at probabilities ``uniform``; below the first point's probability, the first value."""
        values, chances = zip(*self.points, strict=True)
        found: Reals = np.interp(uniform, chances, values)
        return found

    def cdf(self, value: Reals) -> Reals:
        """Return for each value the probability that a draw is at most that value."""
        values, chances = zip(*self.points, strict=True)
        found: Reals = np.interp(value, values, chances, left=0.0)
        return found

    @property
    def mean(self) -> float:
        """Return the mean of the distribution."""
        total = self.points[0][0] * self.points[0][1]
        for (low, below), (high, above) in zip(self.points, self.points[1:], strict=False):
            total += (above - below) * (low + high) / 2.0
        return total


def stream(seed: int, quantity: str) -> np.random.Generator:
    """Return the random generator of one quantity, such as ``arrivals``; it depends only on the seed and the quantity.

    Raises:
        InputError: the seed is negative.
    """
    if seed < 0:
        raise InputError("seed must not be negative", value=str(seed))
    return np.random.default_rng([seed, zlib.crc32(quantity.encode())])


def poisson_arrivals(draws: np.random.Generator, count: int, mean_seconds: float) -> Reals:
    """Return ``count`` arrival times of a Poisson process in seconds, the first at 0; mean 0: all arrive at once."""
    gaps = draws.exponential(1.0, size=max(0, count - 1)) * mean_seconds
    return np.concatenate([np.zeros(min(count, 1)), np.cumsum(gaps)])


def derived_minutes(draws: np.random.Generator, count: int) -> Reals:
    """Return durations in minutes: 10^x with x uniform in [1.5, 3] (probability 0.8) or in [3, 4] (probability 0.2).

    Source: Gavel (OSDI'20) and Synergy (OSDI'22, §5.1), both after Philly.
    """
    long = draws.random(count) >= 0.8
    place = draws.random(count)
    exponent: Reals = np.where(long, 3.0 + place, 1.5 + 1.5 * place)
    return np.power(10.0, exponent)


def picked(draws: np.random.Generator, count: int, chances: Sequence[float]) -> Ints:
    """Return ``count`` indices drawn with probabilities proportional to ``chances``."""
    bounds = np.cumsum(np.asarray(chances, float))
    rows = np.searchsorted(bounds / bounds[-1], draws.random(count), side="right")
    return np.minimum(rows, len(chances) - 1).astype(np.int64)


def check_chances(chances: Sequence[float], most: int) -> Sequence[float]:
    """Check the probabilities of an option.

    Raises:
        ValueError: there are no or too many probabilities, one is negative, or their sum is not 1.
    """
    if not 0 < len(chances) <= most or min(chances) < 0.0 or abs(sum(chances) - 1.0) > 1e-6:
        raise ValueError(f"must be 1 to {most} probabilities that add up to 1")
    return chances
