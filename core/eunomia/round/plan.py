"""Check an allocation and its placement, and derive the transitions and renewals that lead to the placement.

A job's lease is kept, suspended, started, or resized if its GPUs change. An app's lease, which names no job, is kept or
loses GPUs; GPUs that its app wins form a new lease. A kept lease gets no transition, unless the placement changes the
CPUs or memory of its job.
"""

import math
from itertools import compress, pairwise
from typing import Any

import numpy as np

from eunomia.contract.allocations import Allocation, AmountRange, Grants
from eunomia.contract.decisions import Renewal, Transition, TransitionKind, kind_of_resize, new_transition
from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement
from eunomia.contract.stages import Rounds
from eunomia.model.gpu_sets import joined, without
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.model.shapes import Deferred
from eunomia.round.answers import PlanError
from eunomia.round.invariants import check_job, check_machines, check_pins, check_sizes, given_up
from eunomia.round.offering import reached
from eunomia.round.retunes import check_retunes
from eunomia.round.targets import target_amounts
from eunomia.store.state import State
from eunomia.units import NEVER, NONE, Epoch, LeaseId, Rest, Seconds, Stage, Unit

_WHOLE = {int}
_JOB, _FREE = Unit.JOB, int(GpuState.FREE)
_LEAVING, _LEASE_LEAVING = int(GpuState.LEAVING), LeaseState.LEAVING
_START, _NO_LEASE = TransitionKind.START, frozenset({NONE})
_UNPROTECTED = Seconds(-math.inf)
_Answers = tuple[Offer, Allocation, Placement]
Granted = tuple[Grants, dict[int, int]]
"""The grants of an allocation that was checked, and the claim of each lease whose job is a claim."""


def check_allocation(state: State, menus: Menus, offer: Offer, allocation: Allocation) -> Granted:
    """Check an allocation; return its grants, and the claim of each lease whose job is a claim.

    Raises:
        PlanError: the allocation contains shares, claims of groups, a claim twice, a row that is not in use, a size
            that is not on the job's menu, or a number of GPUs that is negative or not whole.
    """
    claims, amount, most = allocation.claims, allocation.amount, state.jobs.cells.most
    if type(amount) is Grants and claims.unit is _JOB and menus.one_size:
        rows, sizes, named = claims.listed["rows"], amount.listed["gpus"], {*claims.listed["rows"]}
        waits = named <= state.waiting_jobs.rows and len(named) == len(rows) and {*map(type, sizes)} <= _WHOLE
        if waits and sizes == [most[row] for row in rows] and {*allocation.listed["order"]} <= {*range(len(rows))}:
            return amount, {}  # waiting jobs get their only size
    if not isinstance(amount, Grants):
        rule = "after the last refiner an allocation must hold whole GPUs"
        raise PlanError(Stage.ALLOCATION, rule, value=type(amount).__name__)
    return amount, _check_claims(state, menus, offer, allocation, amount)


def _check_claims(state: State, menus: Menus, offer: Offer, allocation: Allocation, amount: Grants) -> dict[int, int]:
    """Check the claims of any allocation of whole GPUs; see ``check_allocation``."""
    stage, claims, sizes = Stage.ALLOCATION, allocation.claims, amount.listed["gpus"]
    if claims.unit is not _JOB and claims.unit is not Unit.APP:
        raise PlanError(stage, "after the last refiner claims must be jobs or apps", value=claims.unit.value)
    rows, holding, runs = claims.listed["rows"], dict[int, int](), False
    many = len(rows)
    if len(sizes) != many:
        raise PlanError(stage, "grants must have a number for each claim", value=f"{len(sizes)} for {many}")
    least = 1 if not sizes else min(sizes) if {*map(type, sizes)} == _WHOLE else -1
    if least < 0:
        raise PlanError(stage, "grants must be whole GPUs, at least 0", value=str(amount.gpus[:8]))
    if many > 1 and len(set(rows)) != many:
        raise PlanError(stage, "a claim must be named once", value=str(claims.rows[:8]))
    table = state.jobs if claims.unit is _JOB else state.apps
    ids, used, lease = table.cells.id, table.used, state.jobs.cells.lease
    for claim, row in enumerate(rows):
        if not 0 <= row < used or ids[row] is None:
            raise PlanError(stage, "a claim must be of a row that is in use", value=str(claims.rows[:8]))
        if claims.unit is _JOB and lease[row] != NONE:
            holding[lease[row]], runs = claim, runs or sizes[claim] > 0
    for claim in allocation.listed["order"]:
        if not 0 <= claim < many:
            raise PlanError(stage, "the order must name claims", value=str(allocation.order[:8]))
    if claims.unit is _JOB:
        jobs, asked = (rows, sizes) if least > 0 else ([*compress(rows, sizes)], [*compress(sizes, sizes)])
        known = menus.one_size and not runs and {*jobs} <= state.waiting_jobs.rows
        if not known or asked != [state.jobs.cells.most[job] for job in jobs]:
            check_sizes(state, menus, offer, jobs, asked, stage)
    return holding


