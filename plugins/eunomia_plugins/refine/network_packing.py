"""The refiner ``network_packing``: sizes that limit traffic between machines (AFS §4.4, Appendix E).

With these sizes, at most one job on any machine has traffic to other machines.
"""

import bisect
import dataclasses
import heapq
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from eunomia import Allocation, Contract, Feature, Grants, Menus, Offer, PluginError, Snapshot, Stage, Unit, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.units import Ints


class NetworkPacking:
    """Changes each granted size to a power of two below the size of a machine, or to whole machines.

    If machines have 2^k GPUs, all jobs then fit on as few machines as their sizes need, and at most one job on any
    machine also uses another machine (Proposition 1). No job gets less than the largest such size within its grant, and
    if the grants fill whole machines, no GPU is left over (Proposition 2). Other machine sizes, such as 6 GPUs, are
    allowed without these guarantees.
    """

    name = "network_packing"
    api = 1
    contracts: ClassVar[Contracts] = {
        Stage.REFINE: Contract(
            needs=frozenset({Feature.GRANTS, Feature.MANY_SIZES, Feature.ONE_GPU_TYPE, Feature.EQUAL_MACHINES})
        )
    }

    @hookimpl
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Change the sizes of granted jobs; pinned grants, and grants to apps, users and groups, are not changed."""
        grants = allocation.amount
        if not isinstance(grants, Grants):
            raise PluginError(f"{self.name} must get whole GPUs", value=type(grants).__name__)
        if allocation.claims.unit is not Unit.JOB or grants.pins is not None or allocation.order.size == 0:
            return dataclasses.replace(allocation, memo=None, record=None)
        machine = int(snapshot.cluster.machine_start[1])
        order = allocation.order
        jobs = allocation.claims.rows[order].tolist()
        steps = PackedSizes(menus, machine)
        sizes = grants.gpus.copy()
        sizes[order] = packed_sizes(grants.gpus[order].tolist(), [steps.of(job) for job in jobs])
        largest_first = order[np.argsort(-sizes[order], kind="stable")]
        return dataclasses.replace(
            allocation,
            amount=dataclasses.replace(grants, gpus=sizes),
            order=largest_first,
            memo=None,
            record=None,
        )


class PackedSizes:
    """The sizes that network packing allows for each job, read once per curve.

    Args:
        menus: the sizes of jobs.
        machine: number of GPUs of a machine.
    """

    def __init__(self, menus: Menus, machine: int) -> None:
        self._menus, self._machine = menus, machine
        self._of: dict[int, list[int]] = {}

    def of(self, job: int) -> list[int]:
        """Return the sizes on the menu that are powers of two below a machine's size or multiples of it, ascending."""
        curve = int(self._menus.curve[job])
        if curve not in self._of:
            sizes: Ints = self._menus.sizes(job)
            small = (sizes < self._machine) & ((sizes & (sizes - 1)) == 0)
            self._of[curve] = sizes[small | (sizes % self._machine == 0)].tolist()
        return self._of[curve]


def packed_sizes(granted: Sequence[int], allowed: Sequence[Sequence[int]]) -> list[int]:
    """Return allowed sizes close to the granted ones that together need at most as many GPUs.

    Each job first gets the largest allowed size within its grant. While GPUs are left, the step whose size is closest
    to its job's grant, per GPU of the step, is applied; the paper leaves this order open. Ties are broken by order of
    service.

    Args:
        granted: granted sizes in order of service.
        allowed: allowed sizes of each job, ascending. A job that has none within its grant keeps its grant.

    Returns:
        The size of each job; 0 only if nothing was granted.
    """
    sizes = [
        max((size for size in mine if size <= most), default=most) for most, mine in zip(granted, allowed, strict=True)
    ]
    left = sum(granted) - sum(sizes)
    queue = [entry for job in range(len(sizes)) for entry in _raise(granted[job], allowed[job], sizes[job], job)]
    heapq.heapify(queue)
    while queue and left > 0:
        _, job, size = heapq.heappop(queue)
        if size - sizes[job] <= left:  # the GPUs left only decrease
            left -= size - sizes[job]
            sizes[job] = size
            for entry in _raise(granted[job], allowed[job], size, job):
                heapq.heappush(queue, entry)
    return sizes


def _raise(grant: int, allowed: Sequence[int], size: int, job: int) -> list[tuple[float, int, int]]:
    """Return a queue entry for a job's next size, with its distance from the grant per GPU; empty if there is none."""
    at = bisect.bisect_right(allowed, size)
    if size == 0 or at == len(allowed):
        return []
    larger = allowed[at]
    return [((abs(larger - grant) - abs(size - grant)) / (larger - size), job, larger)]
