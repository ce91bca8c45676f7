"""GPUs that no app won or kept: they go to random apps outside the auction, then to the others (Themis §3.3.2)."""

import numpy as np

from eunomia.units import Ints, Rows
from eunomia_plugins.themis.apps import AppViews
from eunomia_plugins.themis.winnings import Won


def share_out(
    left: Ints, views: AppViews, rows: list[int], kept: Won, groups: tuple[range, ...], rng: np.random.Generator
) -> Won:
    """Give random apps their next size until no app can use the free GPUs; return the additional GPUs of each claim.

    Args:
        left: [machine] number of free GPUs; reduced in place.
        views: views of the apps; one is read only if its app is drawn.
        rows: app row of each claim.
        kept: GPUs that claims won and keep.
        groups: groups of claims, which are served one after another.
        rng: generator for drawing claims.
    """
    taken: Won = {}
    for group in groups:
        candidates = list(group)
        while candidates and left.any():
            at = int(rng.integers(len(candidates)))
            claim = candidates[at]
            places = _next_size(left, views, rows[claim], kept.get(claim, {}), taken.get(claim, {}))
            if not places:  # the free GPUs only decrease, so this claim can take none later
                candidates[at] = candidates[-1]
                candidates.pop()
                continue
            own = taken.setdefault(claim, {})
            for machine, gpus in places.items():
                left[machine] -= gpus
                own[machine] = own.get(machine, 0) + gpus
    return taken


def _next_size(left: Ints, views: AppViews, row: int, won: dict[int, int], more: dict[int, int]) -> dict[int, int]:
    """Return GPUs by machine with which an app reaches the next size that it can use; empty if there is none."""
    context = views.view(row).context
    has = context.holds + sum(won.values()) + sum(more.values())
    larger = context.usable[context.usable > has]
    if not larger.size:
        return {}
    machine_type = views.apps.snapshot.cluster.machine_type
    return _place(left, machine_type, context.gpu_type, int(larger[0]) - has, {*context.held, *won, *more})


def _place(left: Ints, gpu_type: Rows, wanted: int, gpus: int, own: set[int]) -> dict[int, int]:
    """Return GPUs of one type by machine: on the app's own machine, else the best-fitting one, else few machines."""
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
