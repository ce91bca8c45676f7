"""The engine: advances virtual time from event to event, and drives the arbiter of the live cluster.

It has no rounds of its own: it passes events to the arbiter, carries out the decisions, and steps again at the next
event or at the time that the arbiter requested. All events at one time make up one step. If an ended job's GPUs are
released only by an order of the arbiter, arrivals at that time wait for the step in which these GPUs are free.
"""

import math
import time
from collections.abc import Callable
from heapq import heappop as _pop

from eunomia.contract.events import (
    AppFinished,
    Event,
    JobFinished,
    Released,
    SingleJobEnded,
)
from eunomia.model.shapes import maker
from eunomia.units import Epoch, LeaseId, Seconds
from eunomia_testbed.calls.notes import CallNotes
from eunomia_testbed.simulator.apps.apps import SimulatedApps
from eunomia_testbed.simulator.apps.bids import Bidders
from eunomia_testbed.simulator.arrivals import Arrivals
from eunomia_testbed.simulator.executing.executor import Executor
from eunomia_testbed.simulator.failures import FailurePlan
from eunomia_testbed.simulator.late_events import without_late_events
from eunomia_testbed.simulator.logs.outcome import outcome
from eunomia_testbed.simulator.logs.run import SimulatedRun, Unfit
from eunomia_testbed.simulator.logs.step_log import StepLog
from eunomia_testbed.simulator.progress.states import FINISHED, REJECTED, RUNNING, WAITING
from eunomia_testbed.simulator.simulation_state import SimulationState

_new_end = maker(SingleJobEnded)
Drive = Callable[["Engine"], None]
"""A function that advances an engine step by step until the run is over."""


