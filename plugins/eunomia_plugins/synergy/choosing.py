"""Choose machines for the GPUs of one claim, on which its GPUs fit with the given CPUs and memory."""

import numpy as np

from eunomia.units import NONE, Ints
from eunomia_plugins.synergy.claims import Claim
from eunomia_plugins.synergy.room import Counts, Room, Vector


def best_fit(room: Room, claim: Claim, each: Vector) -> Counts:
    """Return the fitting machine with the least room, else the fewest machines; empty if the claim does not fit."""
    for fits in _by_type(room, claim, room.fits(each)):
        whole = np.flatnonzero(fits >= claim.gpus)
        if whole.size:
            return [(int(whole[room.free_fraction(whole).argmin()]), claim.gpus)]
        found = _fewest(room, fits, claim.gpus)
        if found:
            return found
    return []


def first_fit(room: Room, claim: Claim, each: Vector) -> Counts:
    """Return the first machine that fits the claim, else the fewest machines; empty if the claim does not fit."""
    for fits in _by_type(room, claim, room.fits(each)):
        whole = np.flatnonzero(fits >= claim.gpus)
        found = [(int(whole[0]), claim.gpus)] if whole.size else _fewest(room, fits, claim.gpus)
        if found:
            return found
    return []


def at_pins(room: Room, claim: Claim, each: Vector) -> Counts:
    """Return the machines to which the grant is pinned; empty if the claim does not fit there."""
    machines = np.array([machine for machine, _ in claim.pins])
    wanted = np.array([count for _, count in claim.pins])
    return claim.pins if (room.fits(each, machines) >= wanted).all() else []


def gpus_on(room: Room, claim: Claim, counts: Counts) -> Ints:
    """Return GPUs on these machines; GPUs that the claim holds already come first."""
    parts = []
    for machine, count in counts:
        own = claim.held[room.pool.holds(claim.held) & (room.cluster.machine[claim.held] == machine)][:count]
        if own.size == 0:
            parts.append(room.pool.choose(machine, count))
            continue
        others = np.setdiff1d(room.pool.on(machine), own)[: count - own.size]
        parts.append(np.sort(np.concatenate([own, others])))
    return np.concatenate(parts)


def _by_type(room: Room, claim: Claim, fits: Ints) -> list[Ints]:
    """Return the room for the claim on each GPU type that it may have, the type with the least room first."""
    types = len(room.cluster.gpu_types)
    if types == 1 or not claim.gang:
        return [fits] if claim.gpu_type == NONE else [np.where(room.of_type(claim.gpu_type), fits, 0)]
    kinds = range(types) if claim.gpu_type == NONE else [claim.gpu_type]
    parts = [np.where(room.of_type(kind), fits, 0) for kind in kinds]
    return sorted((part for part in parts if part.sum() >= claim.gpus), key=lambda part: int(part.sum()))


def _fewest(room: Room, fits: Ints, gpus: int) -> Counts:
    """Return the fewest machines, in one rack if that has room; machines with the most room come first."""
    racks = np.bincount(room.cluster.machine_rack, weights=fits, minlength=len(room.cluster.racks))
    if racks.sum() < gpus:
        return []
    inside = np.flatnonzero(racks >= gpus)
    plans = [_fill(np.where(room.cluster.machine_rack == rack, fits, 0), room, gpus) for rack in inside.tolist()]
    return min(plans, key=len) if plans else _fill(fits, room, gpus)


def _fill(fits: Ints, room: Room, gpus: int) -> Counts:
    """Return machines with the most room first; the remainder goes to the fitting machine with the least room."""
    order = np.lexsort((room.free_fraction(np.arange(fits.size)), -fits))
    counts: Counts = []
    for machine in order.tolist():
        take = min(gpus, int(fits[machine]))
        if take == gpus:
            rest = np.setdiff1d(np.flatnonzero(fits >= take), [place for place, _ in counts])
            return [*counts, (int(rest[room.free_fraction(rest).argmin()]), take)]
        counts.append((machine, take))
        gpus -= take
    return []