def starts(state: State, answers: _Answers, amount: Grants, rounds: Rounds) -> list[Transition] | None:
    """Check and plan the common round in one pass: waiting jobs start on free GPUs, and nothing else happens.

    The claims must be jobs without a lease. Returns None if ``Planner`` must report an error or plan further changes.
    """
    offer, allocation, placement = answers
    claims, gpus, start = placement.listed["claim"], placement.listed["gpus"], placement.listed["start"]
    plain = offer.whole and allocation.rest is Rest.KEEP and amount.pins is None and not state.lease_ends.overdue
    if not (plain and _is_even(state, amount, placement)):
        return None
    if len(start) != len(claims) + 1 or start[0] != 0 or start[-1] != len(gpus) or len(set(gpus)) != len(gpus):
        return None
    jobs, rows, sizes = state.jobs.cells, allocation.claims.listed["rows"], dict(enumerate(amount.listed["gpus"]))
    states, types, (cpus, memory_gib) = state.holdings.cells.state, state.capacity.type_of, state.amounts.shares.by_gpu
    orders, number, epoch = list[Transition](), state.counters.last_lease, state.counters.last_epoch
    for claim, (first, end) in zip(claims, pairwise(start), strict=True):
        mine = sorted(gpus[first:end])
        if end < first or len(mine) != sizes.pop(claim, NONE) or rows[claim] not in state.waiting_jobs.rows:
            return None
        if not mine:
            continue
        row, kind = rows[claim], jobs.gpu_type[rows[claim]]
        for gpu in mine:
            if not 0 <= gpu < state.cluster.gpus or states[gpu] != _FREE or (kind != NONE and types[gpu] != kind):
                return None
        number, epoch, (ends_at, protected_until) = number + 1, epoch + 1, _terms(state, answers, rounds, claim)
        order = new_transition(
            kind=_START,
            lease=LeaseId(number),
            epoch=Epoch(epoch),
            fence=Epoch(0),
            app=state.apps.cells.id[jobs.app[row]],
            job=jobs.id[row],
            gpus=mine,  # type: ignore[arg-type]
            cpus=Deferred(cpus.take, mine),  # type: ignore[arg-type]
            memory_gib=Deferred(memory_gib.take, mine),  # type: ignore[arg-type]
            ends_at=ends_at,
            protected_until=protected_until,
            leaving=[],  # type: ignore[arg-type]
            after=[],  # type: ignore[arg-type]
        )
        orders.append(order)
    return orders


def _terms(state: State, answers: _Answers, rounds: Rounds, claim: int) -> tuple[Seconds, Seconds]:
    """Return the end of a lease granted now and of its protection, in seconds; claim -1: the lease has no claim."""
    offer, allocation, _ = answers
    length: Any = offer.lease if allocation.lease is None else allocation.lease
    protected: Any = allocation.protected
    if type(length) is np.ndarray:
        length = offer.lease if claim == NONE else float(length[claim])
    if type(protected) is np.ndarray:
        protected = 0.0 if claim == NONE else float(protected[claim])
    if rounds.protected is not None:
        protected = min(rounds.protected, length)  # the protected part cannot outlast the lease
    return Seconds(state.now + length), Seconds(state.now + protected) if protected > 0.0 else _UNPROTECTED


def _is_even(state: State, amount: Grants, placement: Placement) -> bool:
    """Return whether every GPU gets an equal share of its machine's CPUs and memory."""
    if state.amounts.uneven or amount.cpus is not None or amount.memory_gib is not None:
        return False
    return placement.cpus is None and placement.memory_gib is None and placement.retunes is None


_Draft = tuple[TransitionKind, int, int, int, list[int], list[int], list[int], tuple[Seconds, Seconds]]
"""A transition without epochs: kind, lease, app, job, its GPUs, GPUs that it releases, GPUs that it waits for (each
ascending), and the end of the lease and of its protection."""


