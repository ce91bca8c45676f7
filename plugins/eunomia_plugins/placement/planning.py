"""Helpers for placements: serve claims in order, keep those that stay, and call a rule for the others."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eunomia import (
    Allocation,
    AmountRange,
    GpuState,
    Grants,
    Menus,
    Misfit,
    Offer,
    Placement,
    PluginError,
    Pool,
    Reason,
    Rest,
    Snapshot,
    Unit,
    Verdicts,
    available,
)
from eunomia.contract.pools import holders
from eunomia.units import NONE, Bools, Ints, Reals, Rows


class Ask(NamedTuple):
    """The demand of one claim."""

    gpus: int
    gpu_type: int
    """GPU type granted to the claim; -1: any."""
    cpus: float
    """Required CPUs per GPU; NaN: no requirement."""
    memory_gib: float
    """Required memory per GPU in GiB; NaN: no requirement."""
    one_type: bool
    """Whether all its GPUs must have the same type, as for a gang."""
    near: Ints
    """GPUs that the claim holds, inside or outside the offer."""
    job: int = NONE
    """Row of the job; -1 if the claim is an app's or a user's."""


Rule = Callable[[Pool, Ask], Ints | None]
"""Chooses GPUs for a claim without taking them from the pool; returns None if the claim cannot be placed."""


def place(
    snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation, rule: Rule, *, pins: bool
) -> Placement:
    """Place the claims of an allocation in its order of service.

    A claim that already holds as many GPUs of the offer as it is granted keeps them before other claims choose, so that
    no job migrates unnecessarily. Claims that hold GPUs of the offer and get none are listed with 0 GPUs.

    Args:
        snapshot: the current state.
        menus: the sizes of jobs.
        offer: the GPUs that may be reassigned.
        allocation: grants of whole GPUs.
        rule: chooses GPUs for a claim that does not keep its own.
        pins: whether pins to machines are honoured.

    Raises:
        PluginError: the allocation contains shares, as a refiner is missing.
    """
    if not isinstance(allocation.amount, Grants):
        raise PluginError("a placement must get whole GPUs", value=type(allocation.amount).__name__)
    if pins and allocation.amount.pins is not None:
        found = _at_pins(snapshot, offer, allocation, allocation.amount)
        if found is not None:
            return found
    return _Plan(snapshot, menus, offer, allocation, allocation.amount, rule, pins=pins).run()


def _at_pins(snapshot: Snapshot, offer: Offer, allocation: Allocation, grants: Grants) -> Placement | None:
    """Place pinned apps on their machines, preferring GPUs that they hold, with the same result as ``_Plan``.

    Returns:
        The placement, or None if ``_Plan`` is needed: CPUs, memory or types are requested, there are islands or GPUs
        being released, or a claim has no pins or does not fit on its machines.
    """
    cluster, held, rest = snapshot.cluster, snapshot.holdings, allocation.rest
    named = (grants.cpus, grants.memory_gib, grants.gpu_type, grants.stays, allocation.standby)
    if any(column is not None for column in named):
        return None
    if allocation.claims.unit is not Unit.APP or rest is not Rest.RELEASE:
        return None
    if cluster.has_islands or not snapshot.index.proportional or not _none_leaves(snapshot, offer.gpus):
        return None
    claim_of = {row: claim for claim, row in enumerate(allocation.claims.listed["rows"])}
    apps = zip(offer.gpus.tolist(), held.app[offer.gpus].tolist(), strict=True)
    owner = {gpu: claim_of.get(app, NONE) for gpu, app in apps}
    here: dict[int, list[int]] = {}
    mine: dict[int, list[int]] = {}
    for gpu in sorted(owner):
        here.setdefault(cluster.machine.item(gpu), []).append(gpu)
        if owner[gpu] != NONE:
            mine.setdefault(owner[gpu], []).append(gpu)
    pinned, sizes, order = _pinned(grants), grants.listed["gpus"], allocation.listed["order"]
    chosen: dict[int, list[int]] = {}
    for claim in order:  # those that stay where they are
        gpus = mine.get(claim, [])
        if gpus and len(gpus) == sizes[claim] and Counter(cluster.machine[gpus].tolist()) == pinned.get(claim):
            chosen[claim] = gpus
            for gpu in gpus:
                here[cluster.machine.item(gpu)].remove(gpu)
    for claim in order:
        if claim in chosen or sizes[claim] <= 0:
            continue
        chosen[claim] = []
        for machine, count in pinned.get(claim, {NONE: sizes[claim]}).items():
            left = sorted(here.get(machine, []), key=lambda gpu: owner[gpu] != claim)[:count]
            if len(left) < count:
                return None
            chosen[claim] += left
            here[machine] = [gpu for gpu in here[machine] if gpu not in left]
    for claim in sorted(mine):
        chosen.setdefault(claim, [])
    claims: Any = [*chosen]
    placed: Any = [gpu for those in chosen.values() for gpu in those]
    start: Any = [0, *itertools.accumulate(map(len, chosen.values()))]
    return Placement(claim=claims, gpus=placed, start=start)


def _none_leaves(snapshot: Snapshot, gpus: Ints) -> bool:
    """Return whether none of these GPUs is being released or is promised to another lease."""
    held = snapshot.holdings
    return not ((held.state[gpus] == int(GpuState.LEAVING)) | (held.successor[gpus] != NONE)).any()


class _Plan:
    """Builds the placement of one round."""

    def __init__(
        self,
        snapshot: Snapshot,
        menus: Menus,
        offer: Offer,
        allocation: Allocation,
        grants: Grants,
        rule: Rule,
        *,
        pins: bool,
    ) -> None:
        self.snapshot, self.menus, self.allocation = snapshot, menus, allocation
        self.grants, self.rule = grants, rule
        gpus = available(snapshot, offer, allocation)
        self.pool = Pool(snapshot, gpus)
        self.mine = _by_claim(holders(snapshot, allocation.claims, gpus), gpus)
        self.pinned = _pinned(grants) if pins and grants.pins is not None else {}
        self.jobs = allocation.claims.rows if allocation.claims.unit is Unit.JOB else None
        self.resources = resources_matter(snapshot, grants)
        self.leaving: Bools = snapshot.holdings.state[: snapshot.cluster.gpus] == int(GpuState.LEAVING)
        """GPUs that are being released; their CPUs and memory are still in use and pass to the next holder."""
        self.chosen: dict[int, Ints] = {}
        self.shares: dict[int, tuple[Reals, Reals]] = {}
        """CPUs and memory of each GPU, by claim."""
        self.refused: dict[int, Reason] = {}

    def run(self) -> Placement:
        order = self.allocation.order.tolist()
        standby = [] if self.allocation.standby is None else self.allocation.standby.tolist()
        self._keep(order)
        self._serve(order, stop=self.allocation.on_misfit is Misfit.STOP)
        if self.grants.stays is not None:
            self._undo_moves(self.grants.stays)
        self._keep(standby)
        self._serve(standby, stop=False)
        for claim in self.mine:
            self.chosen.setdefault(claim, np.empty(0, np.int64))
        return self._answer()

    def _keep(self, claims: list[int]) -> None:
        """Keep the claims that hold exactly the granted GPUs, if their grants allow it."""
        for claim in claims if self.mine else ():
            held = self.mine.get(claim)
            if held is None or claim in self.chosen or held.size != self.grants.gpus[claim]:
                continue
            if not self._allowed(claim, held) or not self.pool.holds(held).all():
                continue
            share = self._current(claim, held) if self.resources else None
            if share is None or self._is_current(held, share) or self._suffices(held, share):
                self._settle(claim, held, share)

    def _undo_moves(self, stays: Bools) -> None:
        """Keep claims on their GPUs of another type if no other claim took these and the grant allows it.

        An allocation moves a job to another type to make room for a job ahead of it. If the job ahead cannot be placed,
        because its GPUs would be too far apart, the move is useless, and the next round would reverse it.
        """
        for claim, held in self.mine.items():
            gpus = self.chosen.get(claim)
            if gpus is None or gpus.size != held.size or not stays[claim] or np.array_equal(gpus, held):
                continue
            share = self._current(claim, held) if self.resources else None
            if self.pool.holds(held).all() and (share is None or self._suffices(held, share)):
                if claim in self.shares:
                    cpus, memory_gib = self.shares[claim]
                    self.pool.spend(gpus, -cpus, -memory_gib)
                self.pool.give(gpus)
                self._settle(claim, held, share)

    def _allowed(self, claim: int, gpus: Ints) -> bool:
        cluster = self.snapshot.cluster
        wanted = self._type(claim)
        if wanted != NONE and (cluster.gpu_type[gpus] != wanted).any():
            return False
        if claim in self.pinned:
            return dict(Counter(cluster.machine[gpus].tolist())) == self.pinned[claim]
        return True

    def _serve(self, claims: list[int], *, stop: bool) -> None:
        for turn, claim in enumerate(claims):
            if claim in self.chosen or self.grants.gpus[claim] <= 0:
                continue
            ask = self._ask(claim)
            gpus = self._at_pins(claim, ask) if claim in self.pinned else self.rule(self.pool, ask)
            share = self._fair(ask, gpus) if self.resources and gpus is not None else None
            if gpus is not None and (share is None or self._suffices(gpus, share)):
                self._settle(claim, gpus, share)
                continue
            self.refused[claim] = self._reason(ask) if gpus is None else Reason.CPUS_SHORT
            self._fall_back(claim, ask)
            if stop:
                rest = [other for other in claims[turn + 1 :] if other not in self.chosen]
                self.refused |= dict.fromkeys(rest, Reason.OUTRANKED)
                return

    def _fall_back(self, claim: int, ask: Ask) -> None:
        """Keep a claim that cannot grow or move on its GPUs, if they are free and the claim can run on them.

        If other claims got its CPUs or memory, it gets its part of what is left.
        """
        held = self.mine.get(claim)
        if held is None or claim in self.pinned or held.size > self.grants.gpus[claim]:
            return
        on_menu = self.jobs is None or self.menus.largest_at_most(int(self.jobs[claim]), held.size) == held.size
        if not on_menu or not self.pool.holds(held).all():
            return
        if not self.resources:
            self._settle(claim, held, None)
            return
        for share in (self._current(claim, held), self._fair(ask, held)):
            if self._suffices(held, share):
                self._settle(claim, held, share)
                return

    def _suffices(self, gpus: Ints, share: tuple[Reals, Reals]) -> bool:
        """Return whether the machines of these GPUs have the given CPUs and memory left."""
        machine, held = self.snapshot.cluster.machine, self.snapshot.holdings
        leaving = self.leaving & self.pool.holds(np.arange(self.leaving.size))
        leaving[gpus] = False
        pools = ((self.pool.cpus, held.cpus, share[0]), (self.pool.memory_gib, held.memory_gib, share[1]))
        for left, in_use, asked in pools:
            needed = np.bincount(machine[gpus], weights=np.nan_to_num(asked), minlength=left.size)
            used = np.nan_to_num(in_use[: leaving.size][leaving])
            kept = np.bincount(machine[leaving], weights=used, minlength=left.size)
            if ((needed + kept > left + 1e-6) & (needed > 0.0)).any():
                return False
        return True

    def _settle(self, claim: int, gpus: Ints, share: tuple[Reals, Reals] | None) -> None:
        self.chosen[claim] = gpus
        if share is not None:
            self.shares[claim] = share
            self.pool.spend(gpus, *share)
        self.pool.take(gpus)

    def _ask(self, claim: int) -> Ask:
        gpus = int(self.grants.gpus[claim])
        held = self.snapshot.holdings
        near = self.mine.get(claim, np.empty(0, np.int64))
        if self.allocation.claims.unit is Unit.APP:
            own = (held.app == self.allocation.claims.rows[claim]).nonzero()[0]
            near = np.union1d(near, own) if near.size else own
        cpus, memory_gib = self._needs(claim, gpus) if self.resources else (np.nan, np.nan)
        job = NONE if self.jobs is None else int(self.jobs[claim])
        return Ask(gpus, self._type(claim), cpus, memory_gib, self.jobs is not None, near, job)

    def _type(self, claim: int) -> int:
        if self.grants.gpu_type is not None and self.grants.gpu_type[claim] >= 0:
            return int(self.grants.gpu_type[claim])
        return NONE if self.jobs is None else int(self.snapshot.jobs.gpu_type[self.jobs[claim]])

    def _needs(self, claim: int, gpus: int) -> tuple[float, float]:
        """Return the required CPUs and memory per GPU: the minimum of the grant, else the job's request."""
        table = self.snapshot.jobs
        asked = (np.nan, np.nan)
        if self.jobs is not None:
            asked = (float(table.cpus[self.jobs[claim]]), float(table.memory_gib[self.jobs[claim]]))
        return (
            _least(self.grants.cpus, claim, gpus, asked[0]),
            _least(self.grants.memory_gib, claim, gpus, asked[1]),
        )

    def _fair(self, ask: Ask, gpus: Ints) -> tuple[Reals, Reals]:
        """Return CPUs and memory of each GPU: as requested, else in proportion to the machine's GPUs."""
        cluster, pool = self.snapshot.cluster, self.pool
        cpus, memory_gib = np.full(gpus.size, ask.cpus), np.full(gpus.size, ask.memory_gib)
        if np.isnan(ask.cpus) or np.isnan(ask.memory_gib):
            for machine in np.unique(cluster.machine[gpus]).tolist():
                on_it = cluster.machine[gpus] == machine
                if np.isnan(ask.cpus):
                    cpus[on_it] = pool.fair(machine, pool.cpus, cluster.machine_cpus)
                if np.isnan(ask.memory_gib):
                    memory_gib[on_it] = pool.fair(machine, pool.memory_gib, cluster.machine_memory_gib)
        return cpus, memory_gib

    def _current(self, claim: int, gpus: Ints) -> tuple[Reals, Reals]:
        """Return the claim's present CPUs and memory of each GPU, clipped to the range of its grant for a job."""
        held, part = self.snapshot.holdings, gpus.size / max(1, int(self.grants.gpus[claim]))
        if self.jobs is None:
            return held.cpus[gpus].copy(), held.memory_gib[gpus].copy()
        cpus = _within(held.cpus[gpus], self.grants.cpus, claim, part)
        return cpus, _within(held.memory_gib[gpus], self.grants.memory_gib, claim, part)

    def _is_current(self, gpus: Ints, share: tuple[Reals, Reals]) -> bool:
        held = self.snapshot.holdings
        now = (held.cpus[gpus], held.memory_gib[gpus])
        return all(np.array_equal(mine, before, equal_nan=True) for mine, before in zip(share, now, strict=True))

    def _at_pins(self, claim: int, ask: Ask) -> Ints | None:
        room = self.pool.room(ask.gpu_type, ask.cpus, ask.memory_gib)
        wanted = self.pinned[claim]
        if any(room[machine] < count for machine, count in wanted.items()):
            return None
        return np.concatenate([prefer(self.pool, ask.near, machine, count) for machine, count in wanted.items()])

    def _reason(self, ask: Ask) -> Reason:
        """Return why a claim cannot be placed: too few GPUs, GPUs too far apart, or too few CPUs or memory."""
        if self.pool.gpus < ask.gpus:
            return Reason.OUTRANKED
        if self.pool.room(ask.gpu_type).sum() < ask.gpus:
            return Reason.NO_GPU_OF_TYPE
        if self.pool.room(ask.gpu_type, ask.cpus).sum() < ask.gpus:
            return Reason.CPUS_SHORT
        if self.pool.room(ask.gpu_type, ask.cpus, ask.memory_gib).sum() < ask.gpus:
            return Reason.MEMORY_SHORT
        return Reason.FRAGMENTED

    def _answer(self) -> Placement:
        claims = list(self.chosen)
        gpus = [self.chosen[claim] for claim in claims]
        waiting = [claim for claim in self.refused if self.chosen.get(claim, np.empty(0)).size == 0]
        shares = [self.shares.get(claim, (np.empty(0), np.empty(0))) for claim in claims] if self.resources else None
        return Placement(
            claim=np.array(claims, np.int32),
            gpus=np.concatenate([np.empty(0, np.int64), *gpus]),
            start=np.cumsum([0, *(part.size for part in gpus)]).astype(np.int64),
            cpus=None if shares is None else np.concatenate([np.empty(0), *(share[0] for share in shares)]),
            memory_gib=None if shares is None else np.concatenate([np.empty(0), *(share[1] for share in shares)]),
            verdicts=Verdicts(
                rows=self.allocation.claims.rows[np.array(waiting, np.int64)],
                reasons=np.array([int(self.refused[claim]) for claim in waiting], np.int32),
            ),
        )


