"""The executor: tracks the processes on each GPU, and carries decisions out with the configured costs and delays.

The arbiter learns of it only through events. If changes cost no time, orders are carried out immediately, and their
events are passed on in the next step, each with the time at which it occurred.
"""

import numpy as np

from eunomia.contract.decisions import Charge, Decision, ProbeOrder, Transition, TransitionKind
from eunomia.contract.events import Released, Resized, Started
from eunomia.model.cluster import Cluster
from eunomia.model.leases import LeaseState
from eunomia.units import NONE, Epoch, LeaseId, Reals, Seconds
from eunomia_testbed.simulator.gpu_table import NO_HOLDER
from eunomia_testbed.simulator.probes import Probes, where
from eunomia_testbed.simulator.simulation_state import SimulationState
from eunomia_testbed.simulator.tunes import Tunes

_PROCESS = (Charge.START, Charge.MIGRATE)
_RESIZE = (Charge.JOIN, Charge.PAUSE)
_RETUNE, _PROBE = TransitionKind.RETUNE, TransitionKind.PROBE


class Executor:
    """Places the processes of leases and jobs on GPUs.

    Args:
        sim: the state of the simulation.
    """

    def __init__(self, sim: SimulationState) -> None:
        costs, delays, jobs = sim.options.costs, sim.options.delays, sim.workload.size
        self._sim, self._gpus, self._costs, self._delays = sim, sim.gpus, costs, delays
        self.restarts = [0] * jobs
        """By job, starts after the first."""
        self.migrations = [0] * jobs
        self.resizes = [0] * jobs
        """By job, how often its gang grew or shrank while it ran."""
        self._luck = np.random.default_rng([sim.seed, 0xDE1A])
        self._tight: tuple[float, frozenset[int]] = (-1.0, frozenset())
        """The time of the last step, and the leases that waited for CPUs or memory after it."""
        self._awaiting: dict[int, TransitionKind] = {}
        self._handed: dict[int, int] = {}
        self._confirmed: set[int] = set()
        self.epoch = [0] * jobs
        """By job, the epoch under which it runs or is about to."""
        self._saved_at = [0.0] * jobs
        self._ever = [False] * jobs
        self._ready = [0.0] * sim.cluster.gpus
        self.instant = costs.release == 0.0 and costs.checkpoint == 0.0 and not delays.any
        """Whether GPUs are free again at the moment at which their release is ordered."""
        # Speed without a model depends on nothing but the number of GPUs.
        self._shares = None if sim.speeds.plain else _machine_shares(sim.cluster)
        self._share_cells: list[list[float]] = [part.tolist() for part in self._shares or ()]
        self.probes = Probes(sim, self.epoch)
        self._tunes = Tunes(sim, self._late, self._luck, self._beside_of)
        self._follows_up = sim.reporter.follows_up
        self._free = self.instant and not any((costs.start, costs.restore, costs.migrate, costs.join, costs.pause))

    # --- orders ----------------------------------------------------------------------------------------------------

    def carry_out(self, decision: Decision, now: Seconds) -> None:
        """Order processes to leave, and start the leases that are ready."""
        for order in decision.orders:
            if order.leaving.size:
                self._send(order, now, "probed" if order.kind is _PROBE else "released")
            if order.gpus.size and order.kind is not _RETUNE:
                self._awaiting.setdefault(order.lease, order.kind)
        transitions = decision.transitions
        for order in transitions:
            if order.leaving.size:
                self._send(order, now, "expired" if order.ends_at <= now else "preempted")
            self.probes.note(order)
        holder, rows = self._gpus.holder, self._sim.job_rows
        if self._sim.arbiter.state.amounts.tuning:
            self._tunes.hand_out(now)
        for order in transitions:
            if not order.gpus.size or order.kind is _RETUNE:
                continue
            lease, after = order.lease, order.after
            # A lease begins at once where no other holds its GPUs; else when the arbiter knows that they are free.
            if self.instant and (not after.size or all(holder[gpu] in (NO_HOLDER, lease) for gpu in after.tolist())):
                if self._awaiting:
                    self._awaiting.pop(lease, None)
                job = NO_HOLDER if order.job is None else rows[order.job]
                self._begin(lease, order.epoch, job, tuple(order.gpus.tolist()), order.kind, now)
            else:
                self._awaiting[lease] = order.kind
        if self._awaiting:
            self._hand_out(now)
        if self.instant:
            self._look_again(decision, now)

    def _look_again(self, decision: Decision, now: Seconds) -> None:
        """Make another step at this time, so that leases that wait for CPUs or memory get those just released.

        If the last step at this time changed nothing, they wait for a later release, for example by a probe.
        """
        seen = (now, frozenset(self._sim.arbiter.state.amounts.tight))
        if seen[1] and (seen != self._tight or decision.transitions or decision.orders):
            self._sim.urgent = True
        self._tight = seen

    def _send(self, order: Transition, now: Seconds, why: str) -> None:
        if self.instant and order.job is not None:
            self._leave_at_once(order, now, why)
        elif self._delays.order:
            self._sim.agenda.call(now + self._late(), lambda then: self._leave(order, then, why))
        else:
            self._leave(order, now, why)

    def _hand_out(self, now: Seconds) -> None:
        """Start the leases that have become ready, as read from the state; the live service does the same."""
        state = self._sim.arbiter.state
        for number in list(self._awaiting):
            lease = state.leases.get(number)
            if lease is None or lease.state in (LeaseState.ACTIVE, LeaseState.LEAVING):
                del self._awaiting[number]
            elif lease.state is LeaseState.ORDERED and self._handed.get(number) != lease.epoch:
                self._handed[number] = lease.epoch
                kind = self._awaiting[number]
                job = NO_HOLDER if lease.job == NONE else self._sim.job_rows[state.job_id(lease.job)]
                gpus = tuple(lease.gpus.tolist())
                self._hand(LeaseId(number), Epoch(lease.epoch), job, gpus, kind, now)

    def _hand(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        if self._delays.order:
            self._sim.agenda.call(now + self._late(), lambda then: self._begin(lease, epoch, job, gpus, kind, then))
        else:
            self._begin(lease, epoch, job, gpus, kind, now)

    def _job(self, order: Transition) -> int:
        return NO_HOLDER if order.job is None else self._sim.job_rows[order.job]

    def _late(self) -> float:
        return float(self._delays.order * self._luck.uniform(0.5, 1.0))

    def _takes(self, seconds: float) -> float:
        """Return the time that a cost takes: all of it, or a random fraction."""
        if seconds <= 0.0 or self._delays.jitter <= 0.0:
            return seconds
        return float(seconds * self._luck.uniform(1.0 - self._delays.jitter, 1.0))

    # --- leaving ---------------------------------------------------------------------------------------------------

    def _leave(self, order: Transition, now: Seconds, why: str) -> None:
        """Order processes to stop; their GPUs become free after the release time."""
        gpus, fence = order.leaving.tolist(), order.fence
        self._gpus.raise_fence(gpus, fence)
        stopped = self._stopped_by(order, gpus)
        seconds = 0.0
        for job in stopped:
            seconds = max(seconds, self._save(job, now))
        if order.job is not None and not stopped:
            seconds = max(0.0, self._saved_at[self._sim.job_rows[order.job]] - now)
        if order.job is None:
            app = self._sim.app_rows[order.app]
            self._sim.leases.lose(app, order.lease, gpus, self._put_on(order, gpus), now)
        seconds += self._takes(self._costs.release)
        if seconds > 0.0:
            self._sim.agenda.call(now + seconds, lambda then: self._gone(order, gpus, then, why))
        else:
            self._gone(order, gpus, now, why)

    def _leave_at_once(self, order: Transition, now: Seconds, why: str) -> None:
        """Take a job off its lease at once, if changes cost no time."""
        gpus, fence = order.leaving.tolist(), order.fence
        job, work = self._sim.job_rows[order.job or ""], self._sim.work
        self._gpus.raise_fence(gpus, fence)
        if work.on[job] and self.epoch[job] < fence:
            work.stop(job, now)
            self._ever[job] = True
        self._gpus.vacate(order.lease, gpus, now, why)
        if not order.gpus.size and not work.on[job]:
            self._sim.jobs.stood(job, now)
        self._acknowledge_gone(order, tuple(gpus), now)

    def _stopped_by(self, order: Transition, gpus: list[int]) -> list[int]:
        """Return the jobs that lose GPUs by an order."""
        if order.job is not None:
            job = self._sim.job_rows[order.job]
            return [job] if self._sim.work.on[job] and self.epoch[job] < order.fence else []
        return [job for job in self._put_on(order, gpus) if self._sim.work.on[job]]

    def _put_on(self, order: Transition, gpus: list[int]) -> list[int]:
        """Return the jobs that an app's master assigned to GPUs of the lease, including starting ones."""
        return sorted({self._gpus.job_on[gpu] for gpu in gpus if self._gpus.holder[gpu] == order.lease} - {NO_HOLDER})

    def _save(self, job: int, now: Seconds) -> float:
        """Stop a job that has not ended; return the seconds of its save."""
        if self._sim.work.on[job]:
            self._sim.work.stop(job, now)
        self._ever[job] = True
        seconds = self._takes(self._costs.checkpoint)
        self._saved_at[job] = now + seconds
        return seconds

    def stand(self, job: int, gpus: tuple[int, ...], now: Seconds, *, saves: bool) -> None:
        """Stop a job for its app master, on GPUs that the master assigned or on the job's own lease."""
        ran = bool(self._sim.work.on[job]) or self._ran_here(job)
        if ran and saves:
            self._save(job, now)
        elif self._sim.work.on[job]:
            self._sim.work.stop(job, now)
        self.epoch[job] = NO_HOLDER
        if self._saved_at[job] > now:
            for gpu in gpus:
                self._ready[gpu] = self._saved_at[job]

    def _ran_here(self, job: int) -> bool:
        """Return whether a stopped job has just reached its goal and has progress to save."""
        return self._sim.work.done[job] >= self._sim.work.goal[job] > 0.0

    def ready_at(self, gpus: tuple[int, ...]) -> float:
        """Return the time at which the last job on these GPUs has saved its checkpoint."""
        return max([self._ready[gpu] for gpu in gpus])

    def _gone(self, order: Transition, gpus: list[int], now: Seconds, why: str) -> None:
        job = self._job(order)
        self._gpus.vacate(order.lease, gpus, now, why)
        if job != NO_HOLDER and not order.gpus.size and not self._sim.work.on[job] and self.epoch[job] <= order.fence:
            self._sim.jobs.stood(job, now)  # unless it has begun elsewhere meanwhile
        self._acknowledge_gone(order, tuple(gpus), now)

    def _acknowledge_gone(self, order: Transition, gpus: tuple[int, ...], now: Seconds) -> None:
        """Acknowledge a release; a lost acknowledgement is sent again."""
        if self._delays.lost and self._luck.random() < self._delays.lost:
            self._sim.agenda.call(now + self._delays.again, lambda then: self._acknowledge_gone(order, gpus, then))
            return
        self._sim.out.append(Released(lease=order.lease, epoch=order.fence, gpus=gpus, at=now))
        successor = self._sim.arbiter.state.holdings.cells.successor
        # Where orders take effect at once, a successor has begun already; else it waits for the arbiter to know.
        if not self.instant or any(successor[gpu] == NONE for gpu in gpus):
            self._sim.urgent = True

    # --- beginning -------------------------------------------------------------------------------------------------

    def _begin(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        """Start processes, unless a newer order has reached one of the GPUs; an app starts on the remaining ones."""
        fence = self._gpus.fence
        left = tuple([gpu for gpu in gpus if fence[gpu] <= epoch])
        if not left or (job != NO_HOLDER and len(left) < len(gpus)):
            return
        app = self._sim.app_of[job] if job != NO_HOLDER else self._app_of_lease(lease)
        if app == NO_HOLDER:
            return
        self._gpus.occupy(left, lease, epoch, app, job, now)
        if job == NO_HOLDER:
            self._confirm(lease, epoch, now)
            self._sim.leases.started(app, lease, left)
            return
        self.epoch[job] = epoch
        self._sim.jobs.began(job, now)
        if self._free:
            self._run(lease, epoch, job, left, kind, now)
        else:
            self._get_ready(lease, epoch, job, left, kind, now)

    def _app_of_lease(self, lease: int) -> int:
        held = self._sim.arbiter.state.leases.get(lease)
        return NO_HOLDER if held is None else self._sim.app_rows[self._sim.arbiter.state.app_id(held.app)]

    def _get_ready(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        """Wait for the costs of the change, then start the job's steps."""
        on = self._sim.work.on[job]
        charge = kind.effect.charge
        runs = bool(on) and kind.effect.keeps_running and set(on) <= set(gpus)
        if on and not runs:  # this order has overtaken the one to leave
            self._save(job, now)
        if runs:
            ready = now + (self._takes(self._costs.join) if charge is Charge.JOIN else 0.0)
            pause = 0.0 if charge is Charge.NOTHING else self._takes(self._costs.pause)
            if pause > 0.0:
                self._sim.agenda.call(ready, lambda then: self._pause(job, epoch, then))
            at = ready + pause
        elif charge in _PROCESS or not self._ever[job]:
            at = max(now, self._saved_at[job]) + self.start_seconds(job, moves=charge is Charge.MIGRATE)
        else:
            pause = 0.0 if charge is Charge.NOTHING else self._takes(self._costs.pause)
            at = max(now, self._saved_at[job]) + pause
        if at > now:
            self._sim.agenda.call(at, lambda then: self._begun(lease, epoch, job, gpus, kind, then))
        else:
            self._begun(lease, epoch, job, gpus, kind, now)

    def start_seconds(self, job: int, *, moves: bool = False) -> float:
        """Return the seconds that a start of the job takes now."""
        seconds = self._takes(self._costs.start)
        if self._ever[job]:
            seconds += self._takes(self._costs.restore)
        return seconds + self._takes(self._costs.migrate) if moves else seconds

    def _pause(self, job: int, epoch: int, now: Seconds) -> None:
        if self.epoch[job] == epoch and self._sim.work.on[job]:
            self._sim.work.stop(job, now)

    def _begun(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        holder, fence = self._gpus.holder, self._gpus.fence
        for gpu in gpus:
            if holder[gpu] != lease or fence[gpu] != epoch:
                return
        if self.epoch[job] == epoch:
            self._run(lease, epoch, job, gpus, kind, now)

    def _run(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        work, probe = self._sim.work, self.probes.taken(lease, epoch, job, gpus)
        if work.on[job]:
            work.stop(job, now)
        if work.done[job] < work.goal[job] or work.goal[job] == 0.0:
            if self._ever[job] or kind.effect.charge is Charge.MIGRATE:
                self.count_start(job, kind)
            self._ever[job] = True
            if probe is not None:
                self._go_there(job, probe, now)
            elif self._shares is None:
                work.go(job, now, gpus)
            else:
                work.go(job, now, gpus, *self._beside(gpus, self._shares))
        self._confirm(lease, epoch, now)
        if probe is not None:
            self.probes.measure(job, probe, now)
        elif self._follows_up:
            self.report_start(job, now)

    def _go_there(self, job: int, probe: ProbeOrder, now: Seconds) -> None:
        """Start a job at the setting of its measurement."""
        run = where(probe)
        beside = self._beside_of(run.gpus)
        cpus = beside[0] if run.cpus is None else run.cpus
        memory_gib = beside[1] if run.memory_gib is None else run.memory_gib
        self._sim.work.go(job, now, run.gpus, cpus, memory_gib)

    def report_start(self, job: int, now: Seconds) -> None:
        """Report a started job for its app master, if the master knows more than the job declared."""
        if self._follows_up:
            self._sim.out += self._sim.reporter.ran(job, now)

    def _beside(self, gpus: tuple[int, ...], shares: tuple[Reals, Reals]) -> tuple[float | None, float | None]:
        """Return CPUs and memory in GiB per GPU from a placement; None: they equal the machine's share."""
        cells, cpus, memory_gib = self._sim.arbiter.state.holdings.cells, *self._share_cells
        set_now = self._tunes.of(gpus)
        if set_now is None:
            if not [gpu for gpu in gpus if cells.cpus[gpu] != cpus[gpu] or cells.memory_gib[gpu] != memory_gib[gpu]]:
                return None, None
            held = self._sim.arbiter.state.holdings.live
            set_now = held.cpus[list(gpus)], held.memory_gib[list(gpus)]
        rows = list(gpus)
        return _unusual(set_now[0], shares[0][rows]), _unusual(set_now[1], shares[1][rows])

    def _beside_of(self, gpus: tuple[int, ...]) -> tuple[float | None, float | None]:
        return (None, None) if self._shares is None else self._beside(gpus, self._shares)

    def count_start(self, job: int, kind: TransitionKind) -> None:
        """Count a restart, a resize or a migration."""
        if kind.effect.charge is Charge.MIGRATE:
            self.migrations[job] += 1
        elif kind.effect.charge in _RESIZE:
            self.resizes[job] += 1
        elif kind.effect.charge is Charge.START and self._ever[job]:
            self.restarts[job] += 1
        self._ever[job] = True

    def _confirm(self, lease: LeaseId, epoch: Epoch, now: Seconds) -> None:
        """Acknowledge a start; a lost acknowledgement is sent again."""
        if self._delays.lost and self._luck.random() < self._delays.lost:
            self._sim.agenda.call(now + self._delays.again, lambda then: self._confirm(lease, epoch, then))
            return
        if lease in self._confirmed:
            self._sim.out.append(Resized(lease=lease, epoch=epoch, at=now))
        else:
            self._confirmed.add(lease)
            self._sim.out.append(Started(lease=lease, epoch=epoch, at=now))

    # --- faults ----------------------------------------------------------------------------------------------------

    def lose(self, gpus: range, now: Seconds) -> list[int]:
        """Remove all processes from the GPUs of a failed machine; return the jobs that ran or were starting there.

        The GPUs are fenced before they count as lost: orders in transit find a newer epoch.
        """
        epoch = self._sim.arbiter.state.last_epoch + 1
        hit = sorted({self._gpus.job_on[gpu] for gpu in gpus} - {NO_HOLDER})
        for gpu in gpus:
            self._gpus.fence[gpu] = epoch
            if self._gpus.holder[gpu] != NO_HOLDER:
                mine = self._sim.leases.shared.get(self._gpus.app_on[gpu], {})
                mine.pop(gpu, None)
                self._gpus.vacate(self._gpus.holder[gpu], [gpu], now, "lost")
        for job in hit:
            self.epoch[job] = epoch
            if self._sim.work.on[job]:
                self._sim.work.crash(job, now)
                self._ever[job] = True
        return hit


def _machine_shares(cluster: Cluster) -> tuple[Reals, Reals]:
    """Returns by GPU its share of its machine's CPUs and memory in GiB; 0 where unknown, as in the holdings."""
    sizes = np.diff(cluster.machine_start)
    cpus, memory = np.nan_to_num(cluster.machine_cpus / sizes), np.nan_to_num(cluster.machine_memory_gib / sizes)
    return cpus[cluster.machine], memory[cluster.machine]


def _unusual(given: Reals, usual: Reals) -> float | None:
    """Returns the mean of the given amounts; None: they equal the usual amounts."""
    return None if (given == usual).all() or np.allclose(given, usual) else float(given.mean())