class Planner:
    """Checks a placement and drafts its orders: leases that lose GPUs, then those resized, then those that start.

    Args:
        state: the present state, which is not changed.
        menus: the elasticity's answer.
        answers: the offer, and the stages' answers to it; the allocation has been checked.
        granted: the grants of the allocation, and its claims by lease.
        rounds: the profile's ``[rounds]``, with the protection and the grace of a lease.

    Attributes:
        renewals: overdue leases that keep GPUs.
    """

    def __init__(self, state: State, menus: Menus, answers: _Answers, granted: Granted, rounds: Rounds) -> None:
        self.state, self.menus, self.rounds, self.answers = state, menus, rounds, answers
        self.offer, self.allocation, self.placement = answers
        self.rows, self.is_job = self.allocation.claims.listed["rows"], self.allocation.claims.unit is Unit.JOB
        self.releases = self.allocation.rest is Rest.RELEASE
        sets = self.placement.cpus is not None or self.placement.memory_gib is not None
        self.tunes = sets and state.amounts.are_known
        # A job that releases GPUs gets at least the time that the menus declare.
        self.deadline = Seconds(state.now + max(rounds.suspend_grace, menus.change.release))
        self.holder, self.gpu_state = state.holdings.cells.lease, state.holdings.cells.state
        self.amount, self.claims = granted
        self.placed: dict[int, list[int]] = {}
        """GPUs of each placed claim, ascending."""
        self.drafts: list[_Draft] = []
        self.renewals: list[Renewal] = []

    def check(self) -> None:
        """Check the invariants of a placement, for the rows and machines that it touches.

        Raises:
            PlanError: a GPU is placed twice, is not on the offer or has the wrong type; a size is not on the menu;
                pins are not honoured; or a machine has fewer CPUs or less memory than are placed on it.
        """
        state, offer, placement, stage = self.state, self.offer, self.placement, Stage.PLACEMENT
        gpus, start, claims = placement.listed["gpus"], placement.listed["start"], placement.listed["claim"]
        many = len(gpus)
        rising = f"the offsets of a placement must rise from 0 to the number of its GPUs, {many}"
        if len(start) != len(claims) + 1 or start[0] != 0 or start[-1] != many:
            raise PlanError(stage, rising, value=str(placement.start[:8]))
        if many > 1 and len(set(gpus)) != many:
            raise PlanError(stage, "a GPU must have one holder", value=str(np.sort(placement.gpus)[:8]))
        rows, sizes, jobs, waiting = self.rows, self.amount.listed["gpus"], state.jobs.cells, state.waiting_jobs.rows
        named, smaller = len(rows), dict[int, int]()
        for claim, (first, end) in zip(claims, pairwise(start), strict=True):
            if end < first:
                raise PlanError(stage, rising, value=str(placement.start[:8]))
            if not 0 <= claim < named:
                raise PlanError(stage, "a placement must name claims of the allocation", value=str(placement.claim[:8]))
            if claim in self.placed:
                raise PlanError(stage, "a claim must be placed once", value=str(placement.claim[:8]))
            mine = self.placed[claim] = gpus[first:end]
            if not mine:
                continue  # a claim without GPUs needs no check
            mine.sort()
            if mine[0] < 0 or mine[-1] >= state.cluster.gpus:
                raise self.beyond()
            row, size = rows[claim], len(mine)
            if self.amount.pins is not None:
                check_pins(state, self.amount.pins, claim, mine)
            if self.is_job and (row not in waiting or jobs.gpu_type[row] != NONE):
                check_job(state, offer, row, mine)
            if size > sizes[claim]:
                rule = f"a claim must get at most the {sizes[claim]} GPUs that it was granted"
                raise PlanError(stage, rule, value=str(size))
            if size < sizes[claim]:
                smaller[row] = size
        if gpus and len(reached(state, offer, gpus)) != many:
            raise self.beyond()
        if smaller and self.is_job:  # the sizes that were granted have been checked
            check_sizes(state, self.menus, offer, list(smaller), list(smaller.values()), stage)
        if placement.retunes is not None:
            check_retunes(state, offer, placement, given_up(state, offer, self.allocation))
        if not _is_even(state, self.amount, placement):
            check_machines(state, offer, self.allocation, placement)

    def beyond(self) -> PlanError:
        """Return the error of a placement with GPUs that are not on the offer."""
        off = self.placement.gpus[~np.isin(self.placement.gpus, self.offer.gpus)]
        return PlanError(Stage.PLACEMENT, "a placement must stay within the offer", value=f"GPU {off[0]}")

    def run(self) -> list[Transition]:
        """Check the placement (see ``check``), and return the transitions from the present state to it."""
        self.check()
        state, served = self.state, dict[int, set[int]]()
        self.amounts = target_amounts(state, self.allocation, self.placement)
        held, app_of, number = state.holdings.cells, state.jobs.cells.app, state.counters.last_lease
        holder, successor = held.lease, held.successor
        gpus: list[int] = self.offer.gpus.tolist() if self.releases else self.placement.listed["gpus"]
        # Leases that may change are those of claims, those on GPUs that are placed, and overdue ones.
        on_them = {lease for gpu in gpus for lease in (holder[gpu], successor[gpu])}
        if not self.is_job:
            claim_of = {row: claim for claim, row in enumerate(self.rows)}
            self.claims = {lease.id: claim_of[lease.app] for lease in state.leases.values() if lease.app in claim_of}
        numbers = {*on_them, *self.claims, *state.lease_ends.overdue} - _NO_LEASE
        if numbers:
            self.change(numbers, served)
        for claim, placed in self.placed.items():  # new leases for the GPUs that existing ones do not get
            fresh = [gpu for gpu in placed if gpu not in served[claim]] if placed and claim in served else placed
            if fresh:
                number, row = number + 1, self.rows[claim]
                job, app = (row, app_of[row]) if self.is_job else (NONE, row)
                after = [gpu for gpu in fresh if holder[gpu] != NONE]
                ends = _terms(state, self.answers, self.rounds, claim)
                self.drafts.append((_START, number, app, job, fresh, [], after, ends))
        if self.placement.retunes is not None:
            for job in self.placement.retunes.jobs.tolist():
                lease = state.leases[state.jobs.cells.lease[job]]
                if lease.probe is None:
                    self.tune(lease)
        return self.ordered()

    def change(self, numbers: set[int], served: dict[int, set[int]]) -> None:
        """Draft the orders for existing leases, and add to ``served`` the GPUs that these give each claim."""
        state, leaving, placed, now = self.state, self.state.owners.leaving, self.placed, self.state.now
        changing, gpus = list[tuple[Lease, int, list[int]]](), list[int]()
        for number in sorted(numbers):
            lease, claim = state.leases[number], self.claims.get(number, NONE)
            back = sorted(leaving[number]) if number in leaving else []
            if lease.state is _LEASE_LEAVING:
                continue
            if claim in placed and placed[claim] == lease.gpus and self.is_job and lease.job != NONE and not back:
                if self.tunes:
                    self.tune(lease)  # the lease keeps its GPUs
                if lease.gpus and lease.ends_at <= now:
                    self.renew(lease, claim)
                served[claim] = set(lease.gpus)
                continue
            changing.append((lease, claim, back))
            gpus += lease.gpus + back
        there = set(reached(state, self.offer, gpus)) if gpus else set()
        resized: list[tuple[Lease, int, list[int]]] = []
        for lease, claim, back in changing:
            on = [gpu for gpu in lease.gpus if gpu in there]
            if not on and there.isdisjoint(back):
                continue
            if claim != NONE and self.is_job and lease.job != NONE:
                resized.append((lease, claim, on))
                if lease.ends_at <= now and not set(on).isdisjoint(placed.get(claim, ())):
                    self.renew(lease, claim)
                continue
            kept = set(on).intersection(placed.get(claim, ()))
            if claim != NONE:
                served.setdefault(claim, set()).update(kept)
            elif not self.releases:
                kept = set(on).difference(self.placement.listed["gpus"])
            if len(kept) < len(on):
                self.give_up(lease, without(on, kept))
            if kept and lease.ends_at <= now:
                self.renew(lease, claim)
        for lease, claim, on in resized:
            wanted = placed.get(claim, [])
            self.resize(lease, claim, on, wanted)
            served[claim] = set(wanted)

    def tune(self, lease: Lease) -> None:
        """Draft a retune for a lease that keeps its GPUs, if the placement changes its CPUs or memory."""
        held, gpus = self.state.holdings.live, lease.gpus
        both = ((self.amounts[0], held.cpus), (self.amounts[1], held.memory_gib))
        if any(not np.allclose(new[gpus], old[gpus], rtol=1e-9, atol=0.0) for new, old in both):
            self.order(TransitionKind.RETUNE, lease, gpus, [], (lease.ends_at, lease.protected_until))

    def renew(self, lease: Lease, claim: int) -> None:
        """Record the renewal of an overdue lease that keeps GPUs."""
        ends_at, protected_until = _terms(self.state, self.answers, self.rounds, claim)
        self.renewals.append(Renewal(lease=LeaseId(lease.id), ends_at=ends_at, protected_until=protected_until))

    def give_up(self, lease: Lease, lost: list[int]) -> None:
        """Draft the revocation of GPUs of a lease that is an app's or has no claim; a gang loses all its GPUs."""
        mine: list[int] = lease.gpus
        rest = [] if lease.job != NONE else without(mine, lost)
        kind = TransitionKind.SHRINK if rest else TransitionKind.SUSPEND
        self.order(kind, lease, rest, mine if lease.job != NONE else lost, (lease.ends_at, lease.protected_until))

    def resize(self, lease: Lease, claim: int, on: list[int], placed: list[int]) -> None:
        """Draft the resize of a job's lease to its placement, which may revoke only GPUs that are on the offer."""
        mine, target, lost = lease.gpus, list[int](), on  # the case that the claim gets no GPUs
        if placed or on != mine:
            target, lost = joined(without(mine, on), placed), without(on, placed)
        if target == mine:
            if self.tunes:
                self.tune(lease)
            return
        kind = kind_of_resize(mine, target, lost) if target else TransitionKind.SUSPEND
        present = lease.ends_at, lease.protected_until
        ends = present if kind.effect.ends else _terms(self.state, self.answers, self.rounds, claim)
        self.order(kind, lease, target, lost, ends)

    def order(
        self, kind: TransitionKind, lease: Lease, gpus: list[int], lost: list[int], ends: tuple[Seconds, Seconds]
    ) -> None:
        """Draft an order for a lease."""
        holder, states, number = self.holder, self.gpu_state, lease.id
        after = gpus and [gpu for gpu in gpus if holder[gpu] not in (NONE, number) or states[gpu] == _LEAVING]
        leaving = [gpu for gpu in lost if holder[gpu] == number] if lost else []
        self.drafts.append((kind, number, lease.app, lease.job, gpus, leaving, after, ends))

    def ordered(self) -> list[Transition]:
        """Return the orders of all drafts; fences of released GPUs are older than the epochs of new holders."""
        state, epoch = self.state, self.state.counters.last_epoch
        orders, cpus_bounds, memory_bounds = list[Transition](), self.amount.cpus, self.amount.memory_gib
        jobs, apps, fence = state.jobs.cells.id, state.apps.cells.id, epoch
        for draft in self.drafts:
            epoch += draft[5] != []
        for kind, lease, app, job, gpus, leaving, after, (ends_at, protected_until) in self.drafts:
            epoch, fence = epoch + 1, fence + (leaving != [])
            order = new_transition(
                kind=kind,
                lease=LeaseId(lease),
                epoch=Epoch(epoch),
                fence=Epoch(fence if leaving else 0),
                app=apps[app],
                job=None if job == NONE else jobs[job],
                gpus=gpus,  # type: ignore[arg-type]
                cpus=self.amounts[0][gpus],
                memory_gib=self.amounts[1][gpus],
                ends_at=ends_at,
                protected_until=protected_until,
                leaving=leaving,  # type: ignore[arg-type]
                after=after,  # type: ignore[arg-type]
                deadline=self.deadline if leaving else NEVER,
                cpus_range=self.range_of(kind, (job, app), len(gpus), cpus_bounds) if cpus_bounds else None,
                memory_range=self.range_of(kind, (job, app), len(gpus), memory_bounds) if memory_bounds else None,
            )
            orders.append(order)
        return orders

    def range_of(
        self, kind: TransitionKind, of: tuple[int, int], gpus: int, bounds: AmountRange
    ) -> tuple[float, float] | None:
        """Return the CPU or memory range of an order; ``of`` has its job and app rows. None: no job, or no claim."""
        if kind is TransitionKind.SUSPEND or of[0] == NONE:
            return None
        row = of[0] if self.is_job else of[1]
        if row not in self.rows:
            return None
        claim = self.rows.index(row)
        granted = int(self.amount.gpus[claim])
        return bounds.of(claim, gpus / max(1, granted))
