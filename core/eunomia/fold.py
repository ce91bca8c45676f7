"""Events folded into the state: what happened becomes what is true. Nothing is decided here.

GPUs that an ended, failed or paused job has to give back become LEAVING at once; the orders that say so to executors
are returned, and so are the events that could not be true and changed nothing.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from eunomia.bundles import ByBundle, offer_classes
from eunomia.decisions import Fault, Transition, TransitionKind
from eunomia.errors import InputError
from eunomia.events import (
    Adapted,
    AppArrived,
    AppCancelled,
    AppFinished,
    BidReceived,
    Event,
    ForecastReported,
    GpusReturned,
    JobAdded,
    JobFailed,
    JobFinished,
    JobPaused,
    JobReported,
    JobResumed,
    JobsDivided,
    MachineBack,
    MachineLost,
    ProfileChanged,
    RateMeasured,
    Released,
    Resized,
    Started,
    in_order,
)
from eunomia.leases import GpuState, Lease, LeaseState
from eunomia.snapshot import Measured
from eunomia.state import State
from eunomia.units import NONE, AppId, Cause, Epoch, Ints, JobId, LeaseId, Seconds, UserId
from eunomia.verdicts import Reason
from eunomia.workload import JobState


@dataclasses.dataclass(slots=True)
class Folded:
    """What followed from a step's events."""

    orders: list[Transition]
    refused: list[Fault]


class EventError(InputError):
    """An event that cannot be true: it changes nothing."""


def fold(state: State, now: Seconds, events: Iterable[Event], *, grace: Seconds) -> Folded:
    """Let time pass to ``now`` and fold the events in, in the fixed order.

    Args:
        state: changed in place.
        now: the step's time; not before the last step's.
        events: of this instant.
        grace: seconds that a job has between its warning and its end.
    """
    state.advance(now)
    folded = Folded(orders=[], refused=[])
    for event in in_order(list(events)):
        try:
            _FOLDS[type(event)](_Fold(state, folded, grace), event)
        except EventError as error:
            folded.refused.append(Fault(plugin="", stage=None, what=f"{type(event).__name__}: {error}"))
    if state.take_ended():
        state.cause(Cause.LEASE_ENDED)
    _wake_retries(state)
    return folded


def _wake_retries(state: State) -> None:
    """Jobs whose pause after a failure is over wait again."""
    accounts, jobs = state.job_accounts.live, state.jobs.live
    backing = np.flatnonzero(accounts.reason[: state.jobs.used] == Reason.BACKING_OFF)
    for job in backing[accounts.ready_at[backing] <= state.now].tolist():
        if jobs.state[job] == JobState.PAUSED and accounts.lease[job] == NONE:
            _await_round(state, job)


def _await_round(state: State, job: int) -> None:
    state.jobs.live.state[job] = JobState.WAITING
    accounts = state.job_accounts.live
    accounts.reason[job], accounts.since[job] = Reason.AWAITING_ROUND, state.now
    accounts.stage[job], accounts.plugin[job] = -1, 0
    state.touch(job=job)
    state.cause(Cause.ARRIVED)


