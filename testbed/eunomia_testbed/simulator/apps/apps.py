"""Runs the app masters of a simulation: carries out their events, and passes on their forecasts."""

from collections.abc import Callable, Iterable

from eunomia.contract.events import (
    AppCancelled,
    AppFinished,
    Event,
    ForecastReported,
    JobAdded,
    JobFailed,
    JobFinished,
    JobPaused,
    JobResumed,
)
from eunomia.errors import EunomiaError
from eunomia.units import Seconds
from eunomia_testbed.simulator.apps.app_division import AppDivision
from eunomia_testbed.simulator.apps.masters import Masters
from eunomia_testbed.simulator.progress.states import FAILED, FINISHED, PAUSED, RUNNING, STOPPED
from eunomia_testbed.simulator.simulation_state import SimulationState


class SimulatedApps:
    """The app masters of a run: passes them the events of their jobs, and carries out the events that they return.

    Args:
        sim: the state of the simulation.
        masters: creates the app masters.
        division: divides their leases.
    """

    def __init__(self, sim: SimulationState, masters: Masters, division: AppDivision) -> None:
        self._sim, self._masters, self.division, self._leases = sim, masters, division, sim.leases
        self._forecasts_due = 0.0

    # --- arrivals ----------------------------------------------------------------------------------------------------

    def arrive(self, app: int, now: Seconds, events: list[Event]) -> None:
        """Register an app of several jobs."""
        master = self._masters.make(app)
        self.act(app, master.arrive(now), now, events)
        self._report(app, now, events)

    def join(self, job: int, now: Seconds, events: list[Event]) -> None:
        """Add a job to an app that has arrived already."""
        self.act(self._sim.rows.app_of[job], [self._sim.reporter.jobs.added(job)], now, events)

    # --- events of masters -------------------------------------------------------------------------------------------

    def reached(self, job: int, gpus: tuple[int, ...], now: Seconds, events: list[Event]) -> None:
        """Carry out the decision of a job's app master after the job has reached its goal."""
        sim, app = self._sim, self._sim.rows.app_of[job]
        self.act(app, self._sim.apps.masters[app].reached(job, now), now, events)
        work = sim.work
        if sim.jobs.state[job] == RUNNING and not work.on[job]:
            if work.done[job] >= work.goal[job]:
                rule = "an app master must pause or end a job that has reached its goal, or set another"
                raise EunomiaError(rule, value=str(work.goal[job]), place=sim.rows.job_ids[job])
            work.go_on(job, now, gpus)
        self._report(app, now, events)

    def act(self, app: int, answers: Iterable[Event], now: Seconds, events: list[Event]) -> None:
        """Carry out the events of an app master in the simulation, and pass them to the arbiter."""
        for event in answers:
            events.append(event)
            act = _ACTS.get(type(event))
            if act is not None:
                act(self, event, now)
            if isinstance(event, JobAdded) and self._sim.reporter.knows_regimes:
                events += self._sim.reporter.coming(self._sim.rows.jobs[event.job])
        self._leases.dirty.add(app)

    def _added(self, event: JobAdded, now: Seconds) -> None:
        self._sim.jobs.wait(self._sim.rows.jobs[event.job], now)

    def _finished(self, event: JobFinished, now: Seconds) -> None:
        job = self._sim.rows.jobs[event.job]
        work = self._sim.work
        self.division.stop(job, now)
        whole = work.done[job] >= work.total[job]
        self._sim.jobs.close(job, FINISHED if whole else STOPPED, now)

    def _failed(self, event: JobFailed, now: Seconds) -> None:
        job = self._sim.rows.jobs[event.job]
        self.division.stop(job, now)
        if event.again_in is None:
            self._sim.jobs.close(job, FAILED, now)
        else:
            self._sim.jobs.pause(job, now)

    def _paused(self, event: JobPaused, now: Seconds) -> None:
        job = self._sim.rows.jobs[event.job]
        self.division.stop(job, now, saves=True)
        self._sim.jobs.pause(job, now)

    def _resumed(self, event: JobResumed, now: Seconds) -> None:
        job = self._sim.rows.jobs[event.job]
        if self._sim.jobs.state[job] == PAUSED:
            self._sim.jobs.wait(job, now)

    def _over(self, event: AppFinished | AppCancelled, now: Seconds) -> None:
        app = self._sim.rows.apps[event.app]
        for job in self._masters.jobs.get(app, []):
            if not self._sim.jobs.is_over(job):
                self.division.stop(job, now)
                self._sim.jobs.close(job, STOPPED, now)
        self._sim.apps.finish[app] = now
        self._sim.apps.masters.pop(app, None)
        self._leases.forget(app)

    # --- faults and forecasts ---

    def lost(self, job: int, now: Seconds, events: list[Event]) -> None:
        """Process a job's loss of GPUs on a failed machine: the job loses the work since its last checkpoint."""
        app = self._sim.rows.app_of[job]
        if job in self._leases.placed:
            self._leases.displace(app, job, now)
        if app in self._sim.apps.masters:
            reported = self._sim.reporter.progress(job, now)
            self.act(app, self._sim.apps.masters[app].hear(reported, now), now, events)

    def report(self, now: Seconds, events: list[Event]) -> None:
        """Report the forecast of each running app's remaining work, if the forecast has changed."""
        if not self._sim.apps.masters or now < self._forecasts_due:
            return
        self._forecasts_due = now + self._sim.options.reports.forecast_seconds
        running = {self._sim.rows.app_of[job] for job in self._leases.placed} | {
            self._sim.rows.app_of[job] for job in self._sim.gpus.standing()
        }
        for app in sorted(running & self._sim.apps.masters.keys()):
            self._report(app, now, events)

    def _report(self, app: int, now: Seconds, events: list[Event]) -> None:
        master = self._sim.apps.masters.get(app)
        known = None if master is None else master.forecast(now)
        if known is not None:
            events.append(ForecastReported(app=self._sim.rows.app_ids[app], forecast=known))


_ACTS: dict[type, Callable[..., None]] = {
    JobAdded: SimulatedApps._added,
    JobFinished: SimulatedApps._finished,
    JobFailed: SimulatedApps._failed,
    JobPaused: SimulatedApps._paused,
    JobResumed: SimulatedApps._resumed,
    AppFinished: SimulatedApps._over,
    AppCancelled: SimulatedApps._over,
}
