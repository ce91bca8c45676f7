"""Fold events about apps and jobs into the state: arrivals, reports, pauses, ends and bids."""

import math

from eunomia.contract import events as kinds
from eunomia.contract.bundles import ByBundle, offer_classes
from eunomia.contract.events import EventError
from eunomia.contract.verdicts import Reason
from eunomia.errors import InputError
from eunomia.fold.folding import Folding, await_round
from eunomia.fold.regimes import check_declared, declares_well, reported_back
from eunomia.model.workload import JobState
from eunomia.store.state import State
from eunomia.store.writers import cause, count, move, subtract
from eunomia.units import NONE, Cause, UserId

_RUNNING, _WAITING = int(JobState.RUNNING), int(JobState.WAITING)
_AWAITING_ROUND = int(Reason.AWAITING_ROUND)


def job_finished(fold: Folding, event: kinds.JobFinished) -> None:
    """Drop a job that finished; its GPUs must be released."""
    fold.remove_job(fold.job(event.job))


def job_failed(fold: Folding, event: kinds.JobFailed) -> None:
    """Drop a failed job, or pause it until it is retried."""
    job = fold.job(event.job)
    if event.again_in is None:
        fold.remove_job(job)
        return
    fold.pause(job, Reason.BACKING_OFF, until=float(fold.state.now + event.again_in))


def app_finished(fold: Folding, event: kinds.AppFinished) -> None:
    """End an app that finished or failed."""
    fold.end_app(fold.app(event.app), "failed" if event.failed else "finished")


def app_cancelled(fold: Folding, event: kinds.AppCancelled) -> None:
    """End an app that its user cancelled."""
    fold.end_app(fold.app(event.app), "cancelled")


def job_reported(fold: Folding, event: kinds.JobReported) -> None:
    """Store a job's reported progress and rate."""
    job, jobs = fold.job(event.job), fold.state.jobs.cells
    if not (math.isfinite(event.iterations_done) and math.isfinite(event.rate)):
        raise EventError("a report must be a number", value=f"{event.iterations_done}, {event.rate}", place=event.job)
    if event.iterations_done < 0.0 or event.rate < 0.0:
        raise EventError("a report must not be negative", value=f"{event.iterations_done}", place=event.job)
    since = fold.time(event.at) if jobs.state[job] == _RUNNING else jobs.since[job]
    fold.state.jobs.set(job, done=event.iterations_done, rate=event.rate, since=since)
    if fold.state.reports.adaptations:
        reported_back(fold.state, job, event.iterations_done)
    fold.state.touch(job=job)


def forecast(fold: Folding, event: kinds.ForecastReported) -> None:
    """Store an app's forecast of its remaining work."""
    app = fold.app(event.app)
    fold.state.reports.forecasts[app] = event.forecast
    fold.state.touch(app=app)
    cause(fold.state, Cause.REPORTED)


def round_ended(fold: Folding, event: kinds.RoundEnded) -> None:
    """Subtract from the ledger the time for which jobs were idle in the executor's round."""
    if len(event.jobs) != len(event.idle_seconds) or not all(0.0 <= idle < math.inf for idle in event.idle_seconds):
        raise EventError("the end of a round must give the idle seconds of each job", value=str(event.idle_seconds))
    state = fold.state
    for job, idle in zip(event.jobs, event.idle_seconds, strict=True):
        row = state.job_row(job)
        if row == NONE:
            continue  # the job ended with the round
        count(state, row, state.now)
        if idle:
            subtract(state, row, float(idle))
        state.touch(job=row)
    cause(state, Cause.BOUNDARY)


def paused(fold: Folding, event: kinds.JobPaused) -> None:
    """Pause a job: it must release its GPUs and requests none."""
    fold.pause(fold.job(event.job), Reason.SUSPENDED if event.suspended else Reason.PAUSED_BY_APP)


def resumed(fold: Folding, event: kinds.JobResumed) -> None:
    """Make a paused job wait again, once its last GPUs are released."""
    job, jobs = fold.job(event.job), fold.state.jobs.live
    if event.most is not None and event.most < jobs.least[job]:
        rule = f"the most GPUs of a job must be at least its least, {jobs.least[job]}"
        raise EventError(rule, value=str(event.most))
    if not math.isnan(event.iterations):
        fold.state.jobs.set(job, iterations=event.iterations)
    if jobs.state[job] == JobState.PAUSED:
        if event.most is not None:  # the sizes of waiting jobs are summed in ``waiting_jobs.asked``
            most = _usable(fold.state, int(jobs.least[job]), event.most, int(jobs.gpu_type[job]))
            fold.state.jobs.set(job, most=most)
        number = int(jobs.lease[job])
        if number in fold.state.leases:
            move(fold.state, job, JobState.STOPPING)  # the job waits once its last GPUs are released
        else:
            await_round(fold.state, job)


def app_arrived(fold: Folding, event: kinds.AppArrived) -> None:
    """Add an app, and its user if that is new."""
    names = fold.state.names
    if event.again and event.app not in names.apps and event.app in names.outcomes:
        del names.outcomes[event.app]  # it has released all its GPUs, and continues
    elif event.app in names.apps or event.app in names.outcomes:
        raise EventError("an app's id must be new", value=f'"{event.app}"')
    fold.state.touch(app=_enter_app(fold.state, event))


