"""Families of learning curves: functions of a cost that falls from its start towards an asymptote.

Domhan, Springenberg and Hutter (IJCAI 2015, Table 1) give eleven functions of the iteration. Here all are written as
``a + b g(x; θ)`` with g falling and b at least 0, so that level and amplitude are found by linear least squares, and
only the shape θ, one or two numbers, is searched. In this form their Weibull, Janoschek and exp4 are one family, and so
are their MMF, Hill and log-power: equal curves under several names would count more than once. x is the iteration
divided by that of the last point, which is at x = 1.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


class Shape(NamedTuple):
    """A shape parameter of a family of curves, searched on a logarithmic scale."""

    low: float
    high: float
    tried: int
    """Number of values tried before the best ones are refined."""


class Family(NamedTuple):
    """A family of curves with its shape parameters."""

    name: str
    shapes: tuple[Shape, ...]
    fall: Callable[[Reals, Reals], Reals]
    """g, a function from x (n) and θ (curves, shape parameters) to (curves, n)."""

    @property
    def parameters(self) -> int:
        """Return the number of fitted parameters, including level and amplitude."""
        return 2 + len(self.shapes)

    def grid(self) -> Reals:
        """Return the logarithms of the shapes tried, in every combination: [curve, shape parameter]."""
        axes = [np.linspace(np.log(shape.low), np.log(shape.high), shape.tried) for shape in self.shapes]
        return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)

    def bounds(self) -> tuple[Reals, Reals]:
        """Return the lowest and the highest logarithms of the shapes."""
        return (
            np.log([shape.low for shape in self.shapes]),
            np.log([shape.high for shape in self.shapes]),
        )

    def at(self, x: Reals, logarithms: Reals) -> Reals:
        """Return g for shapes given by their logarithms: [curve, x]."""
        with np.errstate(under="ignore", over="ignore"):
            return self.fall(x, np.exp(logarithms))


def _pow3(x: Reals, shape: Reals) -> Reals:
    return np.asarray(x ** -shape[:, :1])


def _pow4(x: Reals, shape: Reals) -> Reals:
    return np.asarray((1.0 + x / shape[:, 1:]) ** -shape[:, :1])


def _exp3(x: Reals, shape: Reals) -> Reals:
    return np.exp(-shape[:, :1] * x)


def _weibull(x: Reals, shape: Reals) -> Reals:
    return np.exp(-((shape[:, :1] * x) ** shape[:, 1:]))


def _mmf(x: Reals, shape: Reals) -> Reals:
    return np.asarray(1.0 / (1.0 + (shape[:, :1] * x) ** shape[:, 1:]))


def _ilog2(x: Reals, shape: Reals) -> Reals:
    return np.asarray(1.0 / np.log(2.0 + shape[:, :1] * x))


def _logarithm(x: Reals, shape: Reals) -> Reals:
    return -np.log1p(shape[:, :1] * x)


def _vapor_pressure(x: Reals, shape: Reals) -> Reals:
    return np.asarray(-np.exp(-shape[:, :1] / x) * x ** shape[:, 1:])


def _gompertz(x: Reals, shape: Reals) -> Reals:
    return -np.expm1(-np.exp(np.minimum(-shape[:, :1] * (x - shape[:, 1:]), 50.0)))


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("pow3", (Shape(0.05, 6.0, 25),), _pow3),
        Family("pow4", (Shape(0.1, 20.0, 12), Shape(0.01, 20.0, 12)), _pow4),
        Family("exp3", (Shape(0.05, 60.0, 30),), _exp3),
        Family("weibull", (Shape(0.05, 100.0, 20), Shape(0.25, 6.0, 12)), _weibull),
        Family("mmf", (Shape(0.05, 200.0, 20), Shape(0.3, 8.0, 12)), _mmf),
        Family("ilog2", (Shape(0.5, 1e5, 25),), _ilog2),
        Family("logarithm", (Shape(0.05, 1e4, 25),), _logarithm),
        Family("vapor_pressure", (Shape(1e-3, 3.0, 16), Shape(0.01, 1.0, 8)), _vapor_pressure),
        Family("gompertz", (Shape(1.0, 40.0, 14), Shape(0.02, 1.2, 16)), _gompertz),
    )
}
"""The families by name."""
