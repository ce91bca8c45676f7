"""Read the inputs of each app's bid from a snapshot: remaining work, held GPUs, time waited."""

import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from eunomia import Forecast, GpuState, Locality, Menus, Offer, Snapshot
from eunomia.units import NONE, Bools, Ints, Reals, Rows
from eunomia_plugins.themis.columns import AppColumns, AppFacts, KeptApps
from eunomia_plugins.themis.rho import LEAST_SECONDS, BidContext, ideal_seconds, rho_now
from eunomia_plugins.themis.work import RemainingWork, Slowdown

FEW: Final = 8
"""Number of apps up to which a loop is faster than column operations."""


class AppView(NamedTuple):
    """The auction's view of an app.

    Attributes:
        row: the app's row.
        name: the app's id.
        facts: inputs of its bid that do not change merely with time.
        context: the other inputs of its bid.
        runs_on: machines on which it holds GPUs, including GPUs of ended leases.
    """

    row: int
    name: str
    facts: AppFacts
    context: BidContext
    runs_on: frozenset[int]


class WorkCache:
    """A cache of the inputs of apps' bids; an entry is valid until the app, a job, a menu or the forecast changes.

    All of its content follows from the snapshot.
    """

    def __init__(self, assumed: Slowdown, *, standing_slowdown: bool = True) -> None:
        self.assumed, self.standing_slowdown = assumed, standing_slowdown
        self.kept = KeptApps()
        self._views: AppViews | None = None

    def views(self, snapshot: Snapshot, menus: Menus, offer: Offer, gpus: Ints | None = None) -> "AppViews":
        """Return the views of apps in this round for some GPUs, by default those on offer; stages share the views.

        Facts read in a round are valid for every offer of the same snapshot, whichever apps see it.
        """
        views, gpus = self._views, offer.gpus if gpus is None else gpus
        apps = None if views is None else views.apps
        if apps is None or apps.snapshot is not snapshot or apps.menus is not menus or apps.offer.lease != offer.lease:
            apps = RoundApps(snapshot, menus, offer, self)
        elif views is not None and (views.gpus is gpus or views.gpus.size == gpus.size == 0):
            return views
        self._views = views = AppViews(apps, gpus)
        return views


class RoundApps:
    """The apps of a round; an app that did not change since the last round is not re-read."""

    def __init__(self, snapshot: Snapshot, menus: Menus, offer: Offer, cache: WorkCache) -> None:
        self.snapshot, self.menus, self.offer = snapshot, menus, offer
        self.columns = AppColumns(snapshot, offer)
        self.capacity: Ints = np.array([*offer.capacity.tolist(), offer.capacity.sum()])  # by type, then of any type
        self.kept, self._assumed, self.standing_slowdown = cache.kept, cache.assumed, cache.standing_slowdown
        self.kept.renew(snapshot, menus, offer.lease)
        self.runs_on = _by_machine(snapshot.holdings.app[: snapshot.cluster.gpus], snapshot.cluster.machine)

    def facts(self, row: int) -> AppFacts:
        """Return the facts about an app that do not change merely with time."""
        known = self.kept.facts.get(row)
        if known is not None:
            return known
        columns, snapshot = self.columns, self.snapshot
        jobs = columns.jobs.rows[columns.jobs.span(row)]
        reported = snapshot.reports.forecasts.get(row)
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
        )
        self.kept.facts[row] = facts
        self.kept.total_gpu_seconds[row], self.kept.most[row] = forecast.total_gpu_seconds, forecast.most
        return facts

    def slowest(self, rows: Rows) -> Reals:
        """Return the seconds of these apps' ``work`` and ``standing`` on the fewest GPUs, across racks, [app, 2].

        They are NaN if no work is left.
        """
        slowest = self.kept.slowest
        for row in rows[np.isnan(slowest[rows, 0])].tolist():
            facts = self.facts(row)
            if not facts.work.done:
                slowest[row] = [work.slowest(Locality.CLUSTER) for work in (facts.work, facts.standing)]
        return slowest[rows]


