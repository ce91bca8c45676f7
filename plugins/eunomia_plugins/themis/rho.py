"""Finish-time fairness ρ = T_sh / T_id (Themis eq. 1 and 2) of an app with its GPUs and with bundles it might win."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eunomia import Bundle, Locality, MachineClasses
from eunomia.units import Bools, Ints
from eunomia_plugins.themis.bundles import MOST_ROWS_AN_APP, Candidate, candidates, sizes_to_bid
from eunomia_plugins.themis.work import RemainingWork

LEAST_SECONDS = 1e-6
"""Lower bound on times in ratios, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BidContext:
    """The inputs of an app's bid in addition to its remaining work.

    Attributes:
        elapsed: seconds since the app arrived.
        waited: seconds for which it has held no GPUs.
        ideal: T_id in seconds, from ``ideal_seconds``.
        lease: length of the lease of a bundle won, in seconds.
        usable: numbers of GPUs that the app can use, ascending.
        gpu_type: GPU type that its jobs request; -1: any.
        held: number of GPUs that it holds and keeps, by machine.
        rack_of: rack of each machine on which it holds GPUs.
        near: locality of GPUs on one machine: ISLAND if machines consist of a single island.
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

    @property
    def holds(self) -> int:
        """Return the number of GPUs that the app holds and keeps."""
        return sum(self.held.values())


def ideal_seconds(total_gpu_seconds: float, cluster_gpus: int, most: int, contention: float) -> float:
    """Return T_id in seconds: the app's total work on all GPUs that it can use, times N_avg (eq. 1 and 2).

    ``total_gpu_seconds`` is B, ``cluster_gpus`` is R_C, ``most`` is app_demand_max, and ``contention`` is N_avg.
    """
    return max(LEAST_SECONDS, total_gpu_seconds / max(1, min(cluster_gpus, most)) * max(1.0, contention))


def rho(seconds_left: float, context: BidContext) -> float:
    """Return T_sh / T_id, where T_sh is the time since the app's arrival plus the time of its remaining work."""
    return max(LEAST_SECONDS, context.elapsed + seconds_left) / context.ideal


def rho_now(work: RemainingWork, context: BidContext) -> float:
    """Return ρ of the app with its GPUs; if it cannot run on them, ρ of waiting (docs/decisions/0020).

    For the ρ of waiting, the app is assumed to wait for one lease and then run on the fewest GPUs at the slowest
    locality. The value grows by the same amount per lease waited; it is finite, and worse than ρ with any bundle.
    """
    held = seconds_on(work, context, context.held, context.rack_of)
    if math.isfinite(held):
        return rho(held, context)
    return rho(context.lease + work.slowest(Locality.CLUSTER), context) * waiting_factor(context.waited, context.lease)


def seconds_on(work: RemainingWork, context: BidContext, held: Mapping[int, int], rack_of: Mapping[int, int]) -> float:
    """Return the seconds of an app's remaining work on GPUs given by machine; inf if it cannot run on them.

    ``rack_of`` gives the rack of each machine, ``context`` the locality of GPUs on one machine.
    """
    if work.done:
        return 0.0
    pieces = sorted(held.values(), reverse=True)
    return work.seconds(pieces, context.near, _far(pieces, list(rack_of.values()))) if pieces else math.inf


def waiting_factor(waited: float, lease: float) -> float:
    """Return the factor by which ρ grows with the seconds waited: 1 plus 1 per lease (docs/decisions/0020)."""
    return 1.0 + waited / max(LEAST_SECONDS, lease)


def bid(work: RemainingWork, context: BidContext, classes: MachineClasses) -> list[Bundle]:
    """Return the bid of an app: the bundles that improve its ρ.

    Args:
        work: the app's remaining work.
        context: the other inputs of its bid.
        classes: the machines on offer.
    """
    if work.done:
        return []
    now = rho_now(work, context)
    own = frozenset(np.flatnonzero(_own_machine(classes, context.held)).tolist() if context.held else ())
    sizes = sizes_to_bid(context.usable, context.holds, classes.gpus)
    rows: list[Bundle] = []
    for size in sizes:
        for way in candidates(classes, size, context.gpu_type, own, max(2, MOST_ROWS_AN_APP // len(sizes))):
            value = rho(_seconds_with(work, context, classes, way), context)
            if value < now:
                rows.append(Bundle(value, way.parts))
    return rows[:MOST_ROWS_AN_APP]


def _seconds_with(work: RemainingWork, context: BidContext, classes: MachineClasses, way: Candidate) -> float:
    """Return the seconds left with the held GPUs and a bundle; GPUs on the same machine count as one piece."""
    if not context.held:
        return work.seconds(way.pieces, context.near, way.locality)
    held = dict(context.held)
    pieces = list(way.pieces)
    for part in way.parts:
        members = classes.members(part.machine_class)
        if members.size == 1 and int(members[0]) in held:
            held[int(members[0])] += part.gpus
            pieces.remove(part.gpus)
    together = [*held.values(), *pieces]
    racks = [*context.rack_of.values(), *way.racks]
    return work.seconds(together, context.near, _far(together, racks))


def _far(pieces: Sequence[int], racks: Sequence[int]) -> Locality:
    """Return the locality of GPUs on several machines."""
    if len(pieces) <= 1:
        return Locality.MACHINE
    return Locality.RACK if len(set(racks)) <= 1 else Locality.CLUSTER


def _own_machine(classes: MachineClasses, held: dict[int, int]) -> Bools:
    """Return whether each class is a single machine on which the app holds GPUs, [class]."""
    return np.array(
        [classes.members(kind).size == 1 and int(classes.members(kind)[0]) in held for kind in range(len(classes))],
        dtype=bool,
    )
