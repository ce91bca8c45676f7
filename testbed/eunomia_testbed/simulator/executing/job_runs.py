"""Starts and stops the steps of jobs, with the costs of starts and saves, and counts starts, moves and resizes."""

from eunomia.contract.decisions import Charge, ProbeOrder, TransitionKind
from eunomia.units import Epoch, LeaseId, Seconds
from eunomia_testbed.simulator.executing.drawn_delays import DrawnDelays
from eunomia_testbed.simulator.executing.gpu_amounts import GpuAmounts
from eunomia_testbed.simulator.executing.gpu_table import NO_HOLDER
from eunomia_testbed.simulator.executing.probes import Probes, where
from eunomia_testbed.simulator.simulation_state import SimulationState

_RESIZE = (Charge.JOIN, Charge.PAUSE)


class JobRuns:
    """The runs of jobs on GPUs, by row of the workload.

    Args:
        sim: the state of the simulation.
        delays: random fractions of costs.
        amounts: the CPUs and memory with which jobs run.
    """

    def __init__(self, sim: SimulationState, delays: DrawnDelays, amounts: GpuAmounts) -> None:
        jobs = sim.workload.size
        self._sim, self._costs, self._delays, self._amounts = sim, sim.options.costs, delays, amounts
        self.restarts = [0] * jobs
        """Number of starts after the first, by job."""
        self.migrations = [0] * jobs
        self.resizes = [0] * jobs
        """Number of times that each job's gang grew or shrank while the job ran."""
        self.epoch = [0] * jobs
        """The epoch under which each job runs or is about to run."""
        self.has_run = [False] * jobs
        self.saved_at = [0.0] * jobs
        """Time in seconds at which each job's last save ends."""
        self._ready_at = [0.0] * sim.cluster.gpus
        """Time in seconds at which the last job that an app master removed from each GPU has been saved."""
        self.probes = Probes(sim, self.epoch)
        self._follows_up = sim.reporter.follows_up

    # --- starts ----------------------------------------------------------------------------------------------------

    def begin(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> ProbeOrder | None:
        """Start a job's steps on its lease; return the setting of its probe, or None if it is not to be measured."""
        work, probes = self._sim.work, self.probes
        if kind is TransitionKind.PROBE:
            kind = probes.change(lease, epoch, job)
        probe = probes.taken(lease, epoch, job, gpus) if probes.ordered or probes.leased else None
        if work.on[job]:
            work.stop(job, now)
        if work.done[job] < work.goal[job] or work.goal[job] == 0.0:
            if self.has_run[job] or kind.effect.charge is Charge.MIGRATE:
                self.count_start(job, kind)
            self.has_run[job] = True
            if probe is not None:
                self._go_there(job, probe, now)
            elif self._amounts.plain:  # ``go`` inlined: its call alone is 0.4 % of a job's calls under FIFO
                work.go(job, now, gpus)
            else:
                work.go(job, now, gpus, *self._amounts.of(gpus))
        return probe

    def go(self, job: int, gpus: tuple[int, ...], now: Seconds) -> None:
        """Start the steps of a stopped job on GPUs of its lease."""
        if self._amounts.plain:
            self._sim.work.go(job, now, gpus)
        else:
            self._sim.work.go(job, now, gpus, *self._amounts.of(gpus))

    def _go_there(self, job: int, probe: ProbeOrder, now: Seconds) -> None:
        """Start a job in the setting of its measurement."""
        run = where(probe)
        cpus, memory_gib = self._amounts.of(run.gpus)
        cpus = cpus if run.cpus is None else run.cpus
        memory_gib = memory_gib if run.memory_gib is None else run.memory_gib
        self._sim.work.go(job, now, run.gpus, cpus, memory_gib)

    def begin_for_app(self, job: int, gpus: tuple[int, ...], now: Seconds) -> None:
        """Start a job on GPUs that its app master assigned to it."""
        self.count_start(job, TransitionKind.START)
        self._sim.work.go(job, now, gpus)
        self.report_start(job, now)

    def count_start(self, job: int, kind: TransitionKind) -> None:
        """Count a start as a restart, a resize or a migration."""
        charge = kind.effect.charge
        if charge is Charge.MIGRATE:
            self.migrations[job] += 1
        elif charge in _RESIZE:
            self.resizes[job] += 1
            self.restarts[job] += self._sim.options.resizes == "restart"
        elif charge is Charge.START and self.has_run[job]:
            self.restarts[job] += 1
        self.has_run[job] = True

    def report_start(self, job: int, now: float) -> None:
        """Report a started job to the arbiter, if its app master knows more than the job declared."""
        if self._follows_up:
            self._sim.out += self._sim.reporter.ran(job, now)

    def start_seconds(self, job: int, *, moves: bool = False) -> float:
        """Return the seconds that a start of the job would take now."""
        takes, costs = self._delays.cost_seconds, self._costs
        seconds = takes(costs.start)
        if self.has_run[job]:
            seconds += takes(costs.restore)
        return seconds + takes(costs.migrate) if moves else seconds

    def ready_at(self, gpus: tuple[int, ...]) -> float:
        """Return the time in seconds at which the last job on these GPUs has saved its checkpoint."""
        return max([self._ready_at[gpu] for gpu in gpus])

    # --- stops -----------------------------------------------------------------------------------------------------

    def save(self, job: int, now: Seconds) -> float:
        """Stop a job that has not ended; return the seconds that its save takes."""
        if self._sim.work.on[job]:
            self._sim.work.stop(job, now)
        self.has_run[job] = True
        seconds = self._delays.cost_seconds(self._costs.checkpoint)
        self.saved_at[job] = now + seconds
        return seconds

    def stop_for_app(self, job: int, gpus: tuple[int, ...], now: Seconds, *, saves: bool) -> None:
        """Stop a job for its app master, on assigned GPUs or on the job's own lease."""
        work = self._sim.work
        has_progress = bool(work.on[job]) or work.done[job] >= work.goal[job] > 0.0  # it has just reached its goal
        if has_progress and saves:
            self.save(job, now)
        elif work.on[job]:
            work.stop(job, now)
        self.epoch[job] = NO_HOLDER
        if self.saved_at[job] > now:
            for gpu in gpus:
                self._ready_at[gpu] = self.saved_at[job]

    def lose(self, jobs: list[int], epoch: int, now: Seconds) -> None:
        """Stop jobs on a machine that failed; they lose the work since their last checkpoints."""
        for job in jobs:
            self.epoch[job] = epoch
            if self._sim.work.on[job]:
                self._sim.work.crash(job, now)
                self.has_run[job] = True
