"""The writers, which change columns of the tables together with the indexes that depend on them.

Columns on which no index depends are set with ``Table.set``; nothing else writes a table.

Service received, verdicts and changed rows accumulate and cannot be recomputed. The indexes can be rebuilt from the
tables at any time.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from eunomia.contract.decisions import Transition
from eunomia.contract.verdicts import Reason
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.model.workload import JobState
from eunomia.store.indexes import Verdict
from eunomia.store.state import State
from eunomia.units import NONE, Cause, Seconds

_HELD, _LEAVING, _FREE, _DOWN = int(GpuState.HELD), int(GpuState.LEAVING), int(GpuState.FREE), int(GpuState.DOWN)
_RUNNING, _STARTING, _WAITING = int(JobState.RUNNING), int(JobState.STARTING), int(JobState.WAITING)
_ON_GPUS = (_RUNNING, _STARTING)
_AWAITING_RELEASE = int(Reason.AWAITING_RELEASE)


# --- jobs --------------------------------------------------------------------------------------------------------


def move(state: State, job: int, to: int, at: Seconds | None = None, *, reason: int = 0) -> None:
    """Set a job's state from ``at`` on (seconds; None: now), and its reason unless ``reason`` is 0.

    Progress is counted up to ``at``: a job that grows has run at its old size until its new GPUs were ready.
    """
    jobs, at = state.jobs.cells, state.now if at is None else at
    before, since = jobs.state[job], jobs.since[job]
    if since == since and to != _RUNNING:  # NaN: it did not run
        ran, iterations = at - since, jobs.iterations[job]
        done = jobs.done[job] + (ran if ran > 0.0 else 0.0) * jobs.rate[job]
        jobs.done[job], jobs.since[job] = iterations if done > iterations else done, math.nan  # done NaN: not known
    if reason:
        jobs.reason[job] = reason
    if to == _WAITING:
        jobs.lease[job] = NONE  # its last GPUs have been released
    if jobs.counted_at[job] != at:  # also where it is NaN: no entry yet
        count(state, job, at)
    jobs.state[job], state.service.job_ledger = to, None
    if to in _ON_GPUS or state.waiting_jobs.short:
        _note_size(state, job, before)
    elif _WAITING in (before, to):
        state.waiting_jobs.moved(job, before, to, jobs.most[job], 0)


def run(state: State, job: int, gpus: int, at: Seconds, *, starts: bool) -> None:
    """Mark a job as running on a number of GPUs from ``at`` on, at its declared rate; ``starts`` counts a start."""
    jobs = state.jobs.cells
    if jobs.since[job] == jobs.since[job]:  # it has run at its old size until now
        move(state, job, _STARTING, at)
    if jobs.counted_at[job] != at:  # also where it is NaN: no entry yet
        count(state, job, at)
    before, most, seconds = jobs.state[job], jobs.most[job], jobs.seconds_per_iteration[job]
    jobs.state[job], state.service.job_ledger = _RUNNING, None
    jobs.gpus[job], jobs.reason[job], jobs.since[job], jobs.starts[job] = gpus, 0, at, jobs.starts[job] + starts
    jobs.verdict_at[job] = at if starts else jobs.verdict_at[job]
    if before == _WAITING or gpus < most or state.waiting_jobs.short:
        _note_size(state, job, before)
    if seconds == seconds:  # NaN: not declared
        jobs.rate[job] = (gpus if gpus < most else most) / seconds if seconds else math.inf


def _note_size(state: State, job: int, before: int) -> None:
    """Update the index of waiting jobs after a change of a job's state or size."""
    jobs, lease = state.jobs.cells, state.leases.get(state.jobs.cells.lease[job])
    size = jobs.gpus[job] if lease is None else len(lease.home)
    state.waiting_jobs.moved(job, before, jobs.state[job], jobs.most[job], size)


