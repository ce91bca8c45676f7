"""Simulated app masters; each represents one app and divides the GPUs that the app wins among its jobs.

The engine keeps the true progress; an app master gets the same input as a live one, and returns events.
Apps of independent jobs have a ``PlainAppMaster``; simulated searches have another class with the same protocol.
"""

from collections.abc import Sequence
from typing import Protocol

from eunomia.contract.events import AppArrived, AppFinished, Event, JobFinished
from eunomia.model.forecasts import ASSUMED_SLOWDOWN, Forecast, JobForecast, Phase
from eunomia_appmaster.master.division import Slowdown, Wish
from eunomia_testbed.simulator.apps.desk import Desk


class AppMaster(Protocol):
    """The representative of one app; jobs are identified by their rows in the workload.

    The simulation carries out the returned events: a job that the app master pauses stops, and a job that it finishes
    leaves.
    """

    def arrive(self, now: float) -> Sequence[Event]:
        """Return the registration: ``AppArrived``, and the jobs that exist from the beginning (``desk.added``)."""
        ...

    def reached(self, job: int, now: float) -> Sequence[Event]:
        """Return the events after a running job has done the iterations set by ``desk.aim`` (by default all its work).

        The job makes no step until then: return ``JobPaused`` or ``JobFinished``, or set another aim.
        """
        ...

    def hear(self, event: Event, now: float) -> Sequence[Event]:
        """Return the events after a job lost GPUs; ``JobReported`` has its progress at the last checkpoint."""
        ...

    def wishes(self) -> Sequence[int]:
        """Return the jobs that should run now, by priority; running jobs are included."""
        ...

    def span(self, job: int) -> tuple[int, int]:
        """Return the fewest and most GPUs that a job can use now."""
        ...

    def forecast(self, now: float) -> Forecast | None:
        """Return the app's forecast of its remaining work; None: it has not changed."""
        ...


class PlainAppMaster:
    """The app master of independent jobs, which run as soon as they have GPUs.

    Args:
        app: row of the app in the workload.
        jobs: rows of its jobs.
        desk: answers the app master's queries.
        reports: whether the app master reports forecasts.
    """

    def __init__(self, app: int, jobs: Sequence[int], desk: Desk, *, reports: bool = True) -> None:
        self._app = app
        self._jobs = list(jobs)
        self._left = set(jobs)
        self._desk = desk
        self._reports = reports

    def arrive(self, now: float) -> Sequence[Event]:
        """Return the registration, with all jobs that have arrived."""
        arrived: AppArrived = self._desk.arrived(self._app)
        return [arrived, *(self._desk.added(job) for job in self._jobs if self._desk.has_arrived(job))]

    def reached(self, job: int, now: float) -> Sequence[Event]:
        """Return the end of the job, and after the last job also that of the app."""
        self._left.discard(job)
        ended: list[Event] = [JobFinished(job=self._desk.job_id(job))]
        return ended if self._left else [*ended, AppFinished(app=self._desk.app_id(self._app))]

    def hear(self, event: Event, now: float) -> Sequence[Event]:
        """Return no events: lost GPUs change nothing for independent jobs."""
        return ()

    def wishes(self) -> Sequence[int]:
        """Return all jobs that have not ended, by arrival."""
        return [job for job in self._jobs if job in self._left and self._desk.has_arrived(job)]

    def span(self, job: int) -> tuple[int, int]:
        """Return the fewest and most GPUs of the job's gang."""
        return self._desk.gang(job)

    def forecast(self, now: float) -> Forecast | None:
        """Return a forecast of one phase with all jobs of the app; None: all have ended, or forecasts are off."""
        if not self._reports or not self._left:
            return None
        jobs = [self._forecast(job) for job in self._jobs]
        return Forecast(
            phases=(Phase(jobs=tuple(jobs)),),
            total_gpu_seconds=sum(self._desk.reported_gpu_seconds(job) for job in self._jobs),
            most=sum(self._desk.gang(job)[1] for job in self._jobs),
        )

    def _forecast(self, job: int) -> JobForecast:
        least, most = self._desk.gang(job)
        return JobForecast(
            iterations_left=self._desk.reported_left(job),
            seconds_per_iteration=self._desk.reported_serial(job),
            least=least,
            most=most,
            slowdown=self._desk.reported_slowdown(job),
        )


def wish(master: AppMaster, job: int, runs_on: tuple[int, ...], slowdown: Slowdown | None) -> Wish:
    """Return a job's request as input of the live app masters' ``divide``; slowdown None: the assumed one."""
    least, most = master.span(job)
    s = slowdown or ASSUMED_SLOWDOWN
    # A job of a paper's app uses all GPUs that speed it up; a live one stays on a node unless its app file allows more.
    return Wish(job=job, least=least, most=most, runs_on=runs_on, across_nodes=True, slowdown=s)
