"""Learning curves: families fitted to the points of a trial, and the uncertainty of their joint prediction.

Every family (``families.py``) is fitted by SciPy's bounded least squares from several starts. Around each best fit, the
shapes that explain the points about as well are kept and weighted by their likelihood. Families are weighted by
Akaike's criterion, which is smoothed, since no criterion accounts for curves outside all families. Together they form a
distribution of the metric at a later iteration, without random draws. ``Doubt`` has the additional uncertainty that was
found empirically.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from eunomia_hpo_adapters.families import FAMILIES, Family
from eunomia_hpo_adapters.predictions import Prediction

Reals = NDArray[np.float64]

LEAST_POINTS = 4
"""Minimum number of points: with fewer, a curve of three parameters has no residuals."""
ROUNDING = 1e-9
"""Residuals below this fraction of the points' range are rounding errors."""
_DEVIATIONS = np.linspace(-3.0, 3.0, 13)
_STARTS = 2
_AHEAD = 4.0
"""Multiple of the iterations so far at which a curve's further fall is bounded."""
_LEAPS = 16
_LEAST_FAMILIES = 3


class Point(NamedTuple):
    """A metric (lower is better) after a number of iterations."""

    iteration: int
    value: float


class Doubt(NamedTuple):
    """Uncertainty in addition to least squares, measured on recorded curves (docs/reference/curve-stopping)."""

    recency: float = 0.5
    """Power of the iteration by which points are weighted, so that curves fit well at their latest points."""
    equal: float = 0.3
    """Fraction of the weight that is divided equally among plausible families."""
    plausible: float = 10.0
    """Largest difference of Akaike's criterion from the best at which a family is plausible."""
    ahead: float = 0.5
    """Standard deviation of a curve's further fall, in ranges of the search's values; the fall is at most twice
    that."""
    floor: float = 0.002
    """Least noise of a metric, in ranges of the search's values, since even a constant metric has noise."""
    drift: float = 1.0
    """Standard deviation of a slow drift when the iterations have doubled, in standard deviations of the noise."""
    leap: float = 0.6
    """Probability that a trial with nearly all its work ahead leaves its visible curve for a level between its current
    one and the best of the search; it decreases with the fraction of work ahead, to the power 3/2."""


class Seen(NamedTuple):
    """Values of the other trials, in the metric's unit (lower is better)."""

    best: float
    """The current level of the best other trial."""
    spread: float
    """The range of all values of the search."""


class Shapes(NamedTuple):
    """Curves of one family, one row each, in units of the points' range."""

    logarithms: Reals
    level: Reals
    amplitude: Reals
    """Amplitude of each curve, at least 0."""
    mean: Reals
    """Weighted mean of g at the points, where a line through them is most certain."""
    spread: Reals
    """Sum of squares of g around its mean, plus the contribution of the prior on the further fall."""
    squares: Reals
    """Weighted sum of squared residuals."""


class Fit(NamedTuple):
    """The curves of a family that plausibly explain the points."""

    family: Family
    shapes: Shapes
    weight: Reals
    """[curve] weight within the family; the weights sum to 1."""


class Sample(NamedTuple):
    """The points in the units of the fit: x is 1 at the last point; y is the value minus ``zero``, over ``unit``."""

    x: Reals
    y: Reals
    weight: Reals
    """Weight of each point, 1 on average."""
    last: float
    """Iteration + 1 of the last point."""
    zero: float
    unit: float
    spread: float
    """Range of the search's values in units of the points' range, at least 1."""
    gap: float
    """Distance of the search's best value below the last value, at least 0."""

    @classmethod
    def of(cls, points: Sequence[Point], seen: Seen | None, recency: float) -> Self | None:
        """Return a sample of the finite points, the last one of each iteration; None: there are too few."""
        usable = {point.iteration: point.value for point in points if math.isfinite(point.value)}
        if len(usable) < LEAST_POINTS:
            return None
        iterations = np.array(sorted(usable), dtype=np.float64)
        values = np.array([usable[int(iteration)] for iteration in iterations])
        last, zero = float(iterations[-1] + 1.0), float(values[-1])
        unit = float(np.ptp(values)) or max(abs(zero), 1.0)
        x = (iterations + 1.0) / last
        weight = x**recency
        spread = 1.0 if seen is None else max(1.0, seen.spread / unit)
        gap = 0.0 if seen is None else max(0.0, (zero - seen.best) / unit)
        return cls(x, (values - zero) / unit, weight / weight.mean(), last, zero, unit, spread, gap)


