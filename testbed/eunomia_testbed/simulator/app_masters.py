"""Simulated app masters: each represents one app and divides the GPUs that the app wins among its jobs.

The engine keeps the true progress; an app master receives only what a live one receives, and answers with events.
are served by ``PlainAppMaster``; a simulated search is another class behind the same protocol.
"""

from collections.abc import Sequence
from typing import Protocol

from eunomia.contract.events import AppArrived, AppFinished, Event, JobFinished
from eunomia.model.forecasts import ASSUMED_SLOWDOWN, Forecast, JobForecast, Phase
from eunomia_appmaster.master.division import Slowdown, Wish
from eunomia_testbed.simulator.desk import Desk


class AppMaster(Protocol):
    """Represents one app. Jobs are named by their rows of the workload.

    The simulation also carries out the events that it returns: a job that it pauses stops, a job that it finishes
    leaves.
    """

    def arrive(self, now: float) -> Sequence[Event]:
        """Registers: ``AppArrived``, and the jobs that exist from the beginning, made by ``desk.added``."""
        ...

    def reached(self, job: int, now: float) -> Sequence[Event]:
        """A running job has done the iterations that ``desk.aim`` set (all its work, if never set).

        The job makes no step until the answer: return ``JobPaused`` or ``JobFinished``, or set another aim.
        """
        ...

    def hear(self, event: Event, now: float) -> Sequence[Event]:
        """A job lost its GPUs to a failure; ``JobReported`` holds its progress at its last checkpoint."""
        ...

    def wishes(self) -> Sequence[int]:
        """Returns the jobs that should run now, first in line first; running jobs stay in the list."""
        ...

    def span(self, job: int) -> tuple[int, int]:
        """Returns the fewest and most GPUs that a job can use now."""
        ...

    def forecast(self, now: float) -> Forecast | None:
        """Returns what the app knows of its remaining work; None: unchanged."""
        ...


class PlainAppMaster:
    """Represents independent jobs that all want to run at once.

    Args:
        app: row.
        jobs: rows of its jobs.
        desk: the queries that the simulation answers.
        reports: whether it reports a forecast.
    """

    def __init__(self, app: int, jobs: Sequence[int], desk: Desk, *, reports: bool = True) -> None:
        self._app = app
        self._jobs = list(jobs)
        self._left = set(jobs)
        self._desk = desk
        self._reports = reports

    def arrive(self, now: float) -> Sequence[Event]:
        """Registers with all jobs that have arrived by now."""
        arrived: AppArrived = self._desk.arrived(self._app)
        return [arrived, *(self._desk.added(job) for job in self._jobs if self._desk.has_arrived(job))]

    def reached(self, job: int, now: float) -> Sequence[Event]:
        """Ends the job, and the app with its last job."""
        self._left.discard(job)
        ended: list[Event] = [JobFinished(job=self._desk.job_id(job))]
        return ended if self._left else [*ended, AppFinished(app=self._desk.app_id(self._app))]

    def hear(self, event: Event, now: float) -> Sequence[Event]:
        """Does nothing."""
        return ()

    def wishes(self) -> Sequence[int]:
        """Returns all jobs that are not over, by arrival."""
        return [job for job in self._jobs if job in self._left and self._desk.has_arrived(job)]

    def span(self, job: int) -> tuple[int, int]:
        """Returns the job's gang."""
        return self._desk.gang(job)

    def forecast(self, now: float) -> Forecast | None:
        """Returns one phase of all jobs that are not over."""
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
    """A job's wish, as the division of a live app master takes it; a slowdown of None: the assumed one."""
    least, most = master.span(job)
    return Wish(job=job, least=least, most=most, runs_on=runs_on, slowdown=slowdown or ASSUMED_SLOWDOWN)
