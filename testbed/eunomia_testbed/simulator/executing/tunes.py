"""Carries out retunes, which change CPUs and memory of leases that keep their GPUs, without cost or restart."""

from collections.abc import Callable

import numpy as np

from eunomia.contract.events import Retuned
from eunomia.units import NONE, Epoch, LeaseId, Reals, Seconds
from eunomia_testbed.simulator.executing.drawn_delays import DrawnDelays
from eunomia_testbed.simulator.simulation_state import SimulationState

Given = dict[int, tuple[float, float]]
"""CPUs and memory in GiB by GPU."""


class Tunes:
    """The CPUs and memory that retunes have set on GPUs.

    Args:
        sim: the state of the simulation.
        delays: delays of orders, and lost answers.
        beside: returns the CPUs and memory in GiB per GPU with which a job now runs on given GPUs.
    """

    def __init__(
        self,
        sim: SimulationState,
        delays: DrawnDelays,
        beside: Callable[[tuple[int, ...]], tuple[float | None, float | None]],
    ) -> None:
        self._sim, self._delays, self._beside = sim, delays, beside
        self._view = sim.arbiter.view
        self._handed: dict[int, int] = {}
        self._set: dict[int, tuple[int, Given]] = {}
        """The epoch of each lease's newest retune, and the amounts that it set."""

    def hand_out(self, now: Seconds) -> None:
        """Send the orders that have not been sent yet, with amounts from the current state, as for starts."""
        view, delays = self._view, self._delays
        for number in sorted(view.amounts.tuning):
            lease = view.lease(number)
            if lease is None or self._handed.get(number, NONE) >= lease.tuned:
                continue
            self._handed[number] = epoch = lease.tuned
            cpus, memory_gib = view.amounts.of(number)
            pairs = zip(cpus.tolist(), memory_gib.tolist(), strict=True)
            given = dict(zip(lease.gpus.tolist(), pairs, strict=True))
            if delays.orders_are_late:
                call = _Call(self, number, epoch, given)
                self._sim.agenda.call(now + delays.order_seconds(), call)
            else:
                self.set(number, epoch, given, now)

    def set(self, lease: int, epoch: int, given: Given, now: Seconds) -> None:
        """Set the CPUs and memory of a lease, unless a newer order has arrived; its job changes speed."""
        if epoch > self._set.get(lease, (NONE, {}))[0]:
            self._set[lease] = epoch, given
            held = self._view.lease(lease)
            if held is not None and held.job != NONE:
                self._change_speed(self._sim.rows.jobs[self._view.job_id(held.job)], now)
        self._confirm(lease, epoch, given, now)

    def of(self, gpus: tuple[int, ...]) -> tuple[Reals, Reals] | None:
        """Return the CPUs and memory in GiB that a retune set on a lease's GPUs; None: those of its start apply."""
        if not self._set:
            return None
        lease = self._view.lease(self._view.gpus.lease.item(gpus[0]))
        if lease is None or lease.id not in self._set:
            return None
        epoch, given = self._set[lease.id]
        if epoch < lease.epoch or not all(gpu in given for gpu in gpus):
            return None  # the lease has begun with other GPUs or amounts since then
        return np.array([given[gpu][0] for gpu in gpus]), np.array([given[gpu][1] for gpu in gpus])

    def _change_speed(self, job: int, now: Seconds) -> None:
        work = self._sim.work
        gpus = work.on[job]
        if gpus:
            work.stop(job, now, leaves=False)
            work.go(job, now, gpus, *self._beside(gpus))

    def _confirm(self, lease: int, epoch: int, given: Given, now: Seconds) -> None:
        if self._delays.loses_an_answer():
            self._sim.agenda.call(now + self._delays.again, lambda then: self._confirm(lease, epoch, given, then))
            return
        cpus, memory_gib = (tuple(pair[which] for pair in given.values()) for which in (0, 1))
        self._sim.out.append(
            Retuned(lease=LeaseId(lease), epoch=Epoch(epoch), gpus=tuple(given), cpus=cpus, memory_gib=memory_gib)
        )
        self._sim.urgent = True


class _Call:
    """A delayed retune, carried out when it is called."""

    def __init__(self, tunes: Tunes, lease: int, epoch: int, given: Given) -> None:
        self._tunes, self._order = tunes, (lease, epoch, given)

    def __call__(self, now: Seconds) -> None:
        self._tunes.set(*self._order, now)