def count(state: State, job: int, at: Seconds) -> None:
    """Add to a job's columns the seconds that it ran or waited, and its GPU-seconds, up to ``at``."""
    jobs, state.service.job_ledger = state.jobs.cells, None
    elapsed, now_is = at - jobs.counted_at[job], jobs.state[job]
    if elapsed:  # NaN: the first entry
        if now_is == _RUNNING:
            if elapsed == elapsed:
                jobs.attained[job] += elapsed
                received, on = jobs.received, jobs.on
                for kind in state.capacity.types:
                    received[job, kind] += elapsed * on[job, kind]
            jobs.last_ran[job] = at
        elif now_is == _WAITING and elapsed == elapsed:
            jobs.waited[job] += elapsed
        jobs.counted_at[job] = at


def subtract(state: State, job: int, idle: float) -> None:
    """Subtract ``idle`` seconds, in which a job held GPUs without running, from its seconds and GPU-seconds."""
    jobs = state.jobs.live
    gone = min(jobs.attained.item(job), idle)
    left = np.maximum(jobs.received[job] - gone * jobs.on[job], 0.0)
    state.jobs.set(job, attained=jobs.attained[job] - gone, received=left)
    state.service.job_ledger = None


def set_verdict(state: State, job: int, verdict: Verdict) -> None:
    """Store a verdict as the job's last one, with the present round and time."""
    jobs, (reason, stage, plugin) = state.jobs.cells, verdict
    plugins = state.names.plugins
    number = plugins[plugin] if plugin in plugins else plugins.setdefault(plugin, len(plugins))
    jobs.reason[job], jobs.stage[job], jobs.plugin[job] = reason, stage, number
    jobs.verdict_round[job], jobs.verdict_at[job] = state.counters.round, state.now
    waiting = state.waiting_jobs
    if job in waiting.rows:
        (waiting.off_default.discard if verdict == waiting.default else waiting.off_default.add)(job)


def drop_job(state: State, job: int) -> None:
    """Remove a job without GPUs from the table, the names, the reports and the indexes."""
    jobs = state.jobs.cells
    app = jobs.app[job]
    if jobs.state[job] == _WAITING or state.waiting_jobs.short:
        state.waiting_jobs.moved(job, jobs.state[job], 0, jobs.most[job], 0)
    if state.waiting_jobs.backing_off:
        state.waiting_jobs.backing_off.pop(job, None)
    state.owners.jobs_of[app].discard(job)
    del state.names.jobs[jobs.id[job]]
    for by_job in state.reports.by_job:
        if by_job:
            by_job.pop(job, None)
    state.changes.rows += (job, ~app)
    state.jobs.drop(job)
    cause(state, Cause.LEFT)


def close_app(state: State, app: int, outcome: str) -> None:
    """End an app without jobs, with its outcome; the app is dropped once all its GPUs are released."""
    if state.open is not None:
        state.open.bids.pop(app, None)
    state.names.outcomes[state.apps.cells.id[app]] = outcome
    state.service.app_ledger = None
    if state.owners.shared_by.get(app):
        present, rows = state.owners.present, np.array([app])
        mean = state.service.contention(state.now, state.counters.contention_area, rows, present)
        state.apps.set(app, ended=1, contention=mean.item())
    else:
        drop_app(state, app)
    state.owners.present -= 1


def drop_app(state: State, app: int) -> None:
    """Drop an app that has ended and released all its GPUs."""
    del state.names.apps[state.apps.cells.id[app]]
    for by_app in (state.reports.forecasts, state.owners.jobs_of, state.owners.shared_by):
        if app in by_app:
            del by_app[app]
    state.apps.drop(app)


def cause(state: State, cause: Cause) -> None:
    """Record a cause for the next round."""
    counters = state.counters
    if cause not in counters.causes:
        counters.causes |= {cause}
    if state.now < counters.cause_since:
        counters.cause_since = state.now


# --- leases and GPUs ---------------------------------------------------------------------------------------------


