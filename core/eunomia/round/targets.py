"""The CPUs and memory of every GPU after a placement, which both the checks and the orders use."""

import numpy as np

from eunomia.contract.allocations import Allocation
from eunomia.contract.placements import Placement
from eunomia.store.state import State
from eunomia.units import NONE, Bools, Reals, Unit


def target_amounts(state: State, allocation: Allocation, placement: Placement) -> tuple[Reals, Reals]:
    """Return CPUs, and GiB, of each GPU (do not modify); a kept GPU keeps its amounts unless the placement sets them.

    Args:
        state: the present state.
        allocation: the allocation whose claims are placed.
        placement: the placement; the rows of its claims and retunes must be in use.
    """
    shares, retunes = state.amounts.shares.by_gpu, placement.retunes
    plain = placement.cpus is None and placement.memory_gib is None and retunes is None
    if plain and not state.amounts.uneven:
        return shares
    keeps, of_app = _keeps(state, allocation, placement)
    held = state.holdings.live
    own = (held.lease != NONE)[: state.cluster.gpus]
    made = []
    for share, old, given, tuned in (
        (shares[0], held.cpus, placement.cpus, None if retunes is None else retunes.cpus),
        (shares[1], held.memory_gib, placement.memory_gib, None if retunes is None else retunes.memory_gib),
    ):
        amount: Reals = np.where(own, old[: own.size], share)
        on, stay = placement.gpus, keeps if given is None else of_app
        new = share[on] if given is None else given
        amount[on[~stay]] = new[~stay]
        if retunes is not None and tuned is not None:
            for job, total in zip(retunes.jobs.tolist(), tuned.tolist(), strict=True):
                lease = state.leases[state.jobs.cells.lease[job]]
                if lease.probe is None:  # else it keeps what it has, and is retuned by a later round
                    amount[lease.gpus] = total / len(lease.gpus)
        made.append(amount)
    return made[0], made[1]


def _keeps(state: State, allocation: Allocation, placement: Placement) -> tuple[Bools, Bools]:
    """Return for each placed GPU whether its claim already holds it, and whether that claim is an app."""
    keeps, of_app = np.zeros(placement.gpus.size, dtype=bool), np.zeros(placement.gpus.size, dtype=bool)
    held, rows, start = state.holdings.live, allocation.claims.rows, placement.start.tolist()
    for at, claim in enumerate(placement.claim.tolist()):
        part = slice(start[at], start[at + 1])
        gpus = placement.gpus[part]
        if allocation.claims.unit is Unit.JOB:
            mine = state.jobs.cells.lease[rows.item(claim)]
            owner = np.where(held.successor[gpus] != NONE, held.successor[gpus], held.lease[gpus])
            keeps[part] = (owner == mine) & (mine != NONE)
        else:
            of_app[part] = (held.app[gpus] == rows[claim]) & (held.successor[gpus] == NONE)
    return keeps | of_app, of_app
