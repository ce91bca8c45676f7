"""Dry runs of rounds on copies of an arbiter's state. The arbiter is not changed, and observers are not called.

Each copy has its own state version, so that a plugin that caches by version never mixes two copies.
Dry runs need separate stages, since live stages would cache values of hypothetical states.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from eunomia.contract import events as kinds
from eunomia.contract.decisions import Decision
from eunomia.contract.events import Event
from eunomia.contract.stages import Stages
from eunomia.fold.adopt import close_offer
from eunomia.fold.fold import fold
from eunomia.model.cluster import Cluster
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.model.shapes import builds
from eunomia.model.workload import JobState
from eunomia.round.arbiter import Arbiter
from eunomia.store.state import State
from eunomia.store.writers import mark
from eunomia.units import NONE, ZERO, AppId, Cause, Epoch, Ints, JobId, LeaseId, Locality, Seconds, Version

STEPS_AHEAD = 200
"""Maximum number of steps of a simulation of the time ahead."""
NO_GPUS = np.empty(0, np.int64)


@builds
class Start:
    """The start of a job in a dry run."""

    at: Seconds
    gpus: Ints
    round: int
    prompt: bool = True
    """Whether the arbiter makes the round of the start without further events.

    If False, the job starts only once another cause makes a round.
    """
    preempted: frozenset[int] = frozenset()
    """Leases from which that round takes the GPUs."""


class Trials:
    """Dry runs on copies of an arbiter's saved state.

    Args:
        saved: the bytes returned by ``Arbiter.save``.
        cluster: the cluster of that arbiter.
        stages: stages of the chosen profile, created for trials.
        fallback: stages of the fallback profile, created for trials.
        now: start time of the trials in seconds, not before the time of the state.
    """

    def __init__(self, saved: bytes, cluster: Cluster, stages: Stages, fallback: Stages, now: Seconds) -> None:
        self.now = now
        self._saved = saved
        self._cluster = cluster
        self._stages = _in_process(stages)
        self._fallback = _in_process(fallback)
        self._made = 0

    def copy(self) -> Arbiter:
        """Return a separate arbiter in the same state."""
        self._made += 1
        arbiter = Arbiter(self._cluster, self._stages, self._fallback)
        arbiter.load(self._saved)
        arbiter.state.counters.version = Version(arbiter.state.counters.version + 1_000_000 * self._made)
        return arbiter

    # --- a round at once -------------------------------------------------------------------------------------------

    def now_free(self, job: JobId) -> Start | None:
        """Return the job's start in a round with the GPUs that are free now; None if it does not start."""
        return self.round_after(job, [])

    def alone(self, job: JobId, *, machines_back: bool = False) -> Start | None:
        """Return the start of a job alone on the cluster; ``machines_back``: also with the machines that are down."""
        state = self.copy().state
        row = state.job_row(job)
        mine = state.app_id(int(state.jobs.live.app[row]))
        events: list[Event] = [
            kinds.AppFinished(app=app)
            for app, row in state.names.apps.items()
            if app != mine and not state.apps.live.ended[row]
        ]
        events += [
            kinds.JobFinished(job=other)
            for other, at in state.names.jobs.items()
            if other != job and state.jobs.live.app[at] == state.app_row(mine)
        ]
        held = np.flatnonzero(state.holdings.live.app == state.app_row(mine)).tolist()
        events += [kinds.GpusReturned(app=mine, gpus=tuple(held))] if held else []
        events += [kinds.JobResumed(job=job)] if state.jobs.live.state[row] == JobState.PAUSED else []
        events += [kinds.MachineBack(machine=name) for name in down_machines(state)] if machines_back else []
        return self.round_after(job, events)

    def first(self, job: JobId) -> Start | None:
        """Return the job's start in a round in which no other job waits."""
        state = self.copy().state
        others = [state.job_id(row) for row in sorted(state.waiting_jobs.rows)]
        return self.round_after(job, [kinds.JobPaused(job=other) for other in others if other != job])

    def resumed(self, job: JobId) -> Start | None:
        """Return the job's start in a round after its app has resumed it."""
        return self.round_after(job, [kinds.JobResumed(job=job)])

    def measured(self, job: JobId) -> Start | None:
        """Return the job's start in a round after its rates at its smallest and largest size were measured."""
        state = self.copy().state
        row = state.job_row(job)
        gpu_types = state.cluster.gpu_types
        rates = [
            kinds.RateMeasured(job=job, gpus=gpus, gpu_type=gpu_types[kind], locality=Locality.ISLAND, rate=1.0)
            for gpus in {int(state.jobs.live.least[row]), int(state.jobs.live.most[row])}
            for kind in range(len(gpu_types))
            if int(state.jobs.live.gpu_type[row]) in (NONE, kind)
        ]
        return self.round_after(job, rates)

    def machines_back(self, job: JobId) -> Start | None:
        """Return the job's start in a round after every machine that is down has come back."""
        return self.round_after(job, [kinds.MachineBack(machine=name) for name in down_machines(self.copy().state)])

    def released(self, job: JobId, leases: Sequence[int], *, only: int | None = None) -> Start | None:
        """Return the job's start in a round after these leases end and free at most ``only`` GPUs of the job's type."""
        state = self.copy().state
        events = [event for lease in leases for event in done_with(state, state.leases[lease])]
        gpus = np.array([gpu for lease in leases for gpu in state.leases[lease].gpus], np.int64)
        kind = int(state.jobs.live.gpu_type[state.job_row(job)])
        gpus = gpus if kind == NONE else gpus[state.cluster.gpu_type[gpus] == kind]
        return self.round_after(job, events, without=gpus[:0] if only is None else gpus[only:])

    def round_after(self, job: JobId, events: Sequence[Event], *, without: Ints = NO_GPUS) -> Start | None:
        """Return the job's start in a round after events and all pending releases, with the GPUs ``without`` down."""
        arbiter = self.copy()
        state = arbiter.state
        close_offer(state)
        now = Seconds(max(self.now, state.now))
        app = state.app_id(int(state.jobs.live.app[state.job_row(job)]))
        fold(state, now, events, grace=ZERO)
        fold(state, now, coming_back(state), grace=ZERO)
        mark(state, without.tolist(), GpuState.DOWN)
        decision = arbiter.step(now)
        if decision.causes:
            return _start(decision, job, app)
        start = _start(_forced(arbiter, now), job, app)
        return None if start is None else dataclasses.replace(start, prompt=False)

    # --- rounds to come --------------------------------------------------------------------------------------------

    def ahead(self, job: JobId) -> Start | None:
        """Return the job's start if no job arrives, leases and jobs end when expected, and apps obey orders at once."""
        arbiter = self.copy()
        state = arbiter.state
        app = state.app_id(int(state.jobs.live.app[state.job_row(job)]))
        now, opened = Seconds(max(self.now, state.now)), state.open
        if opened is not None:
            now = Seconds(max(now, opened.offer.closes_at or now))
            close_offer(state)
            fold(state, now, [], grace=ZERO)
            decision = _forced(arbiter, now)
        else:
            decision = arbiter.step(now)
        for _ in range(STEPS_AHEAD):
            found = _start(decision, job, app)
            if found is not None or state.job_row(job) == NONE:
                return found
            events = _obeyed(state)
            if not events:
                now, events = _next(state, decision)
                if not math.isfinite(now):
                    return None
            decision = arbiter.step(now, events)
        return None


