"""Read off a snapshot what each app needs for a bid: remaining work, what it holds, how long it has waited."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eunomia.forecasts import Forecast, JobForecast, Phase
from eunomia.leases import GpuState
from eunomia.menus import Menus
from eunomia.offers import Offer
from eunomia.snapshot import Snapshot
from eunomia.units import NONE, Bools, Ints, Locality, Rows
from eunomia.workload import JobState
from eunomia_plugins.themis.rho import Standpoint, ideal_seconds
from eunomia_plugins.themis.work import RemainingWork, Slowdown

UNKNOWN_SECONDS = 1.0
"""Serial time of an iteration where neither app nor measurement tells it: only ratios of an app's own rows matter."""


@dataclass(frozen=True, slots=True)
class AppView:
    """An app as the auction sees it.

    Attributes:
        row: its row.
        name: its id.
        work: what it still has to do.
        standpoint: how it stands.
        waiting: some of its jobs wait.
        runs_on: machines on which it holds GPUs, those of ended leases included.
    """

    row: int
    name: str
    work: RemainingWork
    standpoint: Standpoint
    waiting: bool
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
        self._reader: _Reader | None = None

    def reader(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> "_Reader":
        """The reader of this round and these GPUs: a round's stages look at the same apps one after another."""
        if self._reader is None or not self._reader.is_of(snapshot, menus, offer):
            self._reader = _Reader(snapshot, menus, offer, self)
        return self._reader

    def work(self, app: str, forecast: Forecast, sizes: Ints | None) -> RemainingWork:
        """The app's remaining work, with what was found out about it before."""
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


class _Reader:
    """Columns grouped by app, once for all apps."""

    def __init__(self, snapshot: Snapshot, menus: Menus, offer: Offer, prepared: Preparation) -> None:
        self.snapshot, self.menus, self.offer, self.prepared = snapshot, menus, offer, prepared
        jobs = snapshot.jobs
        alive = np.flatnonzero(jobs.state != int(JobState.EMPTY))
        self.jobs_of = _grouped(jobs.app[alive], alive)
        cluster = snapshot.cluster
        own, any_way = holders(snapshot, offer)
        self.held = _counted(own, cluster.machine)
        self.runs_on = _counted(any_way, cluster.machine)
        one_island = cluster.island[-1] + 1 == len(cluster.machines) if cluster.gpus else True
        self.near = Locality.ISLAND if one_island else Locality.MACHINE
        self.views: dict[int, AppView] = {}

    def is_of(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> bool:
        """Whether it was made for these; of an offer only what views are made of counts, not whom it is shown to."""
        own = self.offer
        return (
            self.snapshot is snapshot
            and self.menus is menus
            and own.gpus is offer.gpus
            and own.capacity is offer.capacity
            and own.contention is offer.contention
            and own.lease == offer.lease
        )

    def view(self, row: int) -> AppView:
        """The app of a row; looked at once."""
        if row not in self.views:
            self.views[row] = self._view(row)
        return self.views[row]

    def _view(self, row: int) -> AppView:
        snapshot = self.snapshot
        name = str(snapshot.apps.id[row])
        jobs = self.jobs_of.get(row, np.empty(0, np.int64))
        wanted = jobs[snapshot.jobs.state[jobs] != int(JobState.PAUSED)]
        reported = snapshot.forecasts.get(row)
        forecast = reported or self._guess(wanted)
        sizes = self.menus.sizes(int(jobs[0])) if jobs.size == 1 else None
        if reported is not None:
            work = self.prepared.work(name, reported, sizes)
        else:
            work = RemainingWork(forecast, assumed=self.prepared.assumed, sizes=sizes)
        held = self.held.get(row, {})
        standpoint = Standpoint(
            elapsed=max(0.0, snapshot.now - float(snapshot.apps.arrived[row])),
            waited=0.0 if held else self._waited(row, jobs),
            ideal=self._ideal(row, forecast, wanted),
            lease=_finite(self.offer.lease, forecast),
            usable=useful(self._usable(wanted, sum(held.values())), reported),
            gpu_type=self._type(wanted),
            held=held,
            rack_of={machine: int(snapshot.cluster.machine_rack[machine]) for machine in held},
            near=self.near,
        )
        waiting = bool((snapshot.jobs.state[wanted] == int(JobState.WAITING)).any())
        return AppView(row, name, work, standpoint, waiting, frozenset(self.runs_on.get(row, {})))

    def _waited(self, row: int, jobs: Ints) -> float:
        """Seconds since a job of it last ran, or since it came."""
        ran = self.snapshot.ledger.jobs.last_ran[jobs]
        last = float(np.nanmax(ran)) if ran.size and not np.isnan(ran).all() else -np.inf
        return max(0.0, self.snapshot.now - max(last, float(self.snapshot.apps.arrived[row])))

    def _ideal(self, row: int, forecast: Forecast, jobs: Ints) -> float:
        kind = self._type(jobs)
        capacity = int(self.offer.capacity.sum() if kind < 0 else self.offer.capacity[kind])
        return ideal_seconds(forecast.total_gpu_seconds, capacity, forecast.most, self._contention(row))

    def _contention(self, row: int) -> float:
        """N_avg: of the offer where it was made out to one app, else of the ledger; 1 where neither knows."""
        known = self.snapshot.ledger.apps.contention
        of_offer = self.offer.contention
        given = of_offer[0] if of_offer.size == 1 and row == 0 else known[row]
        if np.isnan(given) and row < of_offer.size:
            given = of_offer[row]
        return float(given) if np.isfinite(given) else 1.0

    def _type(self, jobs: Ints) -> int:
        """The GPU type that all its jobs ask for; -1: any, or several."""
        kinds = np.unique(self.snapshot.jobs.gpu_type[jobs])
        return int(kinds[0]) if kinds.size == 1 else NONE

    def _usable(self, jobs: Ints, held: int) -> Ints:
        """Numbers of GPUs that its jobs can run on together, ascending; 0 left out."""
        if jobs.size == 1:
            return self.menus.sizes(int(jobs[0]))
        limit = held + int(self.offer.gpus.size) if self.offer.gpus.size else int(self.offer.capacity.sum())
        return _sums(_menus_alike(self.menus, jobs), limit)

    def _guess(self, jobs: Ints) -> Forecast:
        """One phase of all its jobs, for an app that reports nothing: from what they declared or were seen to do."""
        table = self.snapshot.jobs
        left = self.snapshot.iterations_left(jobs.astype(np.int32))
        seconds = np.where(
            np.isnan(table.seconds_per_iteration[jobs]), UNKNOWN_SECONDS, table.seconds_per_iteration[jobs]
        )
        received = self.snapshot.ledger.jobs.received[jobs].sum(axis=1)
        # Of a job whose length nobody knows, as much as it has had is expected again, and at least a lease.
        unknown = np.maximum(received, min(self.offer.lease, 3600.0)) / seconds
        left = np.where(np.isnan(left), unknown, left)
        whole = np.where(np.isnan(table.iterations[jobs]), left + received / seconds, table.iterations[jobs])
        columns = zip(
            left.tolist(), seconds.tolist(), table.least[jobs].tolist(), table.most[jobs].tolist(), strict=True
        )
        forecasts = tuple(
            JobForecast(iterations_left=todo, seconds_per_iteration=each, least=least, most=most)
            for todo, each, least, most in columns
        )
        most = max(1, int(table.most[jobs].sum()))
        return Forecast(phases=(Phase(jobs=forecasts),), total_gpu_seconds=float(whole @ seconds), most=most)


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


def _grouped(keys: Rows, values: Ints) -> dict[int, Ints]:
    """Values by key, in their order."""
    if keys.size == 0:
        return {}
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    return {int(key): part for key, part in zip(found, np.split(values[order], starts[1:]), strict=True)}


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
