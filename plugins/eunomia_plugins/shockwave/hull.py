"""Concave hulls of many functions on 0 to T, computed at once."""

import numpy as np

from eunomia.units import Reals

_STRAIGHT = 1e-12
"""Relative difference up to which slopes count as equal, as it may be due to rounding."""


def hull_slopes(value: Reals) -> Reals:
    """Return the descending slopes of the concave hulls (least concave majorants) of functions, [function, step].

    Args:
        value: [function, point] values at 0 to T.
    """
    slopes = np.diff(value, axis=1)
    if slopes.shape[1] < 2:
        return slopes
    bent = np.flatnonzero((np.diff(slopes, axis=1) > _STRAIGHT * np.abs(slopes[:, 1:])).any(axis=1))
    if bent.size:
        slopes[bent] = _pooled(value[bent])
    return slopes


def _pooled(value: Reals) -> Reals:
    """Return the slopes between consecutive corners of the hulls of all functions."""
    rows, points = value.shape
    slopes = np.empty((rows, points - 1))
    every, start = np.arange(rows), np.zeros(rows, np.int64)
    steps = np.arange(points)
    while every.size:
        ahead = steps - start[:, None]
        rise = value[every] - value[every, start][:, None]
        slope = np.where(ahead > 0, rise / np.maximum(ahead, 1), -np.inf)
        end = points - 1 - slope[:, ::-1].argmax(axis=1)
        own = slope[np.arange(every.size), end]
        spans = (steps[:-1] >= start[:, None]) & (steps[:-1] < end[:, None])
        slopes[every] = np.where(spans, own[:, None], slopes[every])
        goes_on = end < points - 1
        every, start = every[goes_on], end[goes_on]
    return slopes
