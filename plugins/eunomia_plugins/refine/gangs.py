"""Divide a claim's GPUs among its jobs: gangs use one type, or two if no other division works (OEF §4.4)."""

import heapq
from collections.abc import Sequence

import numpy as np

from eunomia import Menus
from eunomia.units import NONE, Ints, Reals
from eunomia_plugins.refine.claimants import View, summed

MOST_TRIED = 2000
"""Maximum number of steps in the search for a division of one claim's GPUs."""


def among_jobs(menus: Menus, view: View, real: Ints, behind: Reals, *, leftovers: bool, mixed: bool) -> Ints:
    """Return the GPUs of each job, [job, type].

    A claim with too few GPUs for any of its jobs accumulates a deficit.

    Args:
        menus: the sizes of jobs.
        view: claims and their jobs.
        real: [claim, type] whole GPUs of each claim.
        behind: [claim, type] GPUs owed to each claim.
        leftovers: whether GPUs that a claim cannot use go to other claims.
        mixed: whether a gang may run on several types.
    """
    granted: Ints = np.zeros((view.jobs.size, view.free.size), np.int64)
    for claim in np.flatnonzero(real.any(axis=1)).tolist():
        parts = Parts(real[claim])
        for index in view.turns[claim]:
            if not parts.left.any():
                break
            _serve(menus, view, index, parts)
        if mixed and parts.left.any():
            _mix(view, view.turns[claim], parts)
        _settle(view, parts)
        for index, of in parts.of.items():
            granted[index, list(of)] = list(of.values())
    if leftovers:
        _lend(menus, view, granted, behind)
    return granted


def _serve(menus: Menus, view: View, index: int, parts: "Parts") -> None:
    """Give a job its largest size on the claim's fastest type with room, or else make room.

    Among equally fast types, the one with the fewest GPUs left is used.
    """
    asked, left = int(view.kind[index]), parts.left
    kinds = np.arange(left.size) if asked == NONE else np.array([asked])
    size = menus.largest_at_most(int(view.jobs[index]), int(left[kinds].max()))
    if size:
        kinds = kinds[left[kinds] >= size]
        speed = view.speed[view.owner[index]]
        parts.give(index, int(kinds[np.lexsort((left[kinds], -speed[kinds]))[0]]), size, asked)
        return
    least = int(view.size[index])
    if 0 < least <= int(left.sum()):
        parts.make_room(index, least, asked)


def _settle(view: View, parts: "Parts") -> None:
    """Swap types among jobs of equal size so that as many as possible stay on the types that they hold.

    The set of served jobs does not change. Types that none of these jobs holds go to the others in order of service,
    fastest first.
    """
    alike: dict[int, list[int]] = {}
    for index, of in parts.of.items():
        if len(of) == 1 and view.kind[index] == NONE:
            alike.setdefault(sum(of.values()), []).append(index)
    for size, jobs in alike.items():
        places = [kind for index in jobs for kind in parts.of[index]]
        moving = []
        for index in jobs:
            if int(view.held[index]) in places:
                places.remove(int(view.held[index]))
                parts.of[index] = {int(view.held[index]): size}
            else:
                moving.append(index)
        speed = view.speed[view.owner[jobs[0]]]
        places.sort(key=lambda kind: -float(speed[kind]))
        for index, kind in zip(moving, places, strict=True):
            parts.of[index] = {kind: size}


def _mix(view: View, jobs: list[int], parts: "Parts") -> None:
    """Serve jobs on several types with GPUs that cannot be used otherwise."""
    for index in jobs:
        size = int(view.size[index])
        if index not in parts.of and view.kind[index] == NONE and 0 < size <= int(parts.left.sum()):
            parts.mix(index, size)


