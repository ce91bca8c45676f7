"""Read the inputs of each app's bid from a snapshot: remaining work, held GPUs, time waited."""

import math
from collections import Counter
from functools import lru_cache
from typing import Final

import numpy as np

from eunomia import Forecast, GpuState, Locality, Menus, Offer, Snapshot
from eunomia.units import NONE, Bools, Ints, Reals, Rows
from eunomia_plugins.themis.columns import AppColumns, AppFacts, KeptApps
from eunomia_plugins.themis.rho import LEAST_SECONDS, BidContext, ideal_seconds, rho_now
from eunomia_plugins.themis.work import RemainingWork, Slowdown

FEW: Final = 8
"""Up to this many apps, a loop is faster than column operations."""


class AppView:
    """The auction's view of an app, whose row is ``row``; everything else is computed when it is read."""

    __slots__ = ("_context", "_views", "row")

    def __init__(self, row: int, views: "AppViews") -> None:
        self.row, self._views = row, views
        self._context: BidContext | None = None

    @property
    def name(self) -> str:
        """Its id."""
        return str(self._views.apps.snapshot.apps.id[self.row])

    @property
    def facts(self) -> AppFacts:
        """What does not change with time alone."""
        return self._views.apps.facts(self.row)

    @property
    def context(self) -> BidContext:
        """The other inputs of its bid."""
        if self._context is None:
            self._context = self._views.context(self.row)
        return self._context

    @property
    def runs_on(self) -> frozenset[int]:
        """Machines on which it holds GPUs, including GPUs of ended leases."""
        return frozenset(self._views.runs_on.get(self.row, ()))

    @property
    def holds(self) -> int:
        """GPUs that it holds and keeps."""
        return sum(self._views.held.get(self.row, {}).values())

    def can_use(self, offered: Ints) -> bool:
        """Whether it can use some of these GPUs, given as numbers by type."""
        usable, kind = self.context.usable, self.context.gpu_type
        most = int(offered.max(initial=0)) if kind < 0 else int(offered[kind])
        return bool(((usable > self.holds) & (usable <= self.holds + most)).any())


