"""Measurements of rates (probes): a job makes some steps in a setting, and its app master reports the rate."""

import math
from typing import NamedTuple

from eunomia.contract.decisions import ProbeOrder, Transition, TransitionKind
from eunomia.units import Epoch, LeaseId, Seconds
from eunomia_testbed.simulator.simulation_state import SimulationState


class ProbeRun(NamedTuple):
    """The GPUs, CPUs and memory of a measurement."""

    gpus: tuple[int, ...]
    cpus: float | None
    """CPUs per GPU; None: those of the lease."""
    memory_gib: float | None


class Probes:
    """The measurements that the arbiter ordered.

    Args:
        sim: the state of the simulation.
        epochs: the epoch under which each job runs.

    Attributes:
        ordered: measurements that have not begun, by lease and epoch.
        leased: all GPUs of the leases of jobs that are being measured, by job.
        reported: number of reported measurements, by job.
    """

    def __init__(self, sim: SimulationState, epochs: list[int]) -> None:
        self._sim, self._epochs = sim, epochs
        self.ordered: dict[tuple[int, int], ProbeOrder] = {}
        self.leased: dict[int, tuple[int, ...]] = {}
        self.reported = [0] * len(epochs)
        self._inside: set[int] = set()
        """Jobs that are being measured on a part of the GPUs on which they ran."""

    def note(self, order: Transition) -> None:
        """Store the setting of a measurement until its lease starts in that setting."""
        probe = order.probe
        if probe is None or order.job is None:
            return
        self.ordered[order.lease, order.epoch] = probe
        job = self._sim.rows.jobs[order.job]
        same_amounts = math.isnan(probe.cpus) and math.isnan(probe.memory_gib)
        if same_amounts and set(probe.gpus.tolist()) <= set(self._sim.work.on[job]):
            self._inside.add(job)
        else:
            self._inside.discard(job)

    def change(self, lease: LeaseId, epoch: Epoch, job: int) -> TransitionKind:
        """Return the kind of order whose costs apply to a probe's order.

        A job that is measured on a part of its own GPUs shrinks to them and then grows back; any other job is
        restarted.
        """
        if job not in self._inside:
            return TransitionKind.PROBE
        return TransitionKind.SHRINK if (lease, epoch) in self.ordered else TransitionKind.GROW

    def taken(self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...]) -> ProbeOrder | None:
        """Return the probe with which a lease starts under this epoch; None: its job runs normally on all its GPUs."""
        probe = self.ordered.pop((lease, epoch), None) if self.ordered else None
        if probe is not None:
            self.leased[job] = gpus
        elif self.leased:
            self.leased.pop(job, None)
        return probe

    def measure(self, job: int, probe: ProbeOrder, now: Seconds) -> None:
        """Report a job's rate after the probe's steps, or at once if the job cannot run in the setting."""
        work = self._sim.work
        pace, epoch = work.pace[job], self._epochs[job]
        if math.isinf(pace):
            self._report(job, probe, epoch)
        else:
            self._sim.agenda.call(Seconds(now + probe.iterations * pace), lambda _: self._report(job, probe, epoch))

    def _report(self, job: int, probe: ProbeOrder, epoch: int) -> None:
        work, reporter = self._sim.work, self._sim.reporter
        if work.on[job] and self._epochs[job] == epoch:  # else it has been stopped, or has ended
            self.reported[job] += 1
            self._sim.out.append(reporter.probed(job, probe))
            self._sim.urgent = True


def where(probe: ProbeOrder) -> ProbeRun:
    """Return the GPUs of a measurement, and the CPUs and memory in GiB per GPU that it requests."""
    gpus = tuple(probe.gpus.tolist())
    cpus, memory_gib = (None if math.isnan(amount) else amount / len(gpus) for amount in (probe.cpus, probe.memory_gib))
    return ProbeRun(gpus, cpus, memory_gib)
