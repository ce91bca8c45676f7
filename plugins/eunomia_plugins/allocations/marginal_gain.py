"""Greedy allocation by marginal gain: the job with the largest gain per additional GPU gets its next size."""

import heapq
from typing import ClassVar, Protocol

import numpy as np

from eunomia import (
    Allocation,
    ByCurve,
    BySize,
    Cause,
    Claims,
    Contract,
    Feature,
    Grants,
    Menus,
    Offer,
    Reason,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Valuations,
    Verdicts,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.pools import usable
from eunomia.units import Ints, Rows
from eunomia_plugins.allocations.ranking import EVENTS, reasons

Ladder = list[tuple[int, float]]
"""The sizes of a job, ascending, with their values."""
Entry = tuple[float, int, int]
"""A queue entry: minus the gain per GPU, the claim, and the index in its ladder."""
BLOCK = 64
"""Number of jobs whose values are computed at a time."""


class Ladders(Protocol):
    """The ladder of each claim."""

    def __getitem__(self, claim: int, /) -> Ladder:
        """Return the ladder of a claim."""
        ...


class MarginalGain:
    """The allocation of Optimus (EuroSys 2018, §4.1) and SLAQ (SoCC 2017, §4.1), for given values of sizes.

    A job without a value for 0 GPUs gets its smallest size before any job is raised, in the order of the claims. Then
    the job with the largest gain per additional GPU is raised by one size, until no GPU is left or no job gains.
    """

    name = "marginal_gain"
    api = 1
    contracts: ClassVar[Contracts] = {
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.BY_SIZE, Feature.MANY_SIZES}),
            gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}),
        )
    }

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Request a round at every arrival and whenever GPUs become free; sizes may change in each round."""
        return Triggers(on=EVENTS, all_on=frozenset(Cause))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Repeatedly grant the job with the largest gain per additional GPU its next size."""
        jobs = valuations.claims.rows
        claims = Claims(unit=Unit.JOB, rows=jobs)
        types = len(snapshot.cluster.gpu_types)
        free = np.bincount(snapshot.cluster.gpu_type[usable(snapshot, offer, claims)], minlength=types)
        kind = snapshot.jobs.gpu_type[jobs]
        least = menus.span(jobs)[0]
        why = reasons(least, kind, offer.capacity)
        able = np.flatnonzero(why == int(Reason.OUTRANKED))
        by_curve = next((form for form in valuations.forms if isinstance(form, ByCurve)), None)
        ladders: Ladders = (
            _ladders(valuations.form(BySize), menus, jobs, able)
            if by_curve is None
            else _LazyLadders(by_curve, menus, jobs, able)
        )
        sizes, kinds, order = _raise(ladders, _first_entries(ladders, able), least, kind, free)
        late = np.flatnonzero(sizes == 0)
        return Allocation(
            claims=claims,
            amount=Grants(gpus=sizes, gpu_type=kinds if types > 1 else None),
            order=order,
            verdicts=Verdicts(rows=jobs[late], reasons=why[late]),
        )


class _LazyLadders:
    """Ladders that are computed on demand, in blocks of consecutive claims."""

    def __init__(self, form: ByCurve, menus: Menus, jobs: Rows, able: Ints) -> None:
        self._form, self._menus, self._jobs, self._able = form, menus, jobs, able
        self._known: dict[int, Ladder] = {}

    def __getitem__(self, claim: int, /) -> Ladder:
        if claim not in self._known:
            at = int(np.searchsorted(self._able, claim))
            block = self._able[at : at + BLOCK]
            form = self._form.of(block.astype(np.int32))
            self._known |= _ladders(form, self._menus, self._jobs, block)
        return self._known[claim]


def _ladders(form: BySize, menus: Menus, jobs: Rows, able: Ints) -> dict[int, Ladder]:
    """Return the ladder of each able claim: the sizes on its menu that have a value, including 0 GPUs."""
    worth: dict[int, dict[int, float]] = {claim: {} for claim in able.tolist()}
    for claim, gpus, each in zip(form.claim.tolist(), form.gpus.tolist(), form.value.tolist(), strict=True):
        if claim in worth:
            worth[claim][gpus] = each
    ladders: dict[int, Ladder] = {}
    menu: dict[int, list[int]] = {}
    for claim, values in worth.items():
        curve = int(menus.curve[jobs[claim]])
        if curve not in menu:
            menu[curve] = [0, *menus.sizes(int(jobs[claim])).tolist()]
        ladders[claim] = [(gpus, values[gpus]) for gpus in menu[curve] if gpus in values]
    return ladders


def _first_entries(ladders: Ladders, able: Ints) -> list[Entry]:
    """Return the first queue entry of each job; with values by curve, every job starts at its smallest size."""
    if isinstance(ladders, _LazyLadders):
        return [(-np.inf, claim, 0) for claim in able.tolist()]
    return [entry for claim in able.tolist() for entry in _entry(ladders, claim, _first(ladders[claim]))]


def _raise(ladders: Ladders, queue: list[Entry], least: Ints, kind: Rows, free: Ints) -> tuple[Ints, Rows, Rows]:
    """Give claims their next sizes, largest gain per GPU first.

    Args:
        ladders: ladder of each claim; its first size may be 0 GPUs.
        queue: the first queue entries.
        least: [claim] smallest size.
        kind: [claim] requested GPU type; -1: any, which becomes the type with most free GPUs.
        free: [type] free GPUs.

    Returns:
        [claim] number of GPUs, [claim] their type (-1 with 0 GPUs), and the served claims in order of service.
    """
    sizes = np.zeros(kind.size, np.int64)
    kinds = np.full(kind.size, -1, np.int32)
    left: list[int] = free.tolist()
    served: list[int] = []
    heapq.heapify(queue)
    while queue and any(left):
        _, claim, step = heapq.heappop(queue)
        asked = int(kinds[claim]) if sizes[claim] else int(kind[claim])
        of = asked if asked >= 0 else left.index(max(left))
        if (not sizes[claim] and least[claim] > left[of]) or step >= len(ladders[claim]):
            continue
        more = ladders[claim][step][0] - int(sizes[claim])
        if more > left[of]:
            continue
        if not sizes[claim]:
            served.append(claim)
        left[of] -= more
        sizes[claim], kinds[claim] = ladders[claim][step][0], of
        for entry in _entry(ladders, claim, step + 1):
            heapq.heappush(queue, entry)
    return sizes, kinds, np.array(served, np.int32)


def _first(ladder: Ladder) -> int:
    """Return the index of the smallest size that is not 0 GPUs."""
    return 1 if ladder and ladder[0][0] == 0 else 0


def _entry(ladders: Ladders, claim: int, step: int) -> list[Entry]:
    """Return the queue entry for a claim's next size; an empty list if there is none or it brings no gain."""
    ladder = ladders[claim]
    if step >= len(ladder):
        return []
    if step == 0:
        return [(-np.inf, claim, 0)]
    (had, before), (gpus, worth) = ladder[step - 1], ladder[step]
    gain = (worth - before) / (gpus - had)
    return [(-gain, claim, step)] if gain > 0.0 else []
