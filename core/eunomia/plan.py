"""A placement held against the present: the transitions and renewals that lead there, as values."""

import dataclasses
import math

import numpy as np

from eunomia.allocations import Allocation
from eunomia.decisions import Renewal, Transition, TransitionKind
from eunomia.gpu_sets import joined, within, without
from eunomia.leases import GpuState, Lease, LeaseState
from eunomia.offering import reached
from eunomia.offers import Offer
from eunomia.placements import Placement
from eunomia.stages import Rounds
from eunomia.state import State
from eunomia.units import NEVER, NONE, Epoch, Ints, LeaseId, Reals, Rest, Scope, Seconds, Unit

NO_GPUS = np.empty(0, np.int64)
_LEAVING = int(GpuState.LEAVING)
_JOB, _KEEP, _ALL = Unit.JOB, Rest.KEEP, Scope.ALL
_START, _SUSPEND = TransitionKind.START, TransitionKind.SUSPEND
_NO_FENCE, _UNPROTECTED = Epoch(0), Seconds(-math.inf)


@dataclasses.dataclass(slots=True)
class Plan:
    """What is to change."""

    transitions: list[Transition]
    renewals: list[Renewal]


def plan(state: State, offer: Offer, allocation: Allocation, placement: Placement, rounds: Rounds) -> Plan:
    """Turn the difference to the present into transitions and renewals; a lease that stays is not named.

    Args:
        state: the present; not changed.
        offer: what may be touched.
        allocation: the claims, their leases, and what becomes of those it does not name.
        placement: checked before.
        rounds: the profile's: how long what is granted is protected, and the time from a warning to the kill.
    """
    for short in (_starts, _exchanges):
        made = short(state, offer, allocation, placement, rounds)
        if made is not None:
            return made
    return _Planner(state, offer, allocation, placement, rounds).run()


def _starts(state: State, offer: Offer, allocation: Allocation, placement: Placement, rounds: Rounds) -> Plan | None:
    """The plan where all there is to do is to start jobs that hold nothing on GPUs that nobody holds; else None."""
    claims, given = allocation.claims, placement.cpus is not None or placement.memory_gib is not None
    if given or claims.unit is not _JOB or allocation.rest is not _KEEP or state.standing.overdue:
        return None
    held, leases, rows = state.holdings.cells, state.job_accounts.cells.lease, claims.rows.tolist()
    for gpu in placement.gpus.tolist():
        if held.lease[gpu] != NONE or held.successor[gpu] != NONE:
            return None
    if {leases[row] for row in rows} - {NONE}:
        return None
    made = list[Transition]()
    for index, claim in enumerate(placement.claim.tolist()):
        gpus = placement.of(index)
        if not gpus.size:
            continue
        made.append(start_order(state, offer, allocation, rounds, rows[claim], claim, gpus, len(made) + 1))
    return Plan(made, [])


def start_order(
    state: State, offer: Offer, allocation: Allocation, rounds: Rounds, row: int, claim: int, gpus: Ints, number: int
) -> Transition:
    """The order to start a job that holds nothing on GPUs that nobody holds.

    Args:
        state: the present; not changed.
        offer: what may be touched.
        allocation: says how long a lease is.
        rounds: the profile's.
        row: of the job.
        claim: its index in the allocation.
        gpus: ascending.
        number: counts the orders of this plan, from 1.
    """
    ends = _ends(state, offer, allocation, rounds, claim)
    return _started(state, state.last_lease + number, state.last_epoch + number, row, gpus, ends, NO_GPUS)