def _lend(menus: Menus, view: View, granted: Ints, behind: Reals) -> None:
    """Lend leftover GPUs to jobs without GPUs.

    Types that are fastest for most claims are lent first, to jobs of the claim with the largest deficit for the type.
    """
    left = view.free - granted.sum(axis=0)
    if not left.any():
        return
    lag = behind - summed(granted, view.owner, behind.shape[0])
    waiting = [[index for index in turn if not granted[index].any()] for turn in view.turns]
    kinds = np.flatnonzero(left)
    for kind in kinds[np.argsort(-view.speed.sum(axis=0)[kinds], kind="stable")].tolist():
        queue = [(-lag[claim, kind], claim) for claim, jobs in enumerate(waiting) if jobs]
        heapq.heapify(queue)
        while queue and left[kind]:
            claim = heapq.heappop(queue)[1]
            index, size = _first(menus, view, waiting[claim], kind, int(left[kind]))
            if size:
                granted[index, kind] = size
                left[kind] -= size
                lag[claim, kind] -= size
                waiting[claim].remove(index)
                heapq.heappush(queue, (-lag[claim, kind], claim))


def _first(menus: Menus, view: View, jobs: list[int], kind: int, left: int) -> tuple[int, int]:
    """Return the first job that can use GPUs of a type, and its largest size within ``left``.

    The size is 0 if there is no such job.
    """
    for index in jobs:
        if view.size[index] <= left and view.kind[index] in (NONE, kind):
            size = menus.largest_at_most(int(view.jobs[index]), left)
            if size:
                return index, size
    return NONE, 0


class Parts:
    """The division of one claim's GPUs among its jobs, in order of service.

    Attributes:
        of: GPUs by type of each job; a mixed gang has several types.
    """

    def __init__(self, budget: Ints) -> None:
        self.budget = budget
        self.of: dict[int, dict[int, int]] = {}
        self.asked: dict[int, int] = {}
        """Requested type of each job that runs on one type; -1: any."""
        self.failed: set[tuple[int, int]] = set()
        """Requested sizes and types that cannot be added to the jobs served so far."""

    @property
    def left(self) -> Ints:
        """Return the GPUs not assigned to a job, [type]."""
        left = self.budget.copy()
        for parts in self.of.values():
            for kind, gpus in parts.items():
                left[kind] -= gpus
        return left

    def give(self, job: int, kind: int, gpus: int, asked: int) -> None:
        """Assign a job GPUs of one type."""
        self.of[job] = {kind: gpus}
        self.asked[job] = asked
        self.failed.clear()

    def make_room(self, job: int, gpus: int, asked: int) -> bool:
        """Move jobs served so far to other types so that this job fits on one type; return whether that succeeded."""
        if (gpus, asked) in self.failed:
            return False
        jobs = list(self.of)
        sizes = [*(sum(self.of[other].values()) for other in jobs), gpus]
        kinds = [*(self.asked[other] for other in jobs), asked]
        found = divide(sizes, kinds, self.budget.tolist())
        if found is None:
            self.failed.add((gpus, asked))
            return False
        for other, size, kind, wanted in zip([*jobs, job], sizes, found, kinds, strict=True):
            self.give(other, kind, size, wanted)
        return True

    def mix(self, job: int, gpus: int) -> None:
        """Assign a job GPUs of as few types as possible; enough GPUs must be left."""
        left = self.left
        parts: dict[int, int] = {}
        for kind in np.argsort(-left, kind="stable").tolist():
            taken = min(gpus - sum(parts.values()), int(left[kind]))
            if taken:
                parts[kind] = taken
        self.of[job] = parts


def divide(sizes: Sequence[int], asked: Sequence[int], room: Sequence[int]) -> list[int] | None:
    """Return a type for each gang so that all fit, by exhaustive search, largest gang first.

    Returns None if no division is found within the limit.

    Args:
        sizes: number of GPUs of each gang.
        asked: requested type of each gang; -1: any.
        room: number of GPUs of each type.
    """
    order = sorted(range(len(sizes)), key=lambda gang: (asked[gang] == NONE, -sizes[gang]))
    left, chosen = list(room), [NONE] * len(sizes)
    steps = 0

    def place(depth: int) -> bool:
        nonlocal steps
        if depth == len(order):
            return True
        steps += 1
        gang = order[depth]
        tried: set[int] = set()
        for kind in range(len(left)) if asked[gang] == NONE else (asked[gang],):
            if left[kind] < sizes[gang] or left[kind] in tried or steps > MOST_TRIED:
                continue
            tried.add(left[kind])
            left[kind] -= sizes[gang]
            chosen[gang] = kind
            if place(depth + 1):
                return True
            left[kind] += sizes[gang]
        return False

    return chosen if place(0) else None
