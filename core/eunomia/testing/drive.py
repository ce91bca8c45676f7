"""A driver in virtual time: it carries out an arbiter's decisions with delays, losses and reordering, and checks them.

The driver has the true state: which lease has processes on which GPU. The arbiter gets only events, so that its state
can be compared with the true state at every step.
"""

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterable

import numpy as np

from eunomia.contract.decisions import Decision, Transition
from eunomia.contract.events import (
    AppFinished,
    Event,
    JobFinished,
    JobsDivided,
    MachineLeft,
    MachineLost,
    RateMeasured,
    Released,
    Resized,
    Retuned,
    Started,
)
from eunomia.errors import EunomiaError
from eunomia.model.leases import GpuState, Lease, LeaseState, Probing
from eunomia.model.workload import JobState
from eunomia.round.arbiter import Arbiter
from eunomia.store.state import State
from eunomia.units import NONE, AppId, Epoch, JobId, LeaseId, Seconds

Amounts = dict[int, tuple[float, float]]
"""CPUs and memory in GiB of each GPU."""


class TwoHoldersError(EunomiaError):
    """Two leases had processes on the same GPU, or the CPUs or memory of a machine were overcommitted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Delays of the executor in seconds; each message or change takes a random fraction of its delay, at least half."""

    order: float = 0.0
    """Delay of an order in transit; a later order may overtake it."""
    start: float = 0.0
    release: float = 0.0
    lost: float = 0.0
    """Fraction of acknowledgements that are lost and sent again."""


@dataclasses.dataclass(slots=True)
class Outcome:
    """The result of running a script."""

    finished: dict[JobId, float] = dataclasses.field(default_factory=dict)
    decisions: list[Decision] = dataclasses.field(default_factory=list)
    steps: int = 0
    events: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class _Start:
    lease: LeaseId
    epoch: Epoch
    job: JobId | None
    gpus: tuple[int, ...]
    amounts: Amounts
    probe: Probing | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Tuned:
    lease: LeaseId
    epoch: Epoch
    amounts: Amounts


@dataclasses.dataclass(slots=True)
class _JobRun:
    gpus: frozenset[int]
    since: float
    turn: int
    epoch: int


