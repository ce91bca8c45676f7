"""Estimates with 95 % intervals: percentiles over resamples of one trace, Student's t over independent draws.

Resamples of one trace are not independent observations: a t interval over N resamples shrinks as N grows, so that it
covers the true value in far fewer than 95 % of cases. Percentile intervals do not shrink with N (Efron and
Tibshirani, An Introduction to the Bootstrap, 13.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from eunomia.model.shapes import value
from eunomia_testbed.evidence.draws import DrawKind, Draws
from eunomia_testbed.metrics.intervals import interval

FEWEST_RESAMPLES: Final = 39
"""The fewest resamples that give a 95 % percentile interval: its ends are the smallest and largest of 39 values."""
LOW, HIGH = 2.5, 97.5
"""Percentiles of the ends of an interval."""


CLEAR: Final = 2.0
"""Least distance from 0, in Monte Carlo errors, at which an end is unlikely to cross 0 in other resamples."""
_BOOTSTRAPS: Final = 200


@value
class Estimate:
    """A figure with its 95 % interval.

    Attributes:
        value: for resamples, the figure of the trace itself; else the mean of the draws.
        low: lower end of the interval; None: there is no interval.
        high: upper end.
        count: number of draws.
        near_zero: whether the interval excludes 0 so narrowly that other resamples of the trace might include it.
    """

    value: float
    low: float | None
    high: float | None
    count: int
    near_zero: bool = False

    @property
    def known(self) -> bool:
        """Return whether the estimate has an interval."""
        return self.low is not None and self.high is not None

    @property
    def holds_zero(self) -> bool:
        """Return whether the interval contains 0; True if there is no interval, since chance may explain any value."""
        return self.low is None or self.high is None or self.low <= 0.0 <= self.high


def estimate(values: Sequence[float], draws: Draws, *, whole: float | None = None) -> Estimate | None:
    """Return the estimate of a figure from its draws; None: no value is known.

    Args:
        values: the figure by draw, in any order.
        draws: how the values were drawn.
        whole: for resamples, the figure of the trace itself; None: the mean of the resamples.
    """
    known = [each for each in values if math.isfinite(each)]
    if not known:
        return None if whole is None else Estimate(value=whole, low=None, high=None, count=1)
    if draws.kind is DrawKind.RESAMPLES:
        return _percentiles(known, whole)
    found = interval(known if draws.kind is not DrawKind.ONE else known[:1])
    return None if found is None else Estimate(value=found.mean, low=found.low, high=found.high, count=found.count)


def log_ratio(
    first: Sequence[float], second: Sequence[float], draws: Draws, *, whole: tuple[float, float] | None = None
) -> Estimate | None:
    """Return the estimate of ln(second / first), paired by draw; None: no draw has positive values of both.

    Args:
        first: a figure of one policy, by draw.
        second: the same figure of another policy, on the same draws.
        draws: how the values were drawn.
        whole: for resamples, both figures of the trace itself.
    """
    pairs = [math.log(b / a) for a, b in zip(first, second, strict=True) if a > 0.0 and b > 0.0]
    of_trace = None if whole is None or min(whole) <= 0.0 else math.log(whole[1] / whole[0])
    return estimate(pairs, draws, whole=of_trace)


def difference(
    first: Sequence[float], second: Sequence[float], draws: Draws, *, whole: tuple[float, float] | None = None
) -> Estimate | None:
    """Return the estimate of second - first, paired by draw, for figures that may be 0; None: no pair is known."""
    pairs = [b - a for a, b in zip(first, second, strict=True)]
    return estimate(pairs, draws, whole=None if whole is None else whole[1] - whole[0])


def _percentiles(values: Sequence[float], whole: float | None) -> Estimate:
    count = len(values)
    mean = math.fsum(values) / count if whole is None else whole
    if count < FEWEST_RESAMPLES:
        return Estimate(value=mean, low=None, high=None, count=count)
    low, high = np.percentile(np.asarray(values, float), [LOW, HIGH], method="weibull").tolist()
    near = (low > 0.0 or high < 0.0) and not clear_of_zero(values, low, high)
    return Estimate(value=mean, low=low, high=high, count=count, near_zero=near)


def clear_of_zero(values: Sequence[float], low: float, high: float) -> bool:
    """Return whether an interval's end nearest to 0 is at least two Monte Carlo errors from 0, on either side.

    Args:
        values: the figure by resample.
        low: lower end of their interval.
        high: upper end.
    """
    nearest, width = min(abs(low), abs(high)), high - low
    if nearest >= width:
        return True
    of_low, of_high = end_errors(values)
    return nearest >= CLEAR * width * (of_low if abs(low) <= abs(high) else of_high)


def end_error(values: Sequence[float]) -> float:
    """Return the larger of the ends' Monte Carlo errors, as a fraction of the interval's width: see ``end_errors``."""
    return max(end_errors(values))


def end_errors(values: Sequence[float]) -> tuple[float, float]:
    """Return the Monte Carlo error of both ends of a percentile interval, as fractions of its width.

    More resamples reduce these errors, but do not narrow the interval. The errors are the standard deviations of the
    ends over bootstrap samples of the resampled figures, drawn with a fixed seed.

    Args:
        values: the figure by resample; fewer than 39 give no interval, and the errors are infinite.
    """
    count = len(values)
    if count < FEWEST_RESAMPLES:
        return math.inf, math.inf
    rng = np.random.default_rng([0xE2D5, count])
    samples = np.asarray(values, float)[rng.integers(count, size=(_BOOTSTRAPS, count))]
    ends = np.percentile(samples, [LOW, HIGH], axis=1, method="weibull")
    width = float(np.diff(np.percentile(values, [LOW, HIGH], method="weibull"))[0])
    if width <= 0.0:
        return 0.0, 0.0
    low, high = (ends.std(axis=1) / width).tolist()
    return low, high
