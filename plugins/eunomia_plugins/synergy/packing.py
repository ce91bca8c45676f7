"""The steps shared by Synergy's placements: keep claims that stay, serve the others, and return amounts by GPU."""

from collections.abc import Callable, Iterable

import numpy as np

from eunomia import Allocation, Misfit, Offer, Placement, Reason, Retunes, Snapshot, Verdicts
from eunomia.units import Ints, Reals
from eunomia_plugins.synergy.choosing import best_fit, gpus_on
from eunomia_plugins.synergy.claims import NO_GPUS, Claim, Claims
from eunomia_plugins.synergy.room import SLACK, Counts, Holder, Vector

Choice = tuple[Counts, Vector]
"""Machines with the number of GPUs on each, and the CPUs and GiB per GPU."""


class Packing:
    """The placement of one round while it is built."""

    def __init__(self, snapshot: Snapshot, offer: Offer, allocation: Allocation) -> None:
        self.claims = Claims(snapshot, offer, allocation)
        self.room = self.claims.room
        self.allocation = allocation
        self.placed: dict[int, Holder] = {}
        self.refused: dict[int, Reason] = {}
        for gpus in self.claims.fixed.values():
            self._fix(gpus)
        self.peers = self.claims.peers() if offer.retune else []
        for peer in self.peers:
            self.room.add(peer)

    def keep(self, indices: Iterable[int]) -> None:
        """Keep the claims that already hold exactly the granted GPUs, with CPUs and memory within their ranges."""
        for index in indices:
            claim = self.claims.claim(index)
            if index not in self.placed and self.claims.stays(claim):
                now = self.claims.current(claim.held)
                within = [
                    min(max(amount, least), most)
                    for amount, least, most in zip(now, claim.least, claim.most, strict=True)
                ]
                self._settle(claim, claim.held, (within[0], within[1]))
        self._relieve()

    def _relieve(self) -> None:
        """Lower jobs on machines where kept claims need more than is left; if that fails, place these claims again.

        Such claims held less than their minimum, for instance under another profile.
        """
        for machine in np.flatnonzero((self.room.cpus < -SLACK) | (self.room.memory_gib < -SLACK)).tolist():
            if self.room.lower(machine, 0, (0.0, 0.0)):
                continue
            for holder in [holder for holder in self.room.on.get(machine, ()) if holder.is_claim]:
                had = self.claims.current(holder.gpus)
                if holder.now[0] > had[0] or holder.now[1] > had[1]:
                    self.room.drop(holder)
                    del self.placed[holder.key]

    def _fix(self, gpus: Ints) -> None:
        """Assign the GPUs that an app keeps, with their present CPUs and memory."""
        held = self.claims.snapshot.holdings
        self.room.pool.take(gpus)
        self.room.pool.spend(gpus, np.nan_to_num(held.cpus[gpus]), np.nan_to_num(held.memory_gib[gpus]))

    def refuse(self, claim: Claim) -> None:
        """Record that a claim cannot be placed, and why; a pinned app gives up all its GPUs."""
        self.refused[claim.index] = self.reason(claim)
        if claim.pins and claim.index in self.claims.fixed:
            held, gpus = self.claims.snapshot.holdings, self.claims.fixed.pop(claim.index)
            self.room.pool.give(gpus)
            self.room.pool.spend(gpus, -np.nan_to_num(held.cpus[gpus]), -np.nan_to_num(held.memory_gib[gpus]))

    def place(self, claim: Claim, choice: Choice) -> None:
        """Assign a claim GPUs, CPUs and memory on the chosen machines."""
        self._settle(claim, gpus_on(self.room, claim, choice[0]), choice[1])

    def serve(self, order: Iterable[int], choose: Callable[[Claim], Choice | None], *, stop: bool) -> None:
        """Serve claims in order.

        Args:
            order: indices of claims.
            choose: returns machines and amounts for a claim, or None if it cannot be placed.
            stop: whether the first claim that cannot be placed ends the service.
        """
        waiting = [index for index in order if index not in self.placed and self.claims.missing(index) > 0]
        for turn, index in enumerate(waiting):
            claim = self.claims.claim(index)
            choice = choose(claim)
            if choice is not None:
                self.place(claim, choice)
                continue
            self.refuse(claim)
            if stop:
                self.refused |= dict.fromkeys(waiting[turn + 1 :], Reason.OUTRANKED)
                return

    def reason(self, claim: Claim) -> Reason:
        """Return why a claim cannot be placed."""
        room = self.room
        mine = room.of_type(claim.gpu_type)
        if int(room.free.sum()) < claim.gpus:
            return Reason.OUTRANKED
        if int(room.free[mine].sum()) < claim.gpus:
            return Reason.NO_GPU_OF_TYPE
        if int(room.fits((claim.least[0], 0.0))[mine].sum()) < claim.gpus:
            return Reason.CPUS_SHORT
        if int(room.fits(claim.least)[mine].sum()) < claim.gpus:
            return Reason.MEMORY_SHORT
        return Reason.FRAGMENTED

    def in_turn(self) -> list[Holder]:
        """Return the placed claims in order of service, then jobs that are not claims."""
        order = [*self.allocation.order.tolist(), *standby_of(self.allocation)]
        return [*(self.placed[index] for index in order if index in self.placed), *self.peers]

    def move_up(self) -> None:
        """Move claims that have less than their demand to machines where the whole demand fits, in order of service."""
        for holder in self.in_turn():
            missing = [most - now for now, most in zip(holder.now, holder.most, strict=True)]
            if not holder.is_claim or max(missing) <= SLACK or not self.room.fits(holder.most).any():
                continue
            claim = self.claims.claim(holder.key)
            counts = [] if claim.pins else best_fit(self.room, claim, holder.most)
            if counts:
                self.room.drop(holder)
                self.place(claim, (counts, holder.most))
        self.room.raise_all(self.in_turn())

    @property
    def stops(self) -> bool:
        """Return whether the first claim that cannot be placed ends the service."""
        return self.allocation.on_misfit is Misfit.STOP

    def answer(self) -> Placement:
        """Return the placement; claims that hold GPUs of the offer and get none are listed with 0 GPUs."""
        held = self.claims.snapshot.holdings
        parts: dict[int, list[tuple[Ints, Reals, Reals]]] = {index: [] for index in self.claims.holding}
        for index, gpus in self.claims.fixed.items():
            parts[index].append((gpus, held.cpus[gpus], held.memory_gib[gpus]))
        for index, holder in self.placed.items():
            cpus, memory_gib = (np.full(holder.gpus.size, amount) for amount in holder.now)
            parts.setdefault(index, []).append((holder.gpus, cpus, memory_gib))
        sizes = [sum(gpus.size for gpus, *_ in part) for part in parts.values()]
        rows = [row for part in parts.values() for row in part]
        late = [index for index in self.refused if not any(gpus.size for gpus, *_ in parts.get(index, []))]
        return Placement(
            claim=np.array(list(parts), np.int32),
            gpus=np.concatenate([NO_GPUS, *(gpus for gpus, *_ in rows)]),
            start=np.cumsum([0, *sizes]).astype(np.int64),
            cpus=np.concatenate([np.empty(0), *(cpus for _, cpus, _ in rows)]),
            memory_gib=np.concatenate([np.empty(0), *(memory_gib for *_, memory_gib in rows)]),
            retunes=self._retunes(),
            verdicts=Verdicts(
                rows=self.allocation.claims.rows[np.array(late, np.int64)],
                reasons=np.array([int(self.refused[index]) for index in late], np.int32),
            ),
        )

    def _retunes(self) -> Retunes | None:
        """Return the new amounts of jobs that are not claims."""
        changed = [
            peer for peer in self.peers if not np.allclose(peer.now, self.claims.current(peer.gpus), rtol=1e-9, atol=0)
        ]
        if not changed:
            return None
        totals = np.array([[amount * peer.gpus.size for amount in peer.now] for peer in changed])
        return Retunes(
            jobs=np.array([peer.key for peer in changed], np.int32), cpus=totals[:, 0], memory_gib=totals[:, 1]
        )

    def _settle(self, claim: Claim, gpus: Ints, each: Vector) -> None:
        holder = Holder(
            key=claim.index,
            is_claim=True,
            gpus=gpus,
            counts=self.claims.counts(gpus),
            now=each,
            least=claim.least,
            most=claim.most,
        )
        self.room.take(holder)
        self.placed[claim.index] = holder


def standby_of(allocation: Allocation) -> list[int]:
    """Return the indices of the claims on standby."""
    return [] if allocation.standby is None else [int(index) for index in allocation.standby]
