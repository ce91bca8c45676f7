"""The plugin ``packed``: place GPUs as close together as possible, on the best-fitting machines.

Claims that stay, are preempted or start are packed on bit sets of free GPUs; the results equal those of ``packing``,
which handles all other cases.
"""

import itertools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from eunomia import (
    NO_VERDICTS,
    Allocation,
    Cluster,
    Contract,
    Feature,
    Grants,
    Menus,
    Misfit,
    Offer,
    Placement,
    Promise,
    Reason,
    Rest,
    Scope,
    Snapshot,
    Space,
    Stage,
    Unit,
    Verdicts,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.model.shapes import maker
from eunomia.units import NONE, Ints
from eunomia_plugins.placement.packing import fewest_machines, from_home, packed
from eunomia_plugins.placement.planning import place

_new_placement = maker(Placement)


class Packed:
    """Places a gang on the fullest machine that fits it, else within one rack, else on as few machines as possible."""

    name = "packed"
    api = 1
    contracts: ClassVar[Contracts] = {
        Stage.PLACEMENT: Contract(needs=frozenset({Feature.GRANTS}), promises=frozenset({Promise.HONOURS_PINS}))
    }

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Place claims in order of service; a claim that can keep its GPUs keeps them."""
        found = place_on_free(snapshot, offer, allocation)
        if found is not None:
            return found
        cluster = snapshot.cluster
        return place(snapshot, menus, offer, allocation, lambda pool, ask: packed(cluster, pool, ask), pins=True)


class _FreeGpus(NamedTuple):
    """The number of free GPUs by machine, which is the part of a pool that the packing rule reads."""

    free: Ints


def place_on_free(snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Placement | None:
    """Pack claims on free GPUs, and on GPUs of claims that are preempted or change their GPU type.

    A claim that holds as many GPUs as it is granted, of the granted type, keeps them.

    Returns:
        The placement, or None if the general algorithm is needed: CPUs or memory are requested, there are pins, islands
        or several eligible GPU types, a claim changes GPUs within its type, or the offer leaves GPUs out.
    """
    live, grants = snapshot.index, allocation.amount
    if type(grants) is not Grants or not (offer.whole and live.proportional) or snapshot.cluster.has_islands:
        return None
    if allocation.claims.unit is not Unit.JOB or allocation.rest is not Rest.KEEP or allocation.standby is not None:
        return None
    if grants.cpus is not None or grants.memory_gib is not None or grants.pins is not None:
        return None
    rows, order, waiting = allocation.claims.listed["rows"], allocation.listed["order"], live.waiting
    if not rows:
        return Placement(claim=[], gpus=[], start=[0])  # type: ignore[arg-type]
    asked, sizes = snapshot.jobs.gpu_type, grants.listed["gpus"]
    wanted = asked[rows].tolist() if rows[1:] else [asked.item(rows[0])]
    one_type = len(snapshot.cluster.gpu_types) == 1  # the type of all jobs that request none
    kinds = [kind + 1 if kind < NONE else 0 for kind in wanted] if one_type else _kinds(grants, wanted)
    if order == [0] and not rows[1:] and offer.scope is Scope.FREE and rows[0] in waiting and kinds[0] >= 0:
        size = sizes[0]
        gpus = _choose(snapshot.cluster, live.free, kinds[0], size) if size > 0 else None
        if gpus is not None:
            return _new_placement(claim=[0], gpus=gpus, start=[0, size])  # type: ignore[arg-type]
    return _place_claims(snapshot, offer, allocation, (rows, sizes, order), kinds)


def _place_claims(
    snapshot: Snapshot,
    offer: Offer,
    allocation: Allocation,
    claims: tuple[list[int], list[int], list[int]],
    kinds: list[int],
) -> Placement | None:
    """Pack any number of claims as ``place_on_free`` does.

    ``claims``: the row and the GPUs of each claim, and the order of service; ``kinds``: the GPU type of each claim.
    """
    (rows, sizes, order), live, waiting = claims, snapshot.index, snapshot.index.waiting
    held = {claim: gpus for claim, row in enumerate(rows) if row not in waiting and (gpus := live.gpus_of(row))}
    if (held or offer.scope is not Scope.FREE) and not live.settled:
        return None  # GPUs that jobs are leaving are offered too
    if order and min([kinds[claim] for claim in order]) < 0:
        return None
    stay = _staying(snapshot, offer, claims, kinds, held) if held else {}
    if stay is None:
        return None
    leave = {claim: gpus for claim, gpus in held.items() if claim not in stay} if stay else held
    space = live.free.copy()
    for gpus in leave.values():
        space.give(gpus)
    return _packed(snapshot.cluster, space, allocation, (sizes, order), kinds, leave, stay)


def _staying(
    snapshot: Snapshot,
    offer: Offer,
    claims: tuple[list[int], list[int], list[int]],
    kinds: list[int],
    held: dict[int, list[int]],
) -> dict[int, list[int]] | None:
    """Return the claims that keep their GPUs, in order of service; None if a claim changes GPUs within its type.

    ``claims`` consists of the row of each claim, its number of GPUs, and the order of service.
    """
    (rows, grants, order), types = claims, snapshot.cluster.gpu_type
    one_type = len(snapshot.cluster.gpu_types) == 1
    stay: set[int] = set()
    for claim, gpus in held.items():
        if not grants[claim]:
            continue
        of_kind = [] if one_type else (types[gpus] == kinds[claim]).tolist()
        if len(gpus) == grants[claim] and all(of_kind):
            stay.add(claim)
        elif one_type or any(of_kind):
            return None
    if not stay:
        return {}
    live = snapshot.index
    if offer.scope is not Scope.ALL or any(live.protected_until(rows[claim]) > snapshot.now for claim in stay):
        return None
    kept = {claim: held[claim] for claim in order if claim in stay}
    return kept if len(kept) == len(stay) else None


def _packed(
    cluster: Cluster,
    space: Space,
    allocation: Allocation,
    served: tuple[list[int], list[int]],
    kinds: list[int],
    leave: dict[int, list[int]],
    stay: dict[int, list[int]],
) -> Placement | None:
    (grants, order), chosen = served, dict(stay)
    refused: dict[int, Reason] = {}
    order = [claim for claim in order if grants[claim] > 0 and claim not in stay]
    evicted = [claim for claim in leave if not grants[claim]]
    for turn, claim in enumerate(order):
        if claim in leave:
            gpus = _near(cluster, space, kinds[claim], grants[claim], leave[claim])
            if gpus is None:
                return None  # the general algorithm may keep the claim on its GPUs
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
    claims: Any = [*chosen, *evicted]
    sizes = [len(gpus) for gpus in chosen.values()] + [0] * len(evicted)
    verdicts = NO_VERDICTS
    if refused:
        rows = allocation.claims.rows[list(refused)]
        verdicts = Verdicts(rows=rows, reasons=np.array([int(why) for why in refused.values()], np.int32))
    placed: Any = [gpu for gpus in chosen.values() for gpu in gpus]
    start: Any = [0, *itertools.accumulate(sizes)]
    return Placement(claim=claims, gpus=placed, start=start, verdicts=verdicts)


def _choose(cluster: Cluster, space: Space, kind: int, gpus: int) -> list[int] | None:
    """Return GPUs on the fullest machine that fits, else on the fewest machines of a rack; None: too few GPUs."""
    found = space.fit(kind, gpus)
    if found:
        return found
    if space.free[kind] < gpus:
        return None
    if len(cluster.racks) == 1:
        return _in_one_rack(space, kind, gpus)
    free, room = _room(cluster, space, kind)
    counts = fewest_machines(cluster, _FreeGpus(free), room, gpus)
    return [gpu for machine, count in counts for gpu in space.first(machine, count)]


def _in_one_rack(space: Space, kind: int, gpus: int) -> list[int]:
    """Return GPUs as ``fewest_machines`` does in one rack: most room first, the rest on the best-fitting machine."""
    by_count, used = space.machines[kind], 0
    found: list[int] = []
    for count in range(len(by_count) - 1, 0, -1):
        machines = by_count[count]
        while machines and gpus > count:
            lowest = machines & -machines
            found += space.first(lowest.bit_length() - 1, count)
            machines, used, gpus = machines ^ lowest, used | lowest, gpus - count
        if machines:
            break
    for count in range(gpus, len(by_count)):
        machines = by_count[count] & ~used
        if machines:
            return found + space.first((machines & -machines).bit_length() - 1, gpus)
    return found


def _near(cluster: Cluster, space: Space, kind: int, gpus: int, held: list[int]) -> list[int] | None:
    """Return GPUs of another type than the claim holds, in the claim's current racks if these have room."""
    counts = from_home(cluster, _room(cluster, space, kind)[1], np.array(held), gpus)
    return [gpu for machine, count in counts for gpu in space.first(machine, count)] or None


def _room(cluster: Cluster, space: Space, kind: int) -> tuple[Ints, Ints]:
    """Return the number of free GPUs, and of free GPUs of a type, by machine."""
    free = np.array([bits.bit_count() for bits in space.bits], np.int64)
    return free, free if len(cluster.gpu_types) == 1 else np.where(cluster.machine_type == kind, free, 0)


def _kinds(grants: Grants, wanted: list[int]) -> list[int]:
    """Return the GPU type of each claim; negative if it is not chosen yet or the cluster lacks it."""
    given, wanted = grants.listed["gpu_type"], [kind if kind >= 0 else NONE for kind in wanted]
    return wanted if given is None else [kind if kind >= 0 else wanted[claim] for claim, kind in enumerate(given)]


def _reason(space: Space, kind: int, gpus: int) -> Reason:
    """Return why a claim cannot be placed: too few free GPUs in total, or of its type."""
    return Reason.OUTRANKED if sum(space.free) < gpus else Reason.NO_GPU_OF_TYPE
