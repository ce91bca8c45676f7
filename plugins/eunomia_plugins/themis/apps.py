"""Read off a snapshot what each app needs for a bid: remaining work, what it holds, how long it has waited."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eunomia.forecasts import Forecast
from eunomia.leases import GpuState
from eunomia.menus import Menus
from eunomia.offers import Offer
from eunomia.snapshot import Snapshot
from eunomia.units import NONE, Bools, Ints, Locality, Rows
from eunomia_plugins.themis.columns import NO_JOBS, AppColumns
from eunomia_plugins.themis.rho import Standpoint, ideal_seconds
from eunomia_plugins.themis.work import RemainingWork, Slowdown


@dataclass(frozen=True, slots=True)
class AppView:
    """An app as the auction sees it.

    Attributes:
        row: its row.
        name: its id.
        work: what it still has to do.
        standpoint: how it stands.
        runs_on: machines on which it holds GPUs, those of ended leases included.
    """

    row: int
    name: str
    work: RemainingWork
    standpoint: Standpoint
    runs_on: frozenset[int]

    @property
    def holds(self) -> int:
        """GPUs that it holds and keeps."""
        return sum(self.standpoint.held.values())

    def can_use(self, offered: Ints) -> bool:
        """Can it use some of so many GPUs of each type."""
        usable, kind = self.standpoint.usable, self.standpoint.gpu_type
        most = int(offered.max(initial=0)) if kind < 0 else int(offered[kind])
        return bool(((usable > self.holds) & (usable <= self.holds + most)).any())


class Preparation:
    """Work of apps that was read once and is kept until the app reports another forecast or other sizes.

    A cache: it holds nothing that the snapshot does not determine.
    """

    def __init__(self, assumed: Slowdown) -> None:
        self.assumed = assumed
        self._kept: dict[str, tuple[Forecast, bytes, RemainingWork]] = {}
        self._round: _Round | None = None
        self._reader: _Reader | None = None

    def reader(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> "_Reader":
        """The reader of this round and these GPUs: a round's stages look at the same apps one after another."""
        if self._round is None or not self._round.is_of(snapshot, menus, offer):
            self._round = _Round(snapshot, menus, offer, self)
        if self._reader is None or not self._reader.is_of(self._round, offer):
            self._reader = _Reader(self._round, offer)
        return self._reader

    def work(self, app: str, forecast: Forecast, sizes: Ints | None, *, reported: bool) -> RemainingWork:
        """The app's remaining work; of a forecast that it reported, with what was found out about it before."""
        if not reported:
            return RemainingWork(forecast, assumed=self.assumed, sizes=sizes)
        key = b"" if sizes is None else sizes.tobytes()
        kept = self._kept.get(app)
        if kept is None or kept[0] is not forecast or kept[1] != key:
            kept = (forecast, key, RemainingWork(forecast, assumed=self.assumed, sizes=sizes))
            self._kept[app] = kept
        return kept[2]

    def forget(self, living: set[str]) -> None:
        """Drop apps that are gone."""
        for app in [app for app in self._kept if app not in living]:
            del self._kept[app]


def read_apps(
    snapshot: Snapshot, menus: Menus, offer: Offer, rows: Iterable[int], prepared: Preparation
) -> list[AppView]:
    """View apps, in the given order.

    Args:
        snapshot: the state of this moment.
        menus: sizes of jobs.
        offer: GPUs on offer are held by nobody who bids for them.
        rows: app rows.
        prepared: what is kept between rounds.
    """
    reader = prepared.reader(snapshot, menus, offer)
    return [reader.view(row) for row in rows]


@dataclass(frozen=True, slots=True)
class _App:
    """What is read of an app once a round: it is the same whatever is on offer."""

    name: str
    reported: Forecast | None
    work: RemainingWork
    elapsed: float
    idle: float
    """Seconds since a job of it last ran, or since it came."""
    ideal: float
    lease: float
    gpu_type: int
    wanted: Ints
    """Rows of its jobs that are not paused."""


