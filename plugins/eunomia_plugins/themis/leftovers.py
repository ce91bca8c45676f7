"""What nobody won or kept: at random to apps outside the auction, then to whoever can use it (Themis §3.3.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eunomia.units import Ints, Rows
from eunomia_plugins.themis.winnings import Pieces


@dataclass(frozen=True, slots=True, eq=False)
class Taker:
    """An app that might use more.

    Attributes:
        claim: its number.
        usable: numbers of GPUs that it can use in all, ascending.
        has: GPUs that it holds, keeps or has won.
        gpu_type: the type its jobs ask for; -1: any, but one type at a time.
        machines: where it has some.
        outside: it did not take part in the auction.
    """

    claim: int
    usable: Ints
    has: int
    gpu_type: int
    machines: frozenset[int]
    outside: bool


def share_out(free: Ints, gpu_type: Rows, takers: Sequence[Taker], rng: np.random.Generator) -> Pieces:
    """Give a taker drawn at random its next size up, until nothing that is free suits anyone.

    Args:
        free: [machines] GPUs left.
        gpu_type: [machines].
        takers: those outside the auction are served first.
        rng: the draws.

    Returns:
        What each gets in addition.
    """
    left = np.array(free, dtype=np.int64)
    taken: dict[tuple[int, int], int] = {}
    for outside in (True, False):
        _round(left, gpu_type, [taker for taker in takers if taker.outside is outside], rng, taken)
    return Pieces.of(taken)


def _round(
    left: Ints, gpu_type: Rows, takers: list[Taker], rng: np.random.Generator, taken: dict[tuple[int, int], int]
) -> None:
    """Serve one group until nobody in it can take more."""
    has = {taker.claim: taker.has for taker in takers}
    where = {taker.claim: set(taker.machines) for taker in takers}
    willing = list(takers)
    while willing and left.any():
        at = int(rng.integers(len(willing)))
        taker = willing[at]
        more = taker.usable[taker.usable > has[taker.claim]]
        places = (
            _place(left, gpu_type, taker.gpu_type, int(more[0]) - has[taker.claim], where[taker.claim])
            if more.size
            else {}
        )
        if not places:  # what is left only shrinks, so it never can again
            willing[at] = willing[-1]
            willing.pop()
            continue
        for machine, gpus in places.items():
            left[machine] -= gpus
            taken[taker.claim, machine] = taken.get((taker.claim, machine), 0) + gpus
            has[taker.claim] += gpus
            where[taker.claim].add(machine)


def _place(left: Ints, gpu_type: Rows, wanted: int, gpus: int, own: set[int]) -> dict[int, int]:
    """Where so many GPUs of one type are: beside what the app has, else where they fit best, else on few machines."""
    for kind in np.unique(gpu_type) if wanted < 0 else [wanted]:
        room = np.where(gpu_type == kind, left, 0)
        if room.sum() < gpus:
            continue
        fitting = np.flatnonzero(room >= gpus)
        if fitting.size:
            near = [machine for machine in fitting.tolist() if machine in own]
            best = near[0] if near else int(fitting[np.argmin(room[fitting])])
            return {best: gpus}
        places: dict[int, int] = {}
        for machine in np.argsort(-room, kind="stable").tolist():
            places[machine] = min(int(room[machine]), gpus - sum(places.values()))
            if sum(places.values()) == gpus:
                return places
    return {}
