"""Machine failures, repairs and planned changes in a simulation."""

from eunomia.contract.events import MachineBack, MachineJoined, MachineLeft, MachineLost
from eunomia.units import NONE, Seconds
from eunomia_testbed.simulator.apps.apps import SimulatedApps
from eunomia_testbed.simulator.executing.executor import Executor
from eunomia_testbed.simulator.machine_changes import Change
from eunomia_testbed.simulator.progress.states import RUNNING
from eunomia_testbed.simulator.simulation_state import SimulationState


class MachineFaults:
    """An executor of failures and repairs of machines, and of changes by which machines join and leave.

    Args:
        sim: the state of the simulation.
        executor: stops the processes on a machine.
        apps: the apps with jobs that lose GPUs.
    """

    def __init__(self, sim: SimulationState, executor: Executor, apps: SimulatedApps) -> None:
        self._sim, self._executor, self._apps = sim, executor, apps

    def lose(self, machine: int, now: Seconds) -> None:
        """Take a machine down, if it is part of the cluster."""
        name = self._sim.cluster.machines[machine].name
        if self._is_there(name):
            self._end(machine, MachineLost(machine=name), now)

    def repair(self, machine: int, now: Seconds) -> None:
        """Bring a machine back, if it is part of the cluster."""
        name = self._sim.cluster.machines[machine].name
        if self._is_there(name):
            self._sim.out.append(MachineBack(machine=name))

    def change(self, event: Change, now: Seconds) -> None:
        """Carry out a planned change; the processes on a machine that leaves are lost."""
        sim = self._sim
        number = sim.cluster.number_of(event.machine)
        if isinstance(event, MachineLeft):
            sim.gpus.there -= len(sim.cluster.gpus_on(number))
            self._end(number, event, now)
            return
        if isinstance(event, MachineJoined):
            sim.gpus.there += len(sim.cluster.gpus_on(number))
        sim.out.append(event)

    def _is_there(self, machine: str) -> bool:
        return self._sim.arbiter.view.cluster.number_of(machine) != NONE

    def _end(self, machine: int, event: MachineLost | MachineLeft, now: Seconds) -> None:
        """Remove all processes from a machine, and report the event and the progress of the jobs that ran there."""
        sim, out = self._sim, self._sim.out
        out.append(event)
        for job in self._executor.lose(sim.cluster.gpus_on(machine), now):
            if sim.jobs.state[job] == RUNNING:
                self._apps.lost(job, now, out)
                sim.jobs.left_gpus(job, now)
                out.append(sim.reporter.progress(job, now))
