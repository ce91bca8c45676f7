"""Live shrinks: a job that loses GPUs continues on its remaining GPUs without saving a checkpoint."""

import numpy as np

from eunomia.contract.decisions import Transition
from eunomia.units import Ints, Seconds
from eunomia_testbed.simulator.executing.drawn_delays import DrawnDelays
from eunomia_testbed.simulator.executing.gpu_table import NO_HOLDER
from eunomia_testbed.simulator.executing.job_runs import JobRuns
from eunomia_testbed.simulator.simulation_state import SimulationState


class LiveShrinks:
    """The jobs that are paused since an order took GPUs from them, until they continue on their remaining GPUs.

    Args:
        sim: the state of the simulation.
        runs: starts and stops jobs.
        delays: random fractions of costs.
    """

    def __init__(self, sim: SimulationState, runs: JobRuns, delays: DrawnDelays) -> None:
        self._sim, self._runs, self._delays = sim, runs, delays
        self._pause = sim.options.costs.pause
        self._least: Ints = sim.workload.jobs.least
        self._still: dict[int, int] = {}
        """Fence of the order that paused each job."""

    def may(self, order: Transition, job: int) -> bool:
        """Return whether a running job keeps at least its smallest gang without the GPUs that it loses."""
        return order.job is not None and len(self._kept(order, job)) >= int(self._least[job])

    def shrink(self, order: Transition, job: int, now: Seconds) -> float:
        """Stop a job until its gang is reassembled; return the seconds that this takes."""
        kept = self._kept(order, job)
        leaving = sorted(set(self._sim.work.on[job]) - set(kept))
        self._sim.work.stop(job, now)
        pause = self._delays.cost_seconds(self._pause)
        self._still[job] = order.fence
        self._sim.agenda.call(now + pause, lambda then: self._go_on(job, kept, leaving, order.fence, then))
        return pause

    def forget(self, job: int) -> None:
        """Cancel the planned continuation of a paused job, since a newer order replaces it."""
        self._still.pop(job, None)

    def _kept(self, order: Transition, job: int) -> tuple[int, ...]:
        """Return the GPUs on which a job runs and that it keeps; empty if the order ends its lease."""
        lost = set(order.listed["leaving"])
        return tuple(gpu for gpu in self._sim.work.on[job] if gpu not in lost) if order.listed["gpus"] else ()

    def _go_on(self, job: int, kept: tuple[int, ...], leaving: list[int], fence: int, now: Seconds) -> None:
        if self._still.get(job) != fence:
            return
        del self._still[job]
        here = np.array([self._sim.gpus.job_on[gpu] == job for gpu in kept])
        if not self._sim.work.on[job] and bool(here.all()):
            mine = [gpu for gpu in leaving if self._sim.gpus.job_on[gpu] == job]
            self._sim.gpus.assign(NO_HOLDER, mine, now)
            self._runs.go(job, kept, now)
