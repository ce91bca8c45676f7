"""A round that starts one job and does nothing else, most of the rounds of a cluster that has room: checked at once.

What is not plainly in order is left to ``check_allocation``, ``check_placement`` and ``plan``, which say what is wrong.
"""

import numpy as np

from eunomia.allocations import Allocation, Grants
from eunomia.leases import GpuState
from eunomia.menus import Menus
from eunomia.offers import Offer
from eunomia.placements import Placement
from eunomia.plan import Plan, start_order
from eunomia.stages import Rounds
from eunomia.state import State
from eunomia.units import NONE, Ints, Rest, Unit

_JOB, _KEEP = Unit.JOB, Rest.KEEP
_FREE = int(GpuState.FREE)
_ONE = (1,)


def lone_grant(state: State, menus: Menus, allocation: Allocation) -> int:
    """The row of the job, where all that is granted is a size on its menu to one job that waits and holds nothing.

    Returns:
        -1, where it is not so, or not plainly; else nothing can be wrong with the allocation.
    """
    claims, grants, order = allocation.claims, allocation.amount, allocation.order
    if claims.unit is not _JOB or type(grants) is not Grants:
        return NONE
    rows, sizes = claims.rows, grants.gpus
    if rows.shape != _ONE or sizes.shape != _ONE or sizes.dtype.kind not in "iu":
        return NONE
    if order.size and order.tolist() != [0]:
        return NONE
    row, size = int(rows.item()), int(sizes.item())
    holds_nothing = row in state.standing.waiting and state.job_accounts.cells.lease[row] == NONE
    return row if holds_nothing and size > 0 and menus.has(row, size) else NONE


def lone_start(
    state: State, row: int, offer: Offer, allocation: Allocation, placement: Placement, rounds: Rounds
) -> Plan | None:
    """The plan that starts the only job that was granted anything, if it is placed on free GPUs of a whole offer.

    Args:
        state: the present; not changed.
        row: of the job, as ``lone_grant`` told it.
        offer: what may be touched.
        allocation: the one of ``lone_grant``.
        placement: not checked before.
        rounds: the profile's.

    Returns:
        None, where it is not so, or not plainly; else nothing can be wrong with the placement.
    """
    grants = allocation.amount
    if not isinstance(grants, Grants) or grants.pins is not None or allocation.rest is not _KEEP or not offer.whole:
        return None
    if placement.cpus is not None or placement.memory_gib is not None or state.standing.overdue:
        return None
    if not _is_whole(placement, int(grants.gpus.item())) or not _is_free(state, row, placement.gpus):
        return None
    gpus = placement.gpus if placement.gpus.size == 1 else np.sort(placement.gpus)
    return Plan([start_order(state, offer, allocation, rounds, row, 0, gpus, 1)], [])


def _is_whole(placement: Placement, size: int) -> bool:
    """Say whether a placement is of the first claim, with so many GPUs, and of nothing else."""
    claim, start = placement.claim, placement.start
    if placement.gpus.size != size or claim.dtype.kind not in "iu":
        return False
    named: list[int] = claim.tolist()
    return named == [0] and start.tolist() == [0, size]


def _is_free(state: State, row: int, gpus: Ints) -> bool:
    """Say whether these are different GPUs that nobody holds, and of the type that the job asks for."""
    numbers, states = gpus.tolist(), state.holdings.cells.state
    if not 0 <= min(numbers) <= max(numbers) < state.cluster.gpus or len(set(numbers)) < len(numbers):
        return False
    for gpu in numbers:
        if states[gpu] != _FREE:
            return False
    wanted = state.jobs.cells.gpu_type[row]
    return wanted == NONE or bool((state.cluster.gpu_type[gpus] == wanted).all())