class _Fold:
    """The fold of one event: the state, and what follows for executors."""

    def __init__(self, state: State, folded: Folded, grace: Seconds) -> None:
        self.state = state
        self.folded = folded
        self.grace = grace

    def app(self, app: AppId) -> int:
        row = self.state.app_row(app)
        if row == NONE or self.state.app_accounts.live.ended[row]:
            raise EventError("an event must name an app that is here", value=f'"{app}"')
        return row

    def job(self, job: JobId) -> int:
        row = self.state.job_row(job)
        if row == NONE:
            raise EventError("an event must name a job that is here", value=f'"{job}"')
        return row

    def leave(self, lease: Lease, gpus: Ints, *, kind: TransitionKind = TransitionKind.SUSPEND) -> None:
        """Have a lease give GPUs back, and order it."""
        order = revoke(self.state, lease, gpus, kind=kind, deadline=Seconds(self.state.now + self.grace))
        if order is not None:
            self.folded.orders.append(order)

    def leave_all(self, job: int) -> None:
        """Have the job's own lease give everything back."""
        number = int(self.state.job_accounts.live.lease[job])
        lease = self.state.leases.get(number)
        if lease is not None and lease.state is not LeaseState.LEAVING:
            self.leave(lease, lease.gpus)

    def undivide(self, job: int) -> None:
        """Take the job off the GPUs that its app's tuner gave it."""
        held = self.state.holdings.live
        if self.state.job_accounts.live.lease[job] == NONE:
            held.job[np.flatnonzero(held.job == job)] = NONE
            self.state.job_accounts.live.gpus[job] = 0

    def remove_job(self, job: int) -> None:
        state = self.state
        stop_clock(self.state, job)
        self.leave_all(job)
        held = state.holdings.live
        held.job[np.flatnonzero(held.job == job)] = NONE
        number = int(state.job_accounts.live.lease[job])
        if number in state.leases:
            state.leases[number].job = NONE
        state.touch(job=job, app=int(state.jobs.live.app[job]))
        state.job_rows.pop(state.job_id(job))
        state.measured.pop(job, None)
        state.starts_at.pop(job, None)
        for table in (state.jobs, state.job_accounts, state.job_ledger):
            table.drop(job)
        state.cause(Cause.LEFT)

    def end_app(self, app: int, outcome: str) -> None:
        state = self.state
        for job in np.flatnonzero(state.jobs.live.app[: state.jobs.used] == app).tolist():
            self.remove_job(job)
        for lease in state.app_leases(app):
            if lease.state is not LeaseState.LEAVING:
                self.leave(lease, lease.gpus)
        if state.open is not None:
            state.open.bids.pop(app, None)
        state.outcomes[state.app_id(app)] = outcome
        state.app_accounts.live.ended[app] = 1
        state.touch(app=app)
        state.cause(Cause.LEFT)
        state.drop_app_if_over(app)


def revoke(state: State, lease: Lease, gpus: Ints, *, kind: TransitionKind, deadline: Seconds) -> Transition | None:
    """Take GPUs from a lease: those it holds become LEAVING, those it was only promised are given up at once.

    Returns:
        The order for executors, with a new epoch; None where nothing was held.
    """
    held = state.holdings.live
    epoch = state.next_epoch()
    mine = gpus[held.lease[gpus] == lease.id]
    promised = gpus[held.successor[gpus] == lease.id]
    held.successor[promised] = NONE
    held.state[mine] = GpuState.LEAVING
    held.epoch[mine] = epoch
    lease.gpus = np.setdiff1d(lease.gpus, gpus)
    lease.epoch = epoch
    if mine.size:
        state.leaving.setdefault(lease.id, set()).update(mine.tolist())
    if lease.gpus.size == 0:
        lease.state = LeaseState.LEAVING
    _stop_job(state, lease)
    if lease.gpus.size == 0 and not state.leaving.get(lease.id):
        state.drop_lease(lease.id)
    if mine.size == 0:
        return None
    return Transition(
        kind=kind if lease.gpus.size == 0 else TransitionKind.SHRINK,
        lease=LeaseId(lease.id),
        epoch=epoch,
        app=state.app_id(lease.app),
        job=None if lease.job == NONE else state.job_id(lease.job),
        gpus=lease.gpus,
        cpus=held.cpus[lease.gpus],
        memory_gib=held.memory_gib[lease.gpus],
        ends_at=lease.ends_at,
        protected_until=lease.protected_until,
        leaving=mine,
        fence=epoch,
        after=np.empty(0, np.int64),
        deadline=deadline,
    )


def stop_clock(state: State, job: int) -> None:
    """Book the progress that a job made until now; it makes none from here on."""
    jobs = state.jobs.live
    if not math.isnan(jobs.since[job]):
        jobs.done[job] += (state.now - jobs.since[job]) * jobs.rate[job]
        if not math.isnan(jobs.iterations[job]):
            jobs.done[job] = min(jobs.done[job], jobs.iterations[job])
    jobs.since[job] = math.nan


