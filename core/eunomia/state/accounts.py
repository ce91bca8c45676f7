"""The accounts behind the ledger: sums are entered only when a job starts or stops, or GPUs are gained or lost.

Between entries a sum is linear in time: its value at the last entry and its rate per second. The ledger that stages
see is computed from these when it is first read, so that a job that keeps running costs no work in a step.
"""

import math

import numpy as np

from eunomia.model.columns import Table, column
from eunomia.model.ledger import AppLedger, JobLedger
from eunomia.model.shapes import reads
from eunomia.model.workload import Jobs, JobState
from eunomia.units import NONE, Ints, Reals, Rows, Seconds

_WAITING, _RUNNING = int(JobState.WAITING), int(JobState.RUNNING)


@reads
class AppAccounts:
    """The arbiter's own columns of an app, which stages do not see."""

    area_at_arrival: Reals = column(float, 0.0)
    """Integral of the number of apps over time, in app-seconds, when the app arrived."""
    ended: Rows = column("int32", 0)
    """1: the app has ended, but some of its GPUs have not come back."""
    leases: Ints = column("int64", 0)
    """Number of the app's leases, leaving ones included."""
    gpus: Ints = column("int64", 0)
    """Number of GPUs that the app holds, leaving ones included."""
    gpu_seconds: Reals = column(float, 0.0)
    """GPU-seconds leased until ``booked_at``."""
    booked_at: Reals = column(float, float("nan"))
    """Time of the app's last entry; NaN: no entry yet, the ledger is complete."""


@reads
class JobAccounts:
    """The arbiter's own columns of a job, which stages do not see."""

    lease: Ints = column("int64", NONE)
    """The lease that names the job; -1: none, or the app's tuner divides the app's leases."""
    gpus: Ints = column("int64", 0)
    """Number of GPUs that the job runs on."""
    ready_at: Reals = column(float, 0.0)
    """Time from which the job may be started again after a failure."""
    reason: Rows = column("int32", 0)
    """``Reason`` of the last verdict; 0: none."""
    stage: Rows = column("int32", -1)
    plugin: Rows = column("int32", 0)
    """Index into ``State.plugins``."""
    round: Ints = column("int64", 0)
    since: Reals = column(float, 0.0)
    order: Ints = column("int64", 0)
    """Number of the arrival; breaks ties between equal times."""
    attained: Reals = column(float, 0.0)
    """Seconds run until ``booked_at``."""
    waited: Reals = column(float, 0.0)
    """Seconds waited until ``booked_at``."""
    received: Reals = column(float, 0.0, width="gpu_types")
    """[job, GPU type]: GPU-seconds received until ``booked_at``."""
    on: Ints = column("int64", 0, width="gpu_types")
    """[job, GPU type]: GPUs assigned to the job, running or not."""
    booked_at: Reals = column(float, float("nan"))
    """Time of the job's last entry; NaN: no entry yet, the ledger is complete."""


