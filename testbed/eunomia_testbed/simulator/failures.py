"""Schedules failures, repairs and planned changes of machines, either listed or drawn from the seed."""

import math
from collections.abc import Callable
from heapq import heappop

import numpy as np

from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.units import Seconds
from eunomia_testbed.simulator.agenda import Agenda
from eunomia_testbed.simulator.options import Failures


class FailurePlan:
    """A schedule of machine failures, repairs and changes.

    Args:
        failures: known outages, and the mean times of random ones.
        cluster: the cluster with the machines.
        seed: seed of the draws; each machine has a generator of its own.
        lose: called with a failed machine's number and the time.
        repair: called with a repaired machine's number and the time.

    Raises:
        InputError: an outage names no machine of the cluster.
    """

    def __init__(
        self,
        failures: Failures,
        cluster: Cluster,
        seed: int,
        lose: Callable[[int, Seconds], None],
        repair: Callable[[int, Seconds], None],
    ) -> None:
        self._failures, self._lose, self._repair = failures, lose, repair
        self._agenda = Agenda()
        self.down: set[int] = set()
        """Indices of the machines that are down."""
        self.stepped: Callable[[Seconds], None] = lambda now: None
        """Called after each step of the run with its time."""
        self.planned = 0
        """Number of changes of the cluster that are still to come."""
        numbers = {machine.name: number for number, machine in enumerate(cluster.machines)}
        for outage in failures.outages:
            if outage.machine not in numbers:
                raise InputError("an outage must name a machine of the cluster", value=f'"{outage.machine}"')
            happens = self._comes_back if outage.up else self._goes_down
            number = numbers[outage.machine]
            self._agenda.call(outage.time_seconds, lambda now, h=happens, n=number: h(n, now))  # type: ignore[misc]
        if math.isfinite(failures.between_seconds):
            self._draws = [np.random.default_rng([seed, 0xFA11, number]) for number in range(len(cluster.machines))]
            for number in range(len(cluster.machines)):
                self._next(number, Seconds(0.0))

    def plan(self, time_seconds: float, happens: Callable[[Seconds], None]) -> None:
        """Schedule a change of the cluster; a run in which jobs wait continues until then."""

        def then(now: Seconds) -> None:
            self.planned -= 1
            happens(now)

        self.planned += 1
        self._agenda.call(time_seconds, then)

    def call(self, time_seconds: float, happens: Callable[[Seconds], None]) -> None:
        """Schedule a worker fault; it does not prolong a run in which no job runs."""
        self._agenda.call(time_seconds, happens)

    def next_time(self) -> float:
        """Return the time of the next failure, repair or change."""
        return self._agenda.next_time([])

    def happen(self, now: Seconds) -> None:
        """Carry out the failures, repairs and changes that are due."""
        while self.next_time() <= now:
            happens = heappop(self._agenda.heap)[2]
            if happens is not None:
                happens(now)

    def _goes_down(self, machine: int, now: Seconds) -> None:
        if machine not in self.down:
            self.down.add(machine)
            self._lose(machine, now)

    def _comes_back(self, machine: int, now: Seconds) -> None:
        if machine in self.down:
            self.down.discard(machine)
            self._repair(machine, now)

    def _next(self, machine: int, now: Seconds) -> None:
        lasts = float(self._draws[machine].exponential(self._failures.between_seconds))
        self._agenda.call(now + lasts, lambda then: self._fails(machine, then))

    def _fails(self, machine: int, now: Seconds) -> None:
        self._goes_down(machine, now)
        takes = float(self._draws[machine].exponential(self._failures.repair_seconds))
        self._agenda.call(now + takes, lambda then: self._mended(machine, then))

    def _mended(self, machine: int, now: Seconds) -> None:
        self._comes_back(machine, now)
        self._next(machine, now)
