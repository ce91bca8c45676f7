"""The bundles for which an app bids: a bounded number, with every locality that an offer has for each size.

Each size is placed on one machine of every class that fits it, else on the fewest machines of a class, of a rack, and
of the cluster. More machines than that are never better for the app.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from eunomia import Locality, MachineClasses, Part
from eunomia.contract.bundles import MOST_PARTS
from eunomia.units import Ints

MOST_ROWS_AN_APP: Final = 96
"""Maximum number of rows in one app's table, divided among its sizes; each keeps its closest, best-fitting bundles."""
FEW_GPUS: Final = 64
"""Number of GPUs on offer up to which elastic apps bid for their exact largest size in addition to powers of two."""
FEW_SIZES: Final = 8
"""Number of useful sizes up to which an app bids for each; with more, it bids for powers of two."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate bundle with its locality.

    Attributes:
        parts: parts of the bundle.
        pieces: number of GPUs on each machine, descending.
        locality: locality of these GPUs; MACHINE if they are on one machine.
        racks: racks of these machines.
    """

    parts: tuple[Part, ...]
    pieces: tuple[int, ...]
    locality: Locality
    racks: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of GPUs of the bundle."""
        return sum(self.pieces)


def candidates(classes: MachineClasses, size: int, gpu_type: int, own: frozenset[int], most: int) -> list[Candidate]:
    """Return bundles of ``size`` GPUs of one type, closest first, ties by the fewest GPUs left on their machines.

    Args:
        classes: the machines on offer.
        size: number of GPUs.
        gpu_type: type of the GPUs; -1: any, but one type per bundle.
        own: classes of machines on which the app already holds GPUs, which come first.
        most: maximum number of bundles to return.
    """
    found: dict[tuple[Part, ...], Candidate] = {}
    for kind in sorted(set(classes.gpu_type.tolist())) if gpu_type < 0 else [gpu_type]:
        for way in _ways(classes, size, kind):
            found.setdefault(way.parts, way)
    ranked = sorted(found.values(), key=lambda way: _rank(way, classes, own))
    return [way for way in ranked if len(way.parts) <= MOST_PARTS][:most]


def sizes_to_bid(usable: Ints, held: int, offered: int) -> list[int]:
    """Return the bundle sizes for which an app bids, each of which gives the app a total that it can use.

    These are all sizes if at most ``FEW_SIZES``, else the smallest, the powers of two, and with few GPUs on offer the
    largest.

    Args:
        usable: numbers of GPUs that the app can use, ascending.
        held: number of GPUs that it holds and keeps.
        offered: number of GPUs on offer.
    """
    more = usable[(usable > held) & (usable <= held + offered)] - held
    if more.size <= FEW_SIZES:
        return [int(size) for size in more]
    powers = (more & (more - 1)) == 0
    ends = np.zeros(more.size, dtype=bool)
    ends[0] = True
    ends[-1] = offered <= FEW_GPUS
    chosen = more[powers | ends]
    if chosen.size == 1:
        chosen = more[[0, -1]]
    return [int(size) for size in chosen]


def _ways(classes: MachineClasses, size: int, gpu_type: int) -> Iterator[Candidate]:
    """Yield bundles on one and on several machines of each class, on machines of each rack, and of all racks."""
    kinds = ((classes.gpu_type == gpu_type) & (classes.machines > 0)).nonzero()[0]
    for kind in kinds.tolist():
        way = _fill(classes, [kind], size)
        if way is not None:
            yield way
    racks = sorted(set(classes.rack[kinds].tolist()))
    for rack in racks:
        inside = kinds[classes.rack[kinds] == rack]
        if inside.size > 1 and size > int(classes.free[inside].max()):
            way = _fill(classes, inside.tolist(), size)
            if way is not None:
                yield way
    if len(racks) > 1 and size > int(classes.free[kinds].max()):
        way = _fill(classes, kinds.tolist(), size)
        if way is not None:
            yield way


def _fill(classes: MachineClasses, kinds: list[int], size: int) -> Candidate | None:
    """Return a bundle on whole machines, largest first, and a best-fitting one for the rest; None: no room."""
    parts: list[Part] = []
    room = {kind: int(classes.machines[kind]) for kind in kinds}
    left = size
    for kind in sorted(kinds, key=lambda one: (-int(classes.free[one]), -room[one], one)):
        free = int(classes.free[kind])
        whole = min(left // free, room[kind])
        if whole:
            parts.append(Part(kind, free, whole))
            room[kind] -= whole
            left -= whole * free
    if left:
        fitting = [kind for kind in kinds if room[kind] and classes.free[kind] > left]
        if not fitting:
            return None
        kind = min(fitting, key=lambda one: (int(classes.free[one]), one))
        parts.append(Part(kind, left, 1))
    parts.sort()
    pieces = tuple(sorted((part.gpus for part in parts for _ in range(part.machines)), reverse=True))
    racks = tuple(sorted({int(classes.rack[part.machine_class]) for part in parts}))
    locality = Locality.MACHINE if len(pieces) == 1 else Locality.RACK if len(racks) == 1 else Locality.CLUSTER
    return Candidate(tuple(parts), pieces, locality, racks)


def _rank(way: Candidate, classes: MachineClasses, own: frozenset[int]) -> tuple[bool, int, int, int, tuple[Part, ...]]:
    left_over = sum(int(classes.free[part.machine_class]) - part.gpus for part in way.parts)
    elsewhere = not any(part.machine_class in own for part in way.parts)
    return (elsewhere, int(way.locality), len(way.pieces), left_over, way.parts)