class Books:
    """The accounting: makes entries in the accounts and computes the ledger from them."""

    def __init__(
        self,
        jobs: Table[Jobs],
        accounts: tuple[Table[JobAccounts], Table[AppAccounts]],
        ledgers: tuple[Table[JobLedger], Table[AppLedger]],
    ) -> None:
        self._jobs = jobs
        self._job_accounts, self._app_accounts = accounts
        self._job_ledger, self._app_ledger = ledgers
        self._kinds = self._job_accounts.live.on.shape[1]
        self._jobs_shown_at = self._apps_shown_at = math.nan

    def job(self, row: int, at: Seconds) -> None:
        """Enter the time that a job ran or waited until ``at``."""
        kept = self._job_accounts.cells
        elapsed = at - kept.booked_at[row]
        if elapsed:  # NaN: the first entry
            state = self._jobs.cells.state[row]
            if state == _RUNNING:
                if elapsed == elapsed:
                    kept.attained[row] += elapsed
                    for kind in range(self._kinds):
                        kept.received[row, kind] += elapsed * kept.on[row, kind]
                self._job_ledger.cells.last_ran[row] = at
            elif state == _WAITING and elapsed == elapsed:
                kept.waited[row] += elapsed
            kept.booked_at[row] = at
        self._jobs_shown_at = math.nan

    def app(self, row: int, at: Seconds) -> None:
        """Enter the GPU-seconds that an app was leased until ``at``."""
        kept = self._app_accounts.cells
        elapsed = at - kept.booked_at[row]
        if elapsed:
            gpus = kept.gpus[row]
            if gpus and elapsed == elapsed:
                kept.gpu_seconds[row] += gpus * elapsed
            kept.booked_at[row] = at
        self._apps_shown_at = math.nan

    def unshow(self) -> None:
        """Mark the ledger as outdated after rows were dropped, so that the next read recomputes it."""
        self._jobs_shown_at = self._apps_shown_at = math.nan

    def idle(self, row: int, seconds: float, at: Seconds) -> None:
        """Subtract the seconds for which a job held its GPUs without running."""
        self.job(row, at)
        kept = self._job_accounts.cells
        attained, received = kept.attained[row], kept.received
        gone = attained if attained < seconds else seconds
        kept.attained[row] = attained - gone
        for kind in range(self._kinds):
            left = received[row, kind] - gone * kept.on[row, kind]
            received[row, kind] = 0.0 if left < 0.0 else left

    def show_jobs(self, now: Seconds) -> None:
        """Update the ledger of jobs to the time ``now``."""
        if self._jobs_shown_at == now:
            return
        self._jobs_shown_at = now
        used = self._jobs.used
        kept, ledger, states = self._job_accounts.live, self._job_ledger.live, self._jobs.live.state[:used]
        rows = np.flatnonzero(~np.isnan(kept.booked_at[:used]))
        ledger.attained[rows], ledger.waited[rows] = kept.attained[rows], kept.waited[rows]
        ledger.received[rows] = kept.received[rows]
        waits = rows[states[rows] == _WAITING]
        ledger.waited[waits] += now - kept.booked_at[waits]
        runs = rows[states[rows] == _RUNNING]
        ran = now - kept.booked_at[runs]
        ledger.attained[runs] += ran
        ledger.received[runs] += ran[:, None] * kept.on[runs]
        ledger.last_ran[runs] = now

    def show_apps(self, now: Seconds) -> bool:
        """Update the GPU-seconds of apps to the time ``now``; False: they were up to date."""
        if self._apps_shown_at == now:
            return False
        self._apps_shown_at = now
        used = self._app_accounts.used
        kept = self._app_accounts.live
        rows = np.flatnonzero(~np.isnan(kept.booked_at[:used]))
        self._app_ledger.live.gpu_seconds[rows] = kept.gpu_seconds[rows] + kept.gpus[rows] * (
            now - kept.booked_at[rows]
        )
        return True

    def service(self, rows: Rows, *, by_gpus: bool) -> tuple[Reals, Reals]:
        """Service that jobs have attained, as linear functions of time: value at time 0, and rate per second.

        Args:
            rows: of jobs.
            by_gpus: whether service is counted in GPU-seconds; else in seconds.
        """
        kept, states = self._job_accounts.live, self._jobs.live.state
        booked_at = kept.booked_at[rows]
        if by_gpus:
            before, each = kept.received[rows].sum(axis=1), kept.on[rows].sum(axis=1).astype(float)
            shown = self._job_ledger.live.received[rows].sum(axis=1)
        else:
            before, each = kept.attained[rows], np.ones(rows.size)
            shown = self._job_ledger.live.attained[rows]
        booked = booked_at == booked_at  # NaN: no entry yet, the ledger is complete
        each = np.where((states[rows] == _RUNNING) & booked, each, 0.0)
        before = np.where(booked, before, shown)
        return before - each * np.where(booked, booked_at, 0.0), each
