"""Reduce claims' shares to what their jobs can use, and move jobs on slow types to faster GPUs that no claim needs."""

import numpy as np

from eunomia.units import NONE, Ints, Reals
from eunomia_plugins.refine.claimants import View

_LITTLE = 1e-9


def usable(ideal: Reals, view: View) -> Reals:
    """Return the shares reduced to what the claim's jobs can use, so that unused shares accumulate no deficit.

    A claim gives up the types that are slowest for its jobs first; among equally fast types it keeps those that its
    jobs hold. If there is only one user, the user's jobs thus run on the fastest type, and stay there.
    """
    demand: Reals = view.demand.astype(float)
    over = np.flatnonzero(ideal.sum(axis=1) > demand)
    if over.size == 0:
        return ideal
    found = ideal.copy()
    order = np.lexsort((-view.held_by_claim[over], -view.speed[over]), axis=1)
    ranked = np.take_along_axis(ideal[over], order, axis=1)
    before = np.cumsum(ranked, axis=1) - ranked
    kept = np.clip(demand[over, None] - before, 0.0, ranked)
    part = np.empty_like(kept)
    np.put_along_axis(part, order, kept, axis=1)
    found[over] = part
    return found


def on_faster_gpus(view: View, granted: Ints, ideal: Reals) -> Ints:
    """Return the grants after moving jobs on slow types to faster GPUs that are free and in no share.

    Such GPUs are left if claims cannot use their whole shares. Types that are fastest for most claims are used first;
    jobs that hold the type come first, then those that gain most. A gang moves as a whole. Jobs that request a type or
    run on several types stay. GPUs that a claim saves up for a gang belong to its share and stay free.

    Args:
        view: claims and their jobs.
        granted: [job, type] granted GPUs.
        ideal: [claim, type] fractional GPUs, at most what each claim's jobs can use.
    """
    left = np.minimum(view.free - granted.sum(axis=0), _spare(ideal, view))
    if not left.any():
        return granted
    found = granted.copy()
    speed = view.speed[view.owner]
    movable = ((granted > 0).sum(axis=1) == 1) & (view.kind == NONE)
    size = granted.sum(axis=1)
    for kind in _fastest_first(view):
        now = found.argmax(axis=1)
        gain = np.where(movable, speed[:, kind] - speed[np.arange(now.size), now], 0.0)
        order = np.lexsort((-gain, view.held != kind))
        for job in order[gain[order] > 0.0].tolist():
            if size[job] <= left[kind]:
                found[job] = 0
                found[job, kind] = size[job]
                left[kind] -= size[job]
                left[now[job]] += size[job]
    return found


def _spare(ideal: Reals, view: View) -> Ints:
    """Return the number of whole GPUs that are in no share, [type]."""
    free = np.floor(view.free + view.kept.sum(axis=0) - ideal.sum(axis=0) + _LITTLE)
    spare: Ints = np.maximum(free, 0.0).astype(np.int64)
    return spare


def _fastest_first(view: View) -> list[int]:
    return [int(kind) for kind in np.argsort(-view.speed.sum(axis=0), kind="stable")]
