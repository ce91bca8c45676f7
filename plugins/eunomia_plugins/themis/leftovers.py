"""GPUs that no app won or kept: allocated at random to apps outside the auction, then to the others (Themis §3.3.2)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eunomia.units import Ints, Rows
from eunomia_plugins.themis.apps import AppViews
from eunomia_plugins.themis.winnings import Won


class Taker(NamedTuple):
    """An app that may be able to use more GPUs; what it can use is computed only if it is drawn."""

    claim: int
    """Its number."""
    row: int
    """Row of the app."""
    won: Mapping[int, int]
    """GPUs that it won and keeps, by machine."""
    outside: bool
    """Whether it took no part in the auction."""


def share_out(free: Ints, gpu_type: Rows, views: AppViews, takers: Sequence[Taker], rng: np.random.Generator) -> Won:
    """Give a random app its next size, until no app can use the free GPUs; return the additional GPUs of each taker.

    ``free`` and ``gpu_type``: [machines] GPUs left, and their type. ``views``: of the apps as bidders. Takers outside
    the auction are served first.
    """
    left = np.array(free, dtype=np.int64)
    taken: Won = {}
    for outside in (True, False):
        _round(left, gpu_type, views, [taker for taker in takers if taker.outside is outside], rng, taken)
    return taken


def _round(
    left: Ints, gpu_type: Rows, views: AppViews, candidates: list[Taker], rng: np.random.Generator, taken: Won
) -> None:
    """Serve one group until none of its apps can use more GPUs."""
    while candidates and left.any():
        at = int(rng.integers(len(candidates)))
        taker = candidates[at]
        context, more = views.view(taker.row).context, taken.get(taker.claim, {})
        has = context.holds + sum(taker.won.values()) + sum(more.values())
        usable = context.usable[context.usable > has]
        own = context.held.keys() | taker.won.keys() | more.keys()
        places = _place(left, gpu_type, context.gpu_type, int(usable[0]) - has, own) if usable.size else {}
        if not places:  # what is left only shrinks, so it can take nothing later either
            candidates[at] = candidates[-1]
            candidates.pop()
            continue
        for machine, gpus in places.items():
            left[machine] -= gpus
            taken.setdefault(taker.claim, {})[machine] = more.get(machine, 0) + gpus


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
