"""Means over seeds with their confidence interval: Student's t, two-sided."""

import math
from collections.abc import Sequence

from eunomia.model.shapes import value


@value
class Interval:
    """A mean of ``count`` values with its confidence interval; ``low`` and ``high`` are None for one value."""

    mean: float
    low: float | None
    high: float | None
    count: int

    @property
    def holds_zero(self) -> bool:
        """Return whether the interval contains 0; for a single value, whether the value is 0."""
        if self.low is None or self.high is None:
            return self.mean == 0.0
        return self.low <= 0.0 <= self.high


def interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the mean of values with its two-sided t interval; None: there are no values."""
    if not values:
        return None
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean=mean, low=None, high=None, count=1)
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in values) / (count - 1) / count)
    half = t_quantile((1.0 + confidence) / 2.0, count - 1) * spread
    return Interval(mean=mean, low=mean - half, high=mean + half, count=count)


def enough_to_decide(differences: Sequence[float], most: int) -> int | None:
    """Return the number of paired differences, with equal mean and spread, that excludes 0; None: above ``most``.

    The result is the smallest number above the current one for which the 95 % t interval excludes 0.

    Args:
        differences: the paired differences; at least two.
        most: the largest number to consider.
    """
    count = len(differences)
    mean = math.fsum(differences) / count
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in differences) / (count - 1))

    def decides(wanted: int) -> bool:
        return t_quantile(0.975, wanted - 1) * deviation < abs(mean) * math.sqrt(wanted)

    low, high = count, most
    if not decides(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def t_quantile(probability: float, freedom: int) -> float:
    """Return a quantile above the median of Student's t with ``freedom`` degrees of freedom, to nine digits."""
    low, high = 0.0, 1.0
    while t_below(high, freedom) < probability:
        high *= 2.0
    while high - low > 1e-10 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if t_below(middle, freedom) < probability else (low, middle)
    return (low + high) / 2.0


def t_below(t: float, freedom: int) -> float:
    """Return P(T < t) of Student's t for t >= 0, by finite sums for an integer number of degrees of freedom.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2 == 1
    term = math.cos(angle) if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for k in range(2, freedom - 1, 2):
        term *= square * (k / (k + 1) if odd else (k - 1) / k)
        total += term
    within = 2.0 / math.pi * (angle + sine * total) if odd else sine * total
    return 0.5 + within / 2.0
