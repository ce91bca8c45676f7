"""Machine failures and repairs in a simulation."""

from eunomia.contract.events import MachineBack, MachineLost
from eunomia.units import Seconds
from eunomia_testbed.simulator.apps.apps import SimulatedApps
from eunomia_testbed.simulator.executing.executor import Executor
from eunomia_testbed.simulator.progress.states import RUNNING
from eunomia_testbed.simulator.simulation_state import SimulationState


class MachineFaults:
    """Carries out failures and repairs of machines.

    Args:
        sim: the state of the simulation.
        executor: stops what runs on a machine.
        apps: the apps with jobs that lose GPUs.
    """

    def __init__(self, sim: SimulationState, executor: Executor, apps: SimulatedApps) -> None:
        self._sim, self._executor, self._apps = sim, executor, apps

    def lose(self, machine: int, now: Seconds) -> None:
        """Take a machine down."""
        sim = self._sim
        start, out = sim.cluster.machine_start, sim.out
        out.append(MachineLost(machine=sim.cluster.machines[machine].name))
        for job in self._executor.lose(range(int(start[machine]), int(start[machine + 1])), now):
            if sim.jobs.state[job] == RUNNING:
                self._apps.lost(job, now, out)
                sim.jobs.left_gpus(job, now)
                out.append(sim.reporter.progress(job, now))

    def repair(self, machine: int, now: Seconds) -> None:
        """Brings a machine back."""
        self._sim.out.append(MachineBack(machine=self._sim.cluster.machines[machine].name))
