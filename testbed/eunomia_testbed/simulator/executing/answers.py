"""The executor's answers to the arbiter: a lease's processes have started or left their GPUs."""

from eunomia.contract.decisions import Transition
from eunomia.contract.events import Released, Resized, Started
from eunomia.model.shapes import maker
from eunomia.units import NONE, Epoch, LeaseId, Seconds
from eunomia_testbed.simulator.executing.drawn_delays import DrawnDelays
from eunomia_testbed.simulator.simulation_state import SimulationState

_new_start = maker(Started)


class Answers:
    """A sender of answers to the arbiter; lost ones are sent again.

    Args:
        sim: the state of the simulation.
        delays: decides which answers are lost.
        at_once: whether GPUs are free at the moment at which their release is ordered.
    """

    def __init__(self, sim: SimulationState, delays: DrawnDelays, *, at_once: bool) -> None:
        self._sim, self._delays, self._at_once = sim, delays, at_once
        self._held = sim.arbiter.view.gpus
        self._started: set[int] = set()
        """Leases that have started at least once."""

    def started(self, lease: LeaseId, epoch: Epoch, now: Seconds) -> None:
        """Answer that the processes of a lease run on all its GPUs."""
        if self._delays.loses_an_answer():
            self._sim.agenda.call(now + self._delays.again, lambda then: self.started(lease, epoch, then))
        else:
            self._sim.out.append(self.start_of(lease, epoch, now))

    def start_of(self, lease: LeaseId, epoch: Epoch, now: Seconds) -> Started | Resized:
        """Return the answer to a start: ``Started`` for the lease's first start, or else ``Resized``."""
        if lease in self._started:
            return Resized(lease=lease, epoch=epoch, at=now)
        self._started.add(lease)
        return _new_start(lease=lease, epoch=epoch, at=now)

    def released(self, order: Transition, gpus: tuple[int, ...], now: Seconds) -> None:
        """Answer that the processes of a lease have left these GPUs."""
        if self._delays.loses_an_answer():
            self._sim.agenda.call(now + self._delays.again, lambda then: self.released(order, gpus, then))
            return
        self._sim.out.append(Released(lease=order.lease, epoch=order.fence, gpus=gpus, at=now))
        # If orders take effect at once, a successor has already begun; otherwise it begins after this answer.
        if not self._at_once or self.need_a_round(gpus):
            self._sim.urgent = True

    def need_a_round(self, gpus: tuple[int, ...]) -> bool:
        """Return whether one of these GPUs has no successor lease yet, so that the arbiter can assign it in a round."""
        successor = self._held.successor.data  # plain numbers, a cell at a time
        return NONE in [successor[gpu] for gpu in gpus]
