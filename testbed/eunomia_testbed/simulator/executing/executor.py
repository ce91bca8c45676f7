"""The executor: tracks the processes on each GPU, and carries out decisions with the configured costs and delays.

The arbiter learns about the results only through events. If changes cost no time, orders are carried out at once, and
their events are passed on in the next step, each with the time at which it occurred.
"""

from collections.abc import Callable

from eunomia.contract.decisions import Decision
from eunomia.units import Seconds
from eunomia_testbed.simulator.executing.answers import Answers
from eunomia_testbed.simulator.executing.drawn_delays import DrawnDelays
from eunomia_testbed.simulator.executing.free_orders import FreeOrders
from eunomia_testbed.simulator.executing.gpu_amounts import GpuAmounts
from eunomia_testbed.simulator.executing.gpu_table import NO_HOLDER
from eunomia_testbed.simulator.executing.job_runs import JobRuns
from eunomia_testbed.simulator.executing.timed_orders import TimedOrders
from eunomia_testbed.simulator.simulation_state import SimulationState


class Executor:
    """The executor of a simulation: starts and stops the processes of leases and jobs on GPUs.

    Args:
        sim: the state of the simulation.

    Attributes:
        at_once: whether GPUs are free at the moment at which their release is ordered.
        runs: the runs of jobs.
        carry_out: carries out a decision: orders processes to leave GPUs, and starts the leases that are ready.
    """

    def __init__(self, sim: SimulationState) -> None:
        costs, delays = sim.options.costs, sim.options.delays
        self._sim = sim
        self.at_once = costs.release == 0.0 and costs.checkpoint == 0.0 and not delays.any
        drawn = DrawnDelays(delays, sim.seed)
        amounts = GpuAmounts(sim, drawn)
        self.runs = JobRuns(sim, drawn, amounts)
        answers = Answers(sim, drawn, at_once=self.at_once)
        timed = TimedOrders(sim, self.runs, answers, drawn, amounts)
        free = FreeOrders(sim, self.runs, answers, timed, amounts)
        self.carry_out: Callable[[Decision, Seconds], None] = free.carry_out if self.at_once else timed.carry_out

    def lose(self, gpus: range, now: Seconds) -> list[int]:
        """Remove all processes from the GPUs of a failed machine; return the jobs that ran or were starting there.

        The GPUs are fenced before they count as lost, so that orders in transit find a newer epoch.
        """
        sim, table = self._sim, self._sim.gpus
        epoch = sim.arbiter.view.last_epoch + 1
        hit = sorted({table.job_on[gpu] for gpu in gpus} - {NO_HOLDER})
        for gpu in gpus:
            table.fence[gpu] = epoch
            if table.holder[gpu] != NO_HOLDER:
                mine = sim.leases.shared.get(table.app_on[gpu], {})
                mine.pop(gpu, None)
                table.vacate(table.holder[gpu], [gpu], now, "lost")
        self.runs.lose(hit, epoch, now)
        return hit
