"""The engine: moves virtual time from event to event, and drives the very arbiter that serves a live cluster.

It has no round mechanism of its own: it hands the arbiter what happened, carries out what was decided, and steps again
at the next event or when the arbiter asked to be woken. Everything of one moment is one step. Where the GPUs of a job
that ended come back at that moment by an order of the arbiter's, what arrives then waits for the step in which they do.
"""

import math
import time
from collections.abc import Callable
from heapq import heappop as _pop

import numpy as np

from eunomia.contract.decisions import Decision, RecordTable
from eunomia.contract.events import Adapted, AppFinished, Event, JobFinished, MachineBack, MachineLost
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry
from eunomia.round.arbiter import Arbiter
from eunomia.units import AppId, JobId, Seconds
from eunomia_testbed.performance import PerformanceModel
from eunomia_testbed.simulator.agenda import Agenda
from eunomia_testbed.simulator.apps import Apps
from eunomia_testbed.simulator.bids import Bidders
from eunomia_testbed.simulator.executor import Executor
from eunomia_testbed.simulator.failures import FailurePlan
from eunomia_testbed.simulator.faults import PluginFailedError
from eunomia_testbed.simulator.guard import check_plugins
from eunomia_testbed.simulator.late_events import without_late_events
from eunomia_testbed.simulator.livelock_guard import LivelockGuard
from eunomia_testbed.simulator.logs import Logs
from eunomia_testbed.simulator.options import Progress, SimulationOptions
from eunomia_testbed.simulator.outcome import Counts, outcome
from eunomia_testbed.simulator.reporting import Reporter
from eunomia_testbed.simulator.rounds import RuledRun
from eunomia_testbed.simulator.rules import Rules
from eunomia_testbed.simulator.run import SimulatedRun, Unfit
from eunomia_testbed.simulator.saves import PeriodicSaves
from eunomia_testbed.simulator.states import AWAITED, FINISHED, OVER, REJECTED, RUNNING, WAITING, JobStates
from eunomia_testbed.simulator.timing import Timings, timed
from eunomia_testbed.simulator.truth import Speeds
from eunomia_testbed.simulator.work import Work
from eunomia_testbed.workload import Workload

PROGRESS_STEPS = 256

Watch = Callable[["Engine", Decision], None]


