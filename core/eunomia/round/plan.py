"""Compares a placement with the present state and lists the transitions and renewals that lead from one to the other.

A job's lease stays, leaves, starts, or is resized if its GPUs change. An app's lease, which names no job, stays or
loses GPUs; GPUs that its app wins form a new lease. A lease that stays gets no transition, unless the placement gives
its job other CPUs or memory.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np

from eunomia.contract.allocations import Allocation, AmountRange, Grants
from eunomia.contract.decisions import Renewal, Transition, TransitionKind, kind_of_resize
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement, Retunes
from eunomia.contract.stages import Rounds
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.round.targets import target_amounts
from eunomia.state.offering import reached
from eunomia.state.state import State
from eunomia.units import NEVER, NONE, Epoch, LeaseId, Reals, Rest, Seconds, Unit

NO_GPUS = np.empty(0, np.int64)
_LEAVING, _LEASE_LEAVING = int(GpuState.LEAVING), LeaseState.LEAVING
_UNPROTECTED = Seconds(-math.inf)


@dataclasses.dataclass(slots=True)
class Plan:
    """The transitions and renewals of one round."""

    transitions: list[Transition]
    renewals: list[Renewal]


@dataclasses.dataclass(slots=True)
class Target:
    """The checked answers of the stages for the GPUs on offer; claims and GPUs are also plain numbers."""

    offer: Offer
    allocation: Allocation
    placement: Placement
    rows: list[int]
    """By claim: its row."""
    placed: dict[int, list[int]]
    """By placed claim: its GPUs, ascending."""


def plan(state: State, target: Target, rounds: Rounds) -> Plan:
    """Return the transitions and renewals that lead from the present state to a placement.

    Args:
        state: the present state; not changed.
        target: the answers of the stages, which have been checked.
        rounds: settings of the profile: how long a grant is protected, and the time from a warning to the kill.
    """
    return _Planner(state, target, rounds).run()


def planned(allocation: Allocation, starts_at: Reals) -> tuple[tuple[int, float], ...]:
    """Planned starts of waiting jobs: row and time in seconds."""
    known = zip(allocation.claims.rows.tolist(), starts_at.tolist(), strict=True)
    return tuple((row, time) for row, time in known if math.isfinite(time))


@dataclasses.dataclass(slots=True)
class _Draft:
    """A transition that has no epochs yet; GPUs are plain numbers, ascending."""

    kind: TransitionKind
    lease: int
    app: int
    job: int
    gpus: list[int]
    leaving: list[int]
    after: list[int]
    ends: tuple[Seconds, Seconds]
    fence: int = 0


class _Planner:
    """Drafts of one round: first the leases that lose GPUs, then those that are resized, then those that start."""

    def __init__(self, state: State, target: Target, rounds: Rounds) -> None:
        self.state, self.offer, self.placement = state, target.offer, target.placement
        self.now, self.is_job = state.now, target.allocation.claims.unit is Unit.JOB
        self.releases = target.allocation.rest is Rest.RELEASE
        self.rows, self.placed = target.rows, target.placed
        self.terms = _Terms(state, target.offer, target.allocation, rounds)
        self.deadline = Seconds(state.now + rounds.suspend_grace)
        self.holder, self.gpu_state = state.holdings.cells.lease, state.holdings.cells.state
        given = self.placement.cpus is not None or self.placement.memory_gib is not None
        self.even = not given and self.placement.retunes is None and not state.standing.uneven
        """Whether every GPU comes with an equal share of its machine's CPUs and memory."""
        self.tunes = given and state.amounts.are_known
        shares = state.machine_shares
        self.amounts = shares.by_gpu if self.even else target_amounts(state, target.allocation, target.placement)
        amount = target.allocation.amount
        self.ranges = (amount.cpus, amount.memory_gib) if isinstance(amount, Grants) else (None, None)
        self.granted = amount.gpus if isinstance(amount, Grants) else NO_GPUS
        self.drafts: list[_Draft] = []
        self.renewals: list[Renewal] = []

    def run(self) -> Plan:
        served: dict[int, set[int]] = {}
        resized: list[tuple[Lease, int, set[int], list[int]]] = []
        changing = [found for found in self.touched() if not self.stays(*found, served)]
        for lease, claim, on in self.on_offer(changing):
            kept = self.kept(claim, on)
            lost = [gpu for gpu in on if gpu not in kept]
            if claim is not None:
                served.setdefault(claim, set()).update(kept)
            if claim is not None and lease.job != NONE and self.is_job:
                resized.append((lease, claim, set(on), lost))
            elif lost:
                self.give_up(lease, lost)
            self.renew(lease, claim, bool(kept))
        for lease, claim, reach, lost in resized:
            self.resize(lease, claim, reach, lost)
            served[claim] = set(self.placed.get(claim, ()))
        self.start(served)
        if self.placement.retunes is not None:
            self.retune(self.placement.retunes)
        return Plan(transitions=self.numbered(), renewals=self.renewals)

    def touched(self) -> list[tuple[Lease, int | None]]:
        """Leases that may change, oldest first, each with its claim (None: the allocation does not name it).

        These are the leases of claims, the leases on GPUs that are placed, and overdue leases.
        """
        state, held = self.state, self.state.holdings.cells
        gpus: list[int] = self.offer.gpus.tolist() if self.releases else self.placement.gpus.tolist()
        holder, successor = held.lease, held.successor
        numbers = state.lease_ends.overdue | {holder[gpu] for gpu in gpus} | {successor[gpu] for gpu in gpus}
        claims: dict[int, int] = {}
        if self.is_job:
            lease_of = state.jobs.cells.lease
            claims = {lease_of[row]: claim for claim, row in enumerate(self.rows)}
        else:
            for claim, row in enumerate(self.rows):
                claims |= dict.fromkeys(state.standing.leases_of.get(row, ()), claim)
        numbers.update(claims)
        numbers.discard(NONE)
        if not numbers:
            return []
        leases = [state.leases[number] for number in sorted(numbers)]
        return [(lease, claims.get(lease.id)) for lease in leases if lease.state is not _LEASE_LEAVING]

    def stays(self, lease: Lease, claim: int | None, served: dict[int, set[int]]) -> bool:
        """Serve a job's lease that is placed on exactly the GPUs that it has; False: the lease may change."""
        if claim is None or not self.is_job or lease.job == NONE or self.state.leaving.get(lease.id):
            return False
        gpus = self.placed.get(claim)
        if gpus is None or gpus != lease.gpus.tolist():
            return False
        served[claim] = set(gpus)
        self.tune(lease, gpus)
        self.renew(lease, claim, bool(gpus))
        return True

    def tune(self, lease: Lease, gpus: list[int]) -> None:
        """Order other CPUs and memory for a claim's lease that keeps its GPUs, if the placement sets any."""
        if self.tunes and self.changed(lease):
            self.order(TransitionKind.RETUNE, lease, gpus, [], (lease.ends_at, lease.protected_until))

    def changed(self, lease: Lease) -> bool:
        """Return whether the placement gives a lease that stays on its GPUs other CPUs or memory."""
        held = self.state.holdings.live
        both = ((self.amounts[0], held.cpus), (self.amounts[1], held.memory_gib))
        return any(not np.allclose(new[lease.gpus], old[lease.gpus], rtol=1e-9, atol=0.0) for new, old in both)

    def retune(self, retunes: Retunes) -> None:
        """Order other CPUs and memory for the jobs that the placement names next to its claims."""
        for job in retunes.jobs.tolist():
            lease = self.state.leases[self.state.jobs.cells.lease[job]]
            if lease.probe is None and self.changed(lease):
                gpus: list[int] = lease.gpus.tolist()
                self.order(TransitionKind.RETUNE, lease, gpus, [], (lease.ends_at, lease.protected_until))

    def on_offer(self, changing: list[tuple[Lease, int | None]]) -> Iterable[tuple[Lease, int | None, list[int]]]:
        """Yield the leases with a GPU on the offer or GPUs to give back, each with its GPUs on the offer."""
        if not changing:
            return
        leaving = self.state.leaving
        parts = [(lease, claim, lease.gpus.tolist(), sorted(leaving.get(lease.id, ()))) for lease, claim in changing]
        gpus = [gpu for _, _, mine, back in parts for gpu in (*mine, *back)]
        if not gpus:
            return
        there = set(np.array(gpus)[reached(self.state, self.offer, np.array(gpus))].tolist())
        for lease, claim, mine, back in parts:
            on = [gpu for gpu in mine if gpu in there]
            if on or not there.isdisjoint(back):
                yield lease, claim, on

    def kept(self, claim: int | None, on: list[int]) -> set[int]:
        """The GPUs on the offer that a lease keeps."""
        if claim is not None:
            return set(on).intersection(self.placed.get(claim, ()))
        return set() if self.releases else set(on).difference(self.placement.gpus.tolist())

    def renew(self, lease: Lease, claim: int | None, keeps: bool) -> None:
        """Renew an overdue lease that keeps GPUs."""
        if keeps and lease.ends_at <= self.now:
            ends_at, protected_until = self.terms.of(claim)
            self.renewals.append(Renewal(lease=LeaseId(lease.id), ends_at=ends_at, protected_until=protected_until))

    def give_up(self, lease: Lease, lost: list[int]) -> None:
        """Take GPUs from an app's lease, or from a lease without a claim; a gang that loses one GPU loses all."""
        mine: list[int] = lease.gpus.tolist()
        gone = set(lost)
        rest = [] if lease.job != NONE else [gpu for gpu in mine if gpu not in gone]
        kind = TransitionKind.SHRINK if rest else TransitionKind.SUSPEND
        self.order(kind, lease, rest, mine if lease.job != NONE else lost, (lease.ends_at, lease.protected_until))

    def resize(self, lease: Lease, claim: int, reach: set[int], lost: list[int]) -> None:
        """Give a job's lease the GPUs of its placement; it keeps its GPUs that are not on the offer."""
        mine: list[int] = lease.gpus.tolist()
        target = sorted({*(gpu for gpu in mine if gpu not in reach), *self.placed.get(claim, ())})
        if target == mine:
            self.tune(lease, mine)
            return
        kind = kind_of_resize(mine, target, lost)
        ends = (lease.ends_at, lease.protected_until) if kind.effect.ends else self.terms.of(claim)
        self.order(kind, lease, target, lost, ends)

    def start(self, served: Mapping[int, set[int]]) -> None:
        """Start a lease for the GPUs of each claim that the claim's present leases do not have."""
        number = self.state.last_lease
        app_of = self.state.jobs.cells.app
        for claim, gpus in self.placed.items():
            fresh = [gpu for gpu in gpus if gpu not in served[claim]] if claim in served else gpus
            if fresh:
                number, row = number + 1, self.rows[claim]
                job, app = (row, app_of[row]) if self.is_job else (NONE, row)
                lease = Lease(id=number, epoch=0, app=app, job=job, gpus=NO_GPUS)
                self.order(TransitionKind.START, lease, fresh, [], self.terms.of(claim))

    def order(
        self, kind: TransitionKind, lease: Lease, gpus: list[int], lost: list[int], ends: tuple[Seconds, Seconds]
    ) -> None:
        holder, states, number = self.holder, self.gpu_state, lease.id
        after = [gpu for gpu in gpus if holder[gpu] != NONE and (holder[gpu] != number or states[gpu] == _LEAVING)]
        leaving = [gpu for gpu in lost if holder[gpu] == number] if lost else []
        self.drafts.append(_Draft(kind, number, lease.app, lease.job, gpus, leaving, after, ends))

    def numbered(self) -> list[Transition]:
        """Number the drafts: the fences of GPUs given back are older than the epochs of the leases that get them."""
        epoch = self.state.last_epoch
        for draft in self.drafts:
            if draft.leaving:
                epoch += 1
                draft.fence = epoch
        return [self.made(draft, epoch + place) for place, draft in enumerate(self.drafts, start=1)]

    def made(self, draft: _Draft, epoch: int) -> Transition:
        state, gpus = self.state, np.array(draft.gpus, np.int64)
        if self.even:
            cpus, memory_gib = state.machine_shares.of(gpus)
        else:
            cpus, memory_gib = self.amounts[0][gpus], self.amounts[1][gpus]
        return Transition(
            kind=draft.kind,
            lease=LeaseId(draft.lease),
            epoch=Epoch(epoch),
            fence=Epoch(draft.fence),
            app=state.app_id(draft.app),
            job=None if draft.job == NONE else state.job_id(draft.job),
            gpus=gpus,
            cpus=cpus,
            memory_gib=memory_gib,
            ends_at=draft.ends[0],
            protected_until=draft.ends[1],
            leaving=np.array(draft.leaving, np.int64) if draft.leaving else NO_GPUS,
            after=np.array(draft.after, np.int64) if draft.after else NO_GPUS,
            deadline=self.deadline if draft.leaving else NEVER,
            cpus_range=None if self.ranges[0] is None else self.range_of(draft, self.ranges[0]),
            memory_range=None if self.ranges[1] is None else self.range_of(draft, self.ranges[1]),
        )

    def range_of(self, draft: _Draft, bounds: AmountRange) -> tuple[float, float] | None:
        """The range of a draft's GPUs by the allocation; None: no claim of it has them, or an app divides them."""
        if draft.kind is TransitionKind.SUSPEND or draft.job == NONE:
            return None
        row = draft.job if self.is_job else draft.app
        if row not in self.rows:
            return None
        claim = self.rows.index(row)
        return bounds.of(claim, len(draft.gpus) / max(1, int(self.granted[claim])))