class Curves:
    """All families of curves, fitted to the points of a trial.

    Args:
        sample: the points in the units of the fit.
        fits: plausible curves of each family.
        family_weight: [family] weight; the weights sum to 1.
        effective: effective number of points, which is smaller than their number if residuals are correlated.
        noise: standard deviation of the metric around its curve, in the sample's units.
        doubt: the additional uncertainty.
    """

    def __init__(
        self, sample: Sample, fits: Sequence[Fit], family_weight: Reals, effective: float, noise: float, doubt: Doubt
    ) -> None:
        self._sample, self._fits, self._family_weight = sample, fits, family_weight
        self._effective, self._noise, self._doubt = effective, noise, doubt

    @classmethod
    def fit(cls, points: Sequence[Point], *, seen: Seen | None = None, doubt: Doubt | None = None) -> Self | None:
        """Fit all families to a trial's points.

        Args:
            points: at least four points at different iterations; points that are not finite are ignored.
            seen: values of the other trials, as levels that a trial with most of its work ahead may still reach. None:
                the trial is judged only by its own points.
            doubt: the additional uncertainty.

        Returns:
            The fitted curves; None: there are too few points.
        """
        doubt = doubt or Doubt()
        sample = Sample.of(points, seen, doubt.recency)
        if sample is None:
            return None
        ahead = doubt.ahead * sample.spread
        best = [_refine(family, sample) for family in FAMILIES.values()]
        residuals = min(best, key=lambda each: float(each[1] @ each[1]))[1]
        effective = _effective(residuals)
        noise = max(_noise(residuals, sample), doubt.floor * sample.spread)
        fits = [
            _around(family, shape, sample, ahead, noise, effective)
            for family, (shape, _) in zip(FAMILIES.values(), best, strict=True)
        ]
        floor = sample.x.size * max(doubt.floor * sample.spread, ROUNDING) ** 2
        weights = _family_weights(fits, effective, floor, doubt)
        return cls(sample, fits, weights, effective, noise, doubt)

    @property
    def weights(self) -> Mapping[str, float]:
        """Return the weight of each family."""
        return {fit.family.name: float(weight) for fit, weight in zip(self._fits, self._family_weight, strict=True)}

    def predict(self, iteration: float) -> Prediction:
        """Return the distribution of the metric after some iterations, including the noise of one evaluation."""
        sample, parts = self._sample, []
        x = np.array([(iteration + 1.0) / sample.last])
        wander = self._doubt.drift * self._noise * math.log2(max(1.0, float(x[0])))
        for fit in self._fits:
            shapes = fit.shapes
            g = fit.family.at(x, shapes.logarithms)[:, 0]
            free = max(self._effective - fit.family.parameters, 2.0)
            variance = shapes.squares / sample.x.size * self._effective / free
            line = variance * (1.0 / self._effective + (g - shapes.mean) ** 2 / shapes.spread)
            scale = np.sqrt(line + self._noise**2 + wander**2)
            parts.append((shapes.level + shapes.amplitude * g, scale, np.full(g.size, free)))
        sizes = [len(fit.weight) for fit in self._fits]
        weight = np.repeat(self._family_weight, sizes) * np.concatenate([fit.weight for fit in self._fits])
        leap = self._doubt.leap * (1.0 - 1.0 / max(1.0, float(x[0]))) ** 1.5 if sample.gap > 0.0 else 0.0
        to = -sample.gap * (np.arange(_LEAPS) + 0.5) / _LEAPS
        noisy = np.full(_LEAPS, math.hypot(self._noise, sample.gap / _LEAPS / 2.0))
        parts.append((to, noisy, np.full(_LEAPS, self._effective)))
        centre, scale, freedom = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Prediction(
            families=[fit.family.name for fit in self._fits],
            family=np.repeat(np.arange(len(sizes) + 1), [*sizes, _LEAPS]),
            weight=np.concatenate([(1.0 - leap) * weight, np.full(_LEAPS, leap / _LEAPS)]),
            centre=sample.zero + sample.unit * centre,
            scale=sample.unit * scale,
            freedom=freedom,
        )

    def convergence(self, whole: float, *, part: float, probability: float) -> float:
        """Return the iteration by which only ``part`` of the fall until ``whole`` remains, with this probability.

        Themis §4.3.2 over-estimates: "the most optimistic convergence curve that results in the maximum forecasted
        completion time". This is the curve that improves for longest, and so the quantile at which nearly all curves,
        by weight, have converged.
        """
        times = np.linspace(0.0, whole, 129)
        left = []
        for fit in self._fits:
            g = fit.family.at((times + 1.0) / self._sample.last, fit.shapes.logarithms)
            way = np.maximum(g[:, :1] - g[:, -1:], 0.0) * (fit.shapes.amplitude > 0.0)[:, None]
            left.append(times[np.argmax(g - g[:, -1:] <= part * np.maximum(way, 1e-300), axis=1)] * (way[:, 0] > 0.0))
        at = np.concatenate(left)
        weight = np.concatenate([fit.weight * own for fit, own in zip(self._fits, self._family_weight, strict=True)])
        order = np.argsort(at, kind="stable")
        reached = np.cumsum(weight[order])
        return float(at[order][min(int(np.searchsorted(reached, probability * reached[-1])), at.size - 1)])


