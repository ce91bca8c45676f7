"""The packing rule on bit sets of free GPUs, for claims of jobs that hold nothing: the same places, found at once."""

import itertools
from typing import NamedTuple

import numpy as np

from eunomia import Allocation, Cluster, Misfit, Offer, Placement, Reason, Scope, Snapshot, Unit, Verdicts
from eunomia.allocations import Grants
from eunomia.space import Space
from eunomia.units import NONE, Ints, Rest
from eunomia.verdicts import NO_VERDICTS
from eunomia_plugins.placement.packing import fewest_machines, from_home

NO_GPUS: Ints = np.empty(0, np.int64)


class _Room(NamedTuple):
    """By machine, GPUs that are free: what the packing rule asks of a pool."""

    free: Ints


def place_on_free(snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Placement | None:
    """Pack claims on what is free, and on what those leave who are named with none, or with some of another type.

    Returns:
        None, where more has to be looked at: CPUs or memory asked for, pins, islands, claims that hold GPUs of the
        type that they get, GPU types to choose from, an offer of which something was left out.
    """
    sets, grants = snapshot.sets, allocation.amount
    if sets is None or not offer.whole or not sets.proportional or not isinstance(grants, Grants):
        return None
    if allocation.claims.unit is not Unit.JOB or allocation.rest is not Rest.KEEP or allocation.standby is not None:
        return None
    if (
        grants.cpus is not None
        or grants.memory_gib is not None
        or grants.pins is not None
        or _islands(snapshot.cluster)
    ):
        return None
    rows, order = allocation.claims.rows.tolist(), allocation.order.tolist()
    leave = {claim: gpus for claim, row in enumerate(rows) if (gpus := sets.gpus_of(row)).size}
    if (leave or offer.scope is not Scope.FREE) and not sets.plain:
        return None  # GPUs that are being left are on offer too
    kinds = [_kind(snapshot, grants, claim, row) for claim, row in enumerate(rows)]
    if order and min([kinds[claim] for claim in order]) < 0:
        return None
    if len(order) == 1 and not leave:
        only = _one(snapshot.cluster, sets.space, order[0], kinds, grants)
        if only is not None:
            return only
    types = snapshot.cluster.gpu_type
    if leave and any(grants.gpus[claim] and (types[gpus] == kinds[claim]).any() for claim, gpus in leave.items()):
        return None
    space = sets.space.copy()
    for gpus in leave.values():
        space.give(gpus.tolist())
    return _packed(snapshot.cluster, space, allocation, kinds, leave)


def _one(cluster: Cluster, space: Space, claim: int, kinds: list[int], grants: Grants) -> Placement | None:
    """As ``_packed`` of one claim that holds nothing; None: it is granted nothing, or there is no room."""
    size = int(grants.gpus[claim])
    gpus = _choose(cluster, space, kinds[claim], size) if size else None
    if gpus is None:
        return None
    return Placement(claim=np.array([claim], np.int32), gpus=np.array(gpus), start=np.array([0, size]))


def _packed(
    cluster: Cluster, space: Space, allocation: Allocation, kinds: list[int], leave: dict[int, Ints]
) -> Placement | None:
    grants, chosen, refused = allocation.amount.gpus.tolist(), dict[int, list[int]](), dict[int, Reason]()  # type: ignore[union-attr]
    order = [claim for claim in allocation.order.tolist() if grants[claim] > 0]
    losers = [claim for claim in leave if not grants[claim]]
    for turn, claim in enumerate(order):
        if claim in leave:
            gpus = _near(cluster, space, kinds[claim], grants[claim], leave[claim])
            if gpus is None:
                return None  # it may stay where it is
        else:
            gpus = _choose(cluster, space, kinds[claim], grants[claim])
        if gpus is not None:
            chosen[claim] = gpus
            space.take(gpus)
            continue
        refused[claim] = _reason(space, kinds[claim], grants[claim])
        if allocation.on_misfit is Misfit.STOP:
            refused |= dict.fromkeys(order[turn + 1 :], Reason.OUTRANKED)
            break
    claims = [*chosen, *losers]
    sizes = [len(gpus) for gpus in chosen.values()] + [0] * len(losers)
    verdicts = NO_VERDICTS
    if refused:
        rows = allocation.claims.rows[list(refused)]
        verdicts = Verdicts(rows=rows, reasons=np.array([int(why) for why in refused.values()], np.int32))
    return Placement(
        claim=np.array(claims, np.int32),
        gpus=np.array([gpu for gpus in chosen.values() for gpu in gpus], np.int64),
        start=np.array([0, *itertools.accumulate(sizes)], np.int64),
        verdicts=verdicts,
    )


def _choose(cluster: Cluster, space: Space, kind: int, gpus: int) -> list[int] | None:
    """One machine, the one with least room; else one rack, and as few machines as can be; None: there are too few."""
    machine = space.best(kind, gpus)
    if machine >= 0:
        return space.first(machine, gpus)
    if space.free[kind] < gpus:
        return None
    free, room = _rooms(cluster, space, kind)
    counts = fewest_machines(cluster, _Room(free), room, gpus)
    return [gpu for machine, count in counts for gpu in space.first(machine, count)]


def _near(cluster: Cluster, space: Space, kind: int, gpus: int, held: Ints) -> list[int] | None:
    """GPUs of another type than it has, in the racks where it is if they have room."""
    counts = from_home(cluster, _rooms(cluster, space, kind)[1], held, gpus)
    return [gpu for machine, count in counts for gpu in space.first(machine, count)] or None


def _rooms(cluster: Cluster, space: Space, kind: int) -> tuple[Ints, Ints]:
    """By machine, what is free, and what is free of a type."""
    free = np.array([bits.bit_count() for bits in space.bits], np.int64)
    return free, free if len(cluster.gpu_types) == 1 else np.where(cluster.machine_type == kind, free, 0)


def _kind(snapshot: Snapshot, grants: Grants, claim: int, row: int) -> int:
    """The GPU type that a claim gets; negative: it is to be chosen, or there is none."""
    if len(snapshot.cluster.gpu_types) == 1:
        wanted = int(snapshot.jobs.gpu_type[row])
        return wanted + 1 if wanted < NONE else 0  # any, or the one that there is
    if grants.gpu_type is not None and grants.gpu_type[claim] >= 0:
        return int(grants.gpu_type[claim])
    return int(snapshot.jobs.gpu_type[row]) if snapshot.jobs.gpu_type[row] >= 0 else NONE


def _reason(space: Space, kind: int, gpus: int) -> Reason:
    """Why a claim cannot be placed: without CPUs, memory or islands to look at there are too few GPUs."""
    return Reason.OUTRANKED if sum(space.free) < gpus else Reason.NO_GPU_OF_TYPE


def _islands(cluster: Cluster) -> bool:
    """Say whether some machine has several islands."""
    return int(cluster.island[-1]) + 1 != len(cluster.machines)