def grant(state: State, order: Transition) -> None:
    """Create the lease that an order starts and set its job to STARTING; on GPUs held by others it is the successor."""
    now, gpus, held, jobs = state.now, [*order.listed["gpus"]], state.holdings.cells, state.jobs.cells
    names, counters, number, epoch = state.names, state.counters, int(order.lease), int(order.epoch)
    app, job, after = names.apps[order.app], NONE if order.job is None else names.jobs[order.job], order.listed["after"]
    lease = state.leases[number] = Lease(id=number, epoch=epoch, app=app, job=job, gpus=gpus, granted_at=now)
    ends_at, until = lease.ends_at, lease.protected_until = order.ends_at, order.protected_until
    counters.last_lease = number if number > counters.last_lease else counters.last_lease
    counters.last_epoch = epoch if epoch > counters.last_epoch else counters.last_epoch
    if job == NONE:
        state.owners.shared_by.setdefault(app, set()).add(number)
        state.owners.divided += 1
    else:
        waited, most, waiting = now - jobs.counted_at[job], jobs.most[job], state.waiting_jobs
        if jobs.state[job] == _WAITING:
            jobs.waited[job] += waited if waited > 0.0 else 0.0  # NaN: the first entry
            waiting.rows.discard(job)
            waiting.asked -= most
            if job in waiting.off_default:
                waiting.off_default.discard(job)
        elif jobs.state[job] == _RUNNING:
            count(state, job, now)
        jobs.state[job], jobs.counted_at[job], state.service.job_ledger = _STARTING, now, None
        jobs.lease[job], jobs.reason[job] = number, _AWAITING_RELEASE if after else 0
        if waiting.short or len(gpus) < most:
            waiting.moved(job, _STARTING, _STARTING, most, len(gpus))
    if after or state.amounts.are_known or state.amounts.uneven:
        grant_any(state, order, lease, new=True)
        return
    state.free_gpus.take(gpus)
    state.service.app_ledger, lease.state, types = None, LeaseState.ORDERED, state.capacity.type_of
    for gpu in gpus:
        held.app[gpu], held.job[gpu], held.lease[gpu], held.epoch[gpu] = app, job, number, epoch
        held.ends_at[gpu], held.protected_until[gpu], held.state[gpu], held.since[gpu] = ends_at, until, _HELD, now
        if job != NONE:
            jobs.on[job, types[gpu]] += 1
    if ends_at < math.inf or until > now:
        state.lease_ends.granted(lease, now)
    state.changes.rows += (~app,) if job == NONE else (job, ~app)


def grant_any(state: State, order: Transition, lease: Lease, *, new: bool = False) -> None:
    """Grant a lease an order's GPUs, CPUs and memory; this lease and others may already hold some of the GPUs."""
    gpus = [*order.listed["gpus"]]
    free = _hold(state, lease, gpus, state.now)
    if free:
        state.free_gpus.take(free)
        state.service.app_ledger = None
    if state.amounts.are_known or state.amounts.uneven:  # else all are 0
        _set_amounts(state, order, lease)
    if free == gpus and not state.amounts.are_known:
        lease.state = LeaseState.ORDERED
    elif free == gpus or not new:  # a new lease that is promised a GPU waits for it
        state.amounts.refresh(lease)
    if lease.ends_at < math.inf or lease.protected_until > state.now:
        state.lease_ends.granted(lease, state.now)
    elif state.lease_ends.overdue:
        state.lease_ends.overdue.discard(lease.id)
    state.changes.rows += (~lease.app,) if lease.job == NONE else (lease.job, ~lease.app)


