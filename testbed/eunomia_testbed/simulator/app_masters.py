"""Simulated app masters: who speaks for an app, and divides what it wins among its jobs.

The engine keeps the truth; an app master hears what an app master hears and answers with events. Independent jobs
are served by ``PlainAppMaster``; a simulated search is another class behind the same protocol.
"""

from collections.abc import Sequence
from typing import Protocol

from eunomia.events import AppArrived, AppFinished, Event, JobFinished
from eunomia.forecasts import Forecast, JobForecast, Phase
from eunomia_appmaster.master.division import Wish
from eunomia_testbed.simulator.desk import Desk


class AppMaster(Protocol):
    """Speaks for one app. Jobs are named by their rows of the workload.

    The events that it returns are carried out in the simulated world, too: a job that it pauses stops, one that it
    finishes leaves.
    """

    def arrive(self, now: float) -> Sequence[Event]:
        """Register: ``AppArrived``, and the jobs that exist from the beginning as ``desk.added`` makes them."""
        ...

    def reached(self, job: int, now: float) -> Sequence[Event]:
        """Hear that a running job has done the iterations that ``desk.aim`` set it (all its work, if never set).

        Until something else is said the job makes no step: answer ``JobPaused`` or ``JobFinished``, or set another aim.
        """
        ...

    def hear(self, event: Event, now: float) -> Sequence[Event]:
        """Hear that a job lost its GPUs to a failure, and what it has done by its last checkpoint: ``JobReported``."""
        ...

    def wishes(self) -> Sequence[int]:
        """Return the jobs that shall run now, the first in line first; those that run stay in the list."""
        ...

    def span(self, job: int) -> tuple[int, int]:
        """Return the fewest and most GPUs that are of use to a job now."""
        ...

    def forecast(self, now: float) -> Forecast | None:
        """Return what the app knows of its remaining work; None: as before."""
        ...


class PlainAppMaster:
    """Speaks for independent jobs that all want to run at once.

    Args:
        app: row.
        jobs: rows of its jobs.
        desk: what it may ask the simulation.
        reports: whether it reports a forecast.
    """

    def __init__(self, app: int, jobs: Sequence[int], desk: Desk, *, reports: bool = True) -> None:
        self._app = app
        self._jobs = list(jobs)
        self._left = set(jobs)
        self._desk = desk
        self._reports = reports

    def arrive(self, now: float) -> Sequence[Event]:
        """Register with all jobs that have arrived by now."""
        arrived: AppArrived = self._desk.arrived(self._app)
        return [arrived, *(self._desk.added(job) for job in self._jobs if self._desk.has_arrived(job))]

    def reached(self, job: int, now: float) -> Sequence[Event]:
        """End the job, and the app with its last."""
        self._left.discard(job)
        ended: list[Event] = [JobFinished(job=self._desk.job_id(job))]
        return ended if self._left else [*ended, AppFinished(app=self._desk.app_id(self._app))]

    def hear(self, event: Event, now: float) -> Sequence[Event]:
        """Need not do anything."""
        return ()

    def wishes(self) -> Sequence[int]:
        """Return all jobs that are not over, by arrival."""
        return [job for job in self._jobs if job in self._left and self._desk.has_arrived(job)]

    def span(self, job: int) -> tuple[int, int]:
        """Return the job's gang."""
        return self._desk.gang(job)

    def forecast(self, now: float) -> Forecast | None:
        """Return one phase of all jobs that are not over."""
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


def wish(master: AppMaster, job: int, runs_on: tuple[int, ...]) -> Wish:
    """A job's wish, as the division of a live app master takes it."""
    least, most = master.span(job)
    return Wish(job=job, least=least, most=most, runs_on=runs_on)
