"""Learning curves: parametric fits to what a trial has reported, and how far they can be trusted.

Two families that fall towards an asymptote, lower is better: ``a + b (t + 1)^-c`` and ``a + b exp(-c t)``, b at least
0. For a given exponent the rest is linear least squares, so every exponent of a grid is fitted exactly, and all that
explain the points about as well as the best one are kept: together they say how sure a forecast is.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

EXPONENTS = 200
"""Exponents tried of each family."""
ROUNDING = 1e-9
"""Part of the points' range below which residuals are rounding."""


class Point(NamedTuple):
    """A metric, lower is better, after so many iterations."""

    iteration: int
    value: float


class Shapes(NamedTuple):
    """The plausible curves, a row each."""

    asymptote: Reals
    amplitude: Reals
    """At least 0."""
    exponent: Reals
    power: NDArray[np.bool_]
    """A power law; else exponential."""
    mean: Reals
    """Mean of its fall at the points: what a line through them is sure of."""
    spread: Reals
    """Sum of squares of the fall around its mean."""

    def rows(self, chosen: NDArray[np.int64]) -> "Shapes":
        """Some of them."""
        numbers = (self.asymptote[chosen], self.amplitude[chosen], self.exponent[chosen])
        return Shapes(*numbers, self.power[chosen], self.mean[chosen], self.spread[chosen])


class Curves:
    """All fitted curves that are plausible, the best first.

    Args:
        shapes: the curves.
        noise: standard deviation of the residuals of the best.
        points: how many it was made of.
        deviations: standard deviations that a forecast may be off.
    """

    def __init__(self, shapes: Shapes, *, noise: float, points: int, deviations: float) -> None:
        self.shapes, self.noise, self._points, self._deviations = shapes, noise, points, deviations

    @classmethod
    def fit(cls, points: Sequence[Point], *, deviations: float = 2.0) -> Self | None:
        """Fit both families.

        Args:
            points: at least four at different iterations; what is not finite is left out.
            deviations: how many standard deviations from the best a curve may be and still be plausible.

        Returns:
            None where there are too few points.
        """
        usable = {point.iteration: point.value for point in points if math.isfinite(point.value)}
        if len(usable) < 4:
            return None
        times = np.array(sorted(usable), dtype=np.float64)
        values = np.array([usable[int(time)] for time in times])
        span = float(times[-1] + 1.0)
        powers, rates = np.geomspace(0.05, 8.0, EXPONENTS), np.geomspace(0.05, 50.0, EXPONENTS) / span
        falls = np.vstack([(times + 1.0) ** -powers[:, None], np.exp(-rates[:, None] * times)])
        exponent = np.concatenate([powers, rates])
        shapes, squares = _least_squares(falls, values, exponent, np.arange(exponent.size) < powers.size)
        floor = (ROUNDING * max(float(np.ptp(values)), abs(float(values[-1])), 1e-300)) ** 2 * times.size
        best = float(squares.min()) + floor
        # The likelihood ratio of normal residuals with their variance fitted: n ln(S / S_best) <= z^2.
        plausible = np.flatnonzero(squares + floor <= best * math.exp(deviations**2 / times.size))
        order = plausible[np.argsort(squares[plausible], kind="stable")]
        noise = math.sqrt(best / max(1, times.size - 3))
        return cls(shapes.rows(order), noise=noise, points=times.size, deviations=deviations)

    def at(self, iteration: float) -> Reals:
        """[curve] the metric after so many iterations."""
        return np.asarray(self.shapes.asymptote + self.shapes.amplitude * self._fall(iteration))

    def expected(self, iteration: float) -> float:
        """The metric by the curve that fits best."""
        return float(self.at(iteration)[0])

    def optimistic(self, iteration: float) -> float:
        """The best metric that any plausible curve promises."""
        return float((self.at(iteration) - self._unsure(iteration)).min())

    def pessimistic(self, iteration: float) -> float:
        """The worst."""
        return float((self.at(iteration) + self._unsure(iteration)).max())

    def _fall(self, iteration: float) -> Reals:
        shapes = self.shapes
        with np.errstate(under="ignore"):
            power = (iteration + 1.0) ** -shapes.exponent
            return np.where(shapes.power, power, np.exp(-shapes.exponent * iteration))

    def _unsure(self, iteration: float) -> Reals:
        """[curve] how far off it may be there for a given exponent: the error of a fitted line."""
        shapes = self.shapes
        away = (self._fall(iteration) - shapes.mean) ** 2
        share = np.divide(away, shapes.spread, out=np.zeros_like(away), where=shapes.spread > 0.0)
        return np.asarray(self._deviations * self.noise * np.sqrt(1.0 / self._points + share))

    def last_to_converge(self, part: float) -> float:
        """Iterations after which every plausible curve has only ``part`` of its way left; inf: one never gets there.

        Themis §4.3.2 over-estimates: "the most optimistic convergence curve that results in the maximum forecasted
        completion time".
        """
        if part <= 0.0:
            return math.inf
        with np.errstate(over="ignore"):
            power = part ** (-1.0 / self.shapes.exponent) - 1.0
            times = np.where(self.shapes.power, power, -math.log(part) / self.shapes.exponent)
        return float(np.where(self.shapes.amplitude > 0.0, times, 0.0).max())


def _least_squares(falls: Reals, values: Reals, exponent: Reals, power: NDArray[np.bool_]) -> tuple[Shapes, Reals]:
    """Fit asymptote and amplitude to each row of ``falls``, one curve's shape each; and their squared residuals."""
    mean = falls.mean(axis=1)
    centred = falls - mean[:, None]
    spread = (centred**2).sum(axis=1)
    amplitude = np.divide(centred @ (values - values.mean()), spread, out=np.zeros(spread.size), where=spread > 0.0)
    amplitude = np.maximum(amplitude, 0.0)  # a metric that gets worse is taken to stand still
    asymptote = values.mean() - amplitude * mean
    residual = values - asymptote[:, None] - amplitude[:, None] * falls
    return Shapes(asymptote, amplitude, exponent, power, mean, spread), (residual**2).sum(axis=1)