def _in_process(stages: Stages) -> Stages:
    """Return the stages without bidding by app masters: the arbiter values every app itself."""
    return dataclasses.replace(stages, rounds=dataclasses.replace(stages.rounds, bid_deadline=None))


def _forced(arbiter: Arbiter, now: Seconds) -> Decision:
    state = arbiter.state
    state.counters.causes |= {Cause.ARRIVED, Cause.FREED}
    state.counters.cause_since, state.counters.stage_wake_at = now, now
    return arbiter.step(now)


def _start(decision: Decision, job: JobId, app: AppId) -> Start | None:
    """Return the start that the decision gives to the job, or to its app if that divides its GPUs; None: no start."""
    for order in decision.transitions:
        mine = order.job == job or (order.job is None and order.app == app and order.kind.effect.starts)
        if mine and order.gpus.size and not order.kind.effect.ends:
            losing = [int(one.lease) for one in decision.transitions if np.isin(one.leaving, order.gpus).any()]
            return Start(at=decision.now, gpus=order.gpus, round=decision.round, preempted=frozenset(losing))
    return None


def down_machines(state: State) -> list[str]:
    """Return the names of machines with GPUs that are down."""
    return [state.cluster.machines[number].name for number in _down_by_machine(state)]


def what_is_down(state: State) -> list[str]:
    """Return the names of the machines that are down; a partly down machine is named ``the rest of NAME``."""
    machines = state.cluster.machines
    return [
        machines[number].name if count == machines[number].gpus else f"the rest of {machines[number].name}"
        for number, count in _down_by_machine(state).items()
    ]


def _down_by_machine(state: State) -> dict[int, int]:
    """Return the number of GPUs that are down by machine, without GPUs that are only drained."""
    cluster = state.cluster
    down = np.flatnonzero(state.holdings.live.state[: cluster.gpus] == GpuState.DOWN)
    numbers, counts = np.unique(cluster.machine[np.setdiff1d(down, [*state.capacity.drained])], return_counts=True)
    return {
        number: count
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
        if number not in cluster.left
    }