def _exchanges(state: State, offer: Offer, allocation: Allocation, placement: Placement, rounds: Rounds) -> Plan | None:
    """The plan where jobs go or stay where they are, and others that hold nothing start where those were; else None."""
    claims, given = allocation.claims, placement.cpus is not None or placement.memory_gib is not None
    if given or claims.unit is not _JOB or allocation.rest is not _KEEP or state.standing.overdue:
        return None
    if not offer.whole or offer.scope is not _ALL or any(state.leaving.values()):
        return None  # some GPUs may not be touched, or have a successor
    rows, parts = claims.rows.tolist(), _parts(placement)
    leave = _leavers(state, rows, parts, placement)
    if leave is None:
        return None
    epoch, last = state.last_epoch, state.last_epoch + len(leave)
    deadline, made = Seconds(state.now + rounds.suspend_grace), list[Transition]()
    for place, lease in enumerate(leave, start=1):
        made.append(_suspended(state, lease, epoch + place, last + place, deadline))
    lease_id, last, holder = state.last_lease, last + len(leave), state.holdings.cells.lease
    alike = not isinstance(allocation.lease, np.ndarray) and not isinstance(allocation.protected, np.ndarray)
    ends = _ends(state, offer, allocation, rounds, None)
    for place, (claim, numbers) in enumerate(parts.items(), start=1):
        ends = ends if alike else _ends(state, offer, allocation, rounds, claim)
        gpus = np.array(numbers, np.int64)
        after = _chosen(gpus, [holder[gpu] != NONE for gpu in numbers])
        made.append(_started(state, lease_id + place, last + place, rows[claim], gpus, ends, after))
    return Plan(made, [])


def _parts(placement: Placement) -> dict[int, list[int]]:
    """GPUs of each claim named, ascending."""
    gpus, start = placement.gpus.tolist(), placement.start.tolist()
    return {claim: sorted(gpus[start[at] : start[at + 1]]) for at, claim in enumerate(placement.claim.tolist())}


def _leavers(state: State, rows: list[int], parts: dict[int, list[int]], placement: Placement) -> list[Lease] | None:
    """Leases of claims that get nothing, oldest first; ``parts`` is left with the claims that start.

    Returns:
        None, where somebody is to have other GPUs than it has, or who is not named has to give way.
    """
    lease_of, leases, now = state.job_accounts.cells.lease, state.leases, state.now
    leave, known = dict[int, Lease](), {NONE}
    for claim, row in enumerate(rows):
        lease = leases.get(lease_of[row])
        if lease is None:
            continue
        known.add(lease.id)
        gpus = parts.pop(claim, [])
        if not gpus:
            leave[lease.id] = lease
        elif gpus != lease.gpus.tolist():
            return None
    if [lease for lease in leave.values() if not lease.gpus.size or lease.protected_until > now]:
        return None
    for claim in [claim for claim, gpus in parts.items() if not gpus]:
        del parts[claim]
    holder = state.holdings.cells.lease
    if not {holder[gpu] for gpu in placement.gpus.tolist()} <= known:
        return None
    return [leave[number] for number in sorted(leave)]


def _suspended(state: State, lease: Lease, fence: int, epoch: int, deadline: Seconds) -> Transition:
    """A job's lease gives all that it has back."""
    return Transition(
        kind=_SUSPEND,
        lease=LeaseId(lease.id),
        epoch=Epoch(epoch),
        fence=Epoch(fence),
        app=state.app_id(lease.app),
        job=state.job_id(lease.job),
        gpus=NO_GPUS,
        cpus=state.part(NO_GPUS, 0),
        memory_gib=state.part(NO_GPUS, 1),
        ends_at=lease.ends_at,
        protected_until=lease.protected_until,
        leaving=lease.gpus,
        after=NO_GPUS,
        deadline=deadline,
    )


def _started(
    state: State, lease: int, epoch: int, row: int, gpus: Ints, ends: tuple[Seconds, Seconds], after: Ints
) -> Transition:
    """A new lease for a job that holds nothing; it waits for those who still hold its GPUs (``after``)."""
    jobs = state.jobs.cells
    return Transition(
        kind=_START,
        lease=LeaseId(lease),
        epoch=Epoch(epoch),
        fence=_NO_FENCE,
        app=state.apps.cells.id[jobs.app[row]],
        job=jobs.id[row],
        gpus=gpus,
        cpus=state.part(gpus, 0),
        memory_gib=state.part(gpus, 1),
        ends_at=ends[0],
        protected_until=ends[1],
        leaving=NO_GPUS,
        after=after,
    )


