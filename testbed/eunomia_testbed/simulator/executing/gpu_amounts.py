"""The CPUs and memory with which a job runs on GPUs: those of its placement, or those set by a retune."""

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.units import Reals, Seconds
from eunomia_testbed.simulator.executing.drawn_delays import DrawnDelays
from eunomia_testbed.simulator.executing.tunes import Tunes
from eunomia_testbed.simulator.simulation_state import SimulationState


class GpuAmounts:
    """CPUs and memory per GPU, for jobs whose speed depends on them.

    Args:
        sim: the state of the simulation.
        delays: delays of retunes.

    Attributes:
        plain: whether speeds do not depend on CPUs and memory.
    """

    def __init__(self, sim: SimulationState, delays: DrawnDelays) -> None:
        self._view = sim.arbiter.view
        self.plain = sim.speeds.plain
        self._cpus, self._memory_gib = _machine_shares(sim.cluster)
        self._cpu_cells, self._memory_cells = self._cpus.tolist(), self._memory_gib.tolist()
        self._tunes = Tunes(sim, delays, self.of)

    def hand_out(self, now: Seconds) -> None:
        """Send the retunes that the arbiter has ordered and that have not been sent yet."""
        self._tunes.hand_out(now)

    def of(self, gpus: tuple[int, ...]) -> tuple[float | None, float | None]:
        """Return the CPUs and the memory in GiB per GPU of a placement; None: they equal the machine's share."""
        if self.plain:
            return None, None
        held, cpus, memory_gib = self._view.gpus, self._cpu_cells, self._memory_cells
        set_now = self._tunes.of(gpus)
        if set_now is None:
            cpus_now, memory_now = held.cpus.data, held.memory_gib.data
            if not [gpu for gpu in gpus if cpus_now[gpu] != cpus[gpu] or memory_now[gpu] != memory_gib[gpu]]:
                return None, None
            set_now = held.cpus[list(gpus)], held.memory_gib[list(gpus)]
        rows = list(gpus)
        return _unusual(set_now[0], self._cpus[rows]), _unusual(set_now[1], self._memory_gib[rows])


def _machine_shares(cluster: Cluster) -> tuple[Reals, Reals]:
    """Return each GPU's share of its machine's CPUs and memory in GiB; 0: unknown, as in the holdings."""
    sizes = np.diff(cluster.machine_start)
    cpus, memory = np.nan_to_num(cluster.machine_cpus / sizes), np.nan_to_num(cluster.machine_memory_gib / sizes)
    return cpus[cluster.machine], memory[cluster.machine]


def _unusual(given: Reals, usual: Reals) -> float | None:
    """Return the mean of the given amounts; None: they equal the usual amounts."""
    return None if (given == usual).all() or np.allclose(given, usual) else float(given.mean())
