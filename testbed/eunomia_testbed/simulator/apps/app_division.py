"""Divides each app's leases among its jobs, by its app master's wishes, and releases GPUs that no job can use."""

from typing import Final

from eunomia.contract.events import Event, GpusReturned, JobsDivided
from eunomia.units import Seconds
from eunomia_appmaster.master.division import Wish, divide, unused, widening
from eunomia_testbed.simulator.apps.app_masters import AppMaster, wish
from eunomia_testbed.simulator.apps.masters import Masters
from eunomia_testbed.simulator.executing.job_runs import JobRuns
from eunomia_testbed.simulator.progress.states import RUNNING, WAITING
from eunomia_testbed.simulator.simulation_state import SimulationState

IDLE_SECONDS: Final = 1.0
"""Seconds for which an app keeps GPUs that it cannot use before it releases them, as in the live system."""


class AppDivision:
    """The division of apps' leases over a run.

    Args:
        sim: the state of the simulation.
        runs: starts and stops jobs.
        masters: the app masters.
    """

    def __init__(self, sim: SimulationState, runs: JobRuns, masters: Masters) -> None:
        self._sim, self._runs, self._masters = sim, runs, masters
        self._desk, self._leases = masters.desk, sim.leases
        self._reported: dict[int, dict[int, tuple[int, ...]]] = {}
        """The GPUs of each app's running jobs, as last reported."""
        self._idle: dict[int, tuple[int, ...]] = {}
        """The GPUs that each app will release if they stay idle."""
        self._returned: dict[int, int] = {}
        """The lease under which an app released each GPU; no job is placed on the GPU under that lease."""

    def divide(self, now: Seconds) -> None:
        """Divide the changed leases of each app among its jobs; the next step reports the resulting events."""
        dirty, self._leases.dirty = sorted(self._leases.dirty), set()
        for app in dirty:
            if self._leases.shared.get(app):
                self._divide(app, now)
        if self._leases.unreported:
            self._sim.urgent = True

    def _divide(self, app: int, now: Seconds) -> None:
        sim = self._sim
        shared = self._leases.shared[app]
        master = self._masters.of(app)
        state = sim.jobs.state
        placed_on = self._leases.placed
        jobs = [job for job in master.wishes() if state[job] == WAITING or job in placed_on]
        taken = {gpu for job in jobs if job in placed_on for gpu in placed_on[job]}
        free = [gpu for gpu in shared if gpu not in taken and self._returned.get(gpu) != shared[gpu]]
        if not free:
            self._give_back(app, (), now)
            return
        divided = divide([self._wish(master, job) for job in jobs], free, sim.cluster)
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
        """Give running jobs the GPUs that no other job of the app can use, if that saves time; return the rest."""
        for job in jobs:
            if left and self._sim.work.on[job]:
                more = widening(
                    self._wish(master, job),
                    left,
                    self._sim.cluster,
                    seconds_left=self._desk.seconds_left(job),
                    restart_seconds=self._desk.restart_seconds,
                )
                if more:
                    gpus = self._leases.placed[job]
                    self.stop(job, now, saves=True)
                    self._put(job, tuple(sorted((*gpus, *more))), now)
                    left = tuple(gpu for gpu in left if gpu not in more)
        return left

    def stop(self, job: int, now: Seconds, *, saves: bool = False) -> None:
        """Stop a job; the GPUs that its app master assigned to it return to the app."""
        gpus = self._leases.take_off(self._sim.rows.app_of[job], job, now)
        self._runs.stop_for_app(job, gpus, now, saves=saves)

    def _put(self, job: int, gpus: tuple[int, ...], now: Seconds) -> None:
        """Place a job on GPUs of its app's leases."""
        sim, runs = self._sim, self._runs
        self._leases.placed[job] = gpus
        sim.gpus.assign(job, gpus, now)
        sim.jobs.got_gpus(job, now)
        ready = max(now, runs.ready_at(gpus)) + runs.start_seconds(job)

        def begin(then: Seconds) -> None:
            if self._leases.placed.get(job) is gpus and sim.jobs.state[job] == RUNNING:
                runs.begin_for_app(job, gpus, then)
                self._leases.unreported.add(sim.rows.app_of[job])
                self._leases.dirty.add(sim.rows.app_of[job])

        if ready > now:
            sim.agenda.call(ready, begin)
        else:
            begin(now)

    def _give_back(self, app: int, idle: tuple[int, ...], now: Seconds) -> None:
        """Schedule the release of GPUs that no job of the app can use."""
        if self._idle.get(app, ()) == idle:
            return
        self._idle[app] = idle
        if idle:
            self._sim.agenda.call(now + IDLE_SECONDS, lambda then: self._still_idle(app, idle))

    def _still_idle(self, app: int, idle: tuple[int, ...]) -> None:
        """Release GPUs that are still idle; an ended app releases none, since its end frees them."""
        is_here = app in self._sim.apps.masters and not self._sim.apps.has_ended(app)
        if self._idle.get(app) == idle and is_here:
            held = self._leases.shared.get(app, {})
            gpus = tuple(gpu for gpu in idle if gpu in held)
            self._idle[app] = ()
            if gpus:
                self._returned.update((gpu, held[gpu]) for gpu in gpus)
                self._sim.out.append(GpusReturned(app=self._desk.app_id(app), gpus=gpus))

    def report(self, events: list[Event]) -> None:
        """Report to the arbiter the divisions that have not been reported yet."""
        if not self._leases.unreported:
            return
        changed, self._leases.unreported = sorted(self._leases.unreported), set()
        placed, on = self._leases.placed, self._sim.work.on
        for app in changed:
            jobs = [job for job in self._masters.jobs.get(app, ()) if job in placed and on[job]]
            running = {job: placed[job] for job in jobs}
            if running != self._reported.get(app, {}):
                self._reported[app] = running
                events.append(
                    JobsDivided(
                        app=self._desk.app_id(app),
                        jobs=tuple(self._desk.job_id(job) for job in running),
                        gpus=tuple(running.values()),
                    )
                )
