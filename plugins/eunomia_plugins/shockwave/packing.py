"""Convert numbers of rounds per job into a plan of which job runs in which round."""

import numpy as np

from eunomia.units import Bools, Ints, Reals


def pack(counts: Ints, useful: Ints, gpus: Ints, key: Reals, capacity: int, rounds: int) -> Bools:
    """Plan the rounds of each job: those granted to it, and further ones if GPUs would be idle.

    In each round, jobs that need every remaining round come first, widest first, since gangs fit together only while
    few rounds are taken; then the others by key. A job therefore runs without interruption, unless jobs that need every
    round displace it.

    Args:
        counts: [job] rounds granted.
        useful: [job] rounds in which it has work.
        gpus: [job] gang size.
        key: [job] sort key, lower first.
        capacity: number of GPUs.
        rounds: number of rounds in the window.

    Returns:
        [job, round] whether the job runs.
    """
    plan = np.zeros((counts.size, rounds), dtype=bool)
    left, room = counts.copy(), useful - counts
    for now in range(rounds):
        waits = np.flatnonzero(left > 0)
        must = left[waits] >= rounds - now
        ranked = waits[np.lexsort((key[waits], np.where(must, -gpus[waits], 0), ~must))]
        served = ranked[fitting(gpus[ranked], capacity)]
        left[served] -= 1
        idle = capacity - int(gpus[served].sum())
        if idle > 0:
            more = np.flatnonzero((left == 0) & (room > 0) & (gpus <= idle))
            more = np.setdiff1d(more, served)
            more = more[np.argsort(key[more], kind="stable")]
            more = more[fitting(gpus[more], idle)]
            room[more] -= 1
            served = np.append(served, more)
        plan[served, now] = True
    return plan


def fitting(gpus: Ints, room: int) -> Ints:
    """Return the indices of the gangs that fit, taken in order; a gang that does not fit is skipped."""
    found: list[Ints] = []
    at, size = 0, gpus.size
    while at < size and room > 0:
        used = np.cumsum(gpus[at:])
        head = int(np.searchsorted(used, room, side="right"))
        found.append(np.arange(at, at + head))
        room -= int(used[head - 1]) if head else 0
        rest = np.flatnonzero(gpus[at + head :] <= room)
        if rest.size == 0:
            break
        at += head + int(rest[0])
    return np.concatenate([*found, np.empty(0, np.int64)])


def repair(plan: Bools, counts: Ints, gpus: Ints, capacity: int) -> Bools:
    """Give jobs their missing rounds if other jobs can move to rounds with idle GPUs.

    Args:
        plan: [job, round] whether the job runs.
        counts: [job] rounds granted.
        gpus: [job] gang size.
        capacity: number of GPUs.
    """
    plan = plan.copy()
    free = capacity - gpus @ plan
    lacks = counts - plan.sum(axis=1)
    for job in np.flatnonzero(lacks > 0).tolist():
        for _ in range(int(lacks[job])):
            if not _insert(plan, free, gpus, job):
                break
    return plan


def filled(plan: Bools, useful: Ints, gpus: Ints, key: Reals, capacity: int) -> Bools:
    """Give idle GPUs to jobs that have more work, if other jobs can move to make room.

    Args:
        plan: [job, round] whether the job runs.
        useful: [job] rounds in which it has work.
        gpus: [job] gang size.
        key: [job] sort key, lower first.
        capacity: number of GPUs.
    """
    plan = plan.copy()
    free = capacity - gpus @ plan
    for job in np.argsort(key, kind="stable").tolist():
        for _ in range(int(useful[job] - plan[job].sum())):
            if gpus[job] > free.sum() or not _insert(plan, free, gpus, job):
                break
    return plan


def _insert(plan: Bools, free: Ints, gpus: Ints, job: int) -> bool:
    """Give a job one more round if other jobs can make room; return whether that succeeded.

    The round with the most idle GPUs is tried first.
    """
    if int(free.sum()) < int(gpus[job]):
        return False
    for turn in np.argsort(-free, kind="stable").tolist():
        if plan[job, turn]:
            continue
        moves = _moves(plan, free, gpus, turn, int(gpus[job] - free[turn]))
        if moves is None:
            continue
        for other, to in moves:
            plan[other, turn], plan[other, to] = False, True
            free[turn] += gpus[other]
            free[to] -= gpus[other]
        plan[job, turn] = True
        free[turn] -= gpus[job]
        return True
    return False


def _moves(plan: Bools, free: Ints, gpus: Ints, turn: int, needed: int) -> list[tuple[int, int]] | None:
    """Return jobs and the rounds to which they can move so that ``needed`` more GPUs are idle in a round.

    Returns None if that is not possible.
    """
    found: list[tuple[int, int]] = []
    if needed <= 0:
        return found
    left = free.copy()
    left[turn] = 0
    here = np.flatnonzero(plan[:, turn] & (gpus <= min(needed, int(left.max()))))
    if int(gpus[here].sum()) < needed:
        return None
    for other in here[np.argsort(-gpus[here], kind="stable")].tolist():
        size = int(gpus[other])
        if size > needed:
            continue
        open_rounds = (left >= size) & ~plan[other]
        to = int(open_rounds.argmax())
        if open_rounds[to]:
            found.append((other, to))
            left[to] -= size
            needed -= size
            if needed <= 0:
                return found
    return None


def pack_by_width(counts: Ints, gpus: Ints, key: Reals, capacity: int, rounds: int) -> Bools:
    """Plan the rounds of jobs, widest gangs first, each in the rounds with the most GPUs left.

    Fewer GPUs stay idle between gangs than with ``pack``, but short jobs do not come earlier.

    Args:
        counts: [job] rounds granted.
        gpus: [job] gang size.
        key: [job] sort key, lower first.
        capacity: number of GPUs.
        rounds: number of rounds in the window.
    """
    plan = np.zeros((counts.size, rounds), dtype=bool)
    free = np.full(rounds, capacity)
    for job in np.lexsort((key, -counts, -gpus, counts < rounds)).tolist():
        best = np.argsort(-free, kind="stable")[: counts[job]]
        best = best[free[best] >= gpus[job]]
        plan[job, best] = True
        free[best] -= gpus[job]
    return sorted_rounds(plan, key)


def sorted_rounds(plan: Bools, key: Reals) -> Bools:
    """Return the plan with its rounds sorted.

    Rounds with the first job by key come first, among these the rounds with the second job, and so on.

    Args:
        plan: [job, round] whether the job runs.
        key: [job] sort key, lower first.
    """
    by_key = plan[np.argsort(key, kind="stable")]
    found: Bools = plan[:, np.lexsort(~by_key[::-1])]
    return found