class Drive:
    """One run of a script.

    Args:
        arbiter: a new arbiter.
        work: run time of each job on one GPU in seconds; speed is proportional to the number of GPUs.
        delays: delays of the executor.
        seed: seed of the delays.
        watch: called after every step, for example to check invariants.
        keep: whether to keep every decision.
    """

    def __init__(
        self,
        arbiter: Arbiter,
        *,
        work: dict[JobId, float],
        delays: Delays | None = None,
        seed: int = 0,
        watch: Callable[["Drive", Decision], None] | None = None,
        keep: bool = True,
    ) -> None:
        self.arbiter = arbiter
        self.left = dict(work)
        self.delays = delays or Delays()
        self.luck = np.random.default_rng(seed)
        self.watch = watch
        self.keep = keep
        self.outcome = Outcome()
        self.holders: dict[int, int] = {}
        """The true holder of each GPU: the lease whose processes run there."""
        self.in_use: Amounts = {}
        """The true use of CPUs and memory by the processes on each GPU."""
        self._amounts: dict[int, tuple[int, Amounts]] = {}
        """Epoch of each lease's latest retune, and the CPUs and memory ordered."""
        self._fence: dict[int, int] = {}
        self._handed: set[tuple[int, int]] = set()
        self._begun_once: set[int] = set()
        self._runs: dict[JobId, _JobRun] = {}
        self._queue: list[tuple[float, int, Callable[[float], Event | None]]] = []
        self._count = itertools.count()

    def at(self, time: float, event: Event) -> None:
        """Schedule an event."""
        self._later(time, lambda now: self._happens(event, now))

    def run(self, script: Iterable[tuple[float, Event]], *, until: float = math.inf, steps: int = 100_000) -> Outcome:
        """Run a script until no event is left, or up to ``until`` in seconds.

        Raises:
            EunomiaError: there were more steps than allowed, or a step was due no later than the last one.
            TwoHoldersError: a GPU had two true holders.
        """
        for time, event in script:
            self.at(time, event)
        wake_at = 0.0
        while (now := min(self._queue[0][0] if self._queue else math.inf, wake_at)) <= until and now < math.inf:
            events: list[Event] = []
            while self._queue and self._queue[0][0] <= now:
                happened = heapq.heappop(self._queue)[2](now)
                events += [] if happened is None else [happened]
            decision = self.arbiter.step(Seconds(now), events)
            wake_at = float(decision.wake_at)
            self._note(decision, len(events), now, steps)
            self._carry_out(decision, now)
            self._divide(now)
            if self.watch is not None:
                self.watch(self, decision)
        return self.outcome

    def _note(self, decision: Decision, events: int, now: float, steps: int) -> None:
        self.outcome.steps += 1
        self.outcome.events += events
        if self.keep:
            self.outcome.decisions.append(decision)
        if self.outcome.steps > steps or not decision.wake_at > now:
            raise EunomiaError("a script must end", value=f"{self.outcome.steps} steps", place=f"at {now} s")

    def _later(self, time: float, happens: Callable[[float], Event | None]) -> None:
        heapq.heappush(self._queue, (time, next(self._count), happens))

    def _some(self, delay: float) -> float:
        return float(delay * self.luck.uniform(0.5, 1.0)) if delay else 0.0

    def _happens(self, event: Event, now: float) -> Event | None:
        if isinstance(event, MachineLost | MachineLeft):
            cluster = self.arbiter.state.cluster
            number = cluster.number_of(event.machine)
            for gpu in () if number == NONE else getattr(event, "gpus", ()) or cluster.gpus_on(number):
                # The GPU is fenced before it counts as lost, so that orders in transit are outdated.
                self.holders.pop(gpu, None)
                self.in_use.pop(gpu, None)
                self._fence[gpu] = self.arbiter.state.counters.last_epoch + 1
                for job in [job for job, run in self._runs.items() if gpu in run.gpus]:
                    self._stop(job, now)
        return event

    # --- orders ----------------------------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision, now: float) -> None:
        """Stop leases as ordered, and start leases that are ready according to the state, as in the live service."""
        for order in (*decision.orders, *decision.transitions):
            if order.leaving.size:
                self._later(now + self._some(self.delays.order), lambda then, o=order: self._leave(o, then))  # type: ignore[misc]
        state = self.arbiter.state
        for lease in state.leases.values():
            if lease.state is LeaseState.ORDERED and (lease.id, lease.epoch) not in self._handed:
                self._handed.add((lease.id, lease.epoch))
                job = None if lease.job == NONE else state.job_id(lease.job)
                gpus = tuple(lease.gpus)
                start = _Start(LeaseId(lease.id), Epoch(lease.epoch), job, gpus, _amounts(state, lease), lease.probe)
                self._later(now + self._some(self.delays.order), lambda then, s=start: self._begin(s, then))  # type: ignore[misc]

        for number in sorted(state.amounts.tuning):
            lease = state.leases[number]
            if (number, -lease.tuned) not in self._handed:
                self._handed.add((number, -lease.tuned))
                tuned = _Tuned(LeaseId(number), Epoch(lease.tuned), _amounts(state, lease))
                self._later(now + self._some(self.delays.order), lambda then, t=tuned: self._retune(t, then))  # type: ignore[misc]

    def _retune(self, order: _Tuned, now: float) -> Event | None:
        """Change the CPUs and memory of a lease's processes, unless a newer order has arrived, and acknowledge it."""
        if order.epoch >= self._amounts.get(order.lease, (0, {}))[0]:
            self._amounts[order.lease] = order.epoch, order.amounts
            for gpu, each in order.amounts.items():
                if self.holders.get(gpu) == order.lease:
                    self.in_use[gpu] = each
        return self._tuned(order, now)

    def _tuned(self, order: _Tuned, now: float) -> Event | None:
        if self.luck.random() < self.delays.lost:
            self._later(now + self._some(max(self.delays.release, 0.1)), lambda then: self._tuned(order, then))
            return None
        cpus, memory_gib = (tuple(each[which] for each in order.amounts.values()) for which in (0, 1))
        return Retuned(
            lease=order.lease, epoch=order.epoch, gpus=tuple(order.amounts), cpus=cpus, memory_gib=memory_gib
        )

    def check_machines(self) -> None:
        """Check that processes use at most the CPUs and memory of their machine.

        Raises:
            TwoHoldersError: a machine is overcommitted.
        """
        cluster = self.arbiter.state.cluster
        for which, limits in enumerate((cluster.machine_cpus, cluster.machine_memory_gib)):
            used = np.zeros(len(cluster.machines))
            for gpu, amounts in self.in_use.items():
                used[cluster.machine[gpu]] += amounts[which]
            over = np.flatnonzero(used > limits * (1.0 + 1e-8))
            if over.size:
                value = f"{used[over[0]]:g} of {limits[over[0]]:g}"
                place = cluster.machines[int(over[0])].name
                rule = f"{('CPUs', 'memory')[which]} of a machine must be used once"
                raise TwoHoldersError(rule, value=value, place=place)

    def _leave(self, order: Transition, now: float) -> None:
        """Stop the processes of a lease; its GPUs become free after a delay."""
        for gpu in order.leaving.tolist():
            self._fence[gpu] = max(self._fence.get(gpu, 0), order.fence)
        run = None if order.job is None else self._runs.get(order.job)
        if run is not None and order.job is not None and run.epoch < order.fence:
            self._stop(order.job, now)
        self._later(now + self._some(self.delays.release), lambda then: self._left(order, then))

    def _left(self, order: Transition, now: float) -> Event | None:
        for gpu in order.leaving.tolist():
            if self.holders.get(gpu) == order.lease:
                del self.holders[gpu]
                self.in_use.pop(gpu, None)
        event = Released(lease=order.lease, epoch=order.fence, gpus=tuple(order.leaving.tolist()))
        if self.luck.random() < self.delays.lost:
            self._later(now + self._some(max(self.delays.release, 0.1)), lambda then: self._left(order, then))
            return None
        return event

    def _begin(self, start: _Start, now: float) -> None:
        """Start processes, unless a GPU has a newer order; an app that divides its GPUs then starts on the others."""
        gpus = [gpu for gpu in start.gpus if start.epoch >= self._fence.get(gpu, 0)]
        if not gpus or (start.job is not None and len(gpus) < len(start.gpus)):
            return
        for gpu in gpus:
            self._fence[gpu] = start.epoch
            other = self.holders.get(gpu, start.lease)
            if other != start.lease:
                raise TwoHoldersError("a GPU must have one holder", value=f"GPU {gpu}: leases {other}, {start.lease}")
            self.holders[gpu] = start.lease
        if start.epoch > self._amounts.get(start.lease, (0, {}))[0]:
            self._amounts[start.lease] = start.epoch, start.amounts
        self.in_use |= {gpu: (start.amounts | self._amounts[start.lease][1])[gpu] for gpu in gpus}
        self._later(now + self._some(self.delays.start), lambda then: self._begun(start, gpus, then))

    def _begun(self, start: _Start, gpus: list[int], now: float) -> Event | None:
        left = [gpu for gpu in gpus if self.holders.get(gpu) == start.lease and self._fence[gpu] == start.epoch]
        if not left or (start.job is not None and len(left) < len(gpus)):
            return None
        if start.job is not None and start.job in self.left:
            self._go(start.job, frozenset(left if start.probe is None else start.probe.gpus.tolist()), now, start.epoch)
            if start.probe is not None:
                self._measure(start.job, start.probe, now)
        kind = Resized if start.lease in self._begun_once else Started
        self._begun_once.add(start.lease)
        return kind(lease=start.lease, epoch=start.epoch)

    def _measure(self, job: JobId, probe: Probing, now: float) -> None:
        """Report the rate of a job at the measured setting, once its iterations are done."""
        seconds = self._some(probe.iterations / probe.gpus.size)
        turn = self._runs[job].turn
        self._later(now + seconds, lambda _: self._measured(job, turn, probe))

    def _measured(self, job: JobId, turn: int, probe: Probing) -> Event | None:
        run, cluster, gpus = self._runs.get(job), self.arbiter.state.cluster, probe.gpus
        if run is None or run.turn != turn:
            return None
        kind = cluster.gpu_types[int(cluster.gpu_type[gpus[0]])]
        where = (probe.cpus, probe.memory_gib)
        return RateMeasured(
            job=job,
            gpus=gpus.size,
            locality=cluster.locality(gpus),
            rate=float(gpus.size),
            gpu_type=kind,
            cpus=where[0],
            memory_gib=where[1],
        )

    # --- jobs ------------------------------------------------------------------------------------------------------

    def _go(self, job: JobId, gpus: frozenset[int], now: float, epoch: int = 0) -> None:
        self._stop(job, now)
        turn = next(self._count)
        self._runs[job] = _JobRun(gpus, now, turn, epoch)
        self._later(now + self.left[job] / len(gpus), lambda then: self._end(job, turn, then))

    def _stop(self, job: JobId, now: float) -> None:
        run = self._runs.pop(job, None)
        if run is not None and job in self.left:
            self.left[job] = max(0.0, self.left[job] - (now - run.since) * len(run.gpus))

    def _end(self, job: JobId, turn: int, now: float) -> Event | None:
        run = self._runs.get(job)
        if run is None or run.turn != turn:
            return None
        del self._runs[job], self.left[job]
        self.outcome.finished[job] = now
        app = AppId(job.rpartition("/")[0])
        if not any(other.rpartition("/")[0] == app for other in self.left):
            self._later(now, lambda _: AppFinished(app=app))
        return JobFinished(job=job)

    def _divide(self, now: float) -> None:
        """Act as the tuners of apps that divide their GPUs: running jobs keep theirs, others follow by arrival."""
        state = self.arbiter.state
        shared: dict[int, list[int]] = {}
        for lease in state.leases.values():
            if lease.job == NONE and lease.state is LeaseState.ACTIVE:
                good = [gpu for gpu in lease.gpus if self.holders.get(gpu) == lease.id]
                shared.setdefault(lease.app, []).extend(good)
        for app in sorted(set(shared) | {int(state.jobs.live.app[state.job_row(job)]) for job in self._shared_jobs()}):
            self._divide_app(app, set(shared.get(app, [])), now)

    def _shared_jobs(self) -> list[JobId]:
        rows = {job: self.arbiter.state.job_row(job) for job in self._runs}
        accounts = self.arbiter.state.jobs.live
        return [job for job, row in rows.items() if row != NONE and accounts.lease[row] == NONE]

    def _divide_app(self, app: int, free: set[int], now: float) -> None:
        state = self.arbiter.state
        table, held = state.jobs.live, state.holdings.live
        free = {gpu for gpu in free if held.state[gpu] in (GpuState.HELD, GpuState.OFFERED)}
        own = (active := state.active())[(table.app[active] == app) & (table.lease[active] == NONE)]
        rows = [row for row in own.tolist() if state.job_id(row) in self.left]
        given: dict[JobId, frozenset[int]] = {}
        for row in rows:
            run = self._runs.get(state.job_id(row))
            if run is not None and run.gpus <= free:
                given[state.job_id(row)] = run.gpus
                free -= run.gpus
        for row in rows:
            job = state.job_id(row)
            if job not in given and len(free) >= table.least[row]:
                given[job] = frozenset(sorted(free)[: int(table.most[row])])
                free -= given[job]
        for job in [state.job_id(row) for row in rows]:
            if job in self._runs and self._runs[job].gpus != given.get(job):
                self._stop(job, now)
            if job in given and job not in self._runs:
                self._go(job, given[job], now)
        believed = {
            state.job_id(row): frozenset(np.flatnonzero(held.job == row).tolist())
            for row in rows
            if table.state[row] == JobState.RUNNING
        }
        if believed != given:
            gpus = tuple(tuple(sorted(gpus)) for gpus in given.values())
            self.at(now, JobsDivided(app=state.app_id(app), jobs=tuple(given), gpus=gpus))


def _amounts(state: State, lease: Lease) -> Amounts:
    cpus, memory_gib = state.amounts.given(lease)
    return dict(zip(lease.gpus, zip(cpus.tolist(), memory_gib.tolist(), strict=True), strict=True))
