"""Shortens long series for the page, while keeping their extremes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Point = TypeVar("Point", bound=Sequence[float | int | None])


def thin(points: Sequence[Point], *, at_most: int, value: int = 1) -> list[Point]:
    """Return the first and last point, and the lowest and highest of each bucket between them, in order.

    Args:
        points: points in order; unknown values (None) are never the lowest or highest of a bucket with known ones.
        at_most: number of points to keep, at least 4; fewer points are returned unchanged.
        value: position of the value within a point.
    """
    if len(points) <= at_most:
        return list(points)
    inner = range(1, len(points) - 1)
    buckets = (at_most - 2) // 2
    kept = {0, len(points) - 1}
    for at in range(buckets):
        bucket = inner[at * len(inner) // buckets : (at + 1) * len(inner) // buckets]
        known = [index for index in bucket if points[index][value] is not None]
        if known:
            kept.add(min(known, key=lambda index: points[index][value] or 0.0))
            kept.add(max(known, key=lambda index: points[index][value] or 0.0))
    return [points[index] for index in sorted(kept)]
