"""Pool the time shares of jobs into the average number of GPUs held by each user's jobs of one kind."""

import dataclasses

import numpy as np

from eunomia import Allocation, Claims, DeviceShares, Menus, PluginError, Snapshot, TimeShares, Unit


def pooled(snapshot: Snapshot, menus: Menus, allocation: Allocation) -> Allocation:
    """Return device shares of groups: time share x GPUs, summed over the jobs of a group.

    A group consists of a user's jobs of one kind, as in ``oef_speedups``. The refiner chooses among the group's jobs.

    Args:
        snapshot: the current state.
        menus: the sizes of jobs, of which the largest counts.
        allocation: time shares of jobs.

    Raises:
        PluginError: the allocation does not contain time shares of jobs.
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
