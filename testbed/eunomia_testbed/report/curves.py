"""Shortens long curves for the page: distributions to quantiles, and counts over time to buckets."""

from __future__ import annotations

import numpy as np
import polars as pl

from eunomia.units import Reals
from eunomia_testbed.report.part import Json
from eunomia_testbed.report.sums import numbers
from eunomia_testbed.results.counting import OWN_CHOICE, horizon_seconds
from eunomia_testbed.results.dots import dot
from eunomia_testbed.results.run_data import RunData

MOST_QUANTILES, MOST_STEPS, BUCKETS, TAIL = 300, 500, 240, 60


def short(values: Reals, digits: int = 6) -> list[float]:
    """Round values to a number of significant digits."""
    with np.errstate(divide="ignore"):
        size = np.where((values != 0) & np.isfinite(values), np.floor(np.log10(np.abs(values))), 0.0)
    scale = 10.0 ** (digits - 1 - size)
    cut: list[float] = (np.round(values * scale) / scale).tolist()
    return cut


def distribution(values: Reals) -> Json:
    """Return points (value, fraction at or below) of the empirical distribution.

    If there are more than ``MOST_QUANTILES`` values, evenly spaced ones are kept, and denser ones in the upper tail.
    """
    known = np.sort(values[np.isfinite(values)])
    size = len(known)
    if size > MOST_QUANTILES:
        spread = np.linspace(1, size, MOST_QUANTILES - TAIL)
        tail = size - np.geomspace(1, size / 10, TAIL) + 1
        ranks = np.unique(np.round(np.concatenate([spread, tail])).astype(np.int64))
    else:
        ranks = np.arange(1, size + 1)
    return [list(point) for point in zip(short(known[ranks - 1]), short(ranks / max(size, 1), 5), strict=True)]


def counted(starts: Reals, ends: Reals, weights: Reals | None = None) -> tuple[Reals, Reals]:
    """Return the times of changes, and the number (or weight) of open periods after each; an end of NaN: still open."""
    weight = np.ones(len(starts)) if weights is None else weights
    known = np.isfinite(ends)
    moments = np.concatenate([starts, ends[known]])
    order = np.argsort(moments, kind="stable")
    level = np.cumsum(np.concatenate([weight, -weight[known]])[order])
    return last_of_each(moments[order], level)


def last_of_each(moments: Reals, levels: Reals) -> tuple[Reals, Reals]:
    """Return the distinct times, each with the last level given for it; times must be ascending."""
    if not len(moments):
        return moments, levels
    last = np.append(moments[1:] != moments[:-1], True)
    return moments[last], levels[last]


def steps(moments: Reals, levels: Reals, until: float) -> Json:
    """Return a level that changes at given times as ``points`` (seconds, level).

    If there are many changes, return ``bands`` (seconds, mean, lowest, highest) for buckets of ``width`` seconds.

    Args:
        moments: times in seconds, ascending and distinct.
        levels: level from each time on; before the first time the level is 0.
        until: end of the last level.
    """
    changed = np.append(True, levels[1:] != levels[:-1]) if len(levels) else np.zeros(0, dtype=bool)
    moments, levels = moments[changed], levels[changed]
    if len(moments) <= MOST_STEPS:
        return {"points": [list(point) for point in zip(short(moments, 9), short(levels), strict=True)]}
    edges = np.linspace(0.0, max(until, float(moments[-1])), BUCKETS + 1)
    ends = np.append(moments[1:], edges[-1])
    area = np.append(0.0, np.cumsum(levels * (ends - moments)))
    mean = np.diff(np.interp(edges, np.append(moments, edges[-1]), area)) / np.diff(edges)
    at_edge = np.concatenate([[0.0], levels])[np.searchsorted(moments, edges[:-1], side="right")]
    merged = np.argsort(np.concatenate([edges[:-1], moments]), kind="stable")
    all_levels = np.concatenate([at_edge, levels])[merged]
    begins = np.flatnonzero(merged < BUCKETS)
    low, high = np.minimum.reduceat(all_levels, begins), np.maximum.reduceat(all_levels, begins)
    columns = (short(edges[:-1], 9), short(mean), short(low), short(high))
    return {"bands": [list(row) for row in zip(*columns, strict=True)], "width": float(edges[1])}


def busy_while_waiting(run: RunData, slots: int | None) -> float | None:
    """Return the fraction of slots in use while jobs waited; None: no job waited, or the times are unknown.

    Source: the table ``queue``, or if it is empty (a live run) leases and waits, without the tuner's own pauses.
    """
    if not slots:
        return None
    known = run.queue.select("time_seconds", "waiting_jobs", "busy_gpus").drop_nulls()
    if known.height >= 2:
        moments = numbers(known["time_seconds"])
        waiting, busy = known["waiting_jobs"].to_numpy(), numbers(known["busy_gpus"])
    else:
        moments, waiting, busy = _waiting_and_busy(run)
    lengths = np.append(np.diff(moments), 0.0) * (waiting > 0) if len(moments) else moments
    total = float(lengths.sum())
    return dot(lengths, busy) / (total * slots) if total > 0.0 else None


def _waiting_and_busy(run: RunData) -> tuple[Reals, Reals, Reals]:
    """Return the times in seconds at which waits or leases begin or end, and the numbers of open ones after each."""
    until = horizon_seconds(run) or 0.0
    waits = run.waits.filter(pl.col("reason") != OWN_CHOICE)
    spans = [
        (numbers(frame["start_seconds"]), numbers(frame["end_seconds"].fill_null(until)))
        for frame in (waits, run.leases)
    ]
    moments = np.unique(np.concatenate([times for span in spans for times in span]))
    waiting, busy = (
        np.searchsorted(np.sort(starts), moments, side="right") - np.searchsorted(np.sort(ends), moments, side="right")
        for starts, ends in spans
    )
    return moments, waiting.astype(np.float64), busy.astype(np.float64)


def series(frame: pl.DataFrame, time: str, column: str, until: float) -> Json:
    """Return ``steps`` of a column against the column ``time``, in seconds; None: no value is known."""
    known = frame.select(time, column).drop_nulls()
    if known.is_empty():
        return None
    if not known[time].is_sorted():
        known = known.sort(time, maintain_order=True)
    moments, levels = last_of_each(numbers(known[time]), numbers(known[column]))
    return steps(moments, levels, until)
