"""The observer protocol of a run: what an observer sees, and when."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from eunomia.contract.decisions import Decision
from eunomia_testbed.simulator.options import Progress
from eunomia_testbed.simulator.simulation_state import SimulationState

PROGRESS_STEPS: Final = 256
"""Number of steps between two reports of progress."""


class RunObserver(Protocol):
    """An observer of a whole run, which must not change it: a run with observers equals a run without them."""

    def stepped(self, sim: SimulationState, decision: Decision) -> None:
        """Observe a step after its decision has been carried out."""
        ...

    def ended(self, sim: SimulationState) -> None:
        """Observe the end, once, after the last step and before the results are computed."""
        ...


class ProgressObserver:
    """An observer that reports the progress of a run regularly.

    Args:
        report: called every ``PROGRESS_STEPS`` steps, and at the end.
    """

    def __init__(self, report: Callable[[Progress], None]) -> None:
        self._report = report
        self._steps = 0

    def stepped(self, sim: SimulationState, decision: Decision) -> None:
        """Report progress every ``PROGRESS_STEPS`` steps."""
        self._steps += 1
        if self._steps % PROGRESS_STEPS == 0:
            self.ended(sim)

    def ended(self, sim: SimulationState) -> None:
        """Report the final progress."""
        self._report(Progress(finished=sim.jobs.over, jobs=sim.workload.size, time_seconds=sim.now))


Observers = Sequence[RunObserver]
