"""Data of all apps: columns of the present round, and facts that are cached until an app changes."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from eunomia import Forecast, JobForecast, JobState, Menus, Offer, Phase, Snapshot, curve_points
from eunomia.model.workload import Jobs
from eunomia.units import NONE, Ints, Reals, Rows, Version
from eunomia_plugins.themis.work import RemainingWork

UNKNOWN_SECONDS: Final = 1.0
"""Serial seconds of an iteration of unknown duration; only ratios within an app matter."""
LONGEST_GUESS: Final = 3600.0
"""Maximum time, in seconds, assumed for a job of unknown length that has not run yet."""


class Grouped:
    """Rows of jobs, grouped by app.

    Args:
        app: [job] row of its app.
        rows: job rows; those of an app keep their given order.
        apps: number of app rows.

    Attributes:
        rows: job rows, sorted by app.
        apps: rows of the apps that have jobs, ascending.
    """

    def __init__(self, app: Rows, rows: Ints, apps: int) -> None:
        order = app.argsort(kind="stable")
        self.rows = rows[order]
        bounds = app[order].searchsorted(np.arange(apps + 1))
        self.apps = (bounds[1:] > bounds[:-1]).nonzero()[0]
        self._starts, self._count = bounds[self.apps], apps
        self._bounds: list[int] = bounds.tolist()

    def span(self, app: int) -> slice:
        """Return the slice of ``rows`` with an app's jobs."""
        return slice(self._bounds[app], self._bounds[app + 1])

    def reduced(self, how: np.ufunc, column: Reals | Rows | Ints, without: float) -> Reals:
        """Return a column parallel to ``rows`` reduced by app, [app row]; ``without`` is the value without jobs."""
        found = np.full(self._count, without, dtype=np.float64)
        if self.apps.size:
            found[self.apps] = how.reduceat(column, self._starts)
        return found


class AppColumns:
    """Columns of apps: their jobs, requested GPU type, idle time and contention.

    Attributes:
        jobs: all jobs that have not ended.
        wanted: jobs that have not ended and are not paused.
        arrived: [app row] time of arrival in seconds.
        idle: [app row] seconds since a job of the app last ran, or since its arrival.
        contention: [app row] N_avg.
    """

    def __init__(self, snapshot: Snapshot, offer: Offer) -> None:
        table = snapshot.jobs
        self.arrived = snapshot.apps.arrived
        count = self.arrived.size
        alive = (table.state != int(JobState.EMPTY)).nonzero()[0]
        running = alive[table.state[alive] != int(JobState.PAUSED)]
        self.jobs = Grouped(table.app[alive], alive, count)
        none_paused = running.size == alive.size
        self.wanted = wanted = self.jobs if none_paused else Grouped(table.app[running], running, count)
        last_ran = self.jobs.reduced(np.fmax, snapshot.ledger.jobs.last_ran[self.jobs.rows], np.nan)
        self.idle = np.fmax(0.0, snapshot.now - np.fmax(last_ran, self.arrived))
        kinds = table.gpu_type[wanted.rows]
        least, most = (wanted.reduced(how, kinds, NONE) for how in (np.minimum, np.maximum))
        self.gpu_type = np.where(least == most, least, NONE).astype(np.int64)
        """[app row] GPU type that all its jobs request; -1: any, or several."""
        self.contention = _contention(snapshot, offer, count)
        self._snapshot, self._lease = snapshot, offer.lease

    def guess(self, app: int) -> Forecast:
        """Return an estimated forecast of an app: one phase of all its jobs, from declared and measured values."""
        return self._guesses.forecast(self.wanted.span(app))

    @cached_property
    def _guesses(self) -> "_Guesses":
        return _Guesses(self._snapshot, self.wanted.rows, self._lease)

    def fewest(self, menus: Menus) -> Reals:
        """Return the smallest size on the menus of an app's unpaused jobs, [app row]; inf if there is none."""
        points, curve = menus.points, menus.curve[self.wanted.rows]
        start, end = points.start[curve], points.start[curve + 1]
        found, has = np.full(curve.size, np.inf), ((curve >= 0) & (end > start)).nonzero()[0]
        found[has] = points.gpus[start[has]]
        return self.wanted.reduced(np.minimum, found, np.inf)