def _stop_job(state: State, lease: Lease) -> None:
    """A job whose lease is to end stops; one whose lease never began waits again."""
    if lease.job == NONE or lease.gpus.size:
        return
    jobs = state.jobs.live
    stop_clock(state, lease.job)
    if jobs.state[lease.job] in (JobState.RUNNING, JobState.STARTING):
        leaving = bool(state.leaving.get(lease.id))
        jobs.state[lease.job] = JobState.STOPPING if leaving else JobState.WAITING
        state.job_accounts.live.reason[lease.job] = Reason.AWAITING_ROUND
        state.touch(job=lease.job)


def _released(fold: _Fold, event: Released) -> None:
    state, held = fold.state, fold.state.holdings.live
    for gpu in event.gpus:
        known = 0 <= gpu < state.cluster.gpus
        if not known or held.lease[gpu] != event.lease or event.epoch < held.epoch[gpu]:
            continue  # an acknowledgement that was overtaken: the GPU has another holder, or a newer order
        give_back(fold, gpu)


def give_back(fold: _Fold, gpu: int) -> None:
    """A GPU that its holder has left: to its successor, or free."""
    state, held = fold.state, fold.state.holdings.live
    lease = state.leases[int(held.lease[gpu])]
    job = int(held.job[gpu])
    if gpu in lease.gpus and held.state[gpu] != GpuState.LEAVING:
        # Left without an order: the rest of a gang cannot run without it.
        held.state[gpu] = GpuState.LEAVING
        state.leaving.setdefault(lease.id, set()).add(gpu)
        lease.gpus = lease.gpus[lease.gpus != gpu]
        if lease.job != NONE and lease.gpus.size:
            fold.leave(lease, lease.gpus)
        elif lease.gpus.size == 0:
            lease.state = LeaseState.LEAVING
            _lose_gang(state, lease)
    state.leaving.get(lease.id, set()).discard(gpu)
    if job != NONE and lease.job == NONE:
        _lose_division(fold, job)
    state.touch(job=lease.job, app=lease.app)
    state.vacate(gpu)
    if lease.gpus.size == 0 and not state.leaving.get(lease.id):
        stopped = lease.job
        state.drop_lease(lease.id)
        if stopped != NONE and state.jobs.live.state[stopped] == JobState.STOPPING:
            stop_clock(state, stopped)
            _await_round(state, stopped)


def _lose_gang(state: State, lease: Lease) -> None:
    jobs = state.jobs.live
    if lease.job != NONE and jobs.state[lease.job] in (JobState.RUNNING, JobState.STARTING):
        jobs.state[lease.job] = JobState.STOPPING


def _lose_division(fold: _Fold, job: int) -> None:
    """A job that its app's tuner had put on a GPU that is gone does not run, until the tuner says otherwise."""
    stop_clock(fold.state, job)
    fold.undivide(job)
    if fold.state.jobs.live.state[job] == JobState.RUNNING:
        _await_round(fold.state, job)


def _returned(fold: _Fold, event: GpusReturned) -> None:
    state, held = fold.state, fold.state.holdings.live
    app = fold.app(event.app)
    gpus = np.array(sorted(set(event.gpus)), dtype=np.int64)
    if gpus.size and (gpus[0] < 0 or gpus[-1] >= state.cluster.gpus or np.any(held.app[gpus] != app)):
        raise EventError("an app must return GPUs that it holds", value=str(event.gpus), place=event.app)
    for lease in state.app_leases(app):
        mine = np.intersect1d(lease.gpus, gpus)
        if mine.size:
            # A gang that gives a GPU back gives back all.
            fold.leave(lease, mine if lease.job == NONE else lease.gpus)


def _job_finished(fold: _Fold, event: JobFinished) -> None:
    fold.remove_job(fold.job(event.job))


def _job_failed(fold: _Fold, event: JobFailed) -> None:
    job = fold.job(event.job)
    if event.again_in is None:
        fold.remove_job(job)
        return
    stop_clock(fold.state, job)
    fold.leave_all(job)
    fold.undivide(job)
    state = fold.state
    state.jobs.live.state[job] = JobState.PAUSED
    accounts = state.job_accounts.live
    accounts.reason[job], accounts.since[job] = Reason.BACKING_OFF, state.now
    accounts.ready_at[job] = state.now + event.again_in
    state.touch(job=job)


