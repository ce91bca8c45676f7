"""Finish-time fairness ρ = T_sh / T_id (Themis eq. 1 and 2) of what an app holds and of what it might win."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eunomia.bundles import Bundle, MachineClasses
from eunomia.units import Bools, Ints, Locality
from eunomia_plugins.themis.bundles import MOST_ROWS_AN_APP, Candidate, candidates, sizes_to_bid
from eunomia_plugins.themis.work import RemainingWork

LEAST_SECONDS = 1e-6
"""No time that a ratio is taken of is shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standpoint:
    """What a bid needs to know of its app beside the remaining work.

    Attributes:
        elapsed: seconds since the app came.
        waited: seconds for which it has held nothing.
        ideal: T_id in seconds, of ``ideal_seconds``.
        lease: seconds that a win binds.
        usable: numbers of GPUs that the app can use, ascending.
        gpu_type: the type its jobs ask for; -1: any.
        held: GPUs that it holds and keeps, by machine.
        rack_of: rack of each machine on which it holds some.
        near: how far apart GPUs of one machine are: ISLAND where all of a machine are joined by the fastest links.
    """

    elapsed: float
    waited: float
    ideal: float
    lease: float
    usable: Ints
    gpu_type: int
    held: dict[int, int]
    rack_of: dict[int, int]
    near: Locality = Locality.MACHINE


def ideal_seconds(total_gpu_seconds: float, cluster_gpus: int, most: int, contention: float) -> float:
    """T_id: the app's whole work on all GPUs that it can use, times N_avg (eq. 1 and 2).

    Args:
        total_gpu_seconds: B, in serial GPU-seconds.
        cluster_gpus: R_C.
        most: app_demand_max.
        contention: N_avg.
    """
    return max(LEAST_SECONDS, total_gpu_seconds / max(1, min(cluster_gpus, most)) * max(1.0, contention))


def rho(seconds_left: float, standpoint: Standpoint) -> float:
    """T_sh / T_id: T_sh is the time since the app came and the time its work still takes."""
    return max(LEAST_SECONDS, standpoint.elapsed + seconds_left) / standpoint.ideal


def rho_now(work: RemainingWork, standpoint: Standpoint) -> float:
    """ρ of what the app holds; if it holds nothing of use, ρ of waiting on (docs/decisions/0020).

    It then expects to wait a lease and to go on with the least it can use at the slowest; and all this again for each
    lease that it has waited: finite, worse than any bundle, and soon by far.
    """
    pieces = sorted(standpoint.held.values(), reverse=True)
    racks = list(standpoint.rack_of.values())
    held = work.seconds(pieces, standpoint.near, _far(pieces, racks)) if pieces else math.inf
    if work.done:
        return rho(0.0, standpoint)
    if math.isfinite(held):
        return rho(held, standpoint)
    waits = 1.0 + standpoint.waited / max(LEAST_SECONDS, standpoint.lease)
    return rho(standpoint.lease + work.slowest(Locality.CLUSTER), standpoint) * waits


def bid(work: RemainingWork, standpoint: Standpoint, classes: MachineClasses) -> list[Bundle]:
    """The rows of an app: bundles that leave it better off than it is, none dearer and no better than another.

    Args:
        work: what it still has to do.
        standpoint: how it stands.
        classes: the machines on offer.
    """
    if work.done:
        return []
    now = rho_now(work, standpoint)
    own = frozenset(np.flatnonzero(_named(classes, standpoint.held)).tolist())
    sizes = sizes_to_bid(standpoint.usable, sum(standpoint.held.values()), classes.gpus)
    rows: list[Bundle] = []
    for size in sizes:
        for way in candidates(classes, size, standpoint.gpu_type, own, max(2, MOST_ROWS_AN_APP // len(sizes))):
            worth = rho(_with(work, standpoint, classes, way), standpoint)
            if worth < now:
                rows.append(Bundle(worth, way.parts))
    return rows[:MOST_ROWS_AN_APP]


def _with(work: RemainingWork, standpoint: Standpoint, classes: MachineClasses, way: Candidate) -> float:
    """Seconds left with what the app holds and this bundle; on a machine that it holds GPUs of, they are one piece."""
    if not standpoint.held:
        return work.seconds(way.pieces, standpoint.near, way.locality)
    held = dict(standpoint.held)
    pieces = list(way.pieces)
    for part in way.parts:
        members = classes.members(part.machine_class)
        if members.size == 1 and int(members[0]) in held:
            held[int(members[0])] += part.gpus
            pieces.remove(part.gpus)
    together = [*held.values(), *pieces]
    racks = [*standpoint.rack_of.values(), *way.racks]
    return work.seconds(together, standpoint.near, _far(together, racks))


def _far(pieces: Sequence[int], racks: Sequence[int]) -> Locality:
    """How far apart GPUs on these machines are."""
    if len(pieces) <= 1:
        return Locality.MACHINE
    return Locality.RACK if len(set(racks)) <= 1 else Locality.CLUSTER


def _named(classes: MachineClasses, held: dict[int, int]) -> Bools:
    """[classes] is it one machine on which the app holds GPUs."""
    return np.array(
        [classes.members(kind).size == 1 and int(classes.members(kind)[0]) in held for kind in range(len(classes))],
        dtype=bool,
    )
