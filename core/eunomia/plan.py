"""A placement held against the present: the transitions and renewals that lead there, as values."""

import dataclasses
import math

import numpy as np

from eunomia.allocations import Allocation
from eunomia.decisions import Renewal, Transition, TransitionKind
from eunomia.leases import GpuState, Lease, LeaseState
from eunomia.offers import Offer
from eunomia.placements import Placement
from eunomia.state import State
from eunomia.units import NEVER, NONE, Epoch, Ints, LeaseId, Reals, Rest, Seconds, Unit

NO_GPUS = np.empty(0, np.int64)


@dataclasses.dataclass(slots=True)
class Plan:
    """What is to change."""

    transitions: list[Transition]
    renewals: list[Renewal]


def plan(state: State, offer: Offer, allocation: Allocation, placement: Placement, *, grace: Seconds) -> Plan:
    """Turn the difference to the present into transitions and renewals; a lease that stays is not named.

    Args:
        state: the present; not changed.
        offer: what may be touched.
        allocation: the claims, their leases, and what becomes of those it does not name.
        placement: checked before.
        grace: seconds between the warning and the kill of who has to leave.
    """
    return _Planner(state, offer, allocation, placement, grace).run()


class _Planner:
    def __init__(self, state: State, offer: Offer, allocation: Allocation, placement: Placement, grace: Seconds):
        self.state = state
        self.offer = offer
        self.allocation = allocation
        self.deadline = Seconds(state.now + grace)
        self.plan = Plan(transitions=[], renewals=[])
        self.lease = state.last_lease
        self.named = {int(row): index for index, row in enumerate(allocation.claims.rows.tolist())}
        self.placed: dict[int, Ints] = {
            int(claim): placement.of(index) for index, claim in enumerate(placement.claim.tolist())
        }
        self.owner = {int(gpu): claim for claim, gpus in self.placed.items() for gpu in gpus.tolist()}
        self.amounts = _amounts(state, placement)

    def run(self) -> Plan:
        held = self.state.holdings.live
        on_offer = set(self.offer.gpus.tolist())
        numbers = set(held.lease[self.offer.gpus].tolist()) | set(held.successor[self.offer.gpus].tolist())
        leases = [self.state.leases[number] for number in sorted(numbers - {NONE})]
        served: dict[int, Ints] = {}
        resized: list[tuple[Lease, int, Ints]] = []
        for lease in leases:
            if lease.state is LeaseState.LEAVING:
                continue
            claim = self.claim_of(lease)
            on = lease.gpus[[gpu in on_offer for gpu in lease.gpus.tolist()]]
            keep = self.kept(claim, on)
            if claim is not None:
                served[claim] = np.union1d(served.get(claim, NO_GPUS), keep)
            if claim is not None and lease.job != NONE and self.allocation.claims.unit is Unit.JOB:
                resized.append((lease, claim, np.setdiff1d(on, keep)))
            elif keep.size < on.size:
                self.give_up(lease, np.setdiff1d(on, keep))
            self.renew(lease, claim, keep)
        for lease, claim, lost in resized:
            self.resize(lease, claim, lost)
            served[claim] = self.placed.get(claim, NO_GPUS)
        for claim, gpus in self.placed.items():
            fresh = np.setdiff1d(gpus, served.get(claim, NO_GPUS))
            if fresh.size:
                self.start(claim, fresh)
        self.number()
        return self.plan

    def number(self) -> None:
        """Give out epochs: whoever leaves a GPU before whoever gets it, so those who leave come first."""
        orders = self.plan.transitions
        epoch = self.state.last_epoch
        for index, order in enumerate(orders):
            if order.leaving.size:
                epoch += 1
                orders[index] = dataclasses.replace(order, fence=Epoch(epoch))
        for index, order in enumerate(orders):
            epoch += 1
            orders[index] = dataclasses.replace(order, epoch=Epoch(epoch))

    def claim_of(self, lease: Lease) -> int | None:
        """Index of the claim that the lease belongs to; None: the allocation does not name it."""
        if self.allocation.claims.unit is Unit.APP:
            return self.named.get(lease.app)
        return self.named.get(lease.job) if lease.job != NONE else None

    def kept(self, claim: int | None, on: Ints) -> Ints:
        """Those GPUs of a lease that it keeps."""
        if claim is not None:
            return np.intersect1d(on, self.placed.get(claim, NO_GPUS))
        if self.allocation.rest is Rest.RELEASE:
            return NO_GPUS
        return on[[gpu not in self.owner for gpu in on.tolist()]]

    def ends(self, claim: int | None) -> tuple[Seconds, Seconds]:
        """When a lease granted now ends, and until when no round may take it."""
        length = self.offer.lease if self.allocation.lease is None else self.allocation.lease
        protected = self.allocation.protected
        if isinstance(length, np.ndarray):
            length = Seconds(float(length[claim])) if claim is not None else self.offer.lease
        if isinstance(protected, np.ndarray):
            protected = Seconds(float(protected[claim])) if claim is not None else Seconds(0.0)
        now = self.state.now
        return Seconds(now + length), Seconds(now + protected) if protected > 0.0 else Seconds(-math.inf)

    def renew(self, lease: Lease, claim: int | None, keep: Ints) -> None:
        """A lease that ended and keeps GPUs goes on for another term."""
        if lease.ends_at <= self.state.now and keep.size:
            ends_at, protected_until = self.ends(claim)
            self.plan.renewals.append(
                Renewal(lease=LeaseId(lease.id), ends_at=ends_at, protected_until=protected_until)
            )

    def give_up(self, lease: Lease, lost: Ints) -> None:
        """An app's lease, or one that nobody named, loses GPUs; what it keeps it keeps."""
        rest = np.setdiff1d(lease.gpus, lost)
        if lease.job != NONE:
            rest, lost = NO_GPUS, lease.gpus  # a gang that loses a GPU loses all
        kind = TransitionKind.SHRINK if rest.size else TransitionKind.SUSPEND
        self.order(kind, lease, rest, lost, lease.ends_at, lease.protected_until)

    def resize(self, lease: Lease, claim: int, lost: Ints) -> None:
        """A job's lease gets the size and the GPUs that the placement gave it."""
        on = np.intersect1d(lease.gpus, self.offer.gpus)
        outside = np.setdiff1d(lease.gpus, on)
        target = np.union1d(outside, self.placed.get(claim, NO_GPUS))
        if np.array_equal(target, lease.gpus):
            return
        if target.size == 0:
            self.order(TransitionKind.SUSPEND, lease, target, lost, lease.ends_at, lease.protected_until)
            return
        gained = np.setdiff1d(target, lease.gpus)
        kind = TransitionKind.MIGRATE
        if gained.size == 0:
            kind = TransitionKind.SHRINK
        elif lost.size == 0:
            kind = TransitionKind.GROW
        self.order(kind, lease, target, lost, *self.ends(claim))

    def start(self, claim: int, gpus: Ints) -> None:
        """A new lease."""
        row = int(self.allocation.claims.rows[claim])
        jobs = self.state.jobs.live
        is_job = self.allocation.claims.unit is Unit.JOB
        app = int(jobs.app[row]) if is_job else row
        ends_at, protected_until = self.ends(claim)
        self.lease += 1
        fresh = Lease(id=self.lease, epoch=0, app=app, job=row if is_job else NONE, gpus=gpus)
        self.order(TransitionKind.START, fresh, gpus, NO_GPUS, ends_at, protected_until)

    def order(
        self, kind: TransitionKind, lease: Lease, gpus: Ints, lost: Ints, ends_at: Seconds, protected_until: Seconds
    ) -> None:
        held = self.state.holdings.live
        leaving = lost[held.lease[lost] == lease.id]
        others = (held.lease[gpus] != NONE) & (held.lease[gpus] != lease.id)
        again = (held.lease[gpus] == lease.id) & (held.state[gpus] == GpuState.LEAVING)
        self.plan.transitions.append(
            Transition(
                kind=kind,
                lease=LeaseId(lease.id),
                epoch=Epoch(0),
                fence=Epoch(0),
                app=self.state.app_id(lease.app),
                job=None if lease.job == NONE else self.state.job_id(lease.job),
                gpus=gpus,
                cpus=self.amounts[0][gpus],
                memory_gib=self.amounts[1][gpus],
                ends_at=ends_at,
                protected_until=protected_until,
                leaving=leaving,
                after=gpus[others | again],
                deadline=self.deadline if leaving.size else NEVER,
            )
        )


def proportional(state: State) -> tuple[Reals, Reals]:
    """By GPU: its part of its machine's CPUs and memory in GiB; 0 where they are not known."""
    cluster = state.cluster
    size = np.diff(cluster.machine_start).astype(float)
    cpus = np.nan_to_num(cluster.machine_cpus / size)
    memory = np.nan_to_num(cluster.machine_memory_gib / size)
    return cpus[cluster.machine], memory[cluster.machine]


def _amounts(state: State, placement: Placement) -> tuple[Reals, Reals]:
    cpus, memory = proportional(state)
    if placement.cpus is not None:
        cpus[placement.gpus] = placement.cpus
    if placement.memory_gib is not None:
        memory[placement.gpus] = placement.memory_gib
    return cpus, memory