def _hold(state: State, lease: Lease, gpus: Iterable[int], at: Seconds) -> list[int]:
    """Make a lease the holder, from ``at`` on, of those of the given GPUs that have no holder, and return these.

    The lease becomes the successor on GPUs that are leaving or held by others; GPUs that it holds get its new terms.
    """
    held, jobs, job, types = state.holdings.cells, state.jobs.cells, lease.job, state.capacity.type_of
    terms, mine = (lease.epoch, lease.ends_at, lease.protected_until), list[int]()
    for gpu in gpus:
        if held.lease[gpu] == NONE:
            if job != NONE:
                if jobs.state[job] == _RUNNING and jobs.counted_at[job] != state.now:  # also where it is NaN
                    count(state, job, state.now)
                jobs.on[job, types[gpu]] += 1
            held.app[gpu], held.job[gpu], held.lease[gpu] = lease.app, job, lease.id
            held.state[gpu], held.since[gpu] = _HELD, at
            held.successor[gpu] = held.next_app[gpu] = held.next_job[gpu] = NONE
            held.cpus_in_use[gpu] = held.memory_gib_in_use[gpu] = 0.0  # amounts of the previous holder
            mine += (gpu,)
        elif held.lease[gpu] != lease.id or held.state[gpu] == _LEAVING:
            held.successor[gpu], held.next_app[gpu], held.next_job[gpu] = lease.id, lease.app, job
            continue
        held.epoch[gpu], held.ends_at[gpu], held.protected_until[gpu] = terms
    return mine


def _set_amounts(state: State, order: Transition, lease: Lease) -> None:
    """Set the ordered CPUs and memory of a lease's GPUs."""
    amounts = state.amounts
    state.holdings.set(order.gpus, cpus=order.cpus, memory_gib=order.memory_gib)
    if amounts.shares.are_known and not amounts.uneven:
        cpu_shares, memory_shares = amounts.shares.by_gpu
        even = np.array_equal(order.cpus, cpu_shares[order.gpus])
        amounts.uneven = not (even and np.array_equal(order.memory_gib, memory_shares[order.gpus]))
    if amounts.are_known:
        set_ranges(state, order)
        amounts.overtake(lease)


def leave(state: State, lease: Lease, gpus: Iterable[int], fence: int, *, whole: bool = False) -> list[int]:
    """Revoke GPUs of a lease (``whole``: the lease ends): those that it holds become LEAVING, promises are withdrawn.

    Returns:
        The GPUs that the lease holds until executors release them.
    """
    held, number = state.holdings.cells, lease.id
    mine = [gpu for gpu in gpus if held.lease[gpu] == number]
    for gpu in mine:
        held.state[gpu], held.epoch[gpu] = _LEAVING, fence
    for gpu in gpus:
        if held.successor[gpu] == number:
            held.successor[gpu] = NONE
    if mine:
        state.owners.leaving.setdefault(number, set()).update(mine)
    if whole:
        if lease.job == NONE and lease.state is not LeaseState.LEAVING:
            state.owners.divided -= 1
        lease.state = LeaseState.LEAVING
        if state.lease_ends.overdue:
            state.lease_ends.overdue.discard(number)
    return mine


def release(state: State, lease: Lease, gpus: Sequence[int], at: Seconds) -> None:
    """Release GPUs of a lease at ``at``: they pass to their successors or become free."""
    held, jobs, on, types = state.holdings.cells, state.jobs.cells, state.jobs.cells.on, state.capacity.type_of
    seconds, leases, passes = 0.0, state.leases, False
    for gpu in gpus:
        since, job = held.since[gpu], held.job[gpu]
        if since == since:
            seconds += at - since
        if job != NONE:
            if jobs.state[job] == _RUNNING and jobs.counted_at[job] != state.now:
                count(state, job, state.now)
            on[job, types[gpu]] -= 1
        held.lease[gpu], passes = NONE, passes or held.successor[gpu] in leases
    state.apps.cells.gpu_seconds[held.app[gpus[0]]] += seconds
    state.service.app_ledger = None
    passed = _pass_on(state, gpus, at) if passes else {NONE: [*gpus]}
    if NONE in passed:
        state.holdings.clear(passed[NONE])
        state.free_gpus.give(passed[NONE])
        if state.capacity.draining:
            withdraw(state, passed[NONE])
        cause(state, Cause.FREED)
    for heir in passed:
        if heir != NONE:
            state.amounts.refresh(leases[heir])
    if lease.id in state.owners.leaving:
        state.owners.leaving[lease.id] -= {*gpus}
        if not state.owners.leaving[lease.id]:
            del state.owners.leaving[lease.id]


