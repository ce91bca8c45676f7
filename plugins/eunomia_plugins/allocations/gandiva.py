"""Gandiva as Themis implements it for comparison (§6.1): the job with the best placement is served first.

Jobs with poor placements migrate.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from eunomia import (
    Allocation,
    Cause,
    Claims,
    Contract,
    Feature,
    Grants,
    Menus,
    Offer,
    Pins,
    PluginOptions,
    Pool,
    Reason,
    Scores,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Valuations,
    Verdicts,
    hookimpl,
)
from eunomia.contract.pools import holders, usable
from eunomia.units import NONE, Ints, Reals
from eunomia_plugins.allocations.nearness import GangPlacement, nearest, placement_of, placement_score
from eunomia_plugins.allocations.ranking import EVENTS, ranked, reasons


class GandivaOptions(PluginOptions):
    """Options of ``gandiva``."""

    migrate: bool = True
    """Whether running jobs migrate to free GPUs on which they would run faster (Gandiva §3.2)."""
    least_gain: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.05
    """Minimum gain for which a job migrates, as a fraction of its full speed."""


class Gandiva:
    """Greedy packing by placement preference, with introspective migration (Xiao et al., OSDI 2018; Themis §6.1).

    The waiting job whose best placement on free GPUs comes closest to its full speed is placed first, repeatedly. The
    valuation's order breaks ties: with ``las`` by seconds and short leases, jobs take turns, which is Gandiva's time
    slicing. Two jobs never share a GPU at the same time.
    """

    name = "gandiva"
    api = 1
    options_type = GandivaOptions

    def __init__(self, options: GandivaOptions) -> None:
        self.options = options
        self.contracts = {
            Stage.ALLOCATION: Contract(
                needs=frozenset({Feature.SCORES}),
                gives=frozenset({Feature.GRANTS, Feature.PINNED, Feature.JOB_CLAIMS}),
            )
        }

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Request a round whenever the allocation may change; running jobs may move when GPUs become free."""
        moves = frozenset({Cause.FREED, Cause.LEFT, Cause.CLUSTER_CHANGED}) if self.options.migrate else frozenset()
        return Triggers(on=EVENTS, all_on=moves)

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Keep running jobs, migrate those that gain enough, then place waiting jobs greedily."""
        jobs = ranked(snapshot, offer.candidates, valuations.form(Scores), valuations.claims)
        packing = _Packing(snapshot, menus, offer, Claims(unit=Unit.JOB, rows=jobs))
        packing.keep()
        if self.options.migrate:
            packing.migrate(self.options.least_gain)
        packing.pack(self.options.least_gain if self.options.migrate else np.inf)
        return packing.allocation(offer)


class _Packing:
    """The placement decisions of one round."""

    def __init__(self, snapshot: Snapshot, menus: Menus, offer: Offer, claims: Claims) -> None:
        self.snapshot, self.menus, self.claims = snapshot, menus, claims
        self.jobs = claims.rows.tolist()
        gpus = usable(snapshot, offer, claims)
        self.pool = Pool(snapshot, gpus)
        owner = holders(snapshot, claims, gpus)
        self.held = {int(claim): gpus[owner == claim] for claim in np.unique(owner[owner >= 0])}
        self.served: dict[int, GangPlacement] = {}
        """GPUs of each served claim, in order of service."""
        self.types: dict[int, int] = {}
        self.why = reasons(menus.span(claims.rows)[0], snapshot.jobs.gpu_type[claims.rows], offer.capacity)

    # --- running jobs -----------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Keep the jobs whose lease has not ended and whose size is still on their menu."""
        for claim, gpus in self.held.items():
            on_menu = self.menus.largest_at_most(self.jobs[claim], gpus.size) == gpus.size
            lasts = (self.snapshot.holdings.ends_at[gpus] > self.snapshot.now).all()
            if on_menu and lasts and self.pool.holds(gpus).all():
                self._settle(claim, placement_of(self.snapshot.cluster, gpus), gpus)

    def migrate(self, least_gain: float) -> None:
        """Migrate jobs that would run faster elsewhere, largest gain first, each at most once."""
        apart = [claim for claim, placed in self.served.items() if len(placed.parts) > 1]
        waiting = {claim: self._gain(claim) for claim in apart}
        while waiting:
            claim = max(waiting, key=lambda one: waiting[one][0])
            gain, placed = waiting.pop(claim)
            if placed is None or gain < least_gain:
                return
            gain, placed = self._gain(claim)  # earlier moves changed the free GPUs
            if placed is None or gain < least_gain:
                continue
            self._free(claim)
            self._settle(claim, placed, None)

    def _gain(self, claim: int) -> tuple[float, GangPlacement | None]:
        """Return the gain of a running job's best migration, as a fraction of its full speed, and its new machines."""
        here = self.served[claim]
        score = self._score(claim, here)
        if score >= 1.0:
            return 0.0, None
        own = np.bincount(self.snapshot.cluster.machine[self.held[claim]], minlength=self.pool.free.size)
        placed = self._nearest(claim, here.gpus, own)
        return (0.0, None) if placed is None else (self._score(claim, placed) - score, placed)

    def _free(self, claim: int) -> None:
        """Put the GPUs of a migrating job back into the pool."""
        gpus = self.held[claim]
        machines = self.snapshot.cluster.machine[gpus]
        self.pool.give(gpus)
        np.add.at(self.pool.cpus, machines, self.snapshot.holdings.cpus[gpus])
        np.add.at(self.pool.memory_gib, machines, self.snapshot.holdings.memory_gib[gpus])

    # --- waiting jobs -----------------------------------------------------------------------------------------------

    def pack(self, least_gain: float) -> None:
        """Repeatedly serve the claim with the highest placement score, ties by rank, until no claim fits."""
        queues = self._queues() if self.pool.gpus else {}
        while queues and self.pool.gpus:
            best: tuple[float, int, int, GangPlacement] | None = None
            for key, claim in sorted(((key, queue[-1]) for key, queue in queues.items()), key=lambda head: head[1]):
                if best is not None and best[0] >= 1.0:
                    break  # no score is higher, and the other claims rank lower
                placed = self._best(claim, least_gain)
                if placed is None:
                    del queues[key]  # the free GPUs only decrease
                    continue
                score = self._score(claim, placed)
                if best is None or (-score, claim) < (-best[0], best[1]):
                    best = (score, claim, key, placed)
            if best is None:
                return
            _, claim, key, placed = best
            stays = claim in self.held and self._is_current(claim, placed)
            self._settle(claim, placed, self.held[claim] if stays else None)
            queues[key].pop()
            if not queues[key]:
                del queues[key]

    def _best(self, claim: int, least_gain: float) -> GangPlacement | None:
        """Return the closest GPUs for a claim; a job with an ended lease stays unless a migration gains enough."""
        there = self._nearest(claim, self._size(claim))
        if claim in self.held and self.pool.holds(self.held[claim]).all():
            here = placement_of(self.snapshot.cluster, self.held[claim])
            grows = there is not None and there.gpus > here.gpus
            on_menu = self.menus.largest_at_most(self.jobs[claim], here.gpus) == here.gpus
            if on_menu and not grows:
                gain = 0.0 if there is None else self._score(claim, there) - self._score(claim, here)
                return there if gain >= max(least_gain, 1e-9) else here
        return there

    def _queues(self) -> dict[int, list[int]]:
        """Return the claims to serve, grouped by equal requirements; the last of each list has the best rank.

        Claims of an app with equal requirements have the same best placement, so only one per group is scored.
        """
        table, rows = self.snapshot.jobs, self.claims.rows
        able = np.flatnonzero(self.why == int(Reason.OUTRANKED))
        able = able[~np.isin(able, np.fromiter(self.served, np.int64, len(self.served)))]
        jobs = rows[able]
        columns = (
            self.menus.curve[jobs],
            table.app[jobs],
            table.gpu_type[jobs],
            table.cpus[jobs],
            table.memory_gib[jobs],
        )
        alike = np.zeros(able.size, np.int64)
        for column in columns:
            codes = np.unique(column, return_inverse=True)[1].reshape(-1)
            alike = np.unique(alike * (codes.max(initial=0) + 1) + codes, return_inverse=True)[1].reshape(-1)
        queues: dict[int, list[int]] = {}
        for claim, key in zip(able[::-1].tolist(), alike[::-1].tolist(), strict=True):
            queues.setdefault(-1 - claim if claim in self.held else key, []).append(claim)
        return queues

    def _size(self, claim: int) -> int:
        """Return the largest size on a claim's menu for which one type has enough GPUs left."""
        most = max(int(self._room(claim, kind).sum()) for kind in self._kinds(claim))
        return self.menus.largest_at_most(self.jobs[claim], most)

    def _kinds(self, claim: int) -> list[int]:
        asked = int(self.snapshot.jobs.gpu_type[self.jobs[claim]])
        types = len(self.snapshot.cluster.gpu_types)
        return [asked] if asked != NONE else list(range(types))

    def _room(self, claim: int, kind: int) -> Ints:
        table, job = self.snapshot.jobs, self.jobs[claim]
        return self.pool.room(kind, float(table.cpus[job]), float(table.memory_gib[job]))

    def _nearest(self, claim: int, gpus: int, own: Ints | None = None) -> GangPlacement | None:
        """Return the closest machines of one GPU type; ``own`` are GPUs by machine that the job would release."""
        if gpus == 0:
            return None
        cluster, candidates = self.snapshot.cluster, []
        for kind in self._kinds(claim):
            room = self._room(claim, kind)
            if own is not None:
                room = room + np.where(cluster.machine_type == kind, own, 0)
            placed = nearest(cluster, self.pool, room, gpus)
            candidates += [placed] if placed is not None else []
        return min(candidates, key=lambda placed: placed.locality, default=None)

    # --- all jobs ---------------------------------------------------------------------------------------------------

    def _score(self, claim: int, placed: GangPlacement) -> float:
        return placement_score(self.snapshot, self.menus, self.jobs[claim], placed)

    def _is_current(self, claim: int, placed: GangPlacement) -> bool:
        return dict(placed.parts) == dict(placement_of(self.snapshot.cluster, self.held[claim]).parts)

    def _settle(self, claim: int, placed: GangPlacement, gpus: Ints | None) -> None:
        """Assign a claim the given GPUs, or else GPUs on the machines of ``placed``, with CPUs and memory."""
        cluster, pool, held = self.snapshot.cluster, self.pool, self.snapshot.holdings
        stays = gpus is not None
        if gpus is None:
            gpus = np.concatenate([pool.choose(machine, count) for machine, count in placed.parts])
        if stays:
            cpus, memory_gib = held.cpus[gpus], held.memory_gib[gpus]
        else:
            cpus, memory_gib = self._cpus_and_memory(claim, gpus)
        pool.spend(gpus, cpus, memory_gib)
        pool.take(gpus)
        self.served[claim] = placed
        self.types[claim] = int(cluster.gpu_type[gpus[0]])

    def _cpus_and_memory(self, claim: int, gpus: Ints) -> tuple[Reals, ...]:
        """Return CPUs and memory of each GPU: as requested, else in proportion to GPUs."""
        table, job, cluster, pool = self.snapshot.jobs, self.jobs[claim], self.snapshot.cluster, self.pool
        found = []
        for asked, left, total in (
            (float(table.cpus[job]), pool.cpus, cluster.machine_cpus),
            (float(table.memory_gib[job]), pool.memory_gib, cluster.machine_memory_gib),
        ):
            fair = {int(machine): pool.fair(int(machine), left, total) for machine in np.unique(cluster.machine[gpus])}
            found.append(np.array([fair[int(cluster.machine[gpu])] if np.isnan(asked) else asked for gpu in gpus]))
        return tuple(found)

    def allocation(self, offer: Offer) -> Allocation:
        """Return the allocation: sizes, types and machines by claim."""
        sizes = np.zeros(len(self.jobs), np.int64)
        kinds = np.full(len(self.jobs), NONE, np.int32)
        for claim, placed in self.served.items():
            sizes[claim], kinds[claim] = placed.gpus, self.types[claim]
        late = np.flatnonzero(sizes == 0)
        why = self.why.copy()
        fits = self.menus.span(self.claims.rows)[0] <= self.pool.gpus
        why[(why == int(Reason.OUTRANKED)) & fits] = int(Reason.FRAGMENTED)
        pins = [(claim, machine, count) for claim, placed in self.served.items() for machine, count in placed.parts]
        columns = np.array(pins, np.int64).reshape(-1, 3)
        return Allocation(
            claims=self.claims,
            amount=Grants(
                gpus=sizes,
                gpu_type=kinds if len(self.snapshot.cluster.gpu_types) > 1 else None,
                pins=Pins(
                    claim=columns[:, 0].astype(np.int32), machine=columns[:, 1].astype(np.int32), gpus=columns[:, 2]
                ),
            ),
            order=np.array(list(self.served), np.int32),
            verdicts=Verdicts(rows=self.claims.rows[late], reasons=why[late]),
        )