class AppViews:
    """The views of the apps of a round as bidders for the offered GPUs."""

    def __init__(self, apps: RoundApps, gpus: Ints) -> None:
        self.apps, self.gpus = apps, gpus
        cluster = apps.snapshot.cluster
        self.held = _by_machine(keepers(apps.snapshot, gpus), cluster.machine)
        self.near = Locality.MACHINE if cluster.has_islands else Locality.ISLAND
        self.holding: Bools = np.zeros(apps.columns.arrived.size, dtype=bool)  # [app rows] holds GPUs that it keeps
        self.holding[list(self.held)] = True
        self._views: dict[int, AppView] = {}

    def view(self, row: int) -> AppView:
        """Return the view of an app, built on first use."""
        found = self._views.get(row)
        if found is not None:
            return found
        apps, held, facts = self.apps, self.held.get(row, {}), self.apps.facts(row)
        columns, snapshot, lease = apps.columns, apps.snapshot, apps.offer.lease
        kind, rack = columns.gpu_type.item(row), snapshot.cluster.machine_rack
        context = BidContext(
            elapsed=max(0.0, snapshot.now - columns.arrived.item(row)),
            waited=0.0 if held else columns.idle.item(row),
            ideal=ideal_seconds(
                facts.total_gpu_seconds, apps.capacity.item(kind), facts.most, columns.contention.item(row)
            ),
            lease=lease if lease < math.inf else facts.total_gpu_seconds / max(1, facts.most),
            usable=self._usable(row, sum(held.values())),
            gpu_type=kind,
            held=held,
            rack_of={machine: rack.item(machine) for machine in held},
            near=self.near,
        )
        name, runs_on = str(snapshot.apps.id[row]), frozenset(apps.runs_on.get(row, ()))
        found = self._views[row] = AppView(row, name, facts, context, runs_on)
        return found

    # --- many apps at once -------------------------------------------------------------------------------------------

    def rho_now(self, rows: Rows, *, standing: bool = False) -> Reals:
        """Return ρ of each app with the GPUs that it keeps; ``standing``: ρ as used to choose apps for an offer."""
        if rows.size > FEW:
            return self._rho_now(rows, standing=standing)
        views = [(view.facts, view.context) for view in map(self.view, rows.tolist())]
        return np.array([rho_now(facts.standing if standing else facts.work, context) for facts, context in views])

    def _rho_now(self, rows: Rows, *, standing: bool) -> Reals:
        """Return ρ of each app; ρ of apps without GPUs, of which there may be many, is computed as a column.

        The sums are those of the function ``rho_now`` in the same order, so that results are equal.
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
        for claim in (~waits).nonzero()[0].tolist():
            view = self.view(int(rows[claim]))
            found[claim] = rho_now(view.facts.standing if standing else view.facts.work, view.context)
        return found

    def leases(self, rows: Rows) -> Reals:
        """Return the lease of each app in seconds; if unlimited, the time of its work on all GPUs that it can use."""
        lease, kept = self.apps.offer.lease, self.apps.kept
        if lease < math.inf:
            return np.full(rows.size, lease)
        for row in rows.tolist():
            self.apps.facts(row)
        each: Reals = kept.total_gpu_seconds[rows] / np.fmax(1, kept.most[rows])
        return each

    def able(self, rows: Rows, offered: Ints) -> Bools:
        """Return whether each app can use any of the offered GPUs, given as numbers by type."""
        columns = self.apps.columns
        kind = columns.gpu_type[rows]
        able: Bools = columns.fewest(self.apps.menus)[rows] <= np.where(kind < 0, offered.max(), offered[kind])
        for claim in self.holding[rows].nonzero()[0].tolist():
            able[claim] = self.can_use(int(rows[claim]), offered)
        return able

    def can_use(self, row: int, offered: Ints) -> bool:
        """Return whether an app can use any of the offered GPUs, given as numbers by type."""
        kind, holds = self.apps.columns.gpu_type.item(row), sum(self.held.get(row, {}).values())
        most, usable = int(offered.max() if kind < 0 else offered[kind]), self._usable(row, holds)
        return bool(((usable > holds) & (usable <= holds + most)).any())

    # --- one app -----------------------------------------------------------------------------------------------------

    def _usable(self, row: int, held: int) -> Ints:
        """Return the numbers of GPUs, ascending and without 0, on which an app's jobs can run together."""
        kept, forecast, wanted = self.apps.kept, self.apps.snapshot.reports.forecasts.get(row), self.apps.columns.wanted
        jobs = wanted.rows[wanted.span(row)]
        if jobs.size == 1:
            return useful(kept.sizes(jobs.item(0)), forecast)
        limit = held + self.gpus.size if self.gpus.size else self.apps.capacity.item(-1)
        return useful(_sums(kept.distinct(jobs), limit), forecast)


def keepers(snapshot: Snapshot, offered: Ints) -> Rows:
    """Return the app that keeps each GPU whatever the outcome of the offer; -1: none.

    A GPU that is promised to an app but not released yet counts as held by that app. With no GPUs on offer, as for
    standings, an app holds the GPUs on which it runs now, including those of ended leases, as its ρ follows from what
    it held until this round (docs/decisions/0020).
    """
    held, count, now = snapshot.holdings, snapshot.cluster.gpus, snapshot.now
    if offered.size == 0:
        keeps = runs(snapshot)
    else:
        keeps = (held.ends_at[:count] > now) | (held.protected_until[:count] > now)
        keeps &= held.state[:count] == int(GpuState.HELD)
    own = np.where(keeps, held.app[:count], NONE)
    own = np.where(held.successor[:count] >= 0, held.next_app[:count], own)
    own[offered] = NONE
    return own.astype(np.int32)


def runs(snapshot: Snapshot) -> Bools:
    """Return whether an app runs on each GPU; its lease may have ended."""
    state = snapshot.holdings.state[: snapshot.cluster.gpus]
    running: Bools = (state == int(GpuState.HELD)) | (state == int(GpuState.OFFERED))
    return running


def useful(usable: Ints, forecast: Forecast | None) -> Ints:
    """Return the sizes that jobs of the present phase can use by the app's forecast, at least the smallest.

    An app that won more GPUs would return the rest, and the next auction would offer the same GPUs.
    """
    if forecast is None or not forecast.phases:
        return usable
    most = sum(job.most for job in forecast.phases[0].jobs if job.iterations_left > 0)
    return usable[: max(1, int(usable.searchsorted(most, side="right")))] if most else usable


def _by_machine(app: Rows, machine: Rows) -> dict[int, dict[int, int]]:
    """Return the number of GPUs by app and machine, given the app (-1: none) and the machine of each GPU."""
    found: dict[int, dict[int, int]] = {}
    for row, at in zip(app.tolist(), machine.tolist(), strict=True):
        if row >= 0:
            of = found.setdefault(row, {})
            of[at] = of.get(at, 0) + 1
    return found


@lru_cache(maxsize=4096)
def _sums(menus: tuple[tuple[tuple[int, ...], int], ...], limit: int) -> Ints:
    """Return the numbers of GPUs from 1 to a limit, ascending, that jobs with these menus can use together."""
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
