"""GPUs that no app won or kept: allocated at random to apps outside the auction, then to the others (Themis §3.3.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eunomia.units import Ints, Rows
from eunomia_plugins.themis.winnings import Pieces


@dataclass(frozen=True, slots=True, eq=False)
class Taker:
    """An app that may be able to use more GPUs.

    Attributes:
        claim: its number.
        usable: numbers of GPUs that it can use in all, ascending.
        has: GPUs that it holds or has won and keeps.
        gpu_type: the type its jobs ask for; -1: any, but one type at a time.
        machines: machines of these GPUs.
        outside: whether it took no part in the auction.
    """

    claim: int
    usable: Ints
    has: int
    gpu_type: int
    machines: frozenset[int]
    outside: bool


def share_out(free: Ints, gpu_type: Rows, takers: Sequence[Taker], rng: np.random.Generator) -> Pieces:
    """Give a random app its next size, until no app can use the free GPUs.

    Args:
        free: [machines] GPUs left.
        gpu_type: [machines] GPU type of each.
        takers: takers outside the auction are served first.
        rng: the source of the draws.

    Returns:
        The additional GPUs of each taker.
    """
    left = np.array(free, dtype=np.int64)
    taken: dict[tuple[int, int], int] = {}
    for outside in (True, False):
        _round(left, gpu_type, [taker for taker in takers if taker.outside is outside], rng, taken)
    return Pieces.of(taken)


def _round(
    left: Ints, gpu_type: Rows, takers: list[Taker], rng: np.random.Generator, taken: dict[tuple[int, int], int]
) -> None:
    """Serve one group until none of its apps can use more GPUs."""
    has = {taker.claim: taker.has for taker in takers}
    where = {taker.claim: set(taker.machines) for taker in takers}
    candidates = list(takers)
    while candidates and left.any():
        at = int(rng.integers(len(candidates)))
        taker = candidates[at]
        more = taker.usable[taker.usable > has[taker.claim]]
        places = (
            _place(left, gpu_type, taker.gpu_type, int(more[0]) - has[taker.claim], where[taker.claim])
            if more.size
            else {}
        )
        if not places:  # what is left only shrinks, so it can take nothing later either
            candidates[at] = candidates[-1]
            candidates.pop()
            continue
        for machine, gpus in places.items():
            left[machine] -= gpus
            taken[taker.claim, machine] = taken.get((taker.claim, machine), 0) + gpus
            has[taker.claim] += gpus
            where[taker.claim].add(machine)


def _place(left: Ints, gpu_type: Rows, wanted: int, gpus: int, own: set[int]) -> dict[int, int]:
    """By machine, GPUs of one type: on a machine that the app uses, else on the best-fitting, else on few machines."""
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
