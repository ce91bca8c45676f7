"""Concave hulls of many functions on 0 to T at once."""

import numpy as np

from eunomia.units import Reals

_STRAIGHT = 1e-12
"""Relative bend that rounding makes: slopes that differ by less are one slope."""


def hull_slopes(value: Reals) -> Reals:
    """[function, step] slopes of the least concave function that is nowhere below the value, descending.

    Args:
        value: [function, point] at 0 to T.
    """
    slopes = np.diff(value, axis=1)
    if slopes.shape[1] < 2:
        return slopes
    bent = np.flatnonzero((np.diff(slopes, axis=1) > _STRAIGHT * np.abs(slopes[:, 1:])).any(axis=1))
    if bent.size:
        slopes[bent] = _pooled(value[bent])
    return slopes


def _pooled(value: Reals) -> Reals:
    """Pool adjacent steps whose slopes rise, for all functions together: a stack of hull points for each."""
    rows, points = value.shape
    every = np.arange(rows)
    stack, top = np.zeros((rows, points), np.int64), np.zeros(rows, np.int64)
    for point in range(1, points):
        pops = every[top > 0]
        while pops.size:
            last, before = stack[pops, top[pops]], stack[pops, top[pops] - 1]
            rise = (value[pops, last] - value[pops, before]) * (point - last)
            falls = (value[pops, point] - value[pops, last]) * (last - before)
            pops = pops[falls >= rise]
            top[pops] -= 1
            pops = pops[top[pops] > 0]
        top += 1
        stack[every, top] = point
    slopes = np.empty((rows, points - 1))
    for at in range(1, int(top.max()) + 1):
        own = every[top >= at]
        start, end = stack[own, at - 1], stack[own, at]
        slope = (value[own, end] - value[own, start]) / (end - start)
        spans = (np.arange(points - 1) >= start[:, None]) & (np.arange(points - 1) < end[:, None])
        slopes[own] = np.where(spans, slope[:, None], slopes[own])
    return slopes
