"""Accounting of service: sums are updated only when a job starts or stops, or GPUs are gained or lost.

Between two updates a sum is linear in time, given by its last value and its rate per second. The ledger that stages
see is computed from these sums at its first reading, so that a job that keeps running costs no time in a step.
"""

from collections.abc import Callable

import numpy as np

from eunomia.model.columns import Table
from eunomia.model.ledger import AppLedger, JobLedger
from eunomia.model.workload import JobState
from eunomia.store.tables import AppRows, GpuRows, JobRows
from eunomia.units import Ints, Reals, Rows, Seconds

_WAITING, _RUNNING = int(JobState.WAITING), int(JobState.RUNNING)


class Service:
    """The seconds and GPU-seconds that jobs and apps received.

    Args:
        jobs: the table of jobs.
        apps: the table of apps.
        gpus: the table of GPUs.

    Attributes:
        job_ledger, app_ledger: a time in seconds and the ledger cached for it; None: sums have changed since.
    """

    __slots__ = ("_apps", "_gpus", "_jobs", "_kinds", "app_ledger", "job_ledger")

    def __init__(self, jobs: Table[JobRows], apps: Table[AppRows], gpus: Table[GpuRows]) -> None:
        self._jobs, self._apps, self._gpus, self._kinds = jobs, apps, gpus, jobs.live.on.shape[1]
        self.job_ledger: tuple[Seconds, JobLedger] | None = None
        self.app_ledger: tuple[Seconds, AppLedger] | None = None

    def of_jobs(self, now: Seconds) -> JobLedger:
        """Return the ledger of jobs up to ``now``; its columns are read only."""
        if self.job_ledger is None or self.job_ledger[0] != now:
            self.job_ledger = now, self._jobs_until(now)
        return self.job_ledger[1]

    def of_apps(self, now: Seconds, area: float, present: Callable[[], list[int]]) -> AppLedger:
        """Return the ledger of apps up to ``now``; its columns are read only.

        Args:
            now: seconds since the start.
            area: integral of the number of apps over time until now, in app-seconds.
            present: returns the rows of apps that have not ended.
        """
        if self.app_ledger is None or self.app_ledger[0] != now:
            self.app_ledger = now, self._apps_until(now, area, np.array(present(), dtype=np.int32))
        return self.app_ledger[1]

    def contention(self, now: Seconds, area: float, rows: Rows | Ints, present: int) -> Reals:
        """Return N_avg of apps: the mean number of apps since each app's arrival (Themis eq. 1)."""
        apps = self._apps.live
        lived = now - apps.arrived[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(lived > 0.0, (area - apps.area_at_arrival[rows]) / lived, float(present))

    def lines(self, rows: Rows, *, by_gpus: bool) -> tuple[Reals, Reals]:
        """Return attained service of jobs as linear functions of time: value at time 0, and rate per second.

        Args:
            rows: job rows.
            by_gpus: whether service is in GPU-seconds instead of seconds.
        """
        jobs = self._jobs.live
        counted_at = jobs.counted_at[rows]
        if by_gpus:
            before, each = jobs.received[rows].sum(axis=1), jobs.on[rows].sum(axis=1).astype(float)
        else:
            before, each = jobs.attained[rows], np.ones(rows.size)
        counts = counted_at == counted_at  # NaN: the ledger is final
        each = np.where((jobs.state[rows] == _RUNNING) & counts, each, 0.0)
        return before - each * np.where(counts, counted_at, 0.0), each

    def gpu_seconds_line(self, row: int) -> tuple[float, float]:
        """Return the GPU-seconds that one job received, as a linear function like ``lines``."""
        before = 0.0
        for received in self._jobs.live.received[row].tolist():  # sum() rounds differently from Python 3.12 on
            before += received
        return self._line(row, before, sum(self._jobs.live.on[row].tolist()))

    def seconds_line(self, row: int) -> tuple[float, float]:
        """Return the seconds that one job has run, as a linear function like ``lines``."""
        return self._line(row, self._jobs.cells.attained[row], 1)

    def _line(self, row: int, before: float, each: int) -> tuple[float, float]:
        counted_at = self._jobs.cells.counted_at[row]
        runs = self._jobs.cells.state[row] == _RUNNING and counted_at == counted_at  # NaN: the ledger is final
        return (before - each * counted_at, float(each)) if runs else (before, 0.0)

    def _jobs_until(self, now: Seconds) -> JobLedger:
        used, jobs = self._jobs.used, self._jobs.live
        attained, waited, received = jobs.attained.copy(), jobs.waited.copy(), jobs.received.copy()
        last_ran, counted_at, states = jobs.last_ran.copy(), jobs.counted_at[:used], jobs.state[:used]
        counts = ~np.isnan(counted_at)
        waits, runs = np.flatnonzero(counts & (states == _WAITING)), np.flatnonzero(counts & (states == _RUNNING))
        waited[waits] += now - counted_at[waits]
        ran = now - counted_at[runs]
        attained[runs] += ran
        received[runs] += ran[:, None] * jobs.on[runs]
        last_ran[runs] = now
        starts = jobs.starts.copy()
        for made in (attained, received, waited, last_ran, starts):
            made.flags.writeable = False
        return JobLedger(attained=attained, received=received, waited=waited, last_ran=last_ran, starts=starts)

    def _apps_until(self, now: Seconds, area: float, present: Rows) -> AppLedger:
        apps = self._apps.live
        gpu_seconds, contention = apps.gpu_seconds.copy(), apps.contention.copy()
        held = self._gpus.live
        gpus = np.flatnonzero(~np.isnan(held.since))
        np.add.at(gpu_seconds, held.app[gpus], now - held.since[gpus])
        rows = present[~np.isnan(apps.area_at_arrival[present])]
        contention[rows] = self.contention(now, area, rows, present.size)
        for made in (gpu_seconds, contention):
            made.flags.writeable = False
        return AppLedger(gpu_seconds=gpu_seconds, contention=contention)
