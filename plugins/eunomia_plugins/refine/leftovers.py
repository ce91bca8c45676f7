"""The refiner ``leftovers``: unallocated GPUs go to the served jobs that gain most.

See AFS §5.5, and Altruistic scheduling (OSDI'16).
"""

import dataclasses
import heapq
from typing import ClassVar, NamedTuple

import numpy as np

from eunomia import (
    Allocation,
    Contract,
    Feature,
    Grants,
    Menus,
    Offer,
    PluginError,
    Snapshot,
    Stage,
    Unit,
    available,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Ints, Reals


class Leftovers:
    """Raises served jobs step by step, the largest gain in throughput per GPU first.

    Throughput is relative to the per-GPU throughput at the job's smallest size, so that different models are
    comparable. A job without GPUs from the allocation gets none here.
    """

    name = "leftovers"
    api = 1
    contracts: ClassVar[Contracts] = {
        Stage.REFINE: Contract(needs=frozenset({Feature.GRANTS, Feature.MANY_SIZES, Feature.RATES}))
    }

    @hookimpl
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Raise the grants to jobs; pinned grants, and grants to apps, users and groups, are not changed."""
        grants = allocation.amount
        if not isinstance(grants, Grants):
            raise PluginError(f"{self.name} must get whole GPUs", value=type(grants).__name__)
        plain = grants.pins is None and grants.cpus is None and grants.memory_gib is None
        if allocation.claims.unit is not Unit.JOB or not plain:
            return dataclasses.replace(allocation, memo=None, record=None)
        types = len(snapshot.cluster.gpu_types)
        free = np.bincount(snapshot.cluster.gpu_type[available(snapshot, offer, allocation)], minlength=types)
        sizes = grants.gpus.copy()
        kinds = np.zeros(sizes.size, np.int64) if types == 1 else _kinds(snapshot, allocation, grants)
        standby = [] if allocation.standby is None else allocation.standby.tolist()
        for claim in [*allocation.order.tolist(), *standby]:
            if kinds[claim] >= 0:
                free[kinds[claim]] -= sizes[claim]
            else:
                free -= sizes[claim]  # the claim may get GPUs of any type
        order = [claim for claim in allocation.order.tolist() if kinds[claim] >= 0 and sizes[claim] > 0]
        _raise(_Gains(menus, allocation), order, kinds, sizes, free)
        return dataclasses.replace(allocation, amount=dataclasses.replace(grants, gpus=sizes), memo=None, record=None)


def _kinds(snapshot: Snapshot, allocation: Allocation, grants: Grants) -> Ints:
    """Return the GPU type of each claim's grant; -1: any."""
    asked = snapshot.jobs.gpu_type[allocation.claims.rows].astype(np.int64)
    return asked if grants.gpu_type is None else np.where(grants.gpu_type >= 0, grants.gpu_type, asked)


class _Step(NamedTuple):
    """The next size of a claim, with its gain."""

    gain: float
    gpus: int


class _Gains:
    """Looks up the next size of each claim; sizes and rates are read once per curve."""

    def __init__(self, menus: Menus, allocation: Allocation) -> None:
        self._menus, self._rows = menus, allocation.claims.rows.tolist()
        self._curves: dict[int, tuple[list[int], Reals]] = {}

    def after(self, claim: int, size: int) -> _Step | None:
        """Return the next larger size at which the claim's job is faster.

        Returns None if there is none or rates are not known.
        """
        sizes, rates = self._curve(self._rows[claim])
        if size not in sizes or not rates[0] > 0.0:
            return None
        now = sizes.index(size)
        unit = rates[0] / sizes[0]
        for at in range(now + 1, len(sizes)):
            if rates[at] > rates[now]:
                gpus = sizes[at] - size
                return _Step(float((rates[at] - rates[now]) / unit / gpus), gpus)
        return None

    def _curve(self, job: int) -> tuple[list[int], Reals]:
        curve = int(self._menus.curve[job])
        if curve not in self._curves:
            sizes = self._menus.sizes(job).tolist()
            self._curves[curve] = sizes, np.array([self._menus.rate(job, size) for size in sizes])
        return self._curves[curve]


def _raise(gains: _Gains, order: list[int], kinds: Ints, sizes: Ints, free: Ints) -> None:
    """Raise the claim with the largest gain per GPU until none can be raised; ties are broken by order of service.

    Args:
        gains: looks up next sizes of claims.
        order: the claims that may be raised.
        kinds: [claim] GPU type of its grant; -1: any.
        sizes: [claim] number of GPUs; raised in place.
        free: [type] free GPUs; reduced in place.
    """
    queue = [
        (-step.gain, at, step.gpus) for at, claim in enumerate(order) if (step := gains.after(claim, int(sizes[claim])))
    ]
    heapq.heapify(queue)
    while queue and (free > 0).any():
        _, at, gpus = heapq.heappop(queue)
        claim = order[at]
        if gpus > free[kinds[claim]]:
            continue
        free[kinds[claim]] -= gpus
        sizes[claim] += gpus
        step = gains.after(claim, int(sizes[claim]))
        if step is not None:
            heapq.heappush(queue, (-step.gain, at, step.gpus))