def _app_finished(fold: _Fold, event: AppFinished) -> None:
    fold.end_app(fold.app(event.app), "failed" if event.failed else "finished")


def _app_cancelled(fold: _Fold, event: AppCancelled) -> None:
    fold.end_app(fold.app(event.app), "cancelled")


def _started(fold: _Fold, event: Started) -> None:
    lease = fold.state.leases.get(event.lease)
    if lease is None or lease.epoch != event.epoch or lease.state is not LeaseState.ORDERED:
        return  # overtaken by a newer order
    lease.state = LeaseState.ACTIVE
    if lease.job == NONE:
        return
    jobs, job = fold.state.jobs.live, lease.job
    jobs.state[job] = JobState.RUNNING
    jobs.since[job] = fold.state.now
    jobs.starts[job] += 1
    fold.state.job_ledger.live.starts[job] += 1
    fold.state.job_accounts.live.gpus[job] = lease.gpus.size
    fold.state.job_accounts.live.reason[job] = 0
    if not math.isnan(jobs.seconds_per_iteration[job]):
        jobs.rate[job] = min(int(lease.gpus.size), int(jobs.most[job])) / jobs.seconds_per_iteration[job]
    fold.state.touch(job=job, app=lease.app)


def _resized(fold: _Fold, event: Resized) -> None:
    _started(fold, Started(lease=event.lease, epoch=event.epoch))


def _job_reported(fold: _Fold, event: JobReported) -> None:
    job, jobs = fold.job(event.job), fold.state.jobs.live
    if not (math.isfinite(event.iterations_done) and math.isfinite(event.rate)):
        raise EventError("a report must be a number", value=f"{event.iterations_done}, {event.rate}", place=event.job)
    if event.iterations_done < 0.0 or event.rate < 0.0:
        raise EventError("a report must not be negative", value=f"{event.iterations_done}", place=event.job)
    jobs.done[job], jobs.rate[job] = event.iterations_done, event.rate
    if jobs.state[job] == JobState.RUNNING:
        jobs.since[job] = fold.state.now
    fold.state.touch(job=job)


def _rate_measured(fold: _Fold, event: RateMeasured) -> None:
    job = fold.job(event.job)
    if not (math.isfinite(event.rate) and event.rate > 0.0 and event.gpus > 0):
        raise EventError("a measured rate must be positive", value=str(event.rate), place=event.job)
    others = tuple(
        seen
        for seen in fold.state.measured.get(job, ())
        if (seen.gpus, seen.gpu_type, seen.locality) != (event.gpus, event.gpu_type, event.locality)
    )
    seen = Measured(job=job, gpus=event.gpus, gpu_type=event.gpu_type, locality=event.locality, rate=event.rate)
    fold.state.measured[job] = (*others, seen)
    fold.state.touch(job=job)
    fold.state.cause(Cause.REPORTED)


def _forecast(fold: _Fold, event: ForecastReported) -> None:
    app = fold.app(event.app)
    fold.state.forecasts[app] = event.forecast
    fold.state.touch(app=app)
    fold.state.cause(Cause.REPORTED)


def _adapted(fold: _Fold, event: Adapted) -> None:
    job = fold.job(event.job)
    fold.state.jobs.live.batch_size[job] = event.batch_size
    fold.state.touch(job=job)
    fold.state.cause(Cause.ADAPTED)


def _divided(fold: _Fold, event: JobsDivided) -> None:
    state, held = fold.state, fold.state.holdings.live
    app = fold.app(event.app)
    jobs = [fold.job(job) for job in event.jobs]
    _check_division(fold, app, jobs, event)
    table, accounts = state.jobs.live, state.job_accounts.live
    shared = [lease.id for lease in state.app_leases(app) if lease.job == NONE]
    mine = np.flatnonzero(np.isin(held.lease, shared))
    before = set(held.job[mine][held.job[mine] >= 0].tolist())
    held.job[mine] = NONE
    for job, gpus in zip(jobs, event.gpus, strict=True):
        held.job[list(gpus)] = job
        if table.state[job] != JobState.RUNNING or accounts.gpus[job] != len(gpus):
            _run(state, job, len(gpus))
    for job in before - set(jobs):
        stop_clock(fold.state, job)
        accounts.gpus[job] = 0
        if table.state[job] == JobState.RUNNING:
            _await_round(state, job)
    state.touch(app=app)


