"""The sizes of candidates as rows with their rates, used by both valuations."""

from typing import NamedTuple

import numpy as np

from eunomia import Menus, Snapshot
from eunomia.units import Ints, Reals, Rows

UNKNOWN_SECONDS = 3600.0
"""Minimum serial seconds assumed for a job of unknown length; a job that has run counts as half done."""


class SizeRows(NamedTuple):
    """The sizes of jobs, one row per size of each job."""

    claim: Rows
    """Index of the job among the given jobs."""
    gpus: Ints
    rate: Reals
    """Iterations per second; the number of GPUs if the rate is not known."""
    left: Reals
    """Iterations left; GPU-seconds left if iterations are not known."""


def size_rows(snapshot: Snapshot, menus: Menus, jobs: Rows) -> SizeRows:
    """Return the sizes on the menus of these jobs as rows, job by job, sizes ascending."""
    curves, kind = np.unique(menus.curve[jobs], return_inverse=True)
    some = {int(menus.curve[job]): int(job) for job in jobs}
    menu = [menus.sizes(some[curve]) for curve in curves.tolist()]
    speed = [
        np.array([menus.rate(some[curve], size) for size in sizes.tolist()], float)
        for curve, sizes in zip(curves.tolist(), menu, strict=True)
    ]
    start = np.cumsum([0, *(sizes.size for sizes in menu)])
    count = np.diff(start)[kind] if jobs.size else np.empty(0, np.int64)
    claim = np.repeat(np.arange(jobs.size), count)
    place = np.arange(claim.size) - np.repeat(np.cumsum(count) - count, count) + start[kind[claim]]
    gpus = np.concatenate([np.empty(0, np.int64), *menu])[place].astype(np.int64)
    rate = np.concatenate([np.empty(0), *speed])[place]
    left = snapshot.iterations_left(jobs)[claim]
    received = snapshot.ledger.jobs.received[jobs].sum(axis=1)[claim]
    unknown = ~((rate > 0.0) & np.isfinite(left))
    return SizeRows(
        claim=claim.astype(np.int32),
        gpus=gpus,
        rate=np.where(unknown, gpus, rate),
        left=np.where(unknown, np.maximum(received, UNKNOWN_SECONDS), left),
    )
