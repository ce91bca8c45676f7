"""Data of all apps, computed from the columns of a snapshot, with the jobs of one app in consecutive rows."""

from typing import Final

import numpy as np

from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.model.workload import JobState
from eunomia.units import NONE, Ints, Reals, Rows

UNKNOWN_SECONDS: Final = 1.0
"""Serial time of an iteration that is neither declared nor measured: only ratios of an app's own rows matter."""
LONGEST_GUESS: Final = 3600.0
"""The longest time, in seconds, assumed for a job of unknown length that has not run yet."""
NO_JOBS: Final = slice(0, 0)


class Grouped:
    """Rows of jobs sorted by app.

    Attributes:
        rows: the jobs; those of one app keep their given order.
        span: by app, the slice of its jobs.
    """

    def __init__(self, app: Rows, rows: Ints) -> None:
        order = np.argsort(app, kind="stable")
        self.rows = rows[order]
        apps, starts = np.unique(app[order], return_index=True)
        self._apps: list[int] = apps.tolist()
        self._starts = starts
        bounds = [*starts.tolist(), rows.size]
        self.span = {one: slice(bounds[at], bounds[at + 1]) for at, one in enumerate(self._apps)}

    def reduced(self, how: np.ufunc, column: Reals | Rows) -> dict[int, float]:
        """By app, one value reduced from a column parallel to ``rows``."""
        return dict(zip(self._apps, how.reduceat(column, self._starts).tolist(), strict=True)) if self._apps else {}


class AppColumns:
    """By app: its jobs, the type they ask for, when one last ran, and its contention.

    Attributes:
        jobs: all jobs that have not ended.
        wanted: those of them that are not paused.
    """

    def __init__(self, snapshot: Snapshot, offer: Offer) -> None:
        table = snapshot.jobs
        alive = np.flatnonzero(table.state != int(JobState.EMPTY))
        running = alive[table.state[alive] != int(JobState.PAUSED)]
        self.jobs = Grouped(table.app[alive], alive)
        self.wanted = wanted = Grouped(table.app[running], running)
        ran = np.nan_to_num(snapshot.ledger.jobs.last_ran[self.jobs.rows], nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        self.last_ran = self.jobs.reduced(np.maximum, ran)
        kinds = table.gpu_type[wanted.rows]
        self._least_kind, self._most_kind = (wanted.reduced(how, kinds) for how in (np.minimum, np.maximum))
        self.contention = _contention(snapshot, offer)
        self.arrived: list[float] = snapshot.apps.arrived.tolist()
        self._guesses = _Guesses(snapshot, wanted.rows, offer.lease)

    def gpu_type(self, app: int) -> int:
        """The GPU type that all its jobs ask for; -1: any, or several."""
        kind = self._least_kind.get(app, NONE)
        return int(kind) if kind == self._most_kind.get(app) else NONE

    def guess(self, app: int) -> Forecast:
        """One phase of all its jobs, for an app without a forecast: from declared and measured values."""
        return self._guesses.forecast(self.wanted.span.get(app, NO_JOBS))


class _Guesses:
    """Forecasts of jobs from declared and measured values, in columns parallel to ``rows``."""

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
        """The forecast of an app with these jobs."""
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


def _contention(snapshot: Snapshot, offer: Offer) -> list[float]:
    """[app rows] N_avg of the ledger, else of the offer, else 1; for an offer to a single app, that of the offer."""
    known, given = snapshot.ledger.apps.contention, offer.contention
    found = np.full(known.size, np.nan)
    found[: given.size] = given[: known.size]
    found = np.where(np.isnan(known), found, known)
    if given.size == 1:
        found[0] = given[0]
    return np.where(np.isfinite(found), found, 1.0).tolist()  # type: ignore[no-any-return]