def _run(state: State, job: int, gpus: int) -> None:
    """The job runs on so many GPUs of its app from now on."""
    table, accounts = state.jobs.live, state.job_accounts.live
    if math.isnan(table.since[job]):
        table.since[job] = state.now
    table.state[job] = JobState.RUNNING
    table.starts[job] += 1
    state.job_ledger.live.starts[job] += 1
    accounts.gpus[job], accounts.reason[job] = gpus, 0
    state.touch(job=job)


def _check_division(fold: _Fold, app: int, jobs: list[int], event: JobsDivided) -> None:
    state, held, table = fold.state, fold.state.holdings.live, fold.state.jobs.live
    named = [gpu for gpus in event.gpus for gpu in gpus]
    if len(event.jobs) != len(event.gpus) or len(set(named)) != len(named) or len(set(jobs)) != len(jobs):
        raise EventError("a division must name each job and each GPU once", value=str(event.gpus), place=event.app)
    for job, gpus in zip(jobs, event.gpus, strict=True):
        if table.app[job] != app:
            raise EventError("a division must name the app's own jobs", value=state.job_id(job), place=event.app)
        if not table.least[job] <= len(gpus) <= table.most[job]:
            rule = f"a job must run on {table.least[job]} to {table.most[job]} GPUs"
            raise EventError(rule, value=str(len(gpus)), place=state.job_id(job))
        for gpu in gpus:
            lease = state.leases.get(int(held.lease[gpu])) if 0 <= gpu < state.cluster.gpus else None
            if lease is None or lease.app != app or lease.job != NONE:
                raise EventError("a division must stay within the app's leases", value=f"GPU {gpu}", place=event.app)


def _paused(fold: _Fold, event: JobPaused) -> None:
    job, state = fold.job(event.job), fold.state
    stop_clock(fold.state, job)
    fold.leave_all(job)
    fold.undivide(job)
    state.jobs.live.state[job] = JobState.PAUSED
    accounts = state.job_accounts.live
    accounts.reason[job], accounts.since[job] = Reason.PAUSED_BY_APP, state.now
    state.touch(job=job)


def _resumed(fold: _Fold, event: JobResumed) -> None:
    job, jobs = fold.job(event.job), fold.state.jobs.live
    if not math.isnan(event.iterations):
        jobs.iterations[job] = event.iterations
    if jobs.state[job] == JobState.PAUSED:
        number = int(fold.state.job_accounts.live.lease[job])
        if number in fold.state.leases:
            jobs.state[job] = JobState.STOPPING  # its last GPUs have not come back; then it waits
        else:
            _await_round(fold.state, job)


def _app_arrived(fold: _Fold, event: AppArrived) -> None:
    state = fold.state
    if event.app in state.app_rows or event.app in state.outcomes:
        raise EventError("an app's id must be new", value=f'"{event.app}"')
    user = _user(state, event.user, event.user_weight)
    row = state.apps.add(
        id=event.app,
        user=user,
        weight=event.weight,
        arrived=state.now,
        tuner_kind=state.tuner_kinds.setdefault(event.tuner_kind, len(state.tuner_kinds)),
        divides=int(event.divides),
    )
    state.app_accounts.add(area_at_arrival=state.contention_area)
    state.app_ledger.add()
    state.app_rows[event.app] = row
    state.touch(app=row)


def _user(state: State, user: UserId, weight: float) -> int:
    row = state.user_rows.get(user)
    if row is None:
        row = state.user_rows[user] = state.users.add(id=user)
    state.users.live.weight[row] = weight
    return row


