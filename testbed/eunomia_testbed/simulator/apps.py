"""Runs the app masters of a simulation: carries out their events, divides their leases, reports their forecasts.

It also answers the queries of app masters (``desk.Desk``).
"""

import importlib
import math
from collections.abc import Callable, Iterable

from eunomia.contract.events import (
    AppArrived,
    AppCancelled,
    AppFinished,
    Event,
    ForecastReported,
    GpusReturned,
    JobAdded,
    JobFailed,
    JobFinished,
    JobPaused,
    JobResumed,
    JobsDivided,
)
from eunomia.errors import EunomiaError
from eunomia.units import AppId, JobId, Seconds
from eunomia_appmaster.master.division import Wish, divide, extra_slots, unused, widening
from eunomia_testbed.simulator.app_masters import AppMaster, PlainAppMaster, wish
from eunomia_testbed.simulator.job_runs import JobRuns
from eunomia_testbed.simulator.simulation_state import SimulationState
from eunomia_testbed.simulator.states import FAILED, FINISHED, PAUSED, RUNNING, STOPPED, WAITING

SEARCHES = "eunomia_testbed.simulator.searches"
IDLE_SECONDS = 1.0
"""How long an app keeps GPUs that it cannot use before it gives them back; as in the live system."""


class SimulatedApps:
    """The app masters of a run. An app of one job gets none until one is needed.

    Args:
        sim: the state of the simulation.
        runs: starts and stops jobs.
    """

    def __init__(self, sim: SimulationState, runs: JobRuns) -> None:
        self._sim, self._runs, self._leases = sim, runs, sim.leases
        self._jobs: dict[int, list[int]] = {}
        self._reported: dict[int, dict[int, tuple[int, ...]]] = {}
        self._idle: dict[int, tuple[int, ...]] = {}
        self._returned: dict[int, int] = {}
        """By GPU, the lease under which the app gave it back; no job is placed on it under that lease."""
        self._forecasts_due = 0.0
        jobs: dict[int, list[int]] = {}
        for job, app in enumerate(sim.app_of):
            jobs.setdefault(app, []).append(job)
        self.several = {app: rows for app, rows in jobs.items() if len(rows) > 1 or app in sim.workload.searches}

    # --- arrivals ----------------------------------------------------------------------------------------------------

    def speaks_for(self, app: int) -> bool:
        """Returns whether an app has a master, or gets one when it arrives."""
        return app in self.several or app in self._sim.masters

    def arrive(self, app: int, now: Seconds, events: list[Event]) -> None:
        """Lets an app of several jobs arrive."""
        master = self._make(app)
        self._sim.masters[app] = master
        self.act(app, master.arrive(now), now, events)
        self._report(app, now, events)

    def join(self, job: int, now: Seconds, events: list[Event]) -> None:
        """Lets a job arrive that belongs to an app that has arrived."""
        self.act(self._sim.app_of[job], [self.added(job)], now, events)

    def _make(self, app: int) -> AppMaster:
        sim = self._sim
        jobs = self._jobs[app] = self.several.get(app) or [
            job for job in range(len(sim.app_of)) if sim.app_of[job] == app
        ]
        search = sim.workload.searches.get(app)
        if search is not None:
            kind = importlib.import_module(SEARCHES).SearchAppMaster
            made: AppMaster = kind(app, jobs, self, search, seed=sim.seed * 1_000_003 + app)
            return made
        alive = [job for job in jobs if not sim.jobs.is_over(job)]
        return PlainAppMaster(app, alive, self, reports=len(jobs) > 1)

    def master(self, app: int) -> AppMaster:
        """Returns the app's master; makes it if there is none."""
        if app not in self._sim.masters:
            self._sim.masters[app] = self._make(app)
        return self._sim.masters[app]

    # --- events of masters -------------------------------------------------------------------------------------------

    def reached(self, job: int, gpus: tuple[int, ...], now: Seconds, events: list[Event]) -> None:
        """Asks a job's app master how the job continues after its goal."""
        sim, app = self._sim, self._sim.app_of[job]
        self.act(app, self._sim.masters[app].reached(job, now), now, events)
        work = sim.work
        if sim.jobs.state[job] == RUNNING and not work.on[job]:
            if work.done[job] >= work.goal[job]:
                rule = "an app master must pause or end a job that has reached its goal, or set another"
                raise EunomiaError(rule, value=str(work.goal[job]), place=sim.job_ids[job])
            work.go_on(job, now, gpus)
        self._report(app, now, events)

    def act(self, app: int, answers: Iterable[Event], now: Seconds, events: list[Event]) -> None:
        """Carries out the events of an app master in the simulation, and passes them to the arbiter."""
        for event in answers:
            events.append(event)
            act = _ACTS.get(type(event))
            if act is not None:
                act(self, event, now)
            if isinstance(event, JobAdded) and self._sim.reporter.knows_regimes:
                events += self._sim.reporter.coming(self.row(event.job))
        self._leases.dirty.add(app)

    def _added(self, event: JobAdded, now: Seconds) -> None:
        self._sim.jobs.wait(self.row(event.job), now)

    def _finished(self, event: JobFinished, now: Seconds) -> None:
        job = self.row(event.job)
        work = self._sim.work
        self._stand(job, now)
        whole = work.done[job] >= work.total[job]
        self._sim.jobs.close(job, FINISHED if whole else STOPPED, now)

    def _failed(self, event: JobFailed, now: Seconds) -> None:
        job = self.row(event.job)
        self._stand(job, now)
        if event.again_in is None:
            self._sim.jobs.close(job, FAILED, now)
        else:
            self._sim.jobs.pause(job, now)

    def _paused(self, event: JobPaused, now: Seconds) -> None:
        job = self.row(event.job)
        self._stand(job, now, saves=True)
        self._sim.jobs.pause(job, now)

    def _resumed(self, event: JobResumed, now: Seconds) -> None:
        job = self.row(event.job)
        if self._sim.jobs.state[job] == PAUSED:
            self._sim.jobs.wait(job, now)

    def _over(self, event: AppFinished | AppCancelled, now: Seconds) -> None:
        app = self._sim.app_rows[event.app]
        for job in self._jobs.get(app, []):
            if not self._sim.jobs.is_over(job):
                self._stand(job, now)
                self._sim.jobs.close(job, STOPPED, now)
        self._sim.app_finish[app] = now
        self._sim.masters.pop(app, None)
        self._leases.forget(app)

    def _stand(self, job: int, now: Seconds, *, saves: bool = False) -> None:
        """Stops a job; the GPUs that its app master assigned to it return to its app."""
        gpus = self._leases.take_off(self._sim.app_of[job], job, now)
        self._runs.stop_for_app(job, gpus, now, saves=saves)

    # --- division ----------------------------------------------------------------------------------------------------

    def lost(self, job: int, now: Seconds, events: list[Event]) -> None:
        """Processes the loss of GPUs on a failed machine: the job loses the work since its last checkpoint."""
        app = self._sim.app_of[job]
        if job in self._leases.placed:
            self._leases.displace(app, job, now)
        if app in self._sim.masters:
            reported = self._sim.reporter.progress(job, now)
            self.act(app, self._sim.masters[app].hear(reported, now), now, events)

    def divide(self, now: Seconds) -> None:
        """Asks masters to divide leases that changed; their events are reported with the next step."""
        dirty, self._leases.dirty = sorted(self._leases.dirty), set()
        for app in dirty:
            if self._leases.shared.get(app):
                self._divide(app, now)
        if self._leases.unreported:
            self._sim.urgent = True

    def _divide(self, app: int, now: Seconds) -> None:
        sim = self._sim
        shared = self._leases.shared[app]
        master = self.master(app)
        state = sim.jobs.state
        jobs = [job for job in master.wishes() if state[job] == WAITING or job in self._leases.placed]
        wishes = [self._wish(master, job) for job in jobs]
        taken = {gpu for one in wishes for gpu in one.runs_on}
        free = [gpu for gpu in shared if gpu not in taken and self._returned.get(gpu) != shared[gpu]]
        divided = divide(wishes, free, sim.cluster)
        for job, gpus in divided.items():
            if job not in self._leases.placed:
                self._put(job, gpus, now)
        left = unused(free, divided)
        if left:
            placed = [job for job in jobs if job in self._leases.placed]
            left = self._widen(master, placed, left, now)
            # A job that has not begun yet may turn out to be worth widening: it is considered again once it runs.
            starting = [job for job in placed if not sim.work.on[job]]
            room = sum(max(0, master.span(job)[1] - len(self._leases.placed[job])) for job in starting)
            left = left[room:]
        self._give_back(app, left, now)

    def _wish(self, master: AppMaster, job: int) -> Wish:
        return wish(master, job, self._leases.placed.get(job, ()), self._sim.reporter.slowdown(job))

    def _widen(self, master: AppMaster, jobs: list[int], left: tuple[int, ...], now: Seconds) -> tuple[int, ...]:
        """Gives running jobs the GPUs that no other job of the app can use, if they save time; returns the rest."""
        for job in jobs:
            if left and self._sim.work.on[job]:
                more = widening(
                    self._wish(master, job),
                    left,
                    self._sim.cluster,
                    seconds_left=self._seconds_left(job, now),
                    restart_seconds=self._restart_seconds(),
                )
                if more:
                    gpus = self._leases.placed[job]
                    self._stand(job, now, saves=True)
                    self._put(job, tuple(sorted((*gpus, *more))), now)
                    left = tuple(gpu for gpu in left if gpu not in more)
        return left

    def _seconds_left(self, job: int, now: Seconds) -> float:
        """Returns the seconds until a running job reaches its goal at its present speed."""
        work = self._sim.work
        return (work.goal[job] - work.done_at(job, now)) * work.pace[job]

    def _restart_seconds(self) -> float:
        costs = self._sim.options.costs
        return costs.checkpoint + costs.start + costs.restore

    def _extra(self, job: int, most: int, now: Seconds) -> int:
        """Returns how many more GPUs at the same locality speed a running job up."""
        return extra_slots(
            size=len(self._sim.work.on[job]),
            most=most,
            seconds_left=self._seconds_left(job, now),
            restart_seconds=self._restart_seconds(),
        )

    def _put(self, job: int, gpus: tuple[int, ...], now: Seconds) -> None:
        """Places a job on GPUs of its app's own leases."""
        sim, runs = self._sim, self._runs
        self._leases.placed[job] = gpus
        sim.gpus.put(job, gpus, now)
        sim.jobs.began(job, now)
        ready = max(now, runs.ready_at(gpus)) + runs.start_seconds(job)

        def begin(then: Seconds) -> None:
            if self._leases.placed.get(job) is gpus and sim.jobs.state[job] == RUNNING:
                runs.begin_for_app(job, gpus, then)
                self._leases.unreported.add(sim.app_of[job])
                self._leases.dirty.add(sim.app_of[job])

        if ready > now:
            sim.agenda.call(ready, begin)
        else:
            begin(now)

    def _give_back(self, app: int, idle: tuple[int, ...], now: Seconds) -> None:
        """Schedules the return of GPUs that no job of the app can use."""
        if self._idle.get(app, ()) == idle:
            return
        self._idle[app] = idle
        if idle:
            self._sim.agenda.call(now + IDLE_SECONDS, lambda then: self._still_idle(app, idle))

    def _still_idle(self, app: int, idle: tuple[int, ...]) -> None:
        """Returns whether GPUs are still idle; an ended app returns none, since its end frees them."""
        is_here = app in self._sim.masters and math.isnan(self._sim.app_finish[app])
        if self._idle.get(app) == idle and is_here:
            held = self._leases.shared.get(app, {})
            gpus = tuple(gpu for gpu in idle if gpu in held)
            self._idle[app] = ()
            if gpus:
                self._returned.update((gpu, held[gpu]) for gpu in gpus)
                self._sim.out.append(GpusReturned(app=self.app_id(app), gpus=gpus))

    def report_divisions(self, events: list[Event]) -> None:
        """Adds the divisions that were not yet reported to the arbiter."""
        if not self._leases.unreported:
            return
        untold, self._leases.unreported = sorted(self._leases.unreported), set()
        for app in untold:
            jobs = [job for job in self._jobs.get(app, ()) if job in self._leases.placed and self._sim.work.on[job]]
            running = {job: self._leases.placed[job] for job in jobs}
            if running != self._reported.get(app, {}):
                self._reported[app] = running
                events.append(
                    JobsDivided(
                        app=self.app_id(app),
                        jobs=tuple(self.job_id(job) for job in running),
                        gpus=tuple(running.values()),
                    )
                )

    # --- forecasts ---------------------------------------------------------------------------------------------------

    def report(self, now: Seconds, events: list[Event]) -> None:
        """Reports each app master's forecast of its remaining work if it has changed."""
        if not self._sim.masters or now < self._forecasts_due:
            return
        self._forecasts_due = now + self._sim.options.reports.forecast_seconds
        running = {self._sim.app_of[job] for job in self._leases.placed} | {
            self._sim.app_of[job] for job in self._sim.gpus.standing()
        }
        for app in sorted(running & self._sim.masters.keys()):
            self._report(app, now, events)

    def _report(self, app: int, now: Seconds, events: list[Event]) -> None:
        master = self._sim.masters.get(app)
        known = None if master is None else master.forecast(now)
        if known is not None:
            events.append(ForecastReported(app=self.app_id(app), forecast=known))

    # --- queries of masters ------------------------------------------------------------------------------------------

    def app_id(self, app: int) -> AppId:
        """See ``Desk``."""
        return self._sim.app_ids[app]

    def job_id(self, job: int) -> JobId:
        """See ``Desk``."""
        return self._sim.job_ids[job]

    def row(self, job: JobId) -> int:
        """See ``Desk``."""
        return self._sim.job_rows[job]

    def arrived(self, app: int) -> AppArrived:
        """See ``Desk``."""
        return self._sim.reporter.arrived(app)

    def added(self, job: int) -> JobAdded:
        """See ``Desk``."""
        return self._sim.reporter.added(job)

    def has_arrived(self, job: int) -> bool:
        """See ``Desk``."""
        return self._sim.has_arrived(job)

    def gang(self, job: int) -> tuple[int, int]:
        """See ``Desk``."""
        return self._sim.reporter.gang(job)

    def iterations_done(self, job: int) -> float:
        """See ``Desk``."""
        return self._sim.work.done_at(job, self._sim.now)

    def iterations(self, job: int) -> float:
        """See ``Desk``."""
        return self._sim.work.total[job]

    def running_gpus(self, job: int) -> int:
        """See ``Desk``."""
        return len(self._sim.work.on[job])

    def useful_gpus(self, job: int, most: int) -> int:
        """See ``Desk``; several GPUs are useful only if the first is, or the app would give them back at once."""
        size, now = len(self._sim.work.on[job]), self._sim.now
        if not size:
            return most
        return size + (self._extra(job, most, now) if self._extra(job, min(most, size + 1), now) else 0)

    def reported_left(self, job: int) -> float:
        """See ``Desk``."""
        return self._sim.reporter.left(job, self._sim.now)

    def reported_serial(self, job: int) -> float:
        """See ``Desk``."""
        return self._sim.reporter.serial(job)

    def reported_gpu_seconds(self, job: int) -> float:
        """See ``Desk``."""
        return self._sim.reporter.work_of(job)

    def reported_slowdown(self, job: int) -> tuple[float, float, float, float] | None:
        """See ``Desk``."""
        return self._sim.reporter.slowdown(job)

    def aim(self, job: int, iterations: float) -> None:
        """See ``Desk``."""
        self._sim.work.aim(job, iterations, self._sim.now)


_ACTS: dict[type, Callable[..., None]] = {
    JobAdded: SimulatedApps._added,
    JobFinished: SimulatedApps._finished,
    JobFailed: SimulatedApps._failed,
    JobPaused: SimulatedApps._paused,
    JobResumed: SimulatedApps._resumed,
    AppFinished: SimulatedApps._over,
    AppCancelled: SimulatedApps._over,
}
