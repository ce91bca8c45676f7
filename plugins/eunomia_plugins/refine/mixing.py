"""Pins to machines for gangs that run on two GPU types."""

import numpy as np

from eunomia import Claims, Offer, Pins, Snapshot, Unit
from eunomia.contract.pools import owners, usable
from eunomia.units import Ints, Rows


def pins_of(snapshot: Snapshot, offer: Offer, jobs: Rows, granted: Ints) -> Pins:
    """Return pins for jobs with GPUs of several types; a job that already holds such GPUs stays on its machines.

    Args:
        snapshot: the current state.
        offer: the GPUs that may be reassigned.
        jobs: job rows.
        granted: [job, type] granted GPUs.
    """
    cluster = snapshot.cluster
    gpus = usable(snapshot, offer, Claims(unit=Unit.JOB, rows=jobs))
    holder = owners(snapshot, gpus, Unit.JOB)
    index = np.full(2 + int(max(holder.max(initial=0), jobs.max(initial=0))), -1, np.int64)
    index[jobs] = np.arange(jobs.size)
    owner = index[holder]
    held = np.zeros_like(granted)
    np.add.at(held, (owner[owner >= 0], cluster.gpu_type[gpus[owner >= 0]]), 1)
    stays = (held == granted).all(axis=1) & granted.any(axis=1)
    kept = (owner >= 0) & stays[owner]
    room = np.bincount(cluster.machine[gpus[~kept]], minlength=len(cluster.machines))
    pinned: list[tuple[int, int, int]] = []
    for job in np.flatnonzero((granted > 0).sum(axis=1) > 1).tolist():
        if stays[job]:
            machines, counts = np.unique(cluster.machine[gpus[owner == job]], return_counts=True)
            pinned += [(job, machine, count) for machine, count in zip(machines.tolist(), counts.tolist(), strict=True)]
        else:
            pinned += [(job, machine, count) for machine, count in _taken(cluster.machine_type, room, granted[job])]
    claim, machine, count = np.array(pinned, np.int64).T
    return Pins(claim=claim.astype(np.int32), machine=machine.astype(np.int32), gpus=count)


def _taken(machine_type: Rows, room: Ints, granted: Ints) -> list[tuple[int, int]]:
    """Return (machine, number of GPUs) pairs for one job, and reduce ``room`` in place.

    Within each GPU type, machines with the most room come first.
    """
    found: list[tuple[int, int]] = []
    for kind in np.flatnonzero(granted).tolist():
        left = int(granted[kind])
        machines = np.flatnonzero(machine_type == kind)
        for machine in machines[np.argsort(-room[machines], kind="stable")].tolist():
            count = min(left, int(room[machine]))
            if count:
                found.append((machine, count))
                room[machine] -= count
                left -= count
    return found
