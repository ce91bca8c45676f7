"""Helpers for refiners: rounds that begin at multiples of a fixed length, and the claims of jobs."""

from typing import NamedTuple

import numpy as np

from eunomia import Claims, Offer, Seconds, Snapshot, Unit
from eunomia.contract.pools import usable
from eunomia.units import Ints, Rows


class Turn(NamedTuple):
    """The present round of fixed length."""

    lease: Seconds
    """Seconds until the end of the round; leases end then, so that the next round can reassign their GPUs."""
    ends_at: Seconds


def turn(now: float, seconds: float) -> Turn:
    """Return the round at ``now``; a time just before a boundary belongs to the round that begins at the boundary."""
    end = (np.floor(now / seconds + 1e-9) + 1.0) * seconds
    lease = end - now
    while now + lease > end:
        lease = np.nextafter(lease, 0.0)
    return Turn(Seconds(float(lease)), Seconds(float(end)))


def owner_of(snapshot: Snapshot, claims: Claims, jobs: Rows) -> Ints:
    """Return the index of each job's claim; -1 if it belongs to none."""
    rows = (jobs if claims.unit is Unit.JOB else snapshot.jobs.app[jobs]).astype(np.int64)
    if claims.unit in (Unit.USER, Unit.GROUP):
        rows = snapshot.apps.user[rows].astype(np.int64)
    keys = claims.rows.astype(np.int64)
    if claims.unit is Unit.GROUP and claims.job_kind is not None:
        kinds = snapshot.jobs.job_kind[jobs].astype(np.int64)
        span = 1 + int(max(kinds.max(initial=0), claims.job_kind.max(initial=0)))
        rows, keys = rows * span + kinds, keys * span + claims.job_kind
    index = np.full(2 + int(max(rows.max(initial=0), keys.max(initial=0))), -1, np.int64)
    index[keys] = np.arange(keys.size)
    found: Ints = index[rows]
    return found


def free_by_type(snapshot: Snapshot, offer: Offer, jobs: Rows) -> Ints:
    """Return the number of GPUs that these jobs may get, [type]."""
    gpus = usable(snapshot, offer, Claims(unit=Unit.JOB, rows=jobs))
    return np.bincount(snapshot.cluster.gpu_type[gpus], minlength=len(snapshot.cluster.gpu_types)).astype(np.int64)


def longest_waiting(snapshot: Snapshot, jobs: Rows) -> Ints:
    """Return the indices of jobs, the job that has not run for longest first.

    A job that never ran has waited since its arrival.
    """
    ran, arrived = snapshot.ledger.jobs.last_ran[jobs], snapshot.jobs.arrived[jobs]
    order: Ints = np.lexsort((arrived, np.where(np.isnan(ran), arrived, ran)))
    return order