class Engine:
    """One run of a workload under one profile, created by ``assemble``.

    Args:
        sim: the state of the simulation.
        executor: carries decisions out.
        apps: the app masters.
        arrivals: the arrivals of jobs and apps.
        bidders: answer offers.
        failures: failures of machines; None: no machine fails.
        log: counts and logs every step.
        drive: advances the engine step by step.
    """

    def __init__(
        self,
        sim: SimulationState,
        executor: Executor,
        apps: SimulatedApps,
        arrivals: Arrivals,
        bidders: Bidders,
        failures: FailurePlan | None,
        log: StepLog,
        drive: Drive,
    ) -> None:
        self.sim, self.log = sim, log
        self._executor, self._apps, self._bidders, self._failures = executor, apps, bidders, failures
        self._drive = drive
        self._follows_up = sim.reporter.follows_up
        self._reports = self._follows_up or bool(sim.workload.regimes)
        """Whether jobs without an app master send reports between their arrival and end."""
        self.arrivals = arrivals
        self._alive = [0] * len(sim.rows.app_ids)
        """Number of jobs of each app that have not ended."""
        for job, app in enumerate(sim.rows.app_of):
            self._alive[app] += sim.jobs.state[job] != REJECTED
        self._has_masters = False
        self._wake_at = math.inf
        self._calls = sim.notes.numbers
        self._carry_out = executor.carry_out

    def note(self, notes: CallNotes) -> None:
        """Record the calls of plugins in other notes from now on."""
        self.sim.notes, self._calls = notes, notes.numbers

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> SimulatedRun:
        """Run until no event is left.

        Raises:
            PluginFailedError: a plugin failed, and faults are not tolerated.
            EunomiaError: the policy makes no progress; the error names policy and time.
        """
        if self.log.timings is not None:
            self.log.timings.begin()
        self._drive(self)
        self._end()
        self.log.end()
        return outcome(self.sim, self._executor.runs, self.log)

    def run_freely(self) -> None:
        """Step at every event and at every time that the arbiter requests, until all jobs are over."""
        sim = self.sim
        until, jobs, arrivals = sim.options.until, sim.jobs, self.arrivals
        while (now := Seconds(self._next_time())) <= until and now < math.inf:
            self._step(now)
            if not jobs.running and arrivals.next_time == math.inf and self.log.guard.is_out:
                sim.now = self.log.guard.moved_at
                return  # no job will ever start
            if jobs.over == arrivals.expected and not sim.gpus.busy and not sim.urgent:
                return

    def _next_time(self) -> float:
        sim, soon = self.sim, self._wake_at
        if sim.urgent:
            return sim.now
        if self.arrivals.next_time < soon:
            soon = self.arrivals.next_time
        if sim.agenda.heap and sim.agenda.heap[0][0] < soon:
            ends = sim.agenda.next_time(sim.work.turn)
            soon = ends if ends < soon else soon
        plan = self._failures
        if plan is None or (soon == math.inf and not sim.jobs.running and not plan.down and not plan.planned):
            return soon  # no machine that comes back or joins helps a job that waits now
        return min(soon, plan.next_time())

    def step_at(self, time_seconds: float, *, admits: bool = True) -> None:
        """Step at a boundary of a peer's round; ``admits``: process arrivals too, and repeat until nothing is due."""
        now = Seconds(time_seconds)
        self._step(now, admits=admits)
        while admits and self.sim.urgent:
            self._step(now)

    def _step(self, now: Seconds, *, admits: bool = True) -> None:
        sim = self.sim
        sim.now = now
        events = self._events(now, admits=admits)
        arbiter, jobs, log, timings = sim.arbiter, sim.jobs, self.log, self.log.timings
        before = sim.gpus.there - sim.gpus.busy, jobs.running, jobs.waiting, arbiter.calls
        began = 0 if timings is None else time.perf_counter_ns()
        decision = arbiter.step(now, events)
        self._calls[0] = 0  # no plugin is called until the next step
        if timings is not None:
            timings.step += time.perf_counter_ns() - began
        self._wake_at = decision.wake_at
        self._carry_out(decision, now)
        for offer in decision.offers:
            self._bidders.answer(offer, now)
        if sim.leases.dirty:
            self._apps.division.divide(now)
            self._has_masters = self._has_masters or bool(sim.apps.masters)
        if self._failures is not None:
            self._failures.stepped(now)
        log.add(decision, events, before)

    # --- what happens ----------------------------------------------------------------------------------------------

    def _events(self, now: Seconds, *, admits: bool) -> list[Event]:
        """Process everything that is due, and return the events of the step."""
        sim = self.sim
        events, sim.out, sim.urgent = sim.out, [], False
        # Events from before a machine failure get a step of their own, since within one step failures come first.
        fails = self._failures is not None and self._failures.next_time() <= now
        first = bool(events) and fails
        if not first:
            heap, arrivals = sim.agenda.heap, self.arrivals
            ended = (fails or (heap and heap[0][0] <= now)) and self._ends(now, events)
            if not ended and admits and arrivals.next_time <= now:
                arrivals.arrive(now, events)
        if self._has_masters:
            self._apps.report(now, events)
            self._apps.division.report(events)
        if sim.out:  # events that the events above caused
            events += sim.out
            sim.out = []
        sim.urgent = first
        if self._reports or self._has_masters:
            events = without_late_events(events, sim.rows.app_id_of)
        return events

    def _ends(self, now: Seconds, events: list[Event]) -> bool:
        """Process due entries of the agenda; return whether an ended job's GPUs become free only in a later step."""
        sim, executor = self.sim, self._executor
        heap, work, has_masters = sim.agenda.heap, sim.work, self._has_masters
        turns, on, done, goal, epoch = work.turn, work.on, work.done, work.goal, executor.runs.epoch
        ended = False
        if self._failures is not None:
            self._failures.happen(now)
        while heap and heap[0][0] <= now:
            _, _, happens, job, turn = _pop(heap)
            if happens is not None:
                happens(now)
                continue
            if turns[job] != turn:
                continue
            gpus = on[job]
            work.stop(job, now, at_border=True)
            if done[job] < goal[job]:
                self._next_regime(job, gpus, now, events)
            elif has_masters and sim.rows.app_of[job] in sim.apps.masters:
                self._apps.reached(job, gpus, now, events)
                ended = ended or not on[job]
            else:
                if executor.at_once and epoch[job] > 0:
                    if executor.runs.probes.leased:
                        gpus = executor.runs.probes.leased.get(job, gpus)
                    lease = sim.gpus.holder[gpus[0]]
                    sim.gpus.vacate(lease, gpus, now, "released")
                    self._finish_at_once(job, LeaseId(lease), gpus, events)
                else:  # the release takes time, or the app holds the lease
                    ended = True
                    self.finish_job(job, now, events)
        return ended

    def _next_regime(self, job: int, gpus: tuple[int, ...], now: Seconds, events: list[Event]) -> None:
        """Move a job to its next regime on the same GPUs."""
        sim = self.sim
        events.append(sim.reporter.adapted(job, sim.work.next_regime(job), now))
        events += sim.reporter.coming(job)
        sim.work.go_on(job, now, gpus)
        if self._follows_up:
            events += sim.reporter.ran(job, now)
            events += sim.reporter.profiled(job, again=True)

    def _finish_at_once(self, job: int, lease: LeaseId, gpus: tuple[int, ...], events: list[Event]) -> None:
        """End a job that has released its GPUs, and the app if this was its last job."""
        sim = self.sim
        app, epoch = sim.rows.app_of[job], Epoch(self._executor.runs.epoch[job])
        if self._alive[app] > 1:
            events.append(Released(lease=lease, epoch=epoch, gpus=gpus))
            self.finish_job(job, sim.now, events)
            return
        sim.jobs.close(job, FINISHED, sim.now)
        self._alive[app], sim.apps.finish[app] = 0, sim.now
        app_id, job_id = sim.rows.app_ids[app], sim.rows.job_ids[job]
        # The arbiter folds ends before starts, and need not sort events that arrive in that order.
        events.insert(0, _new_end(app=app_id, job=job_id, lease=lease, epoch=epoch, gpus=gpus))

    def finish_job(self, job: int, at: float, events: list[Event]) -> None:
        """End a job of an app without an app master, and the app if this was its last job."""
        sim = self.sim
        app = sim.rows.app_of[job]
        sim.jobs.close(job, FINISHED, at)
        events.append(JobFinished(job=sim.rows.job_ids[job]))
        self._alive[app] -= 1
        if self._alive[app] == 0:
            sim.apps.finish[app] = at
            events.append(AppFinished(app=sim.rows.app_ids[app]))

    # --- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Settle all totals; if the run is over, reject jobs that still wait or have no speed on their GPUs."""
        sim = self.sim
        now, jobs, work = sim.now, sim.jobs, sim.work
        over = self._next_time() == math.inf or self.log.guard.is_out
        for job, state in enumerate(jobs.state):
            if state == WAITING:
                jobs.still_waits(job, now)
                if over and not jobs.running:
                    self._reject(job)
            elif state == RUNNING and work.on[job]:
                stands = math.isinf(work.pace[job])
                work.stop(job, now)
                if over and stands:
                    rule = f"{sim.profile.name} must put a job where it makes progress"
                    jobs.state[job] = REJECTED
                    self.log.dropped.append(Unfit(job=job, rule=rule, value="no speed on its GPUs"))
        sim.gpus.settle(now)

    def _reject(self, job: int) -> None:
        sim = self.sim
        view = sim.arbiter.view
        row = view.job_row(sim.rows.job_ids[job])
        reason = view.verdict(row).reason if row >= 0 else None
        sim.jobs.state[job] = REJECTED
        rule = f"{sim.profile.name} must be able to start a job"
        self.log.dropped.append(Unfit(job=job, rule=rule, value="no reason" if reason is None else reason.word))
