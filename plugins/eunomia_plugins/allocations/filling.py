"""Progressive filling: raise the job with the fewest GPUs by the smallest possible step, until none can be raised."""

import heapq

import numpy as np

from eunomia import Allocation, Claims, Grants, Menus, Offer, Reason, Seconds, Snapshot, TimeShares, Unit, Verdicts
from eunomia.contract.pools import usable
from eunomia.units import Bools, Ints, Reals, Rows
from eunomia_plugins.allocations.ranking import reasons


def fill_sizes(snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Rows, *, weighted: bool) -> Allocation:
    """Give each job the smallest size on its menu, in order; then repeatedly raise the job with the fewest GPUs.

    A job that cannot be raised by one step on its menu keeps its size. All GPUs of a job have one type.

    Args:
        snapshot: the current state.
        menus: the sizes of jobs.
        offer: the GPUs that may be reassigned.
        jobs: job rows in order of rank, which breaks ties.
        weighted: whether a job of an app of weight 2 is raised to twice the size.
    """
    claims = Claims(unit=Unit.JOB, rows=jobs)
    types = len(snapshot.cluster.gpu_types)
    free = np.bincount(snapshot.cluster.gpu_type[usable(snapshot, offer, claims)], minlength=types)
    kind = snapshot.jobs.gpu_type[jobs]
    why = reasons(menus.span(jobs)[0], kind, offer.capacity)
    weight = snapshot.apps.weight[snapshot.jobs.app[jobs]] if weighted else np.ones(jobs.size)
    sizes, kinds = _raise(_Steps(menus, jobs), np.flatnonzero(why == int(Reason.OUTRANKED)), kind, weight, free)
    late = np.flatnonzero(sizes == 0)
    return Allocation(
        claims=claims,
        amount=Grants(gpus=sizes, gpu_type=kinds if types > 1 else None),
        order=np.flatnonzero(sizes > 0).astype(np.int32),
        verdicts=Verdicts(rows=jobs[late], reasons=why[late]),
    )


class _Steps:
    """A cache of the sizes of jobs, read once per curve."""

    def __init__(self, menus: Menus, jobs: Rows) -> None:
        self._menus, self._jobs = menus, jobs.tolist()
        self._of: dict[int, list[int]] = {}
        self._curve = menus.curve[jobs].tolist()

    def of(self, index: int) -> list[int]:
        """Return the sizes on the job's menu, ascending."""
        curve = self._curve[index]
        if curve not in self._of:
            self._of[curve] = self._menus.sizes(self._jobs[index]).tolist()
        return self._of[curve]


def _raise(steps: _Steps, able: Ints, kind: Rows, weight: Reals, free: Ints) -> tuple[Ints, Rows]:
    """Repeatedly give the job with the fewest GPUs per unit of weight its next larger size.

    Args:
        steps: sizes by index of job.
        able: indices of the jobs that fit on the cluster, in order.
        kind: [job] requested GPU type; -1: any, which becomes the type with most free GPUs.
        weight: [job] weight.
        free: [type] free GPUs; reduced in place.

    Returns:
        [job] number of GPUs, and their type (-1 with 0 GPUs).
    """
    sizes = np.zeros(kind.size, np.int64)
    kinds = np.full(kind.size, -1, np.int32)
    left = free.tolist()
    queue = [(0.0, index, 0) for index in able.tolist()]  # sorted, so already a heap
    while queue and any(left):
        _, index, step = heapq.heappop(queue)
        menu = steps.of(index)
        held = int(sizes[index])
        asked = int(kinds[index]) if held else int(kind[index])
        of = asked if asked >= 0 else left.index(max(left))
        if menu[step] - held > left[of]:
            continue
        left[of] -= menu[step] - held
        sizes[index], kinds[index] = menu[step], of
        if step + 1 < len(menu):
            heapq.heappush(queue, (menu[step] / float(weight[index]), index, step + 1))
    return sizes, kinds


def fill_time(snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Rows, *, weighted: bool) -> Allocation:
    """Give each job a share of time at its whole gang, so that all jobs hold the same number of GPUs on average.

    A share is at most 1, so that small gangs may run all the time. A job that accepts any GPU type gets its share of
    each type in proportion to the GPUs of that type that are left.

    Args:
        snapshot: the current state.
        menus: the sizes of jobs.
        offer: the offer, with the cluster's GPUs by type.
        jobs: job rows in order of rank, waiting or running.
        weighted: whether a job of an app of weight 2 gets twice the GPU time.
    """
    kind = snapshot.jobs.gpu_type[jobs]
    most = menus.span(jobs)[1]
    why = reasons(most, kind, offer.capacity)
    weight = snapshot.apps.weight[snapshot.jobs.app[jobs]] if weighted else np.ones(jobs.size)
    able: Bools = allowed(kind, most, offer.capacity)
    able[why != int(Reason.OUTRANKED)] = False
    share = water_fill(able, most, weight, offer.capacity)
    unable = np.flatnonzero(why != int(Reason.OUTRANKED))
    return Allocation(
        claims=Claims(unit=Unit.JOB, rows=jobs),
        amount=TimeShares(share=share, since=Seconds(snapshot.now)),
        order=np.flatnonzero(able.any(axis=1)).astype(np.int32),
        verdicts=Verdicts(rows=jobs[unable], reasons=why[unable]),
    )


def allowed(kind: Rows, most: Ints, capacity: Ints) -> Bools:
    """Return whether each job may use each GPU type and fits on it, [job, type]."""
    types = np.arange(capacity.size)
    suits: Bools = (kind[:, None] == -1) | (kind[:, None] == types)
    found: Bools = suits & (most[:, None] <= capacity) & (most[:, None] > 0)
    return found


def water_fill(able: Bools, most: Ints, weight: Reals, capacity: Ints) -> Reals:
    """Return time shares by weighted water-filling, [job, type].

    The GPUs of all jobs grow together, in proportion to weight, until a job runs all the time or its types are used up.
    In each step, a job takes GPUs from its types in proportion to the GPUs that are left of them.
    """
    share = np.zeros(able.shape)
    left = capacity.astype(float)
    active: Bools = able.sum(axis=1) > 0
    while active.any():
        takes = np.where(able & active[:, None], left, 0.0)
        total = takes.sum(axis=1, keepdims=True)
        active &= total[:, 0] > 0.0
        if not active.any():
            break
        speed = np.where(active[:, None], weight[:, None] * takes / np.where(total > 0.0, total, 1.0), 0.0)
        drain = speed.sum(axis=0)
        room = (1.0 - share.sum(axis=1)) * most
        with np.errstate(divide="ignore", invalid="ignore"):
            till_type = np.where(drain > 0.0, left / drain, np.inf)
            till_job = np.where(active, room / weight, np.inf)
        level = min(float(till_type.min()), float(till_job.min()))
        share += np.where(active[:, None], speed * level / np.maximum(most, 1)[:, None], 0.0)
        left = np.where(till_type <= level * (1 + 1e-12), 0.0, left - drain * level)
        active &= till_job > level * (1 + 1e-12)
    return np.minimum(share, 1.0)