def _ends(
    state: State, offer: Offer, allocation: Allocation, rounds: Rounds, claim: int | None
) -> tuple[Seconds, Seconds]:
    """When a lease granted now ends, and until when no round may take it."""
    length = offer.lease if allocation.lease is None else allocation.lease
    protected = allocation.protected
    if isinstance(length, np.ndarray):
        length = Seconds(float(length[claim])) if claim is not None else offer.lease
    if isinstance(protected, np.ndarray):
        protected = Seconds(float(protected[claim])) if claim is not None else Seconds(0.0)
    if rounds.protected is not None:
        protected = min(rounds.protected, length)  # the first part of a lease is no longer than the lease
    now = state.now
    return Seconds(now + length), Seconds(now + protected) if protected > 0.0 else _UNPROTECTED


def planned(allocation: Allocation) -> tuple[tuple[int, float], ...]:
    """When waiting jobs are planned to start: row and time."""
    if allocation.starts_at is None:
        return ()
    known = zip(allocation.claims.rows.tolist(), allocation.starts_at.tolist(), strict=True)
    return tuple((row, time) for row, time in known if math.isfinite(time))


@dataclasses.dataclass(slots=True)
class _Draft:
    """A transition that has no epochs yet."""

    kind: TransitionKind
    lease: int
    app: int
    job: int
    gpus: Ints
    ends_at: Seconds
    protected_until: Seconds
    leaving: Ints
    after: Ints
    fence: int = 0


