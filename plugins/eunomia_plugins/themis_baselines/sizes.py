"""What both valuations share: every size of every candidate as a row, with its rate."""

from typing import NamedTuple

import numpy as np

from eunomia import Menus, Snapshot
from eunomia.units import Ints, Reals, Rows

UNKNOWN_SECONDS = 3600.0
"""A job of unknown length is taken to need as long again as it has run, and at least so long, on one GPU."""


class SizeRows(NamedTuple):
    """A row for each size of each job."""

    claim: Rows
    """Index into the jobs."""
    gpus: Ints
    rate: Reals
    """Iterations a second; where nothing is known of a job, GPUs."""
    left: Reals
    """Iterations that the job still has to do; where nothing is known, GPU-seconds."""


def size_rows(snapshot: Snapshot, menus: Menus, jobs: Rows) -> SizeRows:
    """Lay out the menus of these jobs, job by job, sizes ascending."""
    claims: list[Ints] = []
    sizes: list[Ints] = []
    rates: list[Reals] = []
    curves: dict[int, tuple[Ints, Reals]] = {}
    for index, job in enumerate(jobs.tolist()):
        curve = int(menus.curve[job])
        if curve not in curves:
            gpus = menus.sizes(job)
            curves[curve] = (gpus, np.array([menus.rate(job, size) for size in gpus.tolist()]))
        claims.append(np.full(curves[curve][0].size, index))
        sizes.append(curves[curve][0])
        rates.append(curves[curve][1])
    claim = np.concatenate([np.empty(0, np.int64), *claims])
    gpus = np.concatenate([np.empty(0, np.int64), *sizes]).astype(np.int64)
    rate = np.concatenate([np.empty(0), *rates])
    left = snapshot.iterations_left(jobs)[claim]
    received = snapshot.ledger.jobs.received[jobs].sum(axis=1)[claim]
    unknown = ~((rate > 0.0) & np.isfinite(left))
    return SizeRows(
        claim=claim.astype(np.int32),
        gpus=gpus,
        rate=np.where(unknown, gpus, rate),
        left=np.where(unknown, np.maximum(received, UNKNOWN_SECONDS), left),
    )
