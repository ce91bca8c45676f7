"""Faults that kill or stop a single worker in a simulation, while the rest of the machine keeps running."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from eunomia.contract.decisions import TransitionKind
from eunomia.units import Epoch, LeaseId, Seconds
from eunomia_testbed.simulator.executing.executor import Executor
from eunomia_testbed.simulator.options import WorkerFault
from eunomia_testbed.simulator.progress.states import RUNNING
from eunomia_testbed.simulator.simulation_state import SimulationState

AGAIN_SECONDS: Final = 0.5
"""Seconds between the times at which a fault may happen once a job makes steps again."""


class WorkerFaults:
    """Carries out faults of single workers; the whole gang pauses with the worker, and keeps its GPUs.

    Args:
        sim: the state of the simulation.
        executor: starts and stops jobs.
        most: most faults of one job.
        later: schedules another attempt, at a time in seconds.

    Faults that wait for a job cause no steps of the run.
    """

    def __init__(
        self,
        sim: SimulationState,
        executor: Executor,
        most: int,
        later: Callable[[float, Callable[[Seconds], None]], None],
    ) -> None:
        self._sim, self._runs, self._most, self._later = sim, executor.runs, most, later
        self._of_job = Counter[int]()
        self._waiting: list[tuple[float, WorkerFault]] = []
        """Faults for which no job made steps, each with the earliest time of its next attempt."""

    def happen(self, fault: WorkerFault, now: Seconds) -> None:
        """Kill or stop a worker of a job that makes steps; if there is none, the fault waits for one."""
        ids, jobs = self._sim.rows.job_ids, self._targets()
        if not jobs:
            self._waiting.append((now + AGAIN_SECONDS, fault))
            return
        jobs.sort(key=lambda job: ids[job])
        job = jobs[min(len(jobs) - 1, int(fault.draw * len(jobs)))]
        self._of_job[job] += 1
        self._stand(job, fault, now)

    def stepped(self, now: Seconds) -> None:
        """Schedule the waiting faults, if a job makes steps after a step of the run at ``now``."""
        if not self._waiting or not self._targets():
            return
        waiting, self._waiting = self._waiting, []
        for at, fault in waiting:
            while at <= now:
                at += AGAIN_SECONDS
            self._later(at, partial(self.happen, fault))

    def _targets(self) -> list[int]:
        """Return the jobs that make steps and may have another fault."""
        return [job for job, gpus in enumerate(self._sim.work.on) if gpus and self._of_job[job] < self._most]

    def _stand(self, job: int, fault: WorkerFault, now: Seconds) -> None:
        """Pause a job's steps for the duration of a fault; the job may lose its GPUs in the meantime."""
        sim, runs = self._sim, self._runs
        gpus, epoch = sim.work.on[job], runs.epoch[job]
        at = now + fault.stands_seconds
        if fault.kills:
            sim.work.crash(job, now)
            runs.has_run[job] = True
            at += runs.start_seconds(job)
        else:
            sim.work.stop(job, now, leaves=False)
        turn, placed = sim.work.turn[job], sim.leases.placed.get(job)
        lease = sim.gpus.holder[gpus[0]]
        sim.out.append(sim.reporter.progress(job, now))

        def go_on(then: Seconds) -> None:
            moved = sim.work.turn[job] != turn or runs.epoch[job] != epoch or sim.leases.placed.get(job) is not placed
            if moved or sim.jobs.state[job] != RUNNING or any(sim.gpus.holder[gpu] != lease for gpu in gpus):
                return
            if not fault.kills:
                sim.work.go_on(job, then, gpus)
            elif placed is None:
                runs.begin(LeaseId(lease), Epoch(epoch), job, gpus, TransitionKind.START, then)
            else:
                runs.begin_for_app(job, gpus, then)
            sim.out.append(sim.reporter.progress(job, then))
            if placed is not None:
                sim.leases.unreported.add(sim.rows.app_of[job])
                sim.leases.dirty.add(sim.rows.app_of[job])

        sim.agenda.call(at, go_on)