class _Guesses:
    """Estimated forecasts of jobs from declared and measured values, as columns parallel to ``rows``."""

    def __init__(self, snapshot: Snapshot, rows: Ints, lease: float) -> None:
        table = snapshot.jobs
        left = snapshot.iterations_left(rows.astype(np.int32))
        seconds = table.seconds_per_iteration[rows]
        seconds = np.where(np.isnan(seconds), UNKNOWN_SECONDS, seconds)
        received = snapshot.ledger.jobs.received[rows].sum(axis=1)
        # A job of unknown length is expected to need as much again as it has received, and at least one lease.
        unknown = np.maximum(received, min(lease, LONGEST_GUESS)) / seconds
        self._left = np.where(np.isnan(left), unknown, left)
        self._seconds = seconds
        iterations = table.iterations[rows]
        self._whole = np.where(np.isnan(iterations), self._left + received / seconds, iterations)
        self._least, self._most = table.least[rows], table.most[rows]

    def forecast(self, span: slice) -> Forecast:
        """Return the forecast of an app, given the slice of its jobs."""
        columns = (column[span].tolist() for column in (self._left, self._seconds, self._least, self._most))
        jobs = tuple(
            JobForecast(iterations_left=todo, seconds_per_iteration=each, least=least, most=most)
            for todo, each, least, most in zip(*columns, strict=True)
        )
        return Forecast(
            phases=(Phase(jobs=jobs),),
            total_gpu_seconds=float(self._whole[span] @ self._seconds[span]),
            most=max(1, sum(job.most for job in jobs)),
        )


def _contention(snapshot: Snapshot, offer: Offer, apps: int) -> Reals:
    """Return N_avg by app row: from the ledger, else the offer, else 1; if the offer covers one app, from the offer."""
    known, given = snapshot.ledger.apps.contention, offer.contention
    found = np.full(max(apps, known.size), np.nan)
    found[: given.size] = given[: found.size]
    found[: known.size] = np.where(np.isnan(known), found[: known.size], known)
    if given.size == 1:
        found[0] = given[0]
    return np.where(np.isfinite(found), found, 1.0)


MenuCounts = tuple[tuple[tuple[int, ...], int], ...]
"""Distinct menus, each with the number of jobs that have it, ascending."""


@dataclass(frozen=True, slots=True, eq=False)
class AppFacts:
    """Facts about an app that do not change merely with time, while it holds no GPUs or reports its own forecast.

    Attributes:
        reported: the forecast that its app master reported; None: its work is estimated from its jobs.
        work: its remaining work, with the slowdown by locality that it reports.
        standing: the remaining work by which it is chosen for an offer.
        total_gpu_seconds: B of equation 2, in serial GPU-seconds.
        most: app_demand_max, in GPUs.
        only_job: row of its job, if it has a single one; else -1.
        sizes: the sizes on that job's menu, as bytes.
    """

    reported: Forecast | None
    work: RemainingWork
    standing: RemainingWork
    total_gpu_seconds: float
    most: int
    only_job: int
    sizes: bytes