def prefer(pool: Pool, near: Ints, machine: int, count: int) -> Ints:
    """Return ``count`` GPUs of a machine that are left, those in ``near`` first."""
    here = pool.on(machine)
    own: Bools = np.zeros(here.size, dtype=bool)
    if near.size and here.size:
        own = (here[:, None] == near).any(axis=1)
    if not own.any():
        return pool.choose(machine, count)
    first, others = here[own][:count], here[~own]
    return np.sort(np.concatenate([first, others[: count - first.size]]))


def types_of(pool: Pool, ask: Ask, types: int, machine_type: Rows) -> list[int]:
    """Return the GPU types to try (-1: any): the requested one, else for a gang those that fit, fewest free first."""
    if ask.gpu_type != NONE or not ask.one_type or types == 1:
        return [ask.gpu_type]
    free = np.bincount(machine_type, weights=pool.room(NONE, ask.cpus, ask.memory_gib), minlength=types)
    order = np.argsort(free, kind="stable")
    return [int(kind) for kind in order if free[kind] >= ask.gpus]


def _by_claim(index: Ints, gpus: Ints) -> dict[int, Ints]:
    """Return the GPUs of the offer by the claim that holds them."""
    owned: dict[int, list[int]] = {}
    for claim, gpu in zip(index.tolist(), gpus.tolist(), strict=True):
        if claim >= 0:
            owned.setdefault(claim, []).append(gpu)
    return {claim: np.array(owned[claim], np.int64) for claim in sorted(owned)}


