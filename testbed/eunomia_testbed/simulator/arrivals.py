"""The arrivals of a workload: jobs and apps are registered with the arbiter, or with their app masters."""

import math

import numpy as np

from eunomia.contract.events import Event, SingleJobArrived
from eunomia.model.shapes import maker
from eunomia.units import Seconds
from eunomia_testbed.simulator.apps.amount_reports import AmountReports
from eunomia_testbed.simulator.apps.apps import SimulatedApps
from eunomia_testbed.simulator.apps.masters import Masters
from eunomia_testbed.simulator.progress.states import AWAITED, OVER, REJECTED
from eunomia_testbed.simulator.rules import Rules
from eunomia_testbed.simulator.simulation_state import SimulationState

_new_arrival = maker(SingleJobArrived)


class Arrivals:
    """The jobs of a run, in order of arrival.

    Args:
        sim: the state of the simulation; a job that was rejected beforehand never arrives.
        apps: passes arrivals to app masters.
        masters: the app masters, by app.
        kinds: reports the rates of a job kind before its first job.

    Attributes:
        kinds: reports the rates of job kinds.
        next_time: time at which the next job arrives, in seconds; inf: all have arrived.
        expected: number of jobs that arrive over the whole run.
    """

    def __init__(self, sim: SimulationState, apps: SimulatedApps, masters: Masters, kinds: AmountReports) -> None:
        self._sim, self._apps, self._masters, self.kinds, self._rules = sim, apps, masters, kinds, sim.options.rules
        comes = np.argsort(sim.workload.jobs.arrival_seconds, kind="stable").tolist()
        self._order: list[int] = [job for job in comes if sim.jobs.state[job] != REJECTED]
        self._next, self.expected = 0, len(self._order)
        self.next_time = sim.rows.arrival[self._order[0]] if self._order else math.inf
        self._is_here = [False] * len(sim.rows.app_ids)
        """Whether each app has arrived."""
        self._announces = sim.reporter.knows_regimes

    def arrive(self, now: Seconds, events: list[Event]) -> None:
        """Register the jobs and apps that are due, and append their events to ``events``."""
        sim, order, arrival = self._sim, self._order, self._sim.rows.arrival
        while self.next_time <= now:
            job = order[self._next]
            self._next += 1
            self.next_time = arrival[order[self._next]] if self._next < self.expected else math.inf
            if self.kinds.are_due:
                events += self.kinds.of(job)
            if self._rules is not None:
                self._admit(job, now, self._rules)
            app = sim.rows.app_of[job]
            if self._masters.several and self._masters.speaks_for(app):
                if not self._is_here[app]:
                    self._is_here[app] = True
                    self._apps.arrive(app, now, events)
                elif sim.jobs.state[job] == AWAITED:
                    self._apps.join(job, now, events)
            else:
                self._register(job, app, now, events)
            if not sim.speeds.plain:
                events += sim.reporter.profiled(job)

    def _register(self, job: int, app: int, now: Seconds, events: list[Event]) -> None:
        """Register a job of an app without an app master."""
        sim, rules = self._sim, self._rules
        added = sim.reporter.jobs.added(job)
        if self._is_here[app]:
            events.append(added)
        else:
            self._is_here[app] = True
            events.append(_new_arrival(arrival=sim.reporter.apps.arrived(app), job=added))
        sim.jobs.wait(job, now if rules is None else sim.rows.arrival[job])
        if self._announces:
            events += sim.reporter.coming(job, None if rules is None else rules.coming(job))

    def _admit(self, job: int, now: Seconds, rules: Rules) -> None:
        change = rules.admitted(job, now)
        if change is not None:
            self._sim.work.become(job, change.iterations_left, change.seconds_per_iteration)
            self._sim.reporter.jobs.batch[job] = change.batch_size

    def active(self) -> list[int]:
        """Return the jobs that have arrived and not ended, in order of arrival."""
        return [job for job in self._order[: self._next] if self._sim.jobs.state[job] not in OVER]
