"""Compares a placement with the present state and lists the transitions and renewals that lead from one to the other.

A job's lease stays, leaves, starts, or is resized if its GPUs change. An app's lease, which names no job, stays or
loses GPUs; GPUs that its app wins form a new lease. A lease that stays gets no transition, unless the placement gives
its job other CPUs or memory.
"""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from eunomia.contract.allocations import Allocation, AmountRange, Grants
from eunomia.contract.decisions import Renewal, Transition, TransitionKind, kind_of_resize
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement, Retunes
from eunomia.contract.stages import Rounds
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.round.offering import reached
from eunomia.round.targets import target_amounts
from eunomia.store.state import State
from eunomia.units import NEVER, NONE, Epoch, LeaseId, Reals, Rest, Seconds, Unit

NO_GPUS = np.empty(0, np.int64)
_LEAVING, _LEASE_LEAVING = int(GpuState.LEAVING), LeaseState.LEAVING
_START = TransitionKind.START
_UNPROTECTED = Seconds(-math.inf)


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


class Planner:
    """Drafts of one round: first the leases that lose GPUs, then those that are resized, then those that start.

    Args:
        state: the present state; not changed.
        answers: the offer, and the answers of the stages for it, which have been checked.
        numbers: the same as plain numbers: by claim its row, and by placed claim its GPUs, ascending.
        rounds: settings of the profile: how long a grant is protected, and the time from a warning to the kill.

    Attributes:
        renewals: overdue leases that keep GPUs.
    """

    def __init__(
        self,
        state: State,
        answers: tuple[Offer, Allocation, Placement],
        numbers: tuple[list[int], dict[int, list[int]]],
        rounds: Rounds,
    ) -> None:
        self.state, self.rounds, (self.rows, self.placed) = state, rounds, numbers
        self.offer, allocation, self.placement = answers
        self.allocation, amount = allocation, allocation.amount
        self.is_job, self.releases = allocation.claims.unit is Unit.JOB, allocation.rest is Rest.RELEASE
        length, protected = self.offer.lease if allocation.lease is None else allocation.lease, allocation.protected
        self.terms: tuple[Seconds, Seconds] | None = None
        """The end of every lease granted now, and of its protected part; None: each claim has its own."""
        if not isinstance(length, np.ndarray) and not isinstance(protected, np.ndarray):
            if rounds.protected is not None:
                protected = min(rounds.protected, length)  # the protected part cannot outlast the lease
            until = Seconds(state.now + protected) if protected > 0.0 else _UNPROTECTED
            self.terms = Seconds(state.now + length), until
        self.deadline = Seconds(state.now + rounds.suspend_grace)
        self.holder, self.gpu_state = state.holdings.cells.lease, state.holdings.cells.state
        given = self.placement.cpus is not None or self.placement.memory_gib is not None
        self.even = not given and self.placement.retunes is None and not state.amounts.uneven
        """Whether every GPU comes with an equal share of its machine's CPUs and memory."""
        self.tunes = given and state.amounts.are_known
        shares = state.amounts.shares
        self.amounts = shares.by_gpu if self.even else target_amounts(state, allocation, self.placement)
        self.ranges = (amount.cpus, amount.memory_gib) if isinstance(amount, Grants) else (None, None)
        self.claims: dict[int, int] = {}
        """By lease, its claim; leases without one are not there."""
        self.drafts: list[_Draft] = []
        self.renewals: list[Renewal] = []

    def run(self) -> list[Transition]:
        """Return the transitions that lead from the present state to the placement."""
        state, served = self.state, dict[int, set[int]]()
        held, app_of, number = state.holdings.cells, state.jobs.cells.app, state.counters.last_lease
        holder, successor = held.lease, held.successor
        gpus: list[int] = self.offer.gpus.tolist() if self.releases else self.placement.gpus.tolist()
        # Leases that may change are those of claims, those on GPUs that are placed, and overdue ones.
        numbers = state.lease_ends.overdue | {holder[gpu] for gpu in gpus} | {successor[gpu] for gpu in gpus}
        if self.is_job:
            lease_of = state.jobs.cells.lease
            self.claims = {lease_of[row]: claim for claim, row in enumerate(self.rows)}
        else:
            claim_of = {row: claim for claim, row in enumerate(self.rows)}
            self.claims = {lease.id: claim_of[lease.app] for lease in state.leases.values() if lease.app in claim_of}
        numbers.update(self.claims)
        numbers.discard(NONE)
        if numbers:
            self.change(numbers, served)
        for claim, placed in self.placed.items():  # leases start for the GPUs that the present ones do not have
            fresh = [gpu for gpu in placed if gpu not in served[claim]] if claim in served else placed
            if fresh:
                number, row = number + 1, self.rows[claim]
                job, app = (row, app_of[row]) if self.is_job else (NONE, row)
                after, ends = [gpu for gpu in fresh if holder[gpu] != NONE], self.terms or self.terms_of(claim)
                self.drafts.append(_Draft(_START, number, app, job, fresh, [], after, ends))
        if self.placement.retunes is not None:
            self.retune(self.placement.retunes)
        epoch = state.counters.last_epoch
        for draft in self.drafts:  # the fences of GPUs given back are older than the epochs of the leases that get them
            if draft.leaving:
                epoch += 1
                draft.fence = epoch
        return [self.made(draft, epoch + place) for place, draft in enumerate(self.drafts, start=1)]

    def change(self, numbers: set[int], served: dict[int, set[int]]) -> None:
        """Draft the orders to leases that exist, and note the GPUs that each claim has from these."""
        leases = [self.state.leases[number] for number in sorted(numbers)]
        touched = [(lease, self.claims.get(lease.id)) for lease in leases if lease.state is not _LEASE_LEAVING]
        resized: list[tuple[Lease, int, set[int], list[int]]] = []
        changing = [found for found in touched if not self.stays(*found, served)]
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

    def stays(self, lease: Lease, claim: int | None, served: dict[int, set[int]]) -> bool:
        """Serve a job's lease that is placed on exactly the GPUs that it has; False: the lease may change."""
        if claim is None or not self.is_job or lease.job == NONE or self.state.owners.leaving.get(lease.id):
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
        leaving = self.state.owners.leaving
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
        """Return the GPUs on the offer that a lease keeps."""
        if claim is not None:
            return set(on).intersection(self.placed.get(claim, ()))
        return set() if self.releases else set(on).difference(self.placement.gpus.tolist())

    def renew(self, lease: Lease, claim: int | None, keeps: bool) -> None:
        """Renew an overdue lease that keeps GPUs."""
        if keeps and lease.ends_at <= self.state.now:
            ends_at, protected_until = self.terms_of(claim)
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
        ends = (lease.ends_at, lease.protected_until) if kind.effect.ends else self.terms_of(claim)
        self.order(kind, lease, target, lost, ends)

    def order(
        self, kind: TransitionKind, lease: Lease, gpus: list[int], lost: list[int], ends: tuple[Seconds, Seconds]
    ) -> None:
        """Draft an order to a lease."""
        holder, states, number = self.holder, self.gpu_state, lease.id
        after = [gpu for gpu in gpus if holder[gpu] != NONE and (holder[gpu] != number or states[gpu] == _LEAVING)]
        leaving = [gpu for gpu in lost if holder[gpu] == number] if lost else []
        self.drafts.append(_Draft(kind, number, lease.app, lease.job, gpus, leaving, after, ends))

    def made(self, draft: _Draft, epoch: int) -> Transition:
        """Make the order of a draft, with the epoch that its lease gets."""
        state, gpus = self.state, np.array(draft.gpus, np.int64)
        if not self.even:
            cpus, memory_gib = self.amounts[0][gpus], self.amounts[1][gpus]
        elif state.amounts.shares.are_known:
            cpus, memory_gib = state.amounts.shares.of(gpus)
        else:
            cpus = memory_gib = self.amounts[0][: gpus.size]  # all are 0
        return Transition(
            kind=draft.kind,
            lease=LeaseId(draft.lease),
            epoch=Epoch(epoch),
            fence=Epoch(draft.fence),
            app=state.apps.cells.id[draft.app],
            job=None if draft.job == NONE else state.jobs.cells.id[draft.job],
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
        """Return the range of a draft's GPUs by the allocation; None: no claim of it has them, or its app divides."""
        if draft.kind is TransitionKind.SUSPEND or draft.job == NONE:
            return None
        row = draft.job if self.is_job else draft.app
        if row not in self.rows:
            return None
        claim, amount = self.rows.index(row), self.allocation.amount
        granted = int(amount.gpus[claim]) if isinstance(amount, Grants) else 0
        return bounds.of(claim, len(draft.gpus) / max(1, granted))

    def terms_of(self, claim: int | None) -> tuple[Seconds, Seconds]:
        """Return when a lease granted now ends, and when its protected part does; None: the lease has no claim."""
        if self.terms is not None:
            return self.terms
        length = self.offer.lease if self.allocation.lease is None else self.allocation.lease
        protected = self.allocation.protected
        if isinstance(length, np.ndarray):
            length = self.offer.lease if claim is None else Seconds(float(length[claim]))
        if isinstance(protected, np.ndarray):
            protected = Seconds(0.0) if claim is None else Seconds(float(protected[claim]))
        if self.rounds.protected is not None:
            protected = min(self.rounds.protected, length)
        now = self.state.now
        return Seconds(now + length), Seconds(now + protected) if protected > 0.0 else _UNPROTECTED
