"""Runs a simulation in rounds, under the rules of another simulator (see ``rules``)."""

import math

import numpy as np

from eunomia.contract.events import Event, JobReported, JobResumed, RoundEnded
from eunomia.errors import EunomiaError
from eunomia.units import Bools, Ints, Reals
from eunomia_testbed.simulator.engine import Engine
from eunomia_testbed.simulator.rules import Change, RoundJobs, Rules
from eunomia_testbed.simulator.simulation_state import SimulationState

IDLE_ROUNDS = 500
"""Number of consecutive boundaries without a running or arriving job after which a run ends."""


class RuledRun:
    """The loop of one run in rounds.

    Args:
        engine: the engine of the run.
        rules: the round rules.
    """

    def __init__(self, engine: "Engine", rules: Rules) -> None:
        self._engine, self._rules = engine, rules
        self._sim: SimulationState = engine.sim
        self._before: dict[int, tuple[int, ...]] = {}
        self._number = 0

    def run(self) -> None:
        """Run until no event is left.

        Raises:
            EunomiaError: a round does not end later than it began.
        """
        engine, sim, rules = self._engine, self._sim, self._rules
        rules.begin(sim.workload.size, sim.seed)
        sim.work.by_rules = True
        now = rules.next_round(0.0, engine.arrivals.next_time)
        self._later([RoundEnded()])  # the arbiter decides the first round at the first time
        idle = 0
        while now <= sim.options.until and now < math.inf:
            engine.step_at(now)
            running = self._running(now)
            if running.job.size == 0:
                idle += 1
                now = self._next(now)
                if idle > IDLE_ROUNDS and engine.arrivals.next_time == math.inf:
                    break
                continue
            idle = 0
            now = self._round(running)

    def _next(self, now: float) -> float:
        """Return the time after a round in which no job runs; inf: the run is over."""
        engine = self._engine
        if engine.arrivals.next_time == math.inf and not self._sim.jobs.waiting:
            return math.inf
        after = self._rules.next_round(now, engine.arrivals.next_time)
        if not after > now:
            raise EunomiaError("a round must begin later than the last", value=str(after), place=f"at {now} s")
        self._before = {}
        self._number += 1
        self._later([RoundEnded()])
        return after

    def _running(self, now: float) -> RoundJobs:
        """Return the jobs that run from now on."""
        sim, work, types = self._sim, self._sim.work, self._sim.cluster.gpu_type
        jobs = [job for job in sorted(sim.gpus.standing()) if work.on[job]]
        on = [work.on[job] for job in jobs]
        before = self._before
        made = RoundJobs(
            number=self._number,
            began=now,
            job=np.array(jobs, dtype=np.int64),
            gpus=np.array([len(gpus) for gpus in on], dtype=np.int64),
            gpu_type=np.array([int(types[gpus[0]]) for gpus in on], dtype=np.int64),
            iterations_left=np.array([work.goal[job] - work.done[job] for job in jobs]),
            seconds_per_iteration=np.array([work.pace[job] for job in jobs]),
            fresh=np.array([job not in before for job in jobs], dtype=bool),
            moved=np.array([before.get(job, gpus) != gpus for job, gpus in zip(jobs, on, strict=True)], dtype=bool),
        )
        self._before = dict(zip(jobs, on, strict=True))
        return made

    def _round(self, running: RoundJobs) -> float:
        """Simulate a round and return its end in seconds."""
        worked = self._rules.work(running)
        end = float(self._rules.round_ends(running, worked))
        if not end > running.began:
            raise EunomiaError("a round must end later than it began", value=str(end), place=f"at {running.began} s")
        engine, sim, work = self._engine, self._sim, self._sim.work
        ends = worked.iterations >= running.iterations_left if worked.ends is None else worked.ends
        busy = worked.seconds if worked.busy_seconds is None else worked.busy_seconds
        over: list[Event] = []
        rows = zip(
            running.job.tolist(),
            worked.iterations.tolist(),
            worked.seconds.tolist(),
            busy.tolist(),
            ends.tolist(),
            strict=True,
        )
        for job, iterations, seconds, ran, ended in rows:
            work.book(job, running.began, end, iterations, ran, ended=ended)
            if ended:
                engine.finish_job(job, running.began + seconds, over)
        changed = self._rules.changes(running, worked, self._active())
        self._number += 1
        if over:
            # Reports of ended jobs are dropped, since the arbiter applies their ends first.
            gone = {sim.rows.job_ids[job] for job in running.job[ends].tolist()}
            out = [event for event in sim.out if not (isinstance(event, JobReported) and event.job in gone)]
            sim.out = out + over
            engine.step_at(end, admits=False)
        progress = sim.reporter.progress
        reports = [progress(job, end) for job in running.job[~ends].tolist()]
        changed_events = [event for change in changed for event in self.change(change, end)]
        self._later([*reports, *changed_events, self._ended(running, busy, end, ends)])
        return end

    def _active(self) -> Ints:
        return np.array(self._engine.arrivals.active(), dtype=np.int64)

    def _ended(self, running: RoundJobs, busy: Reals, end: float, ends: Bools) -> RoundEnded:
        """Return the event of the round's end, with the idle seconds of each job that continues."""
        lasted = end - running.began
        idle = np.flatnonzero(~ends & (busy < lasted))
        return RoundEnded(
            jobs=tuple([self._sim.rows.job_ids[job] for job in running.job[idle].tolist()]),
            idle_seconds=tuple((lasted - busy[idle]).tolist()),
        )

    def change(self, change: Change, now: float) -> list[Event]:
        """Apply a change of batch size, and return the events that report it."""
        job = change.job
        reporter = self._sim.reporter
        self._sim.work.become(job, change.iterations_left, change.seconds_per_iteration)
        name = self._sim.rows.job_ids[job]
        return [
            reporter.adapted(job, change.batch_size, now),
            JobResumed(job=name, iterations=reporter.jobs.whole(job)),
            *(reporter.coming(job, self._rules.coming(job)) if reporter.knows_regimes else ()),
            reporter.progress(job, now),
            *reporter.again(job, change.seconds_per_iteration),
        ]

    def _later(self, events: list[Event]) -> None:
        self._sim.out += events


def run_in_rounds(engine: Engine, rules: Rules) -> None:
    """Run an engine from start to end under the round rules of another simulator.

    Raises:
        EunomiaError: a round does not end later than it began.
    """
    RuledRun(engine, rules).run()