class WorkCache:
    """What was read of the apps, kept until an app, one of its jobs, its menu or its forecast changes.

    A pure cache: all of it follows from the snapshot.
    """

    def __init__(self, assumed: Slowdown, *, standing_slowdown: bool = True) -> None:
        self.assumed, self.standing_slowdown = assumed, standing_slowdown
        self.kept = KeptApps()
        self._round: RoundApps | None = None
        self._views: AppViews | None = None

    def views(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> "AppViews":
        """Return the views of apps for this round and these GPUs; the stages of a round share them."""
        if self._round is None or not self._round.matches(snapshot, menus, offer):
            self._round = RoundApps(snapshot, menus, offer, self)
        if self._views is None or not self._views.matches(self._round, offer):
            self._views = AppViews(self._round, offer)
        return self._views


class RoundApps:
    """The apps of a round; an app that did not change since the last round is not read again."""

    def __init__(self, snapshot: Snapshot, menus: Menus, offer: Offer, cache: WorkCache) -> None:
        self.snapshot, self.menus, self.offer = snapshot, menus, offer
        self.columns = AppColumns(snapshot, offer)
        self.capacity: Ints = np.append(offer.capacity, offer.capacity.sum()).astype(np.int64)
        self.kept, self._assumed, self.standing_slowdown = cache.kept, cache.assumed, cache.standing_slowdown
        self.kept.renew(snapshot, menus, offer.lease)

    def matches(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> bool:
        """Return whether these inputs built it; the offered GPUs and the apps that see them make no difference."""
        own = self.offer
        alike = own.capacity is offer.capacity and own.contention is offer.contention and own.lease == offer.lease
        return alike and self.snapshot is snapshot and self.menus is menus

    def facts(self, row: int) -> AppFacts:
        """Return what does not change with time alone of the app of a row."""
        return self.kept.facts.get(row) or self._read(row)

    def _read(self, row: int) -> AppFacts:
        columns, snapshot = self.columns, self.snapshot
        jobs = columns.jobs.rows[columns.jobs.span(row)]
        reported = snapshot.forecasts.get(row)
        forecast = reported or columns.guess(row)
        sizes = self.kept.sizes(jobs.item(0)) if jobs.size == 1 else None
        key = b"" if sizes is None else sizes.tobytes()
        last = self.kept.work.pop(row, None)
        if last is not None and last.reported is reported and last.sizes == key:
            work, standing = last.work, last.standing
        else:
            work = RemainingWork(forecast, assumed=self._assumed, sizes=sizes)
            standing = work if self.standing_slowdown else RemainingWork(forecast, assumed=None, sizes=sizes)
        facts = AppFacts(
            reported=reported,
            work=work,
            standing=standing,
            total_gpu_seconds=forecast.total_gpu_seconds,
            most=forecast.most,
            only_job=jobs.item(0) if jobs.size == 1 else NONE,
            sizes=key,
            wanted=columns.wanted.rows[columns.wanted.span(row)],
        )
        self.kept.facts[row] = facts
        self.kept.total_gpu_seconds[row], self.kept.most[row] = forecast.total_gpu_seconds, forecast.most
        return facts

    def slowest(self, rows: Rows) -> Reals:
        """[apps, 2] seconds of the work of these apps, and of their ``standing``, on the fewest GPUs, far apart.

        NaN: no work is left.
        """
        slowest = self.kept.slowest
        for row in rows[np.isnan(slowest[rows, 0])].tolist():
            facts = self.facts(row)
            if not facts.work.done:
                slowest[row] = [work.slowest(Locality.CLUSTER) for work in (facts.work, facts.standing)]
        return slowest[rows]


class AppViews:
    """Views of the apps of a round as bidders for the offered GPUs."""

    def __init__(self, apps: RoundApps, offer: Offer) -> None:
        self.apps, self.offer = apps, offer
        cluster = apps.snapshot.cluster
        keeps, runs_on = holders(apps.snapshot, offer)
        self.held = _counted(keeps, cluster.machine)
        self.runs_on = _counted(runs_on, cluster.machine)
        self.rack: list[int] = cluster.machine_rack.tolist()
        one_island = cluster.island[-1] + 1 == len(cluster.machines) if cluster.gpus else True
        self.near = Locality.ISLAND if one_island else Locality.MACHINE
        self.holding: Bools = np.zeros(apps.columns.arrived.size, dtype=bool)  # [app rows] holds GPUs that it keeps
        self.holding[list(self.held)] = True
        self.views: dict[int, AppView] = {}

    def matches(self, apps: RoundApps, offer: Offer) -> bool:
        """Return whether these apps and GPUs built it."""
        return self.apps is apps and (self.offer.gpus is offer.gpus or self.offer.gpus.size == offer.gpus.size == 0)

    def view(self, row: int) -> AppView:
        """Return the view of the app of a row; built once."""
        found = self.views.get(row)
        if found is None:
            found = self.views[row] = AppView(row, self)
        return found

    def context(self, row: int) -> BidContext:
        """Return the inputs of the bid of the app of a row, beside its remaining work."""
        apps, held = self.apps, self.held.get(row, {})
        facts, columns = apps.facts(row), apps.columns
        kind, lease = columns.gpu_type.item(row), self.offer.lease
        return BidContext(
            elapsed=max(0.0, apps.snapshot.now - columns.arrived.item(row)),
            waited=0.0 if held else columns.idle.item(row),
            ideal=ideal_seconds(
                facts.total_gpu_seconds, apps.capacity.item(kind), facts.most, columns.contention.item(row)
            ),
            lease=lease if lease < math.inf else facts.total_gpu_seconds / max(1, facts.most),
            usable=useful(self._usable(facts, sum(held.values())), facts.reported),
            gpu_type=kind,
            held=held,
            rack_of={machine: self.rack[machine] for machine in held},
            near=self.near,
        )

    # --- many apps at once -------------------------------------------------------------------------------------------

    def rho_now(self, rows: Rows, *, standing: bool = False) -> Reals:
        """Return ρ of each of these apps with the GPUs that it keeps; ``standing``: the ρ by which it is chosen."""
        if rows.size > FEW:
            return self._rho_now(rows, standing=standing)
        views = [(view.facts, view.context) for view in map(self.view, rows.tolist())]
        return np.array([rho_now(facts.standing if standing else facts.work, context) for facts, context in views])

    def _rho_now(self, rows: Rows, *, standing: bool) -> Reals:
        """Compute apps without GPUs, which are most where many apps wait, as columns.

        The sums are those of the function ``rho_now``, in the same order, so that the numbers are equal.
        """
        apps, columns, kept = self.apps, self.apps.columns, self.apps.kept
        found, waits = np.empty(rows.size), ~self.holding[rows]
        slowest = np.full(rows.size, np.nan)
        slowest[waits] = apps.slowest(rows[waits])[:, int(standing)]
        waits &= ~np.isnan(slowest)
        some, slowest = rows[waits], slowest[waits]
        total, most = kept.total_gpu_seconds[some], kept.most[some]
        gpus = np.maximum(1, np.minimum(apps.capacity[columns.gpu_type[some]], most))
        ideal = np.fmax(LEAST_SECONDS, total / gpus * np.fmax(1.0, columns.contention[some]))
        lease = self.leases(some)
        shared = np.fmax(LEAST_SECONDS, np.fmax(0.0, apps.snapshot.now - columns.arrived[some]) + (lease + slowest))
        found[waits] = shared / ideal * (1.0 + columns.idle[some] / np.fmax(LEAST_SECONDS, lease))
        for claim in np.flatnonzero(~waits).tolist():
            view = self.view(int(rows[claim]))
            found[claim] = rho_now(view.facts.standing if standing else view.facts.work, view.context)
        return found

    def leases(self, rows: Rows) -> Reals:
        """Return the lease of each app in seconds; an unlimited one: the time of its work on all GPUs it can use."""
        lease, kept = self.offer.lease, self.apps.kept
        if lease < math.inf:
            return np.full(rows.size, lease)
        for row in rows.tolist():
            self.apps.facts(row)
        each: Reals = kept.total_gpu_seconds[rows] / np.fmax(1, kept.most[rows])
        return each

    def able(self, rows: Rows, offered: Ints) -> Bools:
        """Return whether each app can use some of these GPUs, given as numbers by type."""
        if rows.size <= FEW:
            return np.array([view.can_use(offered) for view in map(self.view, rows.tolist())], dtype=bool)
        columns = self.apps.columns
        kind = columns.gpu_type[rows]
        able: Bools = columns.fewest(self.apps.menus)[rows] <= np.where(kind < 0, offered.max(), offered[kind])
        for claim in np.flatnonzero(self.holding[rows]).tolist():
            able[claim] = self.view(int(rows[claim])).can_use(offered)
        return able

    # --- one app -----------------------------------------------------------------------------------------------------

    def _usable(self, facts: AppFacts, held: int) -> Ints:
        """Numbers of GPUs that its jobs can run on together, ascending; 0 left out."""
        kept = self.apps.kept
        if facts.wanted.size == 1:
            return kept.sizes(facts.wanted.item(0))
        limit = held + int(self.offer.gpus.size) if self.offer.gpus.size else int(self.offer.capacity.sum())
        return _sums(kept.distinct(facts.wanted), limit)


def holders(snapshot: Snapshot, offer: Offer) -> tuple[Rows, Rows]:
    """Return by GPU the app that keeps it regardless of the offer, and the app that holds it now; -1: none.

    A GPU that is promised to an app but not released yet counts as held by that app. With no GPUs on offer, as for
    standings, an app holds the GPUs that it runs on now, including those of ended leases: its ρ follows from what it
    held until this round (docs/decisions/0020).
    """
    held = snapshot.holdings
    count = snapshot.cluster.gpus
    if offer.gpus.size == 0:
        own = np.where(runs(snapshot), held.app[:count], NONE)
        return np.where(held.successor[:count] >= 0, held.next_app[:count], own).astype(np.int32), held.app[:count]
    offered: Bools = np.zeros(count, dtype=bool)
    offered[offer.gpus] = True
    now = snapshot.now
    binding = (held.ends_at[:count] > now) | (held.protected_until[:count] > now)
    own = np.where((held.state[:count] == int(GpuState.HELD)) & binding, held.app[:count], NONE)
    own = np.where(held.successor[:count] >= 0, held.next_app[:count], own)
    return np.where(offered, NONE, own).astype(np.int32), held.app[:count]


def runs(snapshot: Snapshot) -> Bools:
    """Return by GPU whether its app runs on it; the lease may have ended."""
    state = snapshot.holdings.state[: snapshot.cluster.gpus]
    running: Bools = (state == int(GpuState.HELD)) | (state == int(GpuState.OFFERED))
    return running


def useful(usable: Ints, forecast: Forecast | None) -> Ints:
    """Return the sizes that the jobs of the present phase can use, by the app's forecast; the least is included.

    An app that won more would give the rest back, and the next auction would offer the same GPUs.
    """
    if forecast is None or not forecast.phases:
        return usable
    most = sum(job.most for job in forecast.phases[0].jobs if job.iterations_left > 0)
    return usable[: max(1, int(np.searchsorted(usable, most, side="right")))] if most else usable


def _counted(app: Rows, machine: Rows) -> dict[int, dict[int, int]]:
    """GPUs by app and machine."""
    found: dict[int, dict[int, int]] = {}
    held = np.flatnonzero(app >= 0)
    counts = Counter(zip(app[held].tolist(), machine[held].tolist(), strict=True))
    for (row, at), gpus in sorted(counts.items()):
        found.setdefault(row, {})[at] = gpus
    return found


@lru_cache(maxsize=4096)
def _sums(menus: tuple[tuple[tuple[int, ...], int], ...], limit: int) -> Ints:
    """Numbers of GPUs up to a limit that jobs with these menus can use together, ascending; 0 left out."""
    reachable = 1  # bit g: some of the jobs can use g GPUs in all
    for sizes, many in menus:
        for _ in range(min(many, limit)):
            more = reachable
            for size in sizes:
                more |= reachable << size
            reachable = more & ((1 << (limit + 1)) - 1)
    octets = np.frombuffer(reachable.to_bytes(limit // 8 + 1, "little"), dtype=np.uint8)
    found = np.flatnonzero(np.unpackbits(octets, bitorder="little"))[1:].astype(np.int64)
    found.setflags(write=False)
    return found
