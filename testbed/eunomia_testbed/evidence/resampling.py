"""Resamples of one trace: circular blocks of apps in order of arrival, with an automatic rule for the block length.

An app is drawn together with the gap to its predecessor, so that bursts and the queues they cause are kept. Circular
blocks draw every app equally often; plain moving blocks draw the ends of the trace too seldom (Politis and Romano,
1992).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import Ints, Reals

FEWEST_APPS: Final = 50
FEWEST_BLOCKS: Final = 5
DAY_SECONDS: Final = 86_400.0
FEWEST_DAYS: Final = 10.0
"""Shortest trace, in days, from which blocks by time of day can be drawn."""


@value
class Blocks:
    """The length of a resample's blocks: a number of apps, or a duration whose blocks begin at the same time of day."""

    apps: int
    """Apps in a block; for blocks by time, the mean number."""
    seconds: float | None = None
    """Length of a block by time; None: blocks of apps."""


def block_length(series: Reals) -> float:
    """Return the block length for a circular block bootstrap of the mean of a series, by the automatic rule.

    Source: Politis and White (2004), "Automatic block-length selection for the dependent bootstrap", with the
    correction of Patton, Politis and White (2009): a flat-top lag window up to twice the last correlated lag.
    """
    size = series.size
    centred = series - series.mean()
    variance = float(centred @ centred) / size
    if variance <= 0.0:
        return 1.0
    close = max(5, math.ceil(math.sqrt(math.log10(size))))
    longest = math.ceil(math.sqrt(size)) + close
    lags = min(longest, size - 1)
    covariance = np.array([float(centred[: size - lag] @ centred[lag:]) / size for lag in range(lags + 1)])
    bandwidth = min(2 * _last_lag(covariance[1:] / variance, close, size), lags)
    at = np.arange(-bandwidth, bandwidth + 1)
    window = np.clip(2.0 * (1.0 - np.abs(at) / bandwidth), 0.0, 1.0)
    weighted = window * covariance[np.abs(at)]
    bias, level = float(weighted @ np.abs(at)), float(weighted.sum())
    if level <= 0.0:
        return 1.0
    length = math.pow(1.5 * bias**2 / level**2 * size, 1.0 / 3.0)
    return max(1.0, min(length, math.ceil(min(3.0 * math.sqrt(size), size / 3.0))))


def _last_lag(correlation: Reals, close: int, size: int) -> int:
    """Return the least lag, at least 1, after which ``close`` consecutive autocorrelations are insignificant."""
    significant = np.abs(correlation) > 2.0 * math.sqrt(math.log10(size) / size)
    for lag in range(significant.size - close + 1):
        if not significant[lag : lag + close].any():
            return max(1, lag)
    found = np.flatnonzero(significant)
    return int(found[-1]) + 1 if found.size else 1


def automatic_blocks(gaps: Reals, work: Reals) -> Blocks:
    """Return blocks of apps: the longer of both series' automatic lengths, from the root to a fifth of the apps.

    Args:
        gaps: [app] in order of arrival, seconds since the previous app.
        work: [app] GPU-seconds.
    """
    by_rule = max(block_length(gaps), block_length(work))
    return Blocks(apps=min(max(math.ceil(math.sqrt(gaps.size)), math.ceil(by_rule)), gaps.size // FEWEST_BLOCKS))


def check_blocks(blocks: Blocks, arrival_seconds: Reals, *, place: str = "--block") -> None:
    """Check that a trace is long enough for resamples in these blocks.

    Raises:
        InputError: fewer than 50 apps, fewer than five blocks, or blocks by time of day in a trace under ten days.
    """
    apps, days = arrival_seconds.size, float(np.ptp(arrival_seconds)) / DAY_SECONDS if arrival_seconds.size else 0.0
    if apps < FEWEST_APPS:
        rule = f"a trace must have at least {FEWEST_APPS} apps to be resampled"
        raise InputError(rule, value=f"{apps}", place="--resample")
    if blocks.seconds is not None and days < FEWEST_DAYS:
        rule = f"a trace must last {FEWEST_DAYS:g} days for blocks by time of day"
        raise InputError(rule, value=f"{days:.1f} days", place=place)
    if blocks.seconds is not None and math.floor(days * DAY_SECONDS / blocks.seconds) < FEWEST_BLOCKS:
        rule = f"a trace must have at least {FEWEST_BLOCKS} blocks"
        raise InputError(rule, value=f"{days * DAY_SECONDS / blocks.seconds:.1f} blocks", place=place)
    if blocks.seconds is None and blocks.apps * FEWEST_BLOCKS > apps:
        rule = f"a block must be at most a fifth of the trace's {apps} apps"
        raise InputError(rule, value=f"{blocks.apps} apps", place=place)


def gaps_of(arrival_seconds: Reals) -> Reals:
    """Return [app] the seconds since the previous app; for the first app, the mean gap."""
    gaps = np.diff(arrival_seconds)
    return np.concatenate([[gaps.mean() if gaps.size else 0.0], gaps])


def draw(rng: np.random.Generator, arrival_seconds: Reals, blocks: Blocks) -> tuple[Ints, Reals]:
    """Draw a resample with as many apps as the trace, by circular blocks.

    Args:
        rng: the random generator.
        arrival_seconds: [app] ascending.
        blocks: the blocks to draw.

    Returns:
        The drawn apps (rows of ``arrival_seconds``) in their new order, and their arrivals; the first arrives at 0.
    """
    if blocks.seconds is not None:
        return _draw_by_time(rng, arrival_seconds, blocks.seconds)
    size = arrival_seconds.size
    starts = rng.integers(size, size=-(-size // blocks.apps))
    rows = ((starts[:, None] + np.arange(blocks.apps)) % size).ravel()[:size]
    gaps = gaps_of(arrival_seconds)[rows]
    gaps[0] = 0.0
    return rows.astype(np.int64), np.cumsum(gaps)


def _draw_by_time(rng: np.random.Generator, arrival_seconds: Reals, seconds: float) -> tuple[Ints, Reals]:
    """Draw periods that begin at the same time of day as the periods they replace, until there are enough apps.

    The trace is treated as a circle of whole days, so that periods across its end keep their time of day.
    """
    size, first = arrival_seconds.size, arrival_seconds[0]
    since = arrival_seconds - first
    days = max(1, math.ceil(float(since[-1]) / DAY_SECONDS + 1e-9))
    circle = days * DAY_SECONDS
    rows: list[Ints] = []
    times: list[Reals] = []
    place, found = 0.0, 0
    while found < size:
        begin = (place % DAY_SECONDS + DAY_SECONDS * int(rng.integers(days))) % circle
        offset = (since - begin) % circle
        inside = np.flatnonzero(offset < seconds)
        inside = inside[np.argsort(offset[inside], kind="stable")]
        rows.append(inside)
        times.append(place + offset[inside])
        place, found = place + seconds, found + inside.size
    drawn, arrivals = np.concatenate(rows)[:size], np.concatenate(times)[:size]
    return drawn.astype(np.int64), arrivals - arrivals[0]
