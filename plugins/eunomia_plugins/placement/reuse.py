"""The plugin ``reuse``: minimise the machines of each job, then the numbers of jobs and GPUs that move (AFS §4.4)."""

from typing import ClassVar

import numpy as np

from eunomia import (
    Allocation,
    Contract,
    Feature,
    Grants,
    Menus,
    Misfit,
    Offer,
    Placement,
    Promise,
    Reason,
    Snapshot,
    Stage,
    Unit,
    Verdicts,
    available,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.pools import holders
from eunomia.units import NONE, Ints
from eunomia_plugins.placement.packing import packed
from eunomia_plugins.placement.planning import place, resources_matter


class Reuse:
    """Places the largest gangs first, each where it keeps its GPUs and displaces the fewest later gangs.

    A gang gets as few machines as its size needs, if their GPUs are on offer, even if it must migrate: with
    ``network_packing`` no machine then has two gangs with traffic to other machines. Among the remaining choices, those
    in which most jobs keep a GPU come first, then those that keep most GPUs. GPUs promised to a job count as its own.
    """

    name = "reuse"
    api = 1
    contracts: ClassVar[Contracts] = {
        Stage.PLACEMENT: Contract(needs=frozenset({Feature.GRANTS}), promises=frozenset({Promise.HONOURS_PINS}))
    }

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Place all claims; with pins, CPUs, memory, standby, STOP at misfits or claims of apps, as ``packed`` does."""
        grants = allocation.amount
        if not isinstance(grants, Grants) or not _is_plain(snapshot, allocation, grants):
            cluster = snapshot.cluster
            return place(snapshot, menus, offer, allocation, lambda pool, ask: packed(cluster, pool, ask), pins=True)
        return _Plan(snapshot, menus, offer, allocation, grants).run()


def _is_plain(snapshot: Snapshot, allocation: Allocation, grants: Grants) -> bool:
    one_order = allocation.standby is None and allocation.on_misfit is Misfit.SKIP
    of_jobs = allocation.claims.unit is Unit.JOB and grants.pins is None
    return of_jobs and one_order and not resources_matter(snapshot, grants)


class _Plan:
    """The placement of one round, in which each GPU is free, held by a claim not placed yet, or taken."""

    def __init__(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation, grants: Grants) -> None:
        self.cluster, self.menus, self.allocation = snapshot.cluster, menus, allocation
        self.rows, self.gpus = allocation.claims.rows, grants.gpus
        asked = snapshot.jobs.gpu_type[self.rows]
        self.kinds = asked if grants.gpu_type is None else np.where(grants.gpu_type >= 0, grants.gpu_type, asked)
        pool = available(snapshot, offer, allocation)
        owner = holders(snapshot, allocation.claims, pool)
        self.holder: Ints = np.full(self.cluster.gpus, NONE, np.int64)
        self.holder[pool] = owner
        self.on_offer = np.zeros(self.cluster.gpus, dtype=bool)
        self.on_offer[pool] = True
        self.mine: dict[int, Ints] = {}
        """GPUs of the offer by the claim that holds them."""
        for claim in np.unique(owner[owner >= 0]).tolist():
            self.mine[claim] = pool[owner == claim]
        machines = len(self.cluster.machines)
        self.room = np.bincount(self.cluster.machine[pool], minlength=machines)
        """[machine] number of GPUs not taken."""
        self.held = np.zeros(machines, np.int64)
        """[machine] number of GPUs in ``room`` that are held by claims not placed yet."""
        self.holding = np.zeros(machines, np.int64)
        """[machine] number of claims not placed yet that hold GPUs in ``room``."""
        self.chosen: dict[int, Ints] = {}
        self.refused: dict[int, Reason] = {}

    def run(self) -> Placement:
        order = [claim for claim in self.allocation.order.tolist() if self.gpus[claim] > 0]
        for claim in order:
            self._count(claim, 1)
        for claim in self.mine.keys() - set(order):
            self.holder[self.mine[claim]] = NONE
        order.sort(key=lambda claim: (-int(self.gpus[claim]), claim not in self.mine))
        for claim in order:
            self._place(claim)
        for claim in self.mine:
            self.chosen.setdefault(claim, np.empty(0, np.int64))
        return self._answer()

    def _count(self, claim: int, sign: int) -> None:
        """Add a claim's GPUs to the counts of claims not placed yet (``sign`` 1), or subtract them (-1)."""
        for machine, gpus in zip(*self._where(claim), strict=True):
            self.held[machine] += sign * gpus
            self.holding[machine] += sign

    def _where(self, claim: int) -> tuple[list[int], list[int]]:
        """Return the machines on which a claim still has GPUs, and the number on each."""
        mine = self.mine.get(claim)
        if mine is None:
            return [], []
        machines, gpus = np.unique(self.cluster.machine[mine[self.holder[mine] == claim]], return_counts=True)
        return machines.tolist(), gpus.tolist()

    def _place(self, claim: int) -> None:
        self._count(claim, -1)
        own = np.zeros(self.room.size, np.int64)
        machines, gpus = self._where(claim)
        own[machines] = gpus
        kind = self._kind(claim)
        room = self.room if kind == NONE else np.where(self.cluster.machine_type == kind, self.room, 0)
        counts = self._machines(int(self.gpus[claim]), room.copy(), own)
        if counts is None:
            self._refuse(claim)
            return
        taken = [self._take(claim, machine, count) for machine, count in counts]
        self._settle(claim, np.sort(np.concatenate(taken)))

    def _kind(self, claim: int) -> int:
        """Return the GPU type of a claim; if any, the type that it holds, else the one with the most GPUs left."""
        kind = int(self.kinds[claim])
        if kind != NONE or len(self.cluster.gpu_types) == 1:
            return kind
        left = np.bincount(self.cluster.machine_type, weights=self.room, minlength=len(self.cluster.gpu_types))
        mine = self.mine.get(claim)
        home = NONE if mine is None else int(self.cluster.gpu_type[mine[0]])
        return home if home != NONE and left[home] >= self.gpus[claim] else int(left.argmax())

    def _machines(self, gpus: int, room: Ints, own: Ints) -> list[tuple[int, int]] | None:
        """Return the fewest machines with enough GPUs, and the number on each; None: too few GPUs.

        Args:
            gpus: number of GPUs to place.
            room: [machine] GPUs that may be taken; reduced in place.
            own: [machine] how many of them the claim holds.
        """
        counts: list[tuple[int, int]] = []
        while gpus:
            fits = np.flatnonzero(room >= gpus)
            if fits.size == 0:
                fits = np.flatnonzero((room == room.max()) & (room > 0))
            if fits.size == 0:
                return None
            part = min(gpus, int(room[fits].max()))
            machine = self._best(fits, part, room, own)
            counts.append((machine, part))
            gpus -= part
            room[machine] = 0
        return counts

    def _best(self, machines: Ints, gpus: int, room: Ints, own: Ints) -> int:
        """Return the machine with room on which most jobs keep a GPU, then most GPUs are kept, then the fullest one."""
        kept = np.minimum(own[machines], gpus)
        vacant = room[machines] - self.held[machines] - own[machines]
        lost = np.maximum(gpus - kept - np.maximum(vacant, 0), 0)
        each = np.maximum(self.held[machines], 1) / np.maximum(self.holding[machines], 1)
        jobs = np.ceil(lost / each) - (kept > 0)
        return int(machines[np.lexsort((room[machines], lost - kept, jobs))[0]])

    def _take(self, claim: int, machine: int, count: int) -> Ints:
        """Return GPUs of a machine: the claim's own first, then free ones, then those of others."""
        start, end = self.cluster.machine_start[machine : machine + 2].tolist()
        here = np.flatnonzero(self.on_offer[start:end]) + start
        holder = self.holder[here]
        rank = np.where(holder == claim, 0, np.where(holder == NONE, 1, 2))
        found: Ints = here[np.argsort(rank, kind="stable")][:count]
        return found

    def _settle(self, claim: int, gpus: Ints) -> None:
        """Allocate GPUs to a claim, and remove them from other claims that held them."""
        others = np.unique(self.holder[gpus])
        losers = [other for other in others.tolist() if other not in (NONE, claim)]
        for other in losers:
            self._count(other, -1)
        self.holder[gpus] = NONE
        for other in losers:
            self._count(other, 1)
        mine = self.mine.get(claim, gpus[:0])
        self.holder[mine[self.holder[mine] == claim]] = NONE
        self.on_offer[gpus] = False
        np.subtract.at(self.room, self.cluster.machine[gpus], 1)
        self.chosen[claim] = gpus

    def _refuse(self, claim: int) -> None:
        """Keep a claim that cannot grow or move on its GPUs if it can run there; otherwise it waits."""
        job, mine = int(self.rows[claim]), self.mine.get(claim)
        can_stay = mine is not None and mine.size <= self.gpus[claim] and self.menus.has(job, mine.size)
        if mine is not None and can_stay and (self.holder[mine] == claim).all():
            self._settle(claim, mine)
            return
        self.refused[claim] = Reason.OUTRANKED if self.room.sum() < self.gpus[claim] else Reason.NO_GPU_OF_TYPE

    def _answer(self) -> Placement:
        claims, parts = list(self.chosen), list(self.chosen.values())
        waiting = [claim for claim in self.refused if self.chosen.get(claim, np.empty(0)).size == 0]
        return Placement(
            claim=np.array(claims, np.int32),
            gpus=np.concatenate([np.empty(0, np.int64), *parts]),
            start=np.cumsum([0, *(part.size for part in parts)]).astype(np.int64),
            verdicts=Verdicts(
                rows=self.rows[np.array(waiting, np.int64)],
                reasons=np.array([int(self.refused[claim]) for claim in waiting], np.int32),
            ),
        )
