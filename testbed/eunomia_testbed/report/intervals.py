"""Means over seeds with their 95 % interval (Student's t, two-sided)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from eunomia.shapes import value

T_95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Quantile 0.975 of Student's t by degrees of freedom, from 1 (any table of it)."""
NORMAL_95: Final = 1.96


@value
class Interval:
    """A mean over ``count`` seeds; ``half`` is half the width of its 95 % interval, 0 for a single seed."""

    mean: float
    half: float
    count: int

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + self.half


def interval(values: Sequence[float | None]) -> Interval | None:
    """Mean and interval of what is known; None where nothing is."""
    known = [each for each in values if each is not None and math.isfinite(each)]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    if len(known) == 1:
        return Interval(mean=mean, half=0.0, count=1)
    variance = math.fsum((each - mean) ** 2 for each in known) / (len(known) - 1)
    freedom = len(known) - 1
    factor = T_95[freedom - 1] if freedom <= len(T_95) else NORMAL_95
    return Interval(mean=mean, half=factor * math.sqrt(variance / len(known)), count=len(known))


def differ(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    """Whether two policies differ beyond the noise of seeds: paired where both know the same number of seeds.

    With one seed each there is no noise to measure, and any difference counts.
    """
    if len(one) == len(other):
        paired = [a - b for a, b in zip(one, other, strict=True) if a is not None and b is not None]
        found = interval(paired)
        return found is not None and not found.low <= 0.0 <= found.high
    first, second = interval(one), interval(other)
    return first is not None and second is not None and (first.high < second.low or second.high < first.low)