# -- one family


def _solve(family: Family, logarithms: Reals, sample: Sample, ahead: float = 0.0, noise: float = 0.0) -> Shapes:
    """Fit level and amplitude for given shapes by weighted least squares.

    If ``ahead`` is given, the fall after the last point, b (g(1) - g(4)), has a prior with mean 0 and this standard
    deviation, and is at most twice that.
    """
    g = family.at(sample.x, logarithms)
    mean = g @ sample.weight / sample.x.size
    level = float(sample.y @ sample.weight) / sample.x.size
    centred = g - mean[:, None]
    spread = (centred**2) @ sample.weight
    most = np.full(len(g), np.inf)
    if ahead:
        fall = np.maximum(g[:, -1] - family.at(np.array([_AHEAD]), logarithms)[:, 0], 1e-300)
        spread, most = spread + (noise * fall / ahead) ** 2, 2.0 * ahead / fall
    spread = np.maximum(spread, 1e-300)
    amplitude = np.clip(centred @ (sample.weight * (sample.y - level)) / spread, 0.0, most)
    residual = sample.y - level - amplitude[:, None] * centred
    return Shapes(logarithms, level - amplitude * mean, amplitude, mean, spread, (residual**2) @ sample.weight)


def _refine(family: Family, sample: Sample) -> tuple[Reals, Reals]:
    """Return the best shape of a family, refined by SciPy from the best ones of a grid, and its weighted residuals."""
    from scipy.optimize import least_squares

    def residuals(logarithms: Reals) -> Reals:
        g = family.at(sample.x, logarithms[None, :])[0]
        centred = g - g @ sample.weight / g.size
        level = float(sample.y @ sample.weight) / g.size
        over = max(float((centred**2) @ sample.weight), 1e-300)
        amplitude = max(float(centred @ (sample.weight * (sample.y - level))) / over, 0.0)
        return np.asarray(root * (sample.y - level - amplitude * centred))

    root = np.sqrt(sample.weight)
    bounds = family.bounds()
    found = []
    for start in _starts(family, sample):
        inside = np.clip(start, bounds[0] + 1e-6, bounds[1] - 1e-6)
        found.append(least_squares(residuals, inside, bounds=bounds, max_nfev=12, xtol=1e-4, ftol=1e-6, gtol=1e-12))
    best = min(found, key=lambda each: float(each.cost))
    return np.asarray(best.x), np.asarray(best.fun)