def coming_back(state: State) -> list[Event]:
    """Return the events that report the release of every leaving GPU."""
    epoch = Epoch(state.counters.last_epoch)
    return [
        kinds.Released(lease=LeaseId(lease), epoch=epoch, gpus=tuple(sorted(gpus)))
        for lease, gpus in state.owners.leaving.items()
        if gpus
    ]


def done_with(state: State, lease: Lease) -> list[Event]:
    """Return the events that report the work on a lease as done: its jobs finish, and an app returns its GPUs."""
    if lease.job != NONE:
        return [kinds.JobFinished(job=state.job_id(lease.job))]
    on = np.unique(state.holdings.live.job[lease.gpus])
    events: list[Event] = [kinds.JobFinished(job=state.job_id(job)) for job in on[on != NONE].tolist()]
    app = state.holdings.cells.app
    mine = tuple(gpu for gpu in lease.gpus if app[gpu] == lease.app)
    return [*events, kinds.GpusReturned(app=state.app_id(lease.app), gpus=mine)]


def finishes_at(state: State, row: int) -> float:
    """Return the time in seconds at which a running job finishes at its present rate; inf: not known."""
    jobs = state.jobs.live
    since, rate, left = float(jobs.since[row]), float(jobs.rate[row]), float(jobs.iterations[row] - jobs.done[row])
    known = jobs.state[row] == JobState.RUNNING and rate > 0.0 and math.isfinite(since) and math.isfinite(left)
    return since + max(0.0, left) / rate if known else math.inf


def _obeyed(state: State) -> list[Event]:
    """Return the reports of apps that carry out orders at once: GPUs released, leases started, grants divided."""
    events = coming_back(state)
    if events:
        return events
    events += [
        kinds.Started(lease=LeaseId(lease.id), epoch=Epoch(lease.epoch))
        for lease in state.leases.values()
        if lease.state is LeaseState.ORDERED
    ]
    if events:
        return events
    apps = {lease.app for lease in state.leases.values() if lease.job == NONE and lease.state is LeaseState.ACTIVE}
    return [event for app in sorted(apps) if (event := _divided(state, app)) is not None]


def _divided(state: State, app: int) -> Event | None:
    """Return the event by which an app assigns idle GPUs to its waiting jobs in order of arrival, or returns them."""
    held, jobs = state.holdings.live, state.jobs.live
    shared = [lease for lease in state.app_leases(app) if lease.job == NONE and lease.state is LeaseState.ACTIVE]
    gpus = np.array([gpu for lease in shared for gpu in lease.gpus], np.int64)
    gpus = gpus[(held.app[gpus] == app) & (held.state[gpus] != GpuState.LEAVING)]
    free = gpus[held.job[gpus] == NONE].tolist()
    given = {int(job): gpus[held.job[gpus] == job].tolist() for job in np.unique(held.job[gpus]) if job != NONE}
    fresh = False
    for row in state.active().tolist():
        waits = jobs.app[row] == app and jobs.state[row] == JobState.WAITING
        if waits and row not in given and len(free) >= int(jobs.least[row]):
            many = min(len(free), int(jobs.most[row]))
            given[row], free, fresh = free[:many], free[many:], True
    if not fresh:
        return kinds.GpusReturned(app=state.app_id(app), gpus=tuple(free)) if free else None
    return kinds.JobsDivided(
        app=state.app_id(app),
        jobs=tuple(state.job_id(row) for row in given),
        gpus=tuple(tuple(part) for part in given.values()),
    )


def _next(state: State, decision: Decision) -> tuple[Seconds, list[Event]]:
    """Return the time of the next timer of the arbiter or end of a job, and the events at that time."""
    running = np.flatnonzero(state.jobs.live.state[: state.jobs.used] == JobState.RUNNING).tolist()
    ends = {row: max(float(state.now), finishes_at(state, row)) for row in running}
    soonest = min(ends.values(), default=math.inf)
    if soonest > decision.wake_at or not math.isfinite(soonest):
        return decision.wake_at, []
    over = [row for row, end in ends.items() if end <= soonest]
    owners = {row: int(state.jobs.live.app[row]) for row in state.names.jobs.values()}
    left = {app for row, app in owners.items() if row not in over}
    ended = sorted({owners[row] for row in over} - left)
    events: list[Event] = [kinds.JobFinished(job=state.job_id(row)) for row in over]
    return Seconds(soonest), [*events, *(kinds.AppFinished(app=state.app_id(app)) for app in ended)]
