"""The executor: what is really on each GPU. It carries decisions out with the costs and delays of the options.

The arbiter hears of it through events only. Where nothing costs time, orders are carried out on the spot, and the
events that say so are handed in with the next step that is due, each with the moment at which it was so.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from eunomia.contract.decisions import Decision, Transition, TransitionKind
from eunomia.contract.events import Event, Released, Resized, Started
from eunomia.errors import EunomiaError
from eunomia.model.cluster import Cluster
from eunomia.model.leases import LeaseState
from eunomia.round.arbiter import Arbiter
from eunomia.units import NONE, Epoch, LeaseId, Reals, Seconds
from eunomia_testbed.simulator.agenda import Agenda
from eunomia_testbed.simulator.logs import LeaseLogger
from eunomia_testbed.simulator.options import Costs, Delays
from eunomia_testbed.simulator.work import NOWHERE, Work

NOBODY = -1
_MOVES = (TransitionKind.START, TransitionKind.MIGRATE)


class TwoHoldersError(EunomiaError):
    """Two leases had processes on one GPU."""


class Executor:
    """Processes on GPUs, leases to jobs.

    Args:
        arbiter: whose leases it carries out.
        work: the true work of jobs.
        agenda: where it puts down what takes time.
        costs: of changes.
        delays: of messages.
        luck: draws the delays.
        rows: job rows by id.
        app_rows: app rows by id.
        app_of: by job, the row of its app.
        leases: the log of who held what; None: not kept.
    """

    def __init__(
        self,
        arbiter: Arbiter,
        work: Work,
        agenda: Agenda,
        costs: Costs,
        delays: Delays,
        luck: np.random.Generator,
        *,
        rows: dict[str, int],
        app_rows: dict[str, int],
        app_of: list[int],
        leases: LeaseLogger | None,
    ) -> None:
        gpus = arbiter.state.cluster.gpus
        self.arbiter, self.work, self.agenda, self.costs, self.delays = arbiter, work, agenda, costs, delays
        self.out: list[Event] = []
        """Events that the arbiter has not heard yet."""
        self.urgent = False
        """Whether one of them asks for a step at this moment."""
        self.holder = [NOBODY] * gpus
        """By GPU, the lease whose processes are there."""
        self.busy = 0
        """GPUs that have a holder."""
        self.began: Callable[[int, Seconds], None] = _nothing
        """Told of a job that holds GPUs from now on."""
        self.ran: Callable[[int, Seconds], None] | None = None
        """Told of a job that makes steps from now on."""
        self.left: Callable[[int, Seconds], None] = _nothing
        """Told of a job that holds GPUs no longer."""
        self.app_changed: Callable[[int, int, Seconds], None] = _nothing_of_app
        """Told of an app whose own leases, which its master divides, changed; and of a job that lost GPUs."""
        self.slot_seconds = [0.0] * len(work.done)
        self.restarts = [0] * len(work.done)
        self.migrations = [0] * len(work.done)
        self.shared: dict[int, dict[int, int]] = {}
        """By app: GPUs of its own leases that are started, each with its lease."""
        self.job_on = [NOBODY] * gpus
        """By GPU, the job's row; -1: none."""
        self._app_on = [NOBODY] * gpus
        self._since = [math.nan] * gpus
        self._fence = [0] * gpus
        self._luck = luck
        self._rows, self._app_rows, self._app_of, self._log = rows, app_rows, app_of, leases
        self._awaiting: dict[int, TransitionKind] = {}
        self._handed: dict[int, int] = {}
        self._confirmed: set[int] = set()
        self._epoch = [0] * len(work.done)
        """By job, the epoch under which it runs or is about to."""
        self._saved_at = [0.0] * len(work.done)
        self._ever = [False] * len(work.done)
        self._ready = [0.0] * gpus
        self.instant = costs.release == 0.0 and costs.checkpoint == 0.0 and not delays.any
        """Whether GPUs come back at the moment at which they are asked for."""
        # Speed without a model depends on nothing but the number of GPUs.
        self._shares = None if work.speeds.plain else _machine_shares(arbiter.state.cluster)
        self._share_cells: list[list[float]] = [part.tolist() for part in self._shares or ()]
        self._free = self.instant and not any((costs.start, costs.restore, costs.migrate, costs.join, costs.pause))

    # --- orders ----------------------------------------------------------------------------------------------------

    def carry_out(self, decision: Decision, now: Seconds) -> None:
        """Tell who has to leave, and begin what is ready."""
        for order in decision.orders:
            if order.leaving.size:
                self._send(order, now, "released")
            if order.gpus.size:
                self._awaiting.setdefault(order.lease, order.kind)
        transitions = decision.transitions
        for order in transitions:
            if order.leaving.size:
                self._send(order, now, "expired" if order.ends_at <= now else "preempted")
        for order in transitions:
            if order.gpus.size:
                self._give(order, now)
        if self._awaiting:
            self._hand_out(now)

    def _send(self, order: Transition, now: Seconds, why: str) -> None:
        if self.instant and order.job is not None:
            self._leave_at_once(order, now, why)
        elif self.delays.order:
            self.agenda.call(now + self._late(), lambda then: self._leave(order, then, why))
        else:
            self._leave(order, now, why)

    def _give(self, order: Transition, now: Seconds) -> None:
        """Begin at once where everybody has gone; else when the arbiter knows that they have."""
        gone = self.instant and (
            not order.after.size or all(self.holder[gpu] in (NOBODY, order.lease) for gpu in order.after.tolist())
        )
        if gone:
            if self._awaiting:
                self._awaiting.pop(order.lease, None)
            self._begin(order.lease, order.epoch, self._job(order), tuple(order.gpus.tolist()), order.kind, now)
        else:
            self._awaiting[order.lease] = order.kind

    def _hand_out(self, now: Seconds) -> None:
        """Begin the leases that have become ready. What is ready is read off the state, as the live service does."""
        state = self.arbiter.state
        for number in list(self._awaiting):
            lease = state.leases.get(number)
            if lease is None or lease.state in (LeaseState.ACTIVE, LeaseState.LEAVING):
                del self._awaiting[number]
            elif lease.state is LeaseState.ORDERED and self._handed.get(number) != lease.epoch:
                self._handed[number] = lease.epoch
                kind = self._awaiting[number]
                job = NOBODY if lease.job == NONE else self._rows[state.job_id(lease.job)]
                gpus = tuple(lease.gpus.tolist())
                self._hand(LeaseId(number), Epoch(lease.epoch), job, gpus, kind, now)

    def _hand(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        if self.delays.order:
            self.agenda.call(now + self._late(), lambda then: self._begin(lease, epoch, job, gpus, kind, then))
        else:
            self._begin(lease, epoch, job, gpus, kind, now)

    def _job(self, order: Transition) -> int:
        return NOBODY if order.job is None else self._rows[order.job]

    def _late(self) -> float:
        return float(self.delays.order * self._luck.uniform(0.5, 1.0))

    def _takes(self, seconds: float) -> float:
        """A cost, or a random part of it."""
        if seconds <= 0.0 or self.delays.jitter <= 0.0:
            return seconds
        return float(seconds * self._luck.uniform(1.0 - self.delays.jitter, 1.0))

    # --- leaving ---------------------------------------------------------------------------------------------------

    def _leave(self, order: Transition, now: Seconds, why: str) -> None:
        """Processes are told to stop; the GPUs come back after a while."""
        gpus, fence = order.leaving.tolist(), order.fence
        for gpu in gpus:
            if self._fence[gpu] < fence:
                self._fence[gpu] = fence
        stopped = self._stopped_by(order, gpus)
        seconds = 0.0
        for job in stopped:
            seconds = max(seconds, self._save(job, now))
        if order.job is not None and not stopped:
            seconds = max(0.0, self._saved_at[self._rows[order.job]] - now)
        if order.job is None:
            self._unshare(order, gpus, self._put_on(order, gpus), now)
        seconds += self._takes(self.costs.release)
        if seconds > 0.0:
            self.agenda.call(now + seconds, lambda then: self._gone(order, gpus, then, why))
        else:
            self._gone(order, gpus, now, why)

    def _leave_at_once(self, order: Transition, now: Seconds, why: str) -> None:
        """The same for a job's lease where nothing takes time."""
        gpus, fence, fences = order.leaving.tolist(), order.fence, self._fence
        job, work = self._rows[order.job or ""], self.work
        for gpu in gpus:
            if fences[gpu] < fence:
                fences[gpu] = fence
        if work.on[job] and self._epoch[job] < fence:
            work.stop(job, now)
            self._ever[job] = True
        self._vacate(order.lease, gpus, now, why)
        if not order.gpus.size and not work.on[job]:
            self.left(job, now)
        self._tell_gone(order, tuple(gpus), now)

    def leave_by_itself(self, job: int, gpus: tuple[int, ...], now: Seconds) -> Released | None:
        """A job of a lease of its own has ended, and its processes with it; None: that takes time, or it has none."""
        lease = self.holder[gpus[0]]
        if not self.instant or self._epoch[job] <= 0:
            return None
        self._vacate(lease, gpus, now, "released")
        return Released(lease=LeaseId(lease), epoch=Epoch(self._epoch[job]), gpus=gpus)

    def _stopped_by(self, order: Transition, gpus: list[int]) -> list[int]:
        """Jobs that lose GPUs by an order."""
        if order.job is not None:
            job = self._rows[order.job]
            return [job] if self.work.on[job] and self._epoch[job] < order.fence else []
        return [job for job in self._put_on(order, gpus) if self.work.on[job]]

    def _put_on(self, order: Transition, gpus: list[int]) -> list[int]:
        """Jobs that an app's master put on GPUs of the lease, those among them that are still starting."""
        return sorted({self.job_on[gpu] for gpu in gpus if self.holder[gpu] == order.lease} - {NOBODY})

    def _save(self, job: int, now: Seconds) -> float:
        """Stop a job that has not ended; return how long saving takes."""
        if self.work.on[job]:
            self.work.stop(job, now)
        self._ever[job] = True
        seconds = self._takes(self.costs.checkpoint)
        self._saved_at[job] = now + seconds
        return seconds

    def stand(self, job: int, gpus: tuple[int, ...], now: Seconds, *, saves: bool) -> None:
        """A job's app master stops it, wherever it is: on GPUs that its master gave it, or on its own lease."""
        ran = bool(self.work.on[job]) or self._ran_here(job)
        if ran and saves:
            self._save(job, now)
        elif self.work.on[job]:
            self.work.stop(job, now)
        self._epoch[job] = NOBODY
        if self._saved_at[job] > now:
            for gpu in gpus:
                self._ready[gpu] = self._saved_at[job]

    def _ran_here(self, job: int) -> bool:
        """Whether a job that stands has just come to its goal: it has something to save."""
        return self.work.done[job] >= self.work.goal[job] > 0.0

    def ready_at(self, gpus: tuple[int, ...]) -> float:
        """When the last job on these GPUs has been saved."""
        return max([self._ready[gpu] for gpu in gpus])

    def standing(self) -> set[int]:
        """Jobs that hold GPUs."""
        return set(self.job_on) - {NOBODY}

    def _unshare(self, order: Transition, gpus: list[int], jobs: list[int], now: Seconds) -> None:
        """An app's own lease loses GPUs: its master divides what is left."""
        app = self._app_rows[order.app]
        mine = self.shared.get(app, {})
        for gpu in gpus:
            if mine.get(gpu) == order.lease:
                del mine[gpu]
        for job in jobs or [NOBODY]:
            self.app_changed(app, job, now)

    def _gone(self, order: Transition, gpus: list[int], now: Seconds, why: str) -> None:
        job = self._job(order)
        self._vacate(order.lease, gpus, now, why)
        if job != NOBODY and not order.gpus.size and not self.work.on[job] and self._epoch[job] <= order.fence:
            self.left(job, now)  # unless it has begun elsewhere meanwhile
        self._tell_gone(order, tuple(gpus), now)

    def _tell_gone(self, order: Transition, gpus: tuple[int, ...], now: Seconds) -> None:
        """Acknowledge; what is lost on its way is sent again."""
        if self.delays.lost and self._luck.random() < self.delays.lost:
            self.agenda.call(now + self.delays.again, lambda then: self._tell_gone(order, gpus, then))
            return
        self.out.append(Released(lease=order.lease, epoch=order.fence, gpus=gpus, at=now))
        successor = self.arbiter.state.holdings.cells.successor
        # Where orders take effect at once, a successor has begun already; else it waits for the arbiter to know.
        if not self.instant or any(successor[gpu] == NONE for gpu in gpus):
            self.urgent = True

    def _vacate(self, lease: int, gpus: Sequence[int], now: Seconds, why: str) -> None:
        holder, job_on, log = self.holder, self.job_on, self._log
        for gpu in gpus:
            if holder[gpu] == lease:
                since, job = self._since[gpu], job_on[gpu]
                if job != NOBODY:
                    self.slot_seconds[job] += now - since
                if log is not None and now > since:
                    log.add(self._app_on[gpu], job, gpu, lease, since, now, why)
                holder[gpu] = job_on[gpu] = NOBODY
                self.busy -= 1

    def _log_lease(self, gpu: int, now: Seconds, why: str) -> None:
        since, job = self._since[gpu], self.job_on[gpu]
        if job != NOBODY:
            self.slot_seconds[job] += now - since
        if self._log is not None and now > since:
            self._log.add(self._app_on[gpu], job, gpu, self.holder[gpu], since, now, why)

    # --- beginning -------------------------------------------------------------------------------------------------

    def _begin(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        """Processes start, unless a newer order has come to one of the GPUs; an app begins on those that are left."""
        fence, holder = self._fence, self.holder
        left = tuple([gpu for gpu in gpus if fence[gpu] <= epoch])
        if not left or (job != NOBODY and len(left) < len(gpus)):
            return
        app = self._app_of[job] if job != NOBODY else self._app_of_lease(lease)
        if app == NOBODY:
            return
        for gpu in left:
            fence[gpu] = epoch
            if holder[gpu] == lease:
                continue
            if holder[gpu] != NOBODY:
                raise TwoHoldersError("a GPU must have one holder", value=f"GPU {gpu}: leases {holder[gpu]}, {lease}")
            holder[gpu] = lease
            self._app_on[gpu], self.job_on[gpu], self._since[gpu] = app, job, now
            self.busy += 1
        if job == NOBODY:
            self._confirm(lease, epoch, now)
            shared = self.shared.setdefault(app, {})
            shared.update((gpu, lease) for gpu in left)
            self.app_changed(app, NOBODY, now)
            return
        self._epoch[job] = epoch
        self.began(job, now)
        if self._free:
            self._run(lease, epoch, job, left, kind, now)
        else:
            self._get_ready(lease, epoch, job, left, kind, now)

    def _app_of_lease(self, lease: int) -> int:
        held = self.arbiter.state.leases.get(lease)
        return NOBODY if held is None else self._app_rows[self.arbiter.state.app_id(held.app)]

    def _get_ready(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        """Spend what the change costs, and then run."""
        on = self.work.on[job]
        runs = bool(on) and kind is TransitionKind.GROW and set(on) <= set(gpus)
        if on and not runs:  # this order has overtaken the one to leave
            self._save(job, now)
        if runs:
            ready = now + self._takes(self.costs.join)
            pause = self._takes(self.costs.pause)
            if pause > 0.0:
                self.agenda.call(ready, lambda then: self._pause(job, epoch, then))
            at = ready + pause
        elif kind in _MOVES or not self._ever[job]:
            at = max(now, self._saved_at[job]) + self.start_seconds(job, moves=kind is TransitionKind.MIGRATE)
        else:
            at = max(now, self._saved_at[job]) + self._takes(self.costs.pause)
        if at > now:
            self.agenda.call(at, lambda then: self._begun(lease, epoch, job, gpus, kind, then))
        else:
            self._begun(lease, epoch, job, gpus, kind, now)

    def start_seconds(self, job: int, *, moves: bool = False) -> float:
        """What it takes to start a job now."""
        seconds = self._takes(self.costs.start)
        if self._ever[job]:
            seconds += self._takes(self.costs.restore)
        return seconds + self._takes(self.costs.migrate) if moves else seconds

    def _pause(self, job: int, epoch: int, now: Seconds) -> None:
        if self._epoch[job] == epoch and self.work.on[job]:
            self.work.stop(job, now)

    def _begun(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        holder, fence = self.holder, self._fence
        for gpu in gpus:
            if holder[gpu] != lease or fence[gpu] != epoch:
                return
        if self._epoch[job] == epoch:
            self._run(lease, epoch, job, gpus, kind, now)

    def _run(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        work = self.work
        if work.on[job]:
            work.stop(job, now)
        if work.done[job] < work.goal[job] or work.goal[job] == 0.0:
            self.count_start(job, kind)
            if self._shares is None:
                work.go(job, now, gpus)
            else:
                work.go(job, now, gpus, *self._beside(gpus, self._shares))
        self._confirm(lease, epoch, now)
        if self.ran is not None:
            self.ran(job, now)

    def _beside(self, gpus: tuple[int, ...], shares: tuple[Reals, Reals]) -> tuple[float | None, float | None]:
        """CPUs and memory in GiB a GPU that a placement gave, where that is not the machine's share."""
        cells, cpus, memory_gib = self.arbiter.state.holdings.cells, *self._share_cells
        if not [gpu for gpu in gpus if cells.cpus[gpu] != cpus[gpu] or cells.memory_gib[gpu] != memory_gib[gpu]]:
            return None, None
        held, rows = self.arbiter.state.holdings.live, list(gpus)
        return _unusual(held.cpus[rows], shares[0][rows]), _unusual(held.memory_gib[rows], shares[1][rows])

    def count_start(self, job: int, kind: TransitionKind) -> None:
        """Count a restart or a migration."""
        if kind is TransitionKind.MIGRATE:
            self.migrations[job] += 1
        elif kind is TransitionKind.START and self._ever[job]:
            self.restarts[job] += 1
        self._ever[job] = True

    def _confirm(self, lease: LeaseId, epoch: Epoch, now: Seconds) -> None:
        """Acknowledge; what is lost on its way is sent again."""
        if self.delays.lost and self._luck.random() < self.delays.lost:
            self.agenda.call(now + self.delays.again, lambda then: self._confirm(lease, epoch, then))
            return
        if lease in self._confirmed:
            self.out.append(Resized(lease=lease, epoch=epoch, at=now))
        else:
            self._confirmed.add(lease)
            self.out.append(Started(lease=lease, epoch=epoch, at=now))

    # --- faults ----------------------------------------------------------------------------------------------------

    def lose(self, gpus: range, now: Seconds) -> list[int]:
        """A machine is down: nothing is on its GPUs any more; return the jobs that ran there, or were about to.

        It is fenced before it counts as lost: orders on their way find a newer epoch.
        """
        epoch = self.arbiter.state.last_epoch + 1
        hit = sorted({self.job_on[gpu] for gpu in gpus} - {NOBODY})
        for gpu in gpus:
            self._fence[gpu] = epoch
            if self.holder[gpu] != NOBODY:
                mine = self.shared.get(self._app_on[gpu], {})
                mine.pop(gpu, None)
                self._vacate(self.holder[gpu], [gpu], now, "lost")
        for job in hit:
            self._epoch[job] = epoch
            if self.work.on[job]:
                self.work.crash(job, now)
                self._ever[job] = True
        return hit

    def settle(self, now: Seconds) -> None:
        """Book what is held at the end of the run."""
        for gpu, lease in enumerate(self.holder):
            if lease != NOBODY:
                job = self.job_on[gpu]
                if job != NOBODY:
                    self.slot_seconds[job] += now - self._since[gpu]
                if self._log is not None:
                    self._log.add(self._app_on[gpu], job, gpu, lease, self._since[gpu], math.nan, "")

    def put(self, job: int, gpus: tuple[int, ...], now: Seconds) -> None:
        """An app master puts one of its jobs on GPUs of its own leases, or takes it off them."""
        for gpu in gpus:
            if self.job_on[gpu] != job and self.holder[gpu] != NOBODY:
                self._log_lease(gpu, now, "divided")
                self.job_on[gpu], self._since[gpu] = job, now


def _machine_shares(cluster: Cluster) -> tuple[Reals, Reals]:
    """By GPU: its part of its machine's CPUs and memory in GiB; 0 where they are not known, as holdings have it."""
    sizes = np.diff(cluster.machine_start)
    cpus, memory = np.nan_to_num(cluster.machine_cpus / sizes), np.nan_to_num(cluster.machine_memory_gib / sizes)
    return cpus[cluster.machine], memory[cluster.machine]


def _nothing(job: int, now: Seconds) -> None:
    """Nobody is told."""


def _nothing_of_app(app: int, job: int, now: Seconds) -> None:
    """Nobody is told."""


def _unusual(given: Reals, usual: Reals) -> float | None:
    """The mean of what is given, where that is not what is usual."""
    return None if (given == usual).all() or np.allclose(given, usual) else float(given.mean())


__all__ = ["NOWHERE", "Executor", "TwoHoldersError"]
