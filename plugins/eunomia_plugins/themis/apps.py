"""Read the inputs of each app's bid from a snapshot: remaining work, held GPUs, time waited."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.model.forecasts import Forecast
from eunomia.model.leases import GpuState
from eunomia.units import NONE, Bools, Ints, Locality, Rows
from eunomia_plugins.themis.columns import NO_JOBS, AppColumns
from eunomia_plugins.themis.rho import BidContext, ideal_seconds
from eunomia_plugins.themis.work import RemainingWork, Slowdown


@dataclass(frozen=True, slots=True)
class AppView:
    """The auction's view of an app.

    Attributes:
        row: its row.
        name: its id.
        work: its remaining work.
        context: the other inputs of its bid.
        runs_on: machines on which it holds GPUs, including GPUs of ended leases.
    """

    row: int
    name: str
    work: RemainingWork
    context: BidContext
    runs_on: frozenset[int]

    @property
    def holds(self) -> int:
        """GPUs that it holds and keeps."""
        return sum(self.context.held.values())

    def can_use(self, offered: Ints) -> bool:
        """Whether it can use some of these GPUs, given as numbers by type."""
        usable, kind = self.context.usable, self.context.gpu_type
        most = int(offered.max(initial=0)) if kind < 0 else int(offered[kind])
        return bool(((usable > self.holds) & (usable <= self.holds + most)).any())


class WorkCache:
    """Remaining work of apps, kept until an app reports another forecast or other sizes.

    A pure cache: all of it follows from the snapshot.
    """

    def __init__(self, assumed: Slowdown) -> None:
        self.assumed = assumed
        self._kept: dict[str, tuple[Forecast, bytes, RemainingWork]] = {}
        self._round: _RoundApps | None = None
        self._views: _AppViews | None = None

    def views(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> "_AppViews":
        """Return the views of apps for this round and these GPUs; the stages of a round share them."""
        if self._round is None or not self._round.matches(snapshot, menus, offer):
            self._round = _RoundApps(snapshot, menus, offer, self)
        if self._views is None or not self._views.matches(self._round, offer):
            self._views = _AppViews(self._round, offer)
        return self._views

    def work(self, app: str, forecast: Forecast, sizes: Ints | None, *, reported: bool) -> RemainingWork:
        """The app's remaining work; for a reported forecast, the kept one with its computed times."""
        if not reported:
            return RemainingWork(forecast, assumed=self.assumed, sizes=sizes)
        key = b"" if sizes is None else sizes.tobytes()
        kept = self._kept.get(app)
        if kept is None or kept[0] is not forecast or kept[1] != key:
            kept = (forecast, key, RemainingWork(forecast, assumed=self.assumed, sizes=sizes))
            self._kept[app] = kept
        return kept[2]

    def forget(self, living: set[str]) -> None:
        """Drop apps that have left."""
        for app in [app for app in self._kept if app not in living]:
            del self._kept[app]


def read_apps(snapshot: Snapshot, menus: Menus, offer: Offer, rows: Iterable[int], cache: WorkCache) -> list[AppView]:
    """View apps, in the given order.

    Args:
        snapshot: the state of this moment.
        menus: sizes of jobs.
        offer: GPUs on offer; no bidder counts as holding them.
        rows: app rows.
        cache: kept between rounds.
    """
    views = cache.views(snapshot, menus, offer)
    return [views.view(row) for row in rows]


@dataclass(frozen=True, slots=True)
class _App:
    """The data of an app that are read once per round, since they do not depend on the offered GPUs."""

    name: str
    reported: Forecast | None
    work: RemainingWork
    elapsed: float
    idle: float
    """Seconds since a job of the app last ran, or since its arrival."""
    ideal: float
    lease: float
    gpu_type: int
    wanted: Ints
    """Rows of the app's jobs that are not paused."""