def _enter_app(state: State, event: kinds.AppArrived) -> int:
    tuner, tuners = event.tuner_kind, state.names.tuner_kinds
    row = state.apps.add(
        id=event.app,
        user=_user(state, event.user, event.user_weight),
        weight=event.weight,
        arrived=state.now,
        tuner_kind=tuners[tuner] if tuner in tuners else tuners.setdefault(tuner, len(tuners)),
        divides=event.divides,
        area_at_arrival=state.counters.contention_area,
    )
    state.names.apps[event.app] = row
    state.owners.present += 1
    state.service.app_ledger = None
    return row


def single_job_arrived(fold: Folding, event: kinds.SingleJobArrived) -> bool:
    """Add an app with its first job; return False, changing nothing, if the parts must be applied one by one."""
    state, arrival, job = fold.state, event.arrival, event.job
    app = arrival.app
    if app in state.names.apps or app in state.names.outcomes or job.app != app or job.job in state.names.jobs:
        return False
    if not 1 <= job.least <= job.most or not declares_well(job):
        return False
    _enter_job(state, job, _enter_app(state, arrival))
    return True


def _user(state: State, user: UserId, weight: float) -> int:
    users = state.names.users
    row = users[user] if user in users else users.setdefault(user, state.users.add(id=user))
    if state.users.cells.weight[row] != weight:
        state.users.set(row, weight=weight)
    return row


def job_added(fold: Folding, event: kinds.JobAdded) -> None:
    """Add a job, which waits for the next round."""
    state = fold.state
    if event.job in state.names.jobs:
        raise EventError("a job's id must be new", value=f'"{event.job}"')
    app = fold.app(event.app)
    if not 1 <= event.least <= event.most:
        raise EventError("a gang must be at least 1, least at most most", value=f"{event.least} to {event.most}")
    check_declared(event)
    _enter_job(state, event, app)


def _usable(state: State, least: int, most: int, gpu_type: int) -> int:
    """Return a job's maximum size limited to the cluster's GPUs; at least ``least``, so that larger jobs are kept."""
    installed = state.capacity.installed(gpu_type)
    return most if most <= installed else max(least, installed)


def _enter_job(state: State, event: kinds.JobAdded, app: int) -> None:
    types, kind, kinds = state.cluster.gpu_types, NONE, state.names.kinds
    if event.gpu_type is not None:
        kind = types.index(event.gpu_type) if event.gpu_type in types else -2
    name = event.kind if event.kind is not None else event.app
    state.counters.arrivals += 1
    most = _usable(state, event.least, event.most, kind)
    row = state.names.jobs[event.job] = state.jobs.add(
        id=event.job,
        app=app,
        arrived=state.now,
        job_kind=kinds[name] if name in kinds else kinds.setdefault(name, len(kinds)),
        gpu_type=kind,
        least=event.least,
        most=most,
        cpus=event.cpus_per_gpu,
        memory_gib=event.memory_gib_per_gpu,
        iterations=event.iterations,
        seconds_per_iteration=event.seconds_per_iteration,
        batch_size=event.batch_size,
        adapts=event.adapts,
        epochs=event.epochs,
        samples_per_epoch=event.samples_per_epoch,
        order=state.counters.arrivals,
        state=_WAITING,
        reason=_AWAITING_ROUND,
        verdict_round=state.counters.round,
        verdict_at=state.now,
        counted_at=state.now,
    )
    state.waiting_jobs.moved(row, 0, _WAITING, most, most)
    state.service.job_ledger = None
    if kind < NONE or most < event.most:
        state.reports.wishes[row] = event.gpu_type, event.most
    state.owners.jobs_of.setdefault(app, set()).add(row)
    if -math.inf < event.cpus_per_gpu < math.inf or -math.inf < event.memory_gib_per_gpu < math.inf:  # NaN: not given
        state.amounts.uneven = True
    state.changes.rows += (row, ~app)
    cause(state, Cause.ARRIVED)


def profile_changed(fold: Folding, event: kinds.ProfileChanged) -> None:
    """Return from the fallback to the chosen profile."""
    fold.state.counters.fallen_back = False
    fold.state.counters.faults_in_row = 0
    cause(fold.state, Cause.CLUSTER_CHANGED)


def bid(fold: Folding, event: kinds.BidReceived) -> None:
    """Check a bid against the open offer and store it."""
    open_offer = fold.state.open
    app = fold.app(event.app)
    if open_offer is None or open_offer.offer.id != event.offer:
        found = "none is open" if open_offer is None else f"{open_offer.offer.id} is open"
        raise EventError(f"a bid must name the open offer ({found})", value=str(event.offer), place=event.app)
    if open_offer.asked.get(app) != event.app:
        raise EventError("a bid must come from an app that was asked", value=f'"{event.app}"')
    if isinstance(event.form, ByBundle):
        if len(event.form) != 1:
            raise EventError("a bid must be of one claim", value=str(len(event.form)), place=event.app)
        known = next((form.classes for form in open_offer.bids.values() if isinstance(form, ByBundle)), None)
        try:
            classes = offer_classes(fold.state.cluster, open_offer.offer) if known is None else known
            event.form.check(classes=classes, place=event.app)
        except InputError as error:
            raise EventError(error.rule, value=error.value, place=error.place) from error
    open_offer.bids[app] = event.form