def _starts(family: Family, sample: Sample) -> Reals:
    """Return the best shape of the grid, and the best one that is not its neighbour: [start, shape parameter]."""
    grid = family.grid()
    squares = _solve(family, grid, sample).squares
    order = np.argsort(squares, kind="stable")
    low, high = family.bounds()
    cell = (high - low) / [shape.tried - 1 for shape in family.shapes]
    far = [row for row in order if (np.abs(grid[row] - grid[order[0]]) > 2.5 * cell).any()]
    return grid[[order[0], *far[: _STARTS - 1]]]


def _around(family: Family, best: Reals, sample: Sample, ahead: float, noise: float, effective: float) -> Fit:
    """Return the plausible shapes around the best: a grid along its axes of uncertainty, weighted by likelihood."""
    low, high = family.bounds()
    axes = _axes(family, best, sample, noise, high - low)
    steps = np.stack([axis.ravel() for axis in np.meshgrid(*([_DEVIATIONS] * len(best)), indexing="ij")], axis=1)
    logarithms = best + steps @ axes
    logarithms = logarithms[((logarithms >= low - 1e-9) & (logarithms <= high + 1e-9)).all(axis=1)]
    shapes = _solve(family, np.vstack([best[None, :], logarithms]), sample, ahead, noise)
    floor = sample.x.size * ROUNDING**2
    likelihood = -0.5 * effective * np.log((shapes.squares + floor) / (shapes.squares.min() + floor))
    weight = np.exp(likelihood)
    kept = weight > 1e-4
    return Fit(family, Shapes(*(column[kept] for column in shapes)), weight[kept] / weight[kept].sum())


def _axes(family: Family, best: Reals, sample: Sample, noise: float, width: Reals) -> Reals:
    """Return one standard deviation along each axis of the shape, at most a third of its bounds: [axis, parameter]."""
    step = 1e-3 * width
    moved = np.vstack([best + np.diag(step), best - np.diag(step)])
    g = family.at(sample.x, np.vstack([best[None, :], moved]))
    shapes = _solve(family, best[None, :], sample)
    slopes = (g[1 : 1 + best.size] - g[1 + best.size :]) / (2.0 * step[:, None]) * shapes.amplitude[0]
    centred = slopes - (slopes @ sample.weight / sample.x.size)[:, None]
    own = g[0] - shapes.mean[0]
    centred = centred - np.outer(centred @ (sample.weight * own) / shapes.spread[0], own)
    information = (centred * sample.weight) @ centred.T / max(noise, ROUNDING) ** 2
    information = information + np.diag(9.0 / width**2)
    values, vectors = np.linalg.eigh(information)
    return np.asarray(vectors.T / np.sqrt(values)[:, None])


# -- all families


def _effective(residuals: Reals) -> float:
    """Return the effective number of correlated residuals: n (1 - r) / (1 + r), with r of neighbours, at least four."""
    square = float(residuals @ residuals)
    r = float(residuals[1:] @ residuals[:-1]) / square if square > 0.0 else 0.0
    r = min(max(r, 0.0), 0.9)
    return max(residuals.size * (1.0 - r) / (1.0 + r), 4.0)


def _noise(residuals: Reals, sample: Sample) -> float:
    """Return the standard deviation of the metric around its curve, over the later half of its points."""
    free = residuals.size / max(residuals.size - 3.0, 1.0)
    plain = residuals**2 / sample.weight
    return math.sqrt(max(float(plain[residuals.size // 2 :].mean()), ROUNDING**2) * free)


def _family_weights(fits: Sequence[Fit], effective: float, floor: float, doubt: Doubt) -> Reals:
    """Return Akaike's weights, [family], a fraction of them divided equally among the (few best) plausible families."""
    squares = np.array([float(fit.shapes.squares.min()) for fit in fits])
    parameters = np.array([fit.family.parameters for fit in fits], dtype=np.float64)
    criterion = effective * np.log(squares + floor) + 2.0 * parameters
    behind = criterion - criterion.min()
    plausible = (behind <= doubt.plausible) | (np.argsort(np.argsort(behind, kind="stable")) < _LEAST_FAMILIES)
    akaike = np.where(plausible, np.exp(-0.5 * behind), 0.0)
    return np.asarray((1.0 - doubt.equal) * akaike / akaike.sum() + doubt.equal * plausible / plausible.sum())