class _Terms:
    """The terms of leases granted now: their end, and the end of their protected part."""

    def __init__(self, state: State, offer: Offer, allocation: Allocation, rounds: Rounds) -> None:
        self._now, self._offered, self._rounds = state.now, offer.lease, rounds
        length = self._length = offer.lease if allocation.lease is None else allocation.lease
        protected = self._protected = allocation.protected
        self._same: tuple[Seconds, Seconds] | None = None
        if not isinstance(length, np.ndarray) and not isinstance(protected, np.ndarray):
            self._same = self._ends(length, protected)

    def of(self, claim: int | None) -> tuple[Seconds, Seconds]:
        """Return the end of a claim's lease and of its protected part; None: the lease has no claim."""
        if self._same is not None:
            return self._same
        length, protected = self._length, self._protected
        if isinstance(length, np.ndarray):
            length = self._offered if claim is None else Seconds(float(length[claim]))
        if isinstance(protected, np.ndarray):
            protected = Seconds(0.0) if claim is None else Seconds(float(protected[claim]))
        return self._ends(length, protected)

    def _ends(self, length: Seconds, protected: Seconds) -> tuple[Seconds, Seconds]:
        if self._rounds.protected is not None:
            protected = min(self._rounds.protected, length)  # the protected part cannot outlast the lease
        return Seconds(self._now + length), Seconds(self._now + protected) if protected > 0.0 else _UNPROTECTED