def _job_added(fold: _Fold, event: JobAdded) -> None:
    state = fold.state
    if event.job in state.job_rows:
        raise EventError("a job's id must be new", value=f'"{event.job}"')
    app = fold.app(event.app)
    if not 1 <= event.least <= event.most:
        raise EventError("a gang must be at least 1, least at most most", value=f"{event.least} to {event.most}")
    types = state.cluster.gpu_types
    row = state.jobs.add(
        id=event.job,
        app=app,
        job_kind=state.kind(event.kind if event.kind is not None else event.app),
        least=event.least,
        most=event.most,
        gpu_type=types.index(event.gpu_type) if event.gpu_type in types else (-1 if event.gpu_type is None else -2),
        cpus=event.cpus_per_gpu,
        memory_gib=event.memory_gib_per_gpu,
        arrived=state.now,
        iterations=event.iterations,
        seconds_per_iteration=event.seconds_per_iteration,
        batch_size=event.batch_size,
    )
    state.arrivals += 1
    state.job_accounts.add(order=state.arrivals)
    state.job_ledger.add()
    state.job_rows[event.job] = row
    _await_round(state, row)


def _lost(fold: _Fold, event: MachineLost) -> None:
    state, held = fold.state, fold.state.holdings.live
    for gpu in _gpus_of(state, event.machine).tolist():
        promised = state.leases.get(int(held.successor[gpu]))
        if promised is not None:
            fold.leave(promised, promised.gpus if promised.job != NONE else np.array([gpu], dtype=np.int64))
        if held.lease[gpu] != NONE:
            give_back(fold, gpu)
        held.state[gpu] = GpuState.DOWN
    state.cause(Cause.CLUSTER_CHANGED)


def _back(fold: _Fold, event: MachineBack) -> None:
    gpus = _gpus_of(fold.state, event.machine)
    states = fold.state.holdings.live.state
    states[gpus[states[gpus] == GpuState.DOWN]] = GpuState.FREE
    fold.state.cause(Cause.CLUSTER_CHANGED)


def _gpus_of(state: State, machine: str) -> Ints:
    for number, known in enumerate(state.cluster.machines):
        if known.name == machine:
            start = state.cluster.machine_start
            return np.arange(start[number], start[number + 1], dtype=np.int64)
    raise EventError("an event must name a machine of the cluster", value=f'"{machine}"')


def _profile_changed(fold: _Fold, event: ProfileChanged) -> None:
    fold.state.fallen_back = False
    fold.state.faults_in_row = 0
    fold.state.cause(Cause.CLUSTER_CHANGED)


def _bid(fold: _Fold, event: BidReceived) -> None:
    open_offer = fold.state.open
    app = fold.app(event.app)
    if open_offer is None or open_offer.offer.id != event.offer:
        standing = "none is open" if open_offer is None else f"{open_offer.offer.id} is open"
        raise EventError(f"a bid must name the open offer ({standing})", value=str(event.offer), place=event.app)
    if open_offer.asked.get(app) != event.app:
        raise EventError("a bid must come from an app that was asked", value=f'"{event.app}"')
    if isinstance(event.form, ByBundle):
        if len(event.form) != 1:
            raise EventError("a bid must be of one claim", value=str(len(event.form)), place=event.app)
        try:
            event.form.check(classes=offer_classes(fold.state.cluster, open_offer.offer), place=event.app)
        except InputError as error:
            raise EventError(error.rule, value=error.value, place=error.place) from error
    open_offer.bids[app] = event.form


_FOLDS: dict[type, Callable[[_Fold, Any], None]] = {
    ProfileChanged: _profile_changed,
    MachineLost: _lost,
    MachineBack: _back,
    Released: _released,
    GpusReturned: _returned,
    JobFinished: _job_finished,
    JobFailed: _job_failed,
    AppFinished: _app_finished,
    AppCancelled: _app_cancelled,
    Started: _started,
    Resized: _resized,
    JobReported: _job_reported,
    RateMeasured: _rate_measured,
    ForecastReported: _forecast,
    Adapted: _adapted,
    JobsDivided: _divided,
    JobPaused: _paused,
    JobResumed: _resumed,
    AppArrived: _app_arrived,
    JobAdded: _job_added,
    BidReceived: _bid,
}

__all__ = ["Epoch", "EventError", "Folded", "fold", "give_back", "revoke", "stop_clock"]
