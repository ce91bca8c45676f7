"""Repairs a placement with GPUs that are forbidden for an app: claims move, swap GPUs with others, or are withdrawn."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from eunomia.contract.allocations import Allocation, Grants
from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement
from eunomia.contract.pools import available
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.verdicts import Reason, Verdicts
from eunomia.model.leases import GpuState
from eunomia.units import NONE, Ints, Reals, Seconds, Unit


class Repair:
    """Repairs one placement of jobs or apps.

    A claim may keep GPUs that it already holds. If CPUs or memory are limited, claims are withdrawn and never moved,
    since their amounts were chosen for their machines.

    Args:
        snapshot: the round's snapshot.
        menus: the allowed sizes of jobs.
        offer: the offer whose GPUs were placed.
        allocation: the allocation, in whole GPUs.
        placement: the result of the profile's placement stage.
        barred: the GPUs that an app must not get, by the app's row.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        menus: Menus,
        offer: Offer,
        allocation: Allocation,
        placement: Placement,
        barred: Mapping[int, Ints],
    ) -> None:
        self._snapshot, self._menus, self._offer = snapshot, menus, offer
        self._allocation, self._placement = allocation, placement
        self._is_job = allocation.claims.unit is Unit.JOB
        self._barred = {app: frozenset(gpus.tolist()) for app, gpus in barred.items()}
        self._rows: list[int] = allocation.claims.rows.tolist()
        self._type: list[int] = snapshot.cluster.gpu_type.tolist()
        self._machine: list[int] = snapshot.cluster.machine.tolist()
        held = snapshot.holdings
        stays = held.state != GpuState.LEAVING
        self._holder: list[int] = np.where(stays, held.job if self._is_job else held.app, NONE).tolist()
        start = placement.start.tolist()
        self._placed = {
            claim: placement.gpus[start[at] : start[at + 1]].tolist()
            for at, claim in enumerate(placement.claim.tolist())
        }
        used = {gpu for gpus in self._placed.values() for gpu in gpus}
        self._free = set(available(snapshot, offer, allocation).tolist()) - used
        self._spare: set[int] = set()
        """GPUs that were taken from a claim and that other claims may use."""
        self._spans = False
        """Whether the placement may put a gang on several machines."""
        self._fewer: list[int] = []
        """Claims that ended up with fewer GPUs than allocated."""
        grants = allocation.amount
        amounts = isinstance(grants, Grants) and (grants.cpus is not None or grants.memory_gib is not None)
        given = placement.cpus is not None or placement.memory_gib is not None or placement.retunes is not None
        self._moves = not amounts and not given and snapshot.index.proportional

    def run(self) -> tuple[Allocation, Placement] | None:
        """Return the repaired allocation and placement; None if no claim has a forbidden GPU."""
        place = {claim: at for at, claim in enumerate(self._allocation.order.tolist())}
        wrong = [claim for claim, gpus in self._placed.items() if not self._may_have(claim, gpus)]
        if not wrong:
            return None
        self._spans = any(len({self._machine[gpu] for gpu in self._placed[claim]}) > 1 for claim in wrong)
        for claim in sorted(wrong, key=lambda claim: place.get(claim, len(place))):
            if not self._may_have(claim, self._placed[claim]):  # an earlier swap may have repaired it
                self._repair(claim)
        if self._moves:
            self._hand_on()
        return self._answer()

    # --- claims with forbidden GPUs ----------------------------------------------------------------------------------

    def _app(self, claim: int) -> int:
        return int(self._snapshot.jobs.app[self._rows[claim]]) if self._is_job else self._rows[claim]

    def _is_allowed(self, claim: int, gpu: int) -> bool:
        return gpu not in self._barred.get(self._app(claim), ()) or self._holder[gpu] == self._rows[claim]

    def _may_have(self, claim: int, gpus: Iterable[int]) -> bool:
        return all(self._is_allowed(claim, gpu) for gpu in gpus)

    def _repair(self, claim: int) -> None:
        if not self._moves:
            keeps = [] if self._is_job else [gpu for gpu in self._placed[claim] if self._is_allowed(claim, gpu)]
            self._set(claim, keeps)
        elif self._is_job:
            self._move_job(claim)
        else:
            self._move_app(claim)

    def _move_job(self, claim: int) -> None:
        """Move a whole gang to other GPUs of its type, else swap it with a gang of its size, else shrink or drop it.

        If possible, a running gang stays on its GPUs, if necessary at a smaller size.
        """
        gpus, held = self._placed[claim], self._held_by(claim)
        stays = self._is_size(claim, len(held)) and set(held) <= self._free | set(gpus)
        if stays and len(held) == len(gpus):
            self._set(claim, held)
            return
        good = [gpu for gpu in gpus if self._is_allowed(claim, gpu)]
        pool = [*good, *sorted(gpu for gpu in self._free if self._is_allowed(claim, gpu))]
        found = self._chosen(pool, len(gpus), gpus)
        if found is not None:
            self._set(claim, found)
            return
        kinds = Counter(self._type[gpu] for gpu in gpus)
        partners = [
            other
            for other, theirs in self._placed.items()
            if other != claim
            and len(theirs) == len(gpus)
            and Counter(self._type[gpu] for gpu in theirs) == kinds
            and self._may_have(claim, theirs)
            and self._may_have(other, gpus)
        ]
        if partners:  # prefer a gang that has not started: the swap costs it nothing
            other = min(
                partners, key=lambda one: any(self._holder[gpu] == self._rows[one] for gpu in self._placed[one])
            )
            self._placed[claim], self._placed[other] = self._placed[other], gpus
            return
        if stays and len(held) < len(gpus):
            self._set(claim, held)
            return
        row, outside = self._rows[claim], self._outside(claim)
        sizes = [int(size) - outside for size in self._menus.sizes(row)]
        for size in sorted((size for size in sizes if 0 < size < len(gpus)), reverse=True):
            found = self._chosen(pool, size, gpus)
            if found is not None:
                self._set(claim, found)
                return
        self._set(claim, [])

    def _held_by(self, claim: int) -> list[int]:
        """Return the GPUs of the offer that a claim holds now."""
        return [gpu for gpu in self._offer.gpus.tolist() if self._holder[gpu] == self._rows[claim]]

    def _is_size(self, claim: int, size: int) -> bool:
        """Return whether a job may have ``size`` GPUs of the offer in addition to those that it keeps outside of it."""
        return size > 0 and size + self._outside(claim) in self._menus.sizes(self._rows[claim])

    def _outside(self, claim: int) -> int:
        """Return the number of GPUs that a job keeps and that are not in the offer."""
        offered = set(self._offer.gpus.tolist())
        return sum(holder == self._rows[claim] and gpu not in offered for gpu, holder in enumerate(self._holder))

    def _chosen(self, pool: list[int], size: int, like: list[int]) -> list[int] | None:
        """Choose GPUs of one type, on one machine if the replaced ones (``like``) are; None if there are too few."""
        one_machine = len({self._machine[gpu] for gpu in like}) == 1
        for kind in sorted({self._type[gpu] for gpu in like}):
            here = [gpu for gpu in pool if self._type[gpu] == kind]
            counts = Counter(self._machine[gpu] for gpu in here)
            fits = [machine for machine, count in counts.items() if count >= size]
            if fits:
                machine = min(fits, key=lambda one: (counts[one], one))
                return [gpu for gpu in here if self._machine[gpu] == machine][:size]
            if not one_machine and len(here) >= size:
                return sorted(here, key=lambda gpu: (-counts[self._machine[gpu]], self._machine[gpu], gpu))[:size]
        return None

    def _move_app(self, claim: int) -> None:
        """Swap each forbidden GPU of an app; if too few remain for a waiting job, the app gets no new GPUs."""
        gpus = [gpu for gpu in self._placed[claim] if self._is_allowed(claim, gpu)]
        short = False
        for bad in [gpu for gpu in self._placed[claim] if not self._is_allowed(claim, gpu)]:
            counts = Counter(self._machine[gpu] for gpu in gpus)
            like = [gpu for gpu in self._free if self._type[gpu] == self._type[bad] and self._is_allowed(claim, gpu)]
            if like:
                row = self._rows[claim]
                found = min(like, key=lambda gpu: (self._holder[gpu] != row, -counts[self._machine[gpu]], gpu))
                self._free.remove(found)
                self._free.add(bad)
                self._spare.add(bad)
                gpus.append(found)
            elif (found_at := self._partner(claim, bad)) is not None:
                other, gpu = found_at
                self._placed[other] = [bad if one == gpu else one for one in self._placed[other]]
                gpus.append(gpu)
            else:
                short = True
        if short:
            own = [gpu for gpu in gpus if self._holder[gpu] == self._rows[claim]]
            if 0 < len(gpus) - len(own) < min(self._wanted(self._rows[claim]), default=1):
                gpus = own
        self._set(claim, gpus)

    def _partner(self, claim: int, bad: int) -> tuple[int, int] | None:
        """Return another claim's GPU to swap with, if possible one that this claim does not hold yet."""
        found = [
            (self._holder[gpu] == self._rows[other], gpu, other)
            for other, gpus in self._placed.items()
            if other != claim and self._is_allowed(other, bad)
            for gpu in gpus
            if self._type[gpu] == self._type[bad] and self._is_allowed(claim, gpu)
        ]
        if not found:
            return None
        _, gpu, other = min(found)
        return other, gpu

    def _set(self, claim: int, gpus: list[int]) -> None:
        """Replace a claim's GPUs; its previous ones become free for waiting jobs."""
        before = set(self._placed[claim])
        gone = before - set(gpus) - self._free
        gone -= {gpu for other, theirs in self._placed.items() if other != claim for gpu in theirs}
        self._free = (self._free | gone) - set(gpus)
        self._spare = (self._spare | gone) - set(gpus)
        if len(gpus) < len(before):
            self._fewer.append(claim)
        self._placed[claim] = gpus

    # --- freed GPUs, for waiting jobs ---------------------------------------------------------------------------------

    def _hand_on(self) -> None:
        """Give freed GPUs to claims that got nothing, in the policy's order, then to other waiting jobs."""
        self._restore()
        for claim in self._claims_for_more():
            if not self._spare:
                return
            if self._is_job:
                self._start_job(claim)
            else:
                self._give_app(claim)

    def _restore(self) -> None:
        """Keep claims running whose GPUs were meant for a withdrawn claim; else each round would restart them."""
        for row in sorted({self._holder[gpu] for gpu in self._spare} - {NONE}):
            if row not in self._rows:
                if not self._may_grow():
                    continue
                self._rows.append(row)
            claim = self._rows.index(row)
            if claim in self._fewer:
                continue
            if not self._is_job:
                own = [gpu for gpu in sorted(self._spare) if self._holder[gpu] == row]
                self._take(claim, [*self._placed.get(claim, ()), *own])
            elif not self._placed.get(claim):
                held = self._held_by(claim)
                if self._is_size(claim, len(held)) and set(held) <= self._spare | self._free:
                    self._take(claim, held)

    def _may_grow(self) -> bool:
        """Return whether claims may be added to the allocation."""
        claims = self._allocation.claims
        return claims.weight is None and claims.job_kind is None

    def _claims_for_more(self) -> Iterator[int]:
        order: list[int] = self._allocation.order.tolist()
        yield from dict.fromkeys([*order, *range(len(self._rows))])
        if not self._may_grow():
            return
        known = set(self._rows)
        waiting = [job for job in self._offer.candidates.tolist() if job in self._snapshot.index.waiting]
        more = waiting if self._is_job else [int(self._snapshot.jobs.app[job]) for job in waiting]
        for row in dict.fromkeys(more):
            if row not in known:
                self._rows.append(row)
                yield len(self._rows) - 1

    def _start_job(self, claim: int) -> None:
        row, waiting = self._rows[claim], self._snapshot.index.waiting
        sizes = self._menus.sizes(row)
        if self._placed.get(claim) or row not in waiting or not sizes.size or claim in self._fewer:
            return
        wanted = int(self._snapshot.jobs.gpu_type[row])
        if wanted < NONE:
            return
        pool = [g for g in sorted(self._spare) if self._is_allowed(claim, g) and wanted in (NONE, self._type[g])]
        likes = [[gpu] for gpu in pool] + ([pool] if self._spans else [])
        found = next((found for like in likes if (found := self._chosen(pool, int(sizes[0]), like)) is not None), None)
        if found is not None:
            self._take(claim, found)

    def _give_app(self, claim: int) -> None:
        if claim in self._fewer:
            return
        fresh = sum(self._holder[gpu] != self._rows[claim] for gpu in self._placed.get(claim, ()))
        pool = [gpu for gpu in sorted(self._spare) if self._is_allowed(claim, gpu)]
        room, given = len(pool), 0
        for size in self._wanted(self._rows[claim]):
            if fresh >= size:
                fresh -= size  # what the placement gave it is for this job
            elif given + size <= room:
                given += size
        if given:
            self._take(claim, [*self._placed.get(claim, ()), *pool[:given]])

    def _wanted(self, app: int) -> list[int]:
        """Return the smallest size of each waiting job of an app."""
        jobs = self._snapshot.jobs
        mine = [job for job in self._snapshot.index.waiting if int(jobs.app[job]) == app]
        return [int(sizes[0]) for job in sorted(mine) if (sizes := self._menus.sizes(job)).size]

    def _take(self, claim: int, gpus: list[int]) -> None:
        self._spare -= set(gpus)
        self._free -= set(gpus)
        self._placed[claim] = gpus

    # --- the answer -----------------------------------------------------------------------------------------------

    def _answer(self) -> tuple[Allocation, Placement]:
        granted = self._sizes()
        order = [claim for claim in self._allocation.order.tolist() if granted[claim] > 0]
        named = set(order)
        order += [claim for claim, size in enumerate(granted) if size > 0 and claim not in named]
        return self._allocated(granted, order), self._placement_of()

    def _sizes(self) -> list[int]:
        """Return the granted size of each claim: unchanged unless the claim got fewer GPUs, or freed ones."""
        amount: Any = self._allocation.amount
        granted: list[int] = [*amount.gpus.tolist(), *[0] * (len(self._rows) - amount.gpus.size)]
        for claim, gpus in self._placed.items():
            if claim in self._fewer or len(gpus) > granted[claim]:
                granted[claim] = len(gpus)
        return granted

    def _allocated(self, granted: list[int], order: list[int]) -> Allocation:
        allocation, more = self._allocation, len(self._rows) - self._allocation.claims.rows.size
        amount: Any = allocation.amount

        def longer(column: Any, default: float) -> Any:
            if not isinstance(column, np.ndarray) or not more:
                return column
            return np.concatenate([column, np.full(more, default, column.dtype)])

        length = float(self._offer.lease)
        claims = dataclasses.replace(allocation.claims, rows=np.array(self._rows, np.int32))
        kinds = longer(amount.gpu_type, NONE)
        if kinds is not None:
            kinds = kinds.copy()
            for claim, gpus in self._placed.items():
                if kinds[claim] != NONE and any(self._type[gpu] != kinds[claim] for gpu in gpus):
                    kinds[claim] = NONE
        grants = dataclasses.replace(
            amount, gpus=np.array(granted, np.int64), gpu_type=kinds, stays=longer(amount.stays, 0), pins=None
        )
        lease: Seconds | Reals | None = longer(allocation.lease, length)
        protected: Seconds | Reals = longer(allocation.protected, 0.0)
        return dataclasses.replace(
            allocation,
            claims=claims if more else allocation.claims,
            amount=grants,
            order=np.array(order, np.int32),
            standby=None,
            lease=lease,
            protected=protected,
            starts_at=longer(allocation.starts_at, np.nan),
        )

    def _placement_of(self) -> Placement:
        placement, claims = self._placement, list(self._placed)
        gpus = [gpu for claim in claims for gpu in self._placed[claim]]
        place = {gpu: at for at, gpu in enumerate(placement.gpus.tolist())}

        def kept(column: Reals | None) -> Reals | None:  # nothing has moved where there are amounts
            return None if column is None else column[[place[gpu] for gpu in gpus]]

        lost = [claim for claim in self._fewer if not self._placed[claim]]
        served = {self._rows[claim] for claim in claims if self._placed[claim]} | {self._rows[claim] for claim in lost}
        said = [*zip(placement.verdicts.rows.tolist(), placement.verdicts.reasons.tolist(), strict=True)]
        said = [(row, reason) for row, reason in said if row not in served]
        said += [(self._rows[claim], int(Reason.FRAGMENTED)) for claim in lost]
        return dataclasses.replace(
            placement,
            claim=np.array(claims, np.int32),
            gpus=np.array(gpus, np.int64),
            start=np.cumsum([0, *(len(self._placed[claim]) for claim in claims)]).astype(np.int64),
            cpus=kept(placement.cpus),
            memory_gib=kept(placement.memory_gib),
            verdicts=Verdicts(
                rows=np.array([row for row, _ in said], np.int32), reasons=np.array([why for _, why in said], np.int32)
            ),
        )