class KeptApps:
    """A cache of the facts about apps that have not changed since they were read.

    Attributes:
        facts: facts by app row.
        total_gpu_seconds: [app row] B; NaN: not read.
        most: [app row] app_demand_max.
        slowest: [app row, 2] seconds of ``AppFacts.work`` and ``standing`` on the fewest GPUs, across racks; NaN: not
            read, or no work is left.
    """

    def __init__(self) -> None:
        self.facts: dict[int, AppFacts] = {}
        self.total_gpu_seconds, self.most, self.slowest = (np.full((0, 2), np.nan) for _ in range(3))
        self.work: dict[int, AppFacts] = {}
        """The last facts of all apps, including dropped ones: if an app's forecast and sizes are unchanged, its work
        and the times computed from it are reused."""
        self._jobs: Jobs | None = None
        self._version = Version(0)
        self._lease = 0.0
        self._held: set[int] = set()
        none = np.empty(0, np.int32)
        self._menus = Menus(curve=none, points=curve_points(none, np.empty(0, np.int64)))
        self._sizes: dict[int, Ints] = {}
        self._counted: dict[bytes, MenuCounts] = {}

    # --- changes -----------------------------------------------------------------------------------------------------

    def renew(self, snapshot: Snapshot, menus: Menus, lease: float) -> None:
        """Drop the facts of apps that have changed since the last call."""
        known, apps = self._jobs is snapshot.jobs and self._lease == lease, snapshot.apps.arrived.size
        changes = snapshot.changed(self._version) if known and self.most.size == apps else None
        held = set(snapshot.holdings.app[: snapshot.cluster.gpus].tolist())
        if changes is None:
            self.facts, self.work = {}, {}
            self.total_gpu_seconds, self.most, self.slowest = (
                np.full(shape, np.nan) for shape in (apps, apps, (apps, 2))
            )
        else:
            gone = {*changes.apps.tolist(), *snapshot.jobs.app[changes.jobs].tolist()}
            for row in {*gone, *held, *self._held}:
                self._forget(row, anyway=row in gone)
        if menus.points is not self._menus.points or menus.curve is not self._menus.curve:
            self._take(menus)
        self._jobs, self._version, self._lease, self._held = snapshot.jobs, snapshot.version, lease, held
        forecasts = snapshot.reports.forecasts
        for row in [row for row, facts in self.facts.items() if facts.reported is not forecasts.get(row)]:
            self._forget(row, anyway=True)

    def _forget(self, row: int, *, anyway: bool) -> None:
        """Drop the facts of an app; unless it has changed, an app with GPUs and a reported forecast is kept."""
        facts = self.facts.get(row)
        if facts is not None and (anyway or facts.reported is None):
            del self.facts[row]
            self.slowest[row] = np.nan
            if facts.reported is not None:
                self.work[row] = facts

    def _take(self, menus: Menus) -> None:
        """Use these menus from now on, and drop single-job apps whose sizes have changed."""
        self._menus, self._sizes, self._counted = menus, {}, {}
        by_curve: dict[int, bytes] = {}
        for row, facts in list(self.facts.items()):
            if facts.only_job == NONE:
                continue
            curve = menus.curve.item(facts.only_job)
            if curve not in by_curve:
                by_curve[curve] = self.sizes(facts.only_job).tobytes()
            if by_curve[curve] != facts.sizes:
                self._forget(row, anyway=True)

    # --- cached values -----------------------------------------------------------------------------------------------

    def sizes(self, job: int) -> Ints:
        """Return the sizes on a job's menu, read once per curve."""
        curve = self._menus.curve.item(job)
        if curve not in self._sizes:
            self._sizes[curve] = self._menus.sizes(job)
        return self._sizes[curve]

    def distinct(self, jobs: Ints) -> MenuCounts:
        """Return the distinct menus of jobs, with the number of jobs for each."""
        curves = self._menus.curve[jobs]
        key = curves.tobytes()
        if key not in self._counted:
            first = dict(zip(curves.tolist(), jobs.tolist(), strict=True))
            found: Counter[tuple[int, ...]] = Counter()
            for curve, count in Counter(curves.tolist()).items():
                if curve >= 0:
                    found[tuple(self.sizes(first[curve]).tolist())] += count
            self._counted[key] = tuple(sorted(found.items()))
        return self._counted[key]
