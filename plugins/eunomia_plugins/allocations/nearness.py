"""Find the closest GPUs for a job, and the job's slowdown at their locality, for allocations that choose machines."""

from typing import NamedTuple

import numpy as np

from eunomia import Cluster, Locality, Menus, Pool, Snapshot
from eunomia.model.forecasts import ASSUMED_SLOWDOWN
from eunomia.units import Ints


class GangPlacement(NamedTuple):
    """The machines chosen for a job's GPUs, and their locality."""

    parts: tuple[tuple[int, int], ...]
    """Pairs of machine and number of GPUs on it."""
    locality: Locality

    @property
    def gpus(self) -> int:
        """Return the total number of GPUs."""
        return sum(count for _, count in self.parts)


def nearest(cluster: Cluster, pool: Pool, room: Ints, gpus: int) -> GangPlacement | None:
    """Return the closest machines with ``gpus`` GPUs: the best-fitting machine, else one rack, else the fewest.

    Args:
        cluster: machines and racks.
        pool: the GPUs that are left.
        room: [machine] number of suitable GPUs.
        gpus: number of GPUs to find.
    """
    fits = np.flatnonzero(room >= gpus)
    if fits.size:
        best = int(fits[pool.free[fits].argmin()])
        return GangPlacement(((best, gpus),), Locality.ISLAND if gpus == 1 else Locality.MACHINE)
    racks = np.bincount(cluster.machine_rack, weights=room, minlength=len(cluster.racks))
    whole = np.flatnonzero(racks >= gpus)
    if whole.size:
        rack = int(whole[racks[whole].argmin()])
        return GangPlacement(_fill(np.where(cluster.machine_rack == rack, room, 0), gpus), Locality.RACK)
    return GangPlacement(_fill(room, gpus), Locality.CLUSTER) if room.sum() >= gpus else None


def _fill(room: Ints, gpus: int) -> tuple[tuple[int, int], ...]:
    """Return GPUs on the machines with the most free GPUs, the remainder on the best-fitting machine."""
    parts: list[tuple[int, int]] = []
    left = room.copy()
    while gpus > 0:
        fits = np.flatnonzero(left >= gpus)
        machine = int(fits[left[fits].argmin()]) if fits.size else int(left.argmax())
        count = min(gpus, int(left[machine]))
        parts.append((machine, count))
        left[machine] = 0
        gpus -= count
    return tuple(parts)


def placement_of(cluster: Cluster, gpus: Ints) -> GangPlacement:
    """Return the machines of these GPUs and their locality."""
    machines, counts = np.unique(cluster.machine[gpus], return_counts=True)
    parts = tuple(zip(machines.tolist(), counts.tolist(), strict=True))
    if len(parts) <= 1:
        return GangPlacement(parts, Locality.ISLAND if gpus.size <= 1 else Locality.MACHINE)
    one_rack = np.unique(cluster.machine_rack[machines]).size == 1
    return GangPlacement(parts, Locality.RACK if one_rack else Locality.CLUSTER)


def placement_score(snapshot: Snapshot, menus: Menus, job: int, placed: GangPlacement) -> float:
    """Return 1 / S(G), at most 1, from the job's measurements, else its app's forecast, else Themis' assumption."""
    if placed.locality is Locality.ISLAND:
        return 1.0
    measured = {(point.gpus, point.locality) for point in snapshot.measured.get(job, ())}
    if (placed.gpus, placed.locality) in measured:
        return min(1.0, menus.rate(job, placed.gpus, placed.locality) / menus.rate(job, placed.gpus))
    forecast = snapshot.forecasts.get(int(snapshot.jobs.app[job]))
    jobs = forecast.phases[0].jobs if forecast is not None and forecast.phases else ()
    slowdown = next((one.slowdown for one in jobs if one.slowdown is not None), ASSUMED_SLOWDOWN)
    return 1.0 / max(1.0, slowdown[placed.locality])