class _Planner:
    def __init__(self, state: State, offer: Offer, allocation: Allocation, placement: Placement, rounds: Rounds):
        self.state = state
        self.offer = offer
        self.allocation = allocation
        self.placement = placement
        self.rounds = rounds
        self.drafts: list[_Draft] = []
        self.renewals: list[Renewal] = []
        self.lease = state.last_lease
        self.is_job = allocation.claims.unit is Unit.JOB
        self.named = {row: index for index, row in enumerate(allocation.claims.rows.tolist())}
        self.placed: dict[int, Ints] = {
            claim: placement.of(index) for index, claim in enumerate(placement.claim.tolist())
        }
        self._owner: dict[int, int] | None = None
        self._on: dict[int, Ints] = {}

    def run(self) -> Plan:
        served: dict[int, Ints] = {}
        resized: list[tuple[Lease, int, Ints]] = []
        for lease in self.touched():
            claim = self.claim_of(lease)
            if claim is not None and self.stays(lease, claim):
                served[claim] = lease.gpus
                self.renew(lease, claim, lease.gpus)
                continue
            on = self.on(lease)
            keep = self.kept(claim, on)
            if claim is not None:
                served[claim] = joined(served.get(claim, NO_GPUS), keep)
            if claim is not None and lease.job != NONE and self.is_job:
                resized.append((lease, claim, without(on, keep)))
            elif keep.size < on.size:
                self.give_up(lease, without(on, keep))
            self.renew(lease, claim, keep)
        for lease, claim, lost in resized:
            self.resize(lease, claim, lost)
            served[claim] = self.placed.get(claim, NO_GPUS)
        for claim, gpus in self.placed.items():
            fresh = without(gpus, served[claim]) if claim in served else gpus
            if fresh.size:
                self.start(claim, fresh)
        return Plan(transitions=self.numbered(), renewals=self.renewals)

    def stays(self, lease: Lease, claim: int) -> bool:
        """Say whether a job's lease is placed on the very GPUs that it has."""
        if lease.job == NONE or not self.is_job or lease.id in self.state.leaving:
            return False
        gpus = self.placed.get(claim)
        return gpus is not None and gpus.size == lease.gpus.size and gpus.tolist() == lease.gpus.tolist()

    def touched(self) -> list[Lease]:
        """Leases with GPUs on the offer that may change: of claims that are named, on GPUs placed, and ended ones."""
        held, state, gpus = self.state.holdings.live, self.state, self.placement.gpus
        if self.allocation.rest is Rest.RELEASE:
            gpus = self.offer.gpus
        numbers = {*held.lease[gpus].tolist(), *held.successor[gpus].tolist(), *state.standing.overdue}
        if self.is_job:
            numbers.update(state.job_accounts.live.lease[self.allocation.claims.rows].tolist())
        else:
            for row in self.named:
                numbers |= state.standing.leases_of.get(row, set())
        numbers.discard(NONE)
        if not numbers:
            return []
        leases = [state.leases[number] for number in sorted(numbers)]
        leases = [lease for lease in leases if lease.state is not LeaseState.LEAVING]
        self._on = self.on_offer(leases)
        return [lease for lease in leases if self.reaches(lease)]

    def on_offer(self, leases: list[Lease]) -> dict[int, Ints]:
        """By lease, those of its GPUs that are on the offer; looked up for all leases at once."""
        if not leases:
            return {}
        here = reached(self.state, self.offer, np.concatenate([lease.gpus for lease in leases]))
        if here.all():
            return {lease.id: lease.gpus for lease in leases}
        ends = np.cumsum([lease.gpus.size for lease in leases])[:-1]
        parts = np.split(here, ends)
        return {lease.id: lease.gpus[mask] for lease, mask in zip(leases, parts, strict=True)}

    def reaches(self, lease: Lease) -> bool:
        """Say whether some GPU of a lease is on the offer."""
        if self.on(lease).size:
            return True
        leaving = sorted(self.state.leaving.get(lease.id, ()))
        return bool(leaving) and bool(reached(self.state, self.offer, np.array(leaving)).any())

    def on(self, lease: Lease) -> Ints:
        """Those GPUs of a lease that are on the offer."""
        return self._on[lease.id]

    def numbered(self) -> list[Transition]:
        """Give out epochs: whoever leaves a GPU before whoever gets it, so those who leave come first."""
        epoch = self.state.last_epoch
        for draft in self.drafts:
            if draft.leaving.size:
                epoch += 1
                draft.fence = epoch
        return [self.made(draft, epoch + place) for place, draft in enumerate(self.drafts, start=1)]

    def claim_of(self, lease: Lease) -> int | None:
        """Index of the claim that the lease belongs to; None: the allocation does not name it."""
        if not self.is_job:
            return self.named.get(lease.app)
        return self.named.get(lease.job) if lease.job != NONE else None

    def kept(self, claim: int | None, on: Ints) -> Ints:
        """Those GPUs of a lease that it keeps."""
        if claim is not None:
            return within(on, self.placed.get(claim, NO_GPUS))
        if self.allocation.rest is Rest.RELEASE:
            return NO_GPUS
        if self._owner is None:
            self._owner = {gpu: claim for claim, gpus in self.placed.items() for gpu in gpus.tolist()}
        return on[[gpu not in self._owner for gpu in on.tolist()]]

    def ends(self, claim: int | None) -> tuple[Seconds, Seconds]:
        """When a lease granted now ends, and until when no round may take it."""
        return _ends(self.state, self.offer, self.allocation, self.rounds, claim)

    def renew(self, lease: Lease, claim: int | None, keep: Ints) -> None:
        """A lease that ended and keeps GPUs goes on for another term."""
        if lease.ends_at <= self.state.now and keep.size:
            ends_at, protected_until = self.ends(claim)
            self.renewals.append(Renewal(lease=LeaseId(lease.id), ends_at=ends_at, protected_until=protected_until))

    def give_up(self, lease: Lease, lost: Ints) -> None:
        """An app's lease, or one that nobody named, loses GPUs; what it keeps it keeps."""
        rest = without(lease.gpus, lost)
        if lease.job != NONE:
            rest, lost = NO_GPUS, lease.gpus  # a gang that loses a GPU loses all
        kind = TransitionKind.SHRINK if rest.size else TransitionKind.SUSPEND
        self.order(kind, lease, rest, lost, lease.ends_at, lease.protected_until)

    def resize(self, lease: Lease, claim: int, lost: Ints) -> None:
        """A job's lease gets the size and the GPUs that the placement gave it."""
        on = self.on(lease)
        outside = without(lease.gpus, on)
        target = joined(outside, self.placed.get(claim, NO_GPUS))
        if np.array_equal(target, lease.gpus):
            return
        if target.size == 0:
            self.order(TransitionKind.SUSPEND, lease, target, lost, lease.ends_at, lease.protected_until)
            return
        gained = without(target, lease.gpus)
        kind = TransitionKind.MIGRATE
        if gained.size == 0:
            kind = TransitionKind.SHRINK
        elif lost.size == 0:
            kind = TransitionKind.GROW
        self.order(kind, lease, target, lost, *self.ends(claim))

    def start(self, claim: int, gpus: Ints) -> None:
        """A new lease."""
        row = int(self.allocation.claims.rows[claim])
        app = int(self.state.jobs.live.app[row]) if self.is_job else row
        ends_at, protected_until = self.ends(claim)
        self.lease += 1
        fresh = Lease(id=self.lease, epoch=0, app=app, job=row if self.is_job else NONE, gpus=gpus)
        self.order(TransitionKind.START, fresh, gpus, NO_GPUS, ends_at, protected_until)

    def order(
        self, kind: TransitionKind, lease: Lease, gpus: Ints, lost: Ints, ends_at: Seconds, protected_until: Seconds
    ) -> None:
        holder, number, states = self.state.holdings.cells.lease, lease.id, self.state.holdings.cells.state
        after = _chosen(
            gpus, [holder[gpu] != NONE and (holder[gpu] != number or states[gpu] == _LEAVING) for gpu in gpus.tolist()]
        )
        leaving = _chosen(lost, [holder[gpu] == number for gpu in lost.tolist()])
        self.drafts.append(_Draft(kind, lease.id, lease.app, lease.job, gpus, ends_at, protected_until, leaving, after))

    def made(self, draft: _Draft, epoch: int) -> Transition:
        state = self.state
        return Transition(
            kind=draft.kind,
            lease=LeaseId(draft.lease),
            epoch=Epoch(epoch),
            fence=Epoch(draft.fence),
            app=state.app_id(draft.app),
            job=None if draft.job == NONE else state.job_id(draft.job),
            gpus=draft.gpus,
            cpus=self.amount(draft.gpus, 0, self.placement.cpus),
            memory_gib=self.amount(draft.gpus, 1, self.placement.memory_gib),
            ends_at=draft.ends_at,
            protected_until=draft.protected_until,
            leaving=draft.leaving,
            after=draft.after,
            deadline=Seconds(state.now + self.rounds.suspend_grace) if draft.leaving.size else NEVER,
        )

    def amount(self, gpus: Ints, which: int, given: Reals | None) -> Reals:
        """CPUs or memory by GPU: what the placement says, else in proportion."""
        if given is None:
            return self.state.part(gpus, which)
        amount: Reals = self.state.proportional()[which][gpus]
        if gpus.size:
            order = np.argsort(self.placement.gpus)
            at = np.searchsorted(self.placement.gpus, gpus, sorter=order).clip(max=max(order.size - 1, 0))
            if order.size:
                found = self.placement.gpus[order[at]] == gpus
                amount[found] = given[order[at]][found]
        return amount


def _chosen(gpus: Ints, those: list[bool]) -> Ints:
    """Some of a few GPUs."""
    if all(those):
        return gpus
    return gpus[those] if any(those) else NO_GPUS
