"""Finds the apps that were alone in the cluster and never had to share it."""

from __future__ import annotations

import numpy as np
import polars as pl

from eunomia.units import Reals
from eunomia_testbed.results.run_data import RunData


def lone_apps(run: RunData) -> frozenset[str]:
    """Return the apps that were present alone from arrival to finish; apps with unknown times are left out.

    An app that was resumed after its end has two lifetimes. Whether it was alone depends on the last one, from which
    its ρ is measured; for other apps, both count. The end of the first one is read from its leases.
    """
    apps = run.apps.select("app", "arrival_seconds", "finish_seconds")
    if apps["arrival_seconds"].null_count() or apps.is_empty():
        return frozenset()
    names = apps["app"].to_list()
    last = dict(run.events.filter(pl.col("kind") == "app.resumed").select("app", "time_seconds").iter_rows())
    arrived = apps["arrival_seconds"].to_numpy()
    starts = np.array([last.get(name, at) for name, at in zip(names, arrived.tolist(), strict=True)])
    ends = apps["finish_seconds"].fill_null(np.inf).to_numpy()
    earlier = [_earlier(run, name, float(arrived[names.index(name)]), at) for name, at in last.items() if name in names]
    begun = np.concatenate([starts, [start for start, _ in earlier]])
    over = np.concatenate([ends, [end for _, end in earlier]])
    beside = _present(begun, over, starts, ends)
    return frozenset(name for name, number in zip(names, beside.tolist(), strict=True) if number <= 1)


def _earlier(run: RunData, app: str, arrived: float, resumed: float) -> tuple[float, float]:
    """Return start and end in seconds of an app's lifetime before it was resumed; an unknown end equals the start."""
    held = run.leases.filter((pl.col("app") == app) & (pl.col("start_seconds") < resumed))
    end = held["end_seconds"].fill_null(resumed).clip(upper_bound=resumed).max()
    return arrived, float(end) if isinstance(end, int | float) else arrived


def _present(begun: Reals, over: Reals, starts: Reals, ends: Reals) -> Reals:
    """Return for each period ``starts`` to ``ends`` how many lifetimes ``begun`` to ``over`` overlap it, in seconds."""
    before_end = np.searchsorted(np.sort(begun), ends, side="left")
    over_by_start = np.searchsorted(np.sort(over), starts, side="right")
    counted: Reals = (before_end - over_by_start).astype(np.float64)
    return counted
