"""Time shares of jobs, pooled into the GPUs that each user's jobs of one kind hold on average."""

import dataclasses

import numpy as np

from eunomia import Allocation, Claims, DeviceShares, Menus, PluginError, Snapshot, TimeShares, Unit


def pooled(snapshot: Snapshot, menus: Menus, allocation: Allocation) -> Allocation:
    """Return device shares of groups: a job's fraction of time on a type, times its GPUs, summed over the group.

    A group is a user's jobs of one kind, as in ``oef_speedups``. Within it the refiner chooses the jobs.

    Args:
        snapshot: the state of this moment.
        menus: sizes by job; a job counts with its largest.
        allocation: time shares of jobs.

    Raises:
        PluginError: the allocation gives something else.
    """
    shares = allocation.amount
    if not isinstance(shares, TimeShares) or allocation.claims.unit is not Unit.JOB:
        given = f"{type(shares).__name__} of {allocation.claims.unit.value}s"
        raise PluginError('rounding with shares = "time" must get time shares of jobs', value=given)
    jobs = allocation.claims.rows
    keys = np.column_stack([snapshot.apps.user[snapshot.jobs.app[jobs]], snapshot.jobs.job_kind[jobs]])
    groups, owner = np.unique(keys.astype(np.int64), axis=0, return_inverse=True)
    gpus = np.zeros((groups.shape[0], shares.share.shape[1]))
    np.add.at(gpus, owner.ravel(), shares.share * menus.span(jobs)[1][:, None])
    return dataclasses.replace(
        allocation,
        claims=Claims(unit=Unit.GROUP, rows=groups[:, 0].astype(np.int32), job_kind=groups[:, 1].astype(np.int32)),
        amount=DeviceShares(gpus=gpus, since=shares.since),
        order=np.arange(groups.shape[0], dtype=np.int32),
        standby=None,
    )