class _RoundApps:
    """The apps of a round, each read once."""

    def __init__(self, snapshot: Snapshot, menus: Menus, offer: Offer, cache: WorkCache) -> None:
        self.snapshot, self.menus, self.offer, self._cache = snapshot, menus, offer, cache
        self._columns = AppColumns(snapshot, offer)
        self._capacity: list[int] = [*offer.capacity.tolist(), int(offer.capacity.sum())]
        self._apps: dict[int, _App] = {}
        self._sizes: dict[int, Ints] = {}

    def matches(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> bool:
        """Return whether these inputs built it; the offered GPUs and the apps that see them make no difference."""
        own = self.offer
        return (
            self.snapshot is snapshot
            and self.menus is menus
            and own.capacity is offer.capacity
            and own.contention is offer.contention
            and own.lease == offer.lease
        )

    def app(self, row: int) -> _App:
        """The app of a row."""
        if row not in self._apps:
            self._apps[row] = self._read(row)
        return self._apps[row]

    def sizes(self, job: int) -> Ints:
        """The numbers of GPUs on a job's menu, read once for all jobs that share a curve."""
        curve = self.menus.curve.item(job)
        if curve not in self._sizes:
            self._sizes[curve] = self.menus.sizes(job)
        return self._sizes[curve]

    def _read(self, row: int) -> _App:
        columns, snapshot = self._columns, self.snapshot
        name = str(snapshot.apps.id[row])
        jobs = columns.jobs.rows[columns.jobs.span.get(row, NO_JOBS)]
        reported = snapshot.forecasts.get(row)
        forecast = reported or columns.guess(row)
        sizes = self.sizes(jobs.item(0)) if jobs.size == 1 else None
        arrived, kind = columns.arrived[row], columns.gpu_type(row)
        return _App(
            name=name,
            reported=reported,
            work=self._cache.work(name, forecast, sizes, reported=reported is not None),
            elapsed=max(0.0, snapshot.now - arrived),
            idle=max(0.0, snapshot.now - max(columns.last_ran.get(row, -math.inf), arrived)),
            ideal=ideal_seconds(
                forecast.total_gpu_seconds, self._capacity[kind], forecast.most, columns.contention[row]
            ),
            lease=_finite(self.offer.lease, forecast),
            gpu_type=kind,
            wanted=columns.wanted.rows[columns.wanted.span.get(row, NO_JOBS)],
        )


class _AppViews:
    """Views of the apps of a round as bidders for the offered GPUs."""

    def __init__(self, apps: _RoundApps, offer: Offer) -> None:
        self.apps, self.offer = apps, offer
        cluster = apps.snapshot.cluster
        keeps, runs_on = holders(apps.snapshot, offer)
        self.held = _counted(keeps, cluster.machine)
        self.runs_on = _counted(runs_on, cluster.machine)
        self.rack: list[int] = cluster.machine_rack.tolist()
        one_island = cluster.island[-1] + 1 == len(cluster.machines) if cluster.gpus else True
        self.near = Locality.ISLAND if one_island else Locality.MACHINE
        self.views: dict[int, AppView] = {}

    def matches(self, apps: _RoundApps, offer: Offer) -> bool:
        """Return whether these apps and GPUs built it."""
        return self.apps is apps and self.offer.gpus is offer.gpus

    def view(self, row: int) -> AppView:
        """The view of the app of a row; built once."""
        if row not in self.views:
            self.views[row] = self._view(row)
        return self.views[row]

    def _view(self, row: int) -> AppView:
        app, held = self.apps.app(row), self.held.get(row, {})
        context = BidContext(
            elapsed=app.elapsed,
            waited=0.0 if held else app.idle,
            ideal=app.ideal,
            lease=app.lease,
            usable=useful(self._usable(app.wanted, sum(held.values())), app.reported),
            gpu_type=app.gpu_type,
            held=held,
            rack_of={machine: self.rack[machine] for machine in held},
            near=self.near,
        )
        return AppView(row, app.name, app.work, context, frozenset(self.runs_on.get(row, ())))

    def _usable(self, jobs: Ints, held: int) -> Ints:
        """Numbers of GPUs that its jobs can run on together, ascending; 0 left out."""
        if jobs.size == 1:
            return self.apps.sizes(jobs.item(0))
        limit = held + int(self.offer.gpus.size) if self.offer.gpus.size else int(self.offer.capacity.sum())
        return _sums(_distinct_menus(self.apps.menus, jobs), limit)


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


def _finite(lease: float, forecast: Forecast) -> float:
    """Return the lease, or for an unlimited one the time of the app's work on all GPUs that it can use."""
    return lease if np.isfinite(lease) else forecast.total_gpu_seconds / max(1, forecast.most)


def _counted(app: Rows, machine: Rows) -> dict[int, dict[int, int]]:
    """GPUs by app and machine."""
    found: dict[int, dict[int, int]] = {}
    held = np.flatnonzero(app >= 0)
    pairs, counts = np.unique(np.column_stack([app[held], machine[held]]), axis=0, return_counts=True)
    for (row, at), gpus in zip(pairs.tolist(), counts.tolist(), strict=True):
        found.setdefault(row, {})[at] = gpus
    return found


def _distinct_menus(menus: Menus, jobs: Ints) -> tuple[tuple[tuple[int, ...], int], ...]:
    """The distinct menus of the jobs, ascending, each with the number of jobs that have it."""
    points = menus.points
    curves = [curve for curve in menus.curve[jobs].tolist() if curve >= 0]
    many = Counter(points.gpus[points.start[curve] : points.start[curve + 1]].tobytes() for curve in curves)
    found: Counter[tuple[int, ...]] = Counter()
    for sizes, count in many.items():
        found[tuple(sorted(set(np.frombuffer(sizes, dtype=points.gpus.dtype).tolist())))] += count
    return tuple(sorted(found.items()))


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