class Engine:
    """One run of a workload under one profile.

    Args:
        workload: what arrives.
        cluster: where it runs.
        profile: who decides.
        options: of the simulation.
        models: a performance model; None: speeds are what the workload tells.
        seed: all randomness follows from it.
        progress: told from time to time how far the run is.
        registry: the plugins of the fallback; None: the profile's.
        watch: called after every step, such as with a check of invariants.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        profile: Profile,
        options: SimulationOptions,
        *,
        models: PerformanceModel | None = None,
        seed: int = 0,
        progress: Callable[[Progress], None] | None = None,
        registry: Registry | None = None,
        watch: Watch | None = None,
    ) -> None:
        options.check()
        check_plugins(profile)
        self.workload, self.cluster, self.profile, self.options, self.seed = workload, cluster, profile, options, seed
        self._gpus = cluster.gpus
        self.now = Seconds(0.0)
        self.timings = Timings() if options.keep.timings else None
        stages = profile.stages(cluster)
        fallback = Profile.fallback(registry=registry or profile.registry).stages(cluster)
        if self.timings is not None:
            stages = timed(stages, self.timings)
        self.arbiter = Arbiter(cluster, stages, fallback, seed=seed, plain=options.plain)
        self.speeds = Speeds(workload, cluster, models)
        jobs = workload.jobs
        self._ids: list[JobId] = list(map(JobId, jobs.id))
        self._app_ids: list[AppId] = list(map(AppId, workload.apps.id))
        self.rows = {name: row for row, name in enumerate(jobs.id)}
        self.app_rows = {name: row for row, name in enumerate(workload.apps.id)}
        self.app_of: list[int] = jobs.app.tolist()
        self.agenda = Agenda()
        batches = {row: tuple(one.batch_size for one in regimes) for row, regimes in workload.regimes.items()}
        self.logs = Logs(options.keep, cluster, workload.size, batches)
        self.jobs = JobStates(jobs.most.tolist(), self.logs.waits)
        saved = math.inf if options.failures is None else options.failures.checkpoint_every_seconds
        self.work = Work(
            workload,
            self.speeds,
            self.agenda,
            checkpoint_every=saved,
            saves=_saves(options, workload.size),
            segments=self.logs.segments,
        )
        self.executor = Executor(
            self.arbiter,
            self.work,
            self.agenda,
            options.costs,
            options.delays,
            np.random.default_rng([seed, 0xDE1A]),
            rows=self.rows,
            app_rows=self.app_rows,
            app_of=self.app_of,
            leases=self.logs.leases,
        )
        self.executor.began, self.executor.left = self.jobs.began, self.jobs.stood
        self.reporter = Reporter(
            workload, cluster, self.speeds, self.work, options.reports, divides=options.agents, seed=seed
        )
        self._follows_up = self.reporter.follows_up
        if self._follows_up:
            self.executor.ran = self._ran
        self._reports = self._follows_up or bool(workload.regimes)
        """Whether jobs without app master say anything between their arrival and their end."""
        self.apps = Apps(self)
        self._bidders = Bidders(self, options.answer_seconds)
        self._failures: FailurePlan | None = None
        if options.failures is not None:
            self._failures = FailurePlan(options.failures, cluster, seed, self.lose, self.repair)
        self._progress, self._watch = progress, watch
        self._observers = profile.observers()
        self.records: dict[str, list[tuple[float, int, RecordTable]]] = {}
        self.faults: list[str] = []
        self.fallback_round: int | None = None
        """The first round that the fallback decides; None: the profile decides all."""
        self.dropped: list[Unfit] = self.speeds.unfit()
        for unfit in self.dropped:
            self.jobs.state[unfit.job] = REJECTED
        self._arrival: list[float] = jobs.arrival_seconds.tolist()
        comes = np.argsort(jobs.arrival_seconds, kind="stable").tolist()
        self._order: list[int] = [job for job in comes if self.jobs.state[job] != REJECTED]
        self._next = 0
        self.next_arrival = self._arrival[self._order[0]] if self._order else math.inf
        self._alive = [0] * len(workload.apps.id)
        """By app, jobs that are not over."""
        for job, app in enumerate(self.app_of):
            self._alive[app] += self.jobs.state[job] != REJECTED
        self._here = [False] * len(workload.apps.id)
        self.app_finish = [math.nan] * len(workload.apps.id)
        self._has_masters = False
        self.counts = Counts()
        self._wake_at = math.inf
        self._livelock_guard = LivelockGuard(profile.name)

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> SimulatedRun:
        """Run until nothing is left to happen.

        Raises:
            PluginFailedError: a plugin failed, and that is not tolerated.
            EunomiaError: the policy makes no progress; it names policy and time.
        """
        if self.timings is not None:
            self.timings.begin()
        if self.options.rules is not None:
            RuledRun(self, self.options.rules).run()
        else:
            self._run()
        self._end()
        return outcome(self)

    def _run(self) -> None:
        until, executor = self.options.until, self.executor
        while (now := Seconds(self._next_time())) <= until and now < math.inf:
            self._step(now)
            if self._livelock_guard.is_out and not self.jobs.running and self.next_arrival == math.inf:
                self.now = self._livelock_guard.moved_at
                return  # nobody will ever start
            if self.jobs.over == len(self._order) and not executor.busy and not executor.urgent:
                return

    def _next_time(self) -> float:
        if self.executor.urgent:
            return self.now
        soon = self.agenda.next_time(self.work.turn)
        if self.next_arrival < soon:
            soon = self.next_arrival
        if self._wake_at < soon:
            soon = self._wake_at
        if self._failures is None or (soon == math.inf and not self.jobs.running and not self._failures.down):
            return soon  # whoever waits now will not be helped by a machine that comes back
        return min(soon, self._failures.next_time())

    def step_at(self, time_seconds: float, *, admits: bool = True) -> None:
        """Step at a boundary of a peer's round: all that has to follow at this moment, or only what is at hand."""
        now = Seconds(time_seconds)
        self._step(now, admits=admits)
        while admits and self.executor.urgent:
            self._step(now)

    def _step(self, now: Seconds, *, admits: bool = True) -> None:
        executor = self.executor
        self.now = now
        events, executor.out, executor.urgent = executor.out, [], False
        # What was so before a machine failed is folded before it: within one step failures come first.
        fails = self._failures is not None and self._failures.next_time() <= now
        first = bool(events) and fails
        if not first and not self._happen(now, events) and admits and self.next_arrival <= now:
            self._arrive(now, events)
        if self._has_masters:
            self.apps.report(now, events)
            self.apps.tell(events)
        if executor.out:  # what followed from what has just happened
            events += executor.out
            executor.out = []
        executor.urgent = first
        if self._reports or self._has_masters:
            events = without_late_events(events, self._app_id_of)
        free = self._gpus - executor.busy
        running, waiting, calls = self.jobs.running, self.jobs.waiting, self.arbiter.calls
        decision = self._ask(now, events)
        self._wake_at = decision.wake_at
        executor.carry_out(decision, now)
        for offer in decision.offers:
            self._bidders.answer(offer, now)
        if self.apps.dirty:
            self.apps.divide(now)
            self._has_masters = self._has_masters or bool(self.apps.masters)
        self._count(decision, events, free, running, waiting, calls)
        if self._watch is not None:
            self._watch(self, decision)

    def _ask(self, now: Seconds, events: list[Event]) -> Decision:
        timings = self.timings
        if timings is None:
            return self.arbiter.step(now, events)
        began = time.perf_counter_ns()
        decision = self.arbiter.step(now, events)
        timings.spent["step"] += time.perf_counter_ns() - began
        return decision

    # --- what others ask -------------------------------------------------------------------------------------------

    def job_id(self, job: int) -> JobId:
        """Id of a job."""
        return self._ids[job]

    def _app_id_of(self, job: JobId) -> AppId:
        return self._app_ids[self.app_of[self.rows[job]]]

    def has_arrived(self, job: int) -> bool:
        """Whether a job has come."""
        return self._arrival[job] <= self.now

    def active(self) -> list[int]:
        """Jobs that are here and not over."""
        return [job for job in self._order[: self._next] if self.jobs.state[job] not in OVER]

    # --- what happens ----------------------------------------------------------------------------------------------

    def _happen(self, now: Seconds, events: list[Event]) -> bool:
        """Let everything happen that is due; say whether a job ended whose GPUs come back with the next step."""
        heap, turns = self.agenda.heap, self.work.turn
        ended = False
        if self._failures is not None:
            self._failures.happen(now)
        while heap and heap[0][0] <= now:
            _, _, happens, job, turn = _pop(heap)
            if happens is not None:
                happens(now)
            elif turns[job] == turn and self._border(job, now, events):
                ended = True
        return ended

    def _border(self, job: int, now: Seconds, events: list[Event]) -> bool:
        """A job has come to the end of its work, or of a regime; say whether it ended and its GPUs are not back."""
        work = self.work
        gpus = work.on[job]
        work.stop(job, now, at_border=True)
        if not work.is_whole(job):
            events.append(Adapted(job=self._ids[job], batch_size=work.next_regime(job)))
            work.go_on(job, now, gpus)
            if self._follows_up:
                events.append(self.reporter.progress(job, now))
            return False
        if self._has_masters and self.app_of[job] in self.apps.masters:
            self.apps.reached(job, gpus, now, events)
            return not work.on[job]
        gone = self.executor.leave_by_itself(job, gpus, now)
        if gone is not None:
            events.append(gone)
        self.finish_job(job, now, events)
        return gone is None

    def finish_job(self, job: int, at: float, events: list[Event]) -> None:
        """A job of an app without master is done."""
        app = self.app_of[job]
        self.jobs.close(job, FINISHED, at)
        events.append(JobFinished(job=self._ids[job]))
        self._alive[app] -= 1
        if self._alive[app] == 0:
            self.app_finish[app] = at
            events.append(AppFinished(app=self._app_ids[app]))

    def _arrive(self, now: Seconds, events: list[Event]) -> None:
        order, arrival, here, rules = self._order, self._arrival, self._here, self.options.rules
        while self.next_arrival <= now:
            job = order[self._next]
            self._next += 1
            self.next_arrival = arrival[order[self._next]] if self._next < len(order) else math.inf
            app = self.app_of[job]
            if rules is not None:
                self._admit(job, now, rules)
            if self.apps.several and self.apps.speaks_for(app):
                if not here[app]:
                    here[app] = True
                    self.apps.arrive(app, now, events)
                elif self.jobs.state[job] == AWAITED:
                    self.apps.join(job, now, events)
            else:
                if not here[app]:
                    here[app] = True
                    events.append(self.reporter.arrived(app))
                events.append(self.reporter.added(job))
                self.jobs.wait(job, arrival[job] if rules is not None else now)
            if not self.speeds.plain:
                events += self.reporter.profiled(job)

    def _admit(self, job: int, now: Seconds, rules: Rules) -> None:
        change = rules.admitted(job, now)
        if change is not None:
            self.work.become(job, change.iterations_left, change.seconds_per_iteration)
            self.reporter.batch[job] = change.batch_size

    def _ran(self, job: int, now: Seconds) -> None:
        self.executor.out += self.reporter.ran(job, now)

    # --- machines --------------------------------------------------------------------------------------------------

    def lose(self, machine: int, now: Seconds) -> None:
        """A machine goes down."""
        start = self.cluster.machine_start
        out = self.executor.out
        out.append(MachineLost(machine=self.cluster.machines[machine].name))
        for job in self.executor.lose(range(int(start[machine]), int(start[machine + 1])), now):
            if self.jobs.state[job] == RUNNING:
                self.apps.lost(job, now, out)
                self.jobs.stood(job, now)
                out.append(self.reporter.progress(job, now))

    def repair(self, machine: int, now: Seconds) -> None:
        """A machine is back."""
        self.executor.out.append(MachineBack(machine=self.cluster.machines[machine].name))

    # --- accounts --------------------------------------------------------------------------------------------------

    def _count(
        self, decision: Decision, events: list[Event], free: int, running: int, waiting: int, calls: int
    ) -> None:
        counts, logs, now = self.counts, self.logs, self.now
        counts.steps += 1
        counts.events += len(events)
        if decision.causes:
            quiet = self.arbiter.calls == calls
            counts.rounds += 1
            counts.quiet += quiet
            if logs.rounds is not None:
                logs.rounds.add(decision, now, free, running, waiting, quiet=quiet)
            if decision.waiting and logs.waits is not None:
                logs.waits.hear(decision, self.rows, now)
            if decision.records and self.options.keep.records:
                self._record(decision)
            for name, observe in self._observers:
                self._tell(name, observe, decision)
        if decision.faults:
            self._fault(decision)
        if logs.queue is not None:
            logs.queue.add(now, self.jobs.waiting, self.jobs.waiting_gpus, self.executor.busy)
        self._livelock_guard.watch(now, decision, events, self.jobs.moves)
        if self._progress is not None and counts.steps % PROGRESS_STEPS == 0:
            self._progress(Progress(finished=self.jobs.over, jobs=self.workload.size, time_seconds=now))

    def _record(self, decision: Decision) -> None:
        for record in decision.records:
            self.records.setdefault(record.plugin, []).append((self.now, decision.round, record))

    def _tell(self, name: str, observe: Callable[[Decision], None], decision: Decision) -> None:
        try:
            observe(decision)
        except Exception as error:
            self.faults.append(f"round {decision.round}: observer {name}: {type(error).__name__}: {error}")
            if self.arbiter.strict:
                raise

    def _fault(self, decision: Decision) -> None:
        for fault in decision.faults:
            if fault.stage is not None and not self.options.tolerate_faults:
                raise PluginFailedError(fault, f"{self.profile.name}, seed {self.seed}, round {decision.round}")
            who = f"{fault.plugin} ({fault.stage.value})" if fault.stage is not None else "an event"
            self.faults.append(f"round {decision.round}: {who}: {fault.what}")

        if self.fallback_round is None and self.arbiter.state.fallen_back:
            self.fallback_round = decision.round + 1

    def _end(self) -> None:
        """Book what stands at the end; who waits and was never started counts as rejected, with its last verdict."""
        now = self.now
        over = self._next_time() == math.inf or self._livelock_guard.is_out
        for job, state in enumerate(self.jobs.state):
            if state == WAITING:
                self.jobs.still_waits(job, now)
                if over and not self.jobs.running:
                    self._reject(job)
            elif state == RUNNING and self.work.on[job]:
                stands = math.isinf(self.work.pace[job])
                self.work.stop(job, now)
                if over and stands:
                    rule = f"{self.profile.name} must put a job where it makes progress"
                    self.jobs.state[job] = REJECTED
                    self.dropped.append(Unfit(job=job, rule=rule, value="no speed on its GPUs"))
        self.executor.settle(now)
        if self._progress is not None:
            self._progress(Progress(finished=self.jobs.over, jobs=self.workload.size, time_seconds=now))

    def _reject(self, job: int) -> None:
        row = self.arbiter.state.job_row(self._ids[job])
        reason = self.arbiter.state.reason(row) if row >= 0 else None
        self.jobs.state[job] = REJECTED
        said = "no reason" if reason is None else reason.word
        self.dropped.append(Unfit(job=job, rule=f"{self.profile.name} must be able to start a job", value=said))


def _saves(options: SimulationOptions, jobs: int) -> PeriodicSaves | None:
    """Checkpoints that take time, where they were asked for; a peer's rules have none."""
    costs = options.costs
    if math.isinf(costs.checkpoint_every) or options.rules is not None:
        return None
    return PeriodicSaves(jobs, costs.checkpoint_every, costs.checkpoint)