def _pinned(grants: Grants) -> dict[int, dict[int, int]]:
    pinned: dict[int, dict[int, int]] = {}
    if grants.pins is not None:
        columns = (grants.pins.claim, grants.pins.machine, grants.pins.gpus)
        for claim, machine, gpus in zip(*(column.tolist() for column in columns), strict=True):
            if gpus > 0:
                of = pinned.setdefault(claim, {})
                of[machine] = of.get(machine, 0) + gpus
    return pinned


def resources_matter(snapshot: Snapshot, grants: Grants) -> bool:
    """Return whether a claim requests or holds CPUs or memory other than its GPUs' share of the machine."""
    if grants.cpus is not None or grants.memory_gib is not None:
        return True
    table, cluster, held = snapshot.jobs, snapshot.cluster, snapshot.holdings
    if not (np.isnan(table.cpus).all() and np.isnan(table.memory_gib).all()):
        return True
    sizes = np.diff(cluster.machine_start) * (1.0 - 1e-9)
    uneven = held.cpus[: cluster.gpus] > (cluster.machine_cpus / sizes)[cluster.machine]
    uneven |= held.memory_gib[: cluster.gpus] > (cluster.machine_memory_gib / sizes)[cluster.machine]
    return bool(uneven.any())


def _least(amount: AmountRange | None, claim: int, gpus: int, asked: float) -> float:
    return asked if amount is None else float(amount.least[claim]) / gpus


def _within(now: Reals, amount: AmountRange | None, claim: int, part: float) -> Reals:
    """Return the amounts by GPU; if their sum is outside the claim's range, the nearest bound divided equally."""
    if amount is None:
        return now.copy()
    least, most = amount.of(claim, part)
    total = float(np.nan_to_num(now).sum())
    wanted = min(max(total, least), most)
    return now.copy() if wanted == total else np.full(now.size, wanted / now.size)