class _Round:
    """The apps of a round, each read once."""

    def __init__(self, snapshot: Snapshot, menus: Menus, offer: Offer, prepared: Preparation) -> None:
        self.snapshot, self.menus, self.offer, self._prepared = snapshot, menus, offer, prepared
        self._columns = AppColumns(snapshot, offer)
        self._capacity: list[int] = [*offer.capacity.tolist(), int(offer.capacity.sum())]
        self._apps: dict[int, _App] = {}
        self._sizes: dict[int, Ints] = {}

    def is_of(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> bool:
        """Whether it was made for these; which GPUs are on the offer, and to whom it is shown, makes no difference."""
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
        """The numbers of GPUs on a job's menu, looked up once for all jobs that share a curve."""
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
            work=self._prepared.work(name, forecast, sizes, reported=reported is not None),
            elapsed=max(0.0, snapshot.now - arrived),
            idle=max(0.0, snapshot.now - max(columns.last_ran.get(row, -math.inf), arrived)),
            ideal=ideal_seconds(
                forecast.total_gpu_seconds, self._capacity[kind], forecast.most, columns.contention[row]
            ),
            lease=_finite(self.offer.lease, forecast),
            gpu_type=kind,
            wanted=columns.wanted.rows[columns.wanted.span.get(row, NO_JOBS)],
        )


class _Reader:
    """The apps of a round as bidders for certain GPUs."""

    def __init__(self, apps: _Round, offer: Offer) -> None:
        self.apps, self.offer = apps, offer
        cluster = apps.snapshot.cluster
        own, any_way = holders(apps.snapshot, offer)
        self.held = _counted(own, cluster.machine)
        self.runs_on = _counted(any_way, cluster.machine)
        self.rack: list[int] = cluster.machine_rack.tolist()
        one_island = cluster.island[-1] + 1 == len(cluster.machines) if cluster.gpus else True
        self.near = Locality.ISLAND if one_island else Locality.MACHINE
        self.views: dict[int, AppView] = {}

    def is_of(self, apps: _Round, offer: Offer) -> bool:
        """Whether it was made for these apps and GPUs."""
        return self.apps is apps and self.offer.gpus is offer.gpus

    def view(self, row: int) -> AppView:
        """The app of a row; looked at once."""
        if row not in self.views:
            self.views[row] = self._view(row)
        return self.views[row]

    def _view(self, row: int) -> AppView:
        app, held = self.apps.app(row), self.held.get(row, {})
        standpoint = Standpoint(
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
        return AppView(row, app.name, app.work, standpoint, frozenset(self.runs_on.get(row, ())))

    def _usable(self, jobs: Ints, held: int) -> Ints:
        """Numbers of GPUs that its jobs can run on together, ascending; 0 left out."""
        if jobs.size == 1:
            return self.apps.sizes(jobs.item(0))
        limit = held + int(self.offer.gpus.size) if self.offer.gpus.size else int(self.offer.capacity.sum())
        return _sums(_menus_alike(self.apps.menus, jobs), limit)


def holders(snapshot: Snapshot, offer: Offer) -> tuple[Rows, Rows]:
    """By GPU, the app that holds it beyond this offer, and the app that is on it in any way; -1: none.

    A GPU that is promised to an app and not given back yet counts as held by that app. Where nothing is on offer, for
    the standings, an app holds what it runs on now, ended leases included: it is judged by what it has had until this
    round (docs/decisions/0020).
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
    """By GPU, whether its app runs on it, be its lease over or not."""
    state = snapshot.holdings.state[: snapshot.cluster.gpus]
    running: Bools = (state == int(GpuState.HELD)) | (state == int(GpuState.OFFERED))
    return running


def useful(usable: Ints, forecast: Forecast | None) -> Ints:
    """Without what the jobs of the present phase have no use for, as the app tells; the least is always left.

    An app that won more would give it back, and the next auction would be held over the same GPUs.
    """
    if forecast is None or not forecast.phases:
        return usable
    most = sum(job.most for job in forecast.phases[0].jobs if job.iterations_left > 0)
    return usable[: max(1, int(np.searchsorted(usable, most, side="right")))] if most else usable


def _finite(lease: float, forecast: Forecast) -> float:
    """The lease; where it is unlimited, the app's work on all it can use: nothing shorter ends by itself."""
    return lease if np.isfinite(lease) else forecast.total_gpu_seconds / max(1, forecast.most)


def _counted(app: Rows, machine: Rows) -> dict[int, dict[int, int]]:
    """GPUs by app and machine."""
    found: dict[int, dict[int, int]] = {}
    mine = np.flatnonzero(app >= 0)
    pairs, many = np.unique(np.column_stack([app[mine], machine[mine]]), axis=0, return_counts=True)
    for (row, where), gpus in zip(pairs.tolist(), many.tolist(), strict=True):
        found.setdefault(row, {})[where] = gpus
    return found


def _menus_alike(menus: Menus, jobs: Ints) -> tuple[tuple[tuple[int, ...], int], ...]:
    """The menus that the jobs have, ascending, each with how many of them have it."""
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