def _pass_on(state: State, gpus: Sequence[int], at: Seconds) -> dict[int, list[int]]:
    """Pass released GPUs to their successors; return them by the lease that gets them, or -1 for no lease."""
    successor, leases = state.holdings.cells.successor, state.leases
    passed: dict[int, list[int]] = {}
    for gpu in gpus:
        heir = successor[gpu] if successor[gpu] in leases else NONE
        if heir not in passed:
            passed[heir] = []
        passed[heir] += (gpu,)
    for heir, mine in passed.items():
        if heir != NONE:
            _hold(state, leases[heir], mine, at)
    return passed


def mark(state: State, gpus: Sequence[int], to: int) -> None:
    """Set the state of GPUs that have no holder or are on an offer to app masters."""
    states = state.holdings.cells.state
    came = [gpu for gpu in gpus if to == _FREE and states[gpu] != _FREE]
    gone = [gpu for gpu in gpus if to != _FREE and states[gpu] == _FREE]
    recount = to == _DOWN or any(states[gpu] == _DOWN for gpu in gpus)
    for gpu in gpus:
        states[gpu] = to
    if recount:
        state.capacity.count()
    if came:
        state.free_gpus.give(came)
    if gone:
        state.free_gpus.take(gone)


def withdraw(state: State, gpus: Iterable[int]) -> None:
    """Mark those of the given GPUs that are free and draining as down."""
    draining, states = state.capacity.draining, state.holdings.cells.state
    gone = [gpu for gpu in gpus if gpu in draining and states[gpu] == _FREE]
    state.capacity.drained.update(gone)
    mark(state, gone, _DOWN)


def divide(state: State, gpu: int, job: int) -> None:
    """Assign a GPU of an app to another of the app's jobs, or to none."""
    jobs, kind = state.jobs.cells, state.capacity.type_of[gpu]
    for one, more in ((state.holdings.cells.job[gpu], -1), (job, 1)):
        if one != NONE:
            if jobs.counted_at[one] != state.now:
                count(state, one, state.now)
            state.jobs.set((one, kind), on=jobs.on[one, kind] + more)
    state.holdings.set(gpu, job=job)


def set_ranges(state: State, order: Transition) -> None:
    """Store the range of a lease's CPUs and memory, divided equally among its GPUs."""
    gpus, size = order.gpus, max(1, order.gpus.size)
    if order.cpus_range is not None:
        least, most = order.cpus_range
        state.holdings.set(gpus, least_cpus=least / size, most_cpus=most / size)
    if order.memory_range is not None:
        least, most = order.memory_range
        state.holdings.set(gpus, least_memory_gib=least / size, most_memory_gib=most / size)


def forget_probe(state: State, lease: Lease) -> None:
    """End a lease's measurement, which a newer order for the lease replaces."""
    lease.probe = None
    state.owners.probing.pop(lease.id, None)


def drop_lease(state: State, lease: Lease) -> None:
    """Drop a lease without GPUs; an ended app is dropped with its last lease."""
    number, job = lease.id, lease.job
    del state.leases[number]
    if state.amounts.are_known:
        state.amounts.drop(number)
    if state.owners.probing or state.lease_ends.overdue:
        state.owners.probing.pop(number, None)
        state.lease_ends.overdue.discard(number)
    if job != NONE:
        if state.jobs.cells.lease[job] == number:
            state.jobs.set(job, lease=NONE)
        return
    shared = state.owners.shared_by[lease.app]
    shared.discard(number)
    if lease.state is not LeaseState.LEAVING:
        state.owners.divided -= 1
    if not shared and state.apps.cells.ended[lease.app]:
        drop_app(state, lease.app)
