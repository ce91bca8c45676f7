"""The writers, which change columns of the tables together with the indexes that depend on them.

Columns on which no index depends are set with ``Table.set``; nothing else writes a table.

The writers accumulate service received, verdicts, changed rows and the area of N_avg. Everything else that the state
stores besides the tables is an index, which can be rebuilt from them.
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


def move(state: State, job: int, to: int, at: Seconds | None = None, *, gpus: int = NONE, reason: int = 0) -> None:
    """Set a job's state from ``at`` on, with the reason if it stops; with ``gpus``, it starts at its declared rate.

    A job that ran makes no progress from ``at`` on; one that grew ran at its old size until its new GPUs were ready.
    """
    jobs, at = state.jobs.cells, state.now if at is None else at
    before, since = jobs.state[job], jobs.since[job]
    if since == since and (to != _RUNNING or gpus != NONE):  # NaN: it did not run
        ran, iterations = at - since, jobs.iterations[job]
        done = jobs.done[job] + (ran if ran > 0.0 else 0.0) * jobs.rate[job]
        jobs.done[job], jobs.since[job] = iterations if done > iterations else done, math.nan  # done NaN: not known
    if gpus != NONE:
        jobs.gpus[job], jobs.reason[job] = gpus, 0
    elif reason:
        jobs.reason[job] = reason
    if to == _WAITING:
        jobs.lease[job] = NONE  # its last GPUs have come back
    if jobs.counted_at[job] != at:  # also where it is NaN: no entry yet
        count(state, job, at)
    jobs.state[job], state.service.job_ledger = to, None
    most = size = jobs.most[job]
    if to in _ON_GPUS:
        lease = state.leases.get(jobs.lease[job]) if gpus == NONE or state.owners.probing else None
        size = jobs.gpus[job] if lease is None else len(lease.home)
    if _WAITING in (before, to) or size < most or state.waiting_jobs.short:
        state.waiting_jobs.moved(job, before, to, most, size)
    if gpus != NONE:
        jobs.since[job] = jobs.verdict_at[job] = at
        jobs.starts[job] += 1
        seconds = jobs.seconds_per_iteration[job]
        if seconds == seconds:  # NaN: not declared
            jobs.rate[job] = (gpus if gpus < most else most) / seconds if seconds else math.inf


def count(state: State, job: int, at: Seconds, *, idle: float = 0.0) -> None:
    """Add to a job's account the time that it ran or waited, and its GPU-seconds, until ``at``.

    ``idle`` seconds, for which it held GPUs without running, are subtracted.
    """
    jobs = state.jobs.cells
    elapsed = at - jobs.counted_at[job]
    if elapsed:  # NaN: the first entry
        now_is = jobs.state[job]
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
    if idle:
        attained, received = jobs.attained[job], jobs.received
        gone = attained if attained < idle else idle
        jobs.attained[job] = attained - gone
        for kind in state.capacity.types:
            left = received[job, kind] - gone * jobs.on[job, kind]
            received[job, kind] = 0.0 if left < 0.0 else left
    state.service.job_ledger = None


def set_verdict(state: State, job: int, verdict: Verdict) -> None:
    """Store the verdict on a job."""
    jobs, (reason, stage, plugin) = state.jobs.cells, verdict
    plugins = state.names.plugins
    number = plugins[plugin] if plugin in plugins else plugins.setdefault(plugin, len(plugins))
    jobs.reason[job], jobs.stage[job], jobs.plugin[job] = reason, stage, number
    jobs.verdict_round[job], jobs.verdict_at[job] = state.counters.round, state.now
    waiting = state.waiting_jobs
    if job in waiting.rows:
        (waiting.off_default.discard if verdict == waiting.default else waiting.off_default.add)(job)


def drop_job(state: State, job: int) -> None:
    """Drop a job that has no GPUs."""
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
    """End an app without jobs; it is dropped once all its GPUs are released."""
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


def grant(state: State, order: Transition, lease: Lease | None = None) -> None:
    """Grant a lease, or a new one, an order's GPUs: it holds free ones, and becomes the successor on others.

    The job of a new lease is started.
    """
    now, gpus, held, jobs = state.now, [*order.listed["gpus"]], state.holdings.cells, state.jobs.cells
    holder, granted = held.lease, lease is not None
    if lease is None:
        names, counters, number, epoch = state.names, state.counters, int(order.lease), int(order.epoch)
        app, job = names.apps[order.app], NONE if order.job is None else names.jobs[order.job]
        lease = state.leases[number] = Lease(id=number, epoch=epoch, app=app, job=job, gpus=gpus, granted_at=now)
        lease.ends_at, lease.protected_until = order.ends_at, order.protected_until
        counters.last_lease = number if number > counters.last_lease else counters.last_lease
        counters.last_epoch = epoch if epoch > counters.last_epoch else counters.last_epoch
        if job == NONE:
            state.owners.shared_by.setdefault(app, set()).add(number)
            state.owners.divided += 1
        else:
            before, waited = jobs.state[job], now - jobs.counted_at[job]
            most, waiting = jobs.most[job], state.waiting_jobs
            if before == _WAITING:
                jobs.waited[job] += waited if waited > 0.0 else 0.0  # NaN: the first entry
                waiting.rows.discard(job)
                waiting.off_default.discard(job)
                waiting.asked -= most
            elif before == _RUNNING:
                count(state, job, now)
            jobs.state[job], jobs.counted_at[job], state.service.job_ledger = _STARTING, now, None
            jobs.lease[job], jobs.reason[job] = number, _AWAITING_RELEASE if order.listed["after"] else 0
            if len(gpus) < most:
                waiting.short.add(job)
            elif waiting.short:
                waiting.short.discard(job)
    free, job, types = gpus, lease.job, state.capacity.type_of
    if granted or order.listed["after"]:
        free = [gpu for gpu in gpus if holder[gpu] == NONE]
    if free:
        state.free_gpus.take(free)
        state.service.app_ledger = None
        if job != NONE and jobs.state[job] == _RUNNING and jobs.counted_at[job] != now:  # also where it is NaN
            count(state, job, now)
    for gpu in free:
        held.app[gpu], held.job[gpu], held.lease[gpu], held.epoch[gpu] = lease.app, job, lease.id, lease.epoch
        held.ends_at[gpu], held.protected_until[gpu] = lease.ends_at, lease.protected_until
        held.state[gpu], held.since[gpu] = _HELD, now
        if job != NONE:
            jobs.on[job, types[gpu]] += 1
    if free != gpus:
        _promise(state, lease, gpus)
    if state.amounts.are_known or state.amounts.uneven:  # else all are 0
        _set_amounts(state, order, lease)
    if free == gpus and not state.amounts.are_known:
        lease.state = LeaseState.ORDERED
    elif granted or free == gpus:  # a new lease that is promised a GPU waits for it
        state.amounts.refresh(lease)
    if lease.ends_at < math.inf or lease.protected_until > now:
        state.lease_ends.granted(lease, now)
    elif state.lease_ends.overdue:
        state.lease_ends.overdue.discard(lease.id)
    state.changes.rows += (~lease.app,) if lease.job == NONE else (lease.job, ~lease.app)


def _promise(state: State, lease: Lease, gpus: Iterable[int]) -> None:
    """Make a lease the successor on GPUs that others hold or that leave; set its terms on those that it holds."""
    held = state.holdings.cells
    for gpu in gpus:
        if held.lease[gpu] != lease.id or held.state[gpu] == _LEAVING:
            held.successor[gpu], held.next_app[gpu], held.next_job[gpu] = lease.id, lease.app, lease.job
        else:
            held.epoch[gpu], held.ends_at[gpu] = lease.epoch, lease.ends_at
            held.protected_until[gpu] = lease.protected_until


def _set_amounts(state: State, order: Transition, lease: Lease) -> None:
    """Set the target CPUs and memory of a lease."""
    amounts = state.amounts
    state.holdings.set(order.gpus, cpus=order.cpus, memory_gib=order.memory_gib)
    if amounts.shares.are_known and not amounts.uneven:
        cpu_shares, memory_shares = amounts.shares.by_gpu
        even = np.array_equal(order.cpus, cpu_shares[order.gpus])
        amounts.uneven = not (even and np.array_equal(order.memory_gib, memory_shares[order.gpus]))
    if amounts.are_known:
        set_ranges(state, order)
        amounts.overtake(lease)


def leave(state: State, lease: Lease, gpus: Iterable[int], fence: int) -> list[int]:
    """Mark GPUs that a lease loses as LEAVING, and withdraw the promises of others.

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
    return mine


def release(state: State, lease: Lease, gpus: Sequence[int], at: Seconds) -> None:
    """Release GPUs of a lease at ``at``: they pass to their successors or become free."""
    held, jobs, on, types = state.holdings.cells, state.jobs.cells, state.jobs.cells.on, state.capacity.type_of
    seconds, heirs = 0.0, dict[int, Lease]()
    for gpu in gpus:
        since, job, successor = held.since[gpu], held.job[gpu], held.successor[gpu]
        if since == since:
            seconds += at - since
        if job != NONE:
            if jobs.state[job] == _RUNNING and jobs.counted_at[job] != state.now:
                count(state, job, state.now)
            on[job, types[gpu]] -= 1
        if successor in state.leases:
            heirs[successor] = state.leases[successor]
    state.apps.cells.gpu_seconds[held.app[gpus[0]]] += seconds
    state.service.app_ledger = None
    free = [gpu for gpu in gpus if held.successor[gpu] not in heirs] if heirs else gpus
    for gpu in gpus if heirs else ():
        if held.successor[gpu] in heirs:
            heir = heirs[held.successor[gpu]]
            job = heir.job
            if job != NONE:
                if jobs.state[job] == _RUNNING and jobs.counted_at[job] != state.now:
                    count(state, job, state.now)
                on[job, types[gpu]] += 1
            held.app[gpu], held.job[gpu], held.lease[gpu], held.epoch[gpu] = heir.app, job, heir.id, heir.epoch
            held.ends_at[gpu], held.protected_until[gpu] = heir.ends_at, heir.protected_until
            held.state[gpu], held.since[gpu] = _HELD, at
            held.successor[gpu] = held.next_app[gpu] = held.next_job[gpu] = NONE
            held.cpus_in_use[gpu] = held.memory_gib_in_use[gpu] = 0.0  # those that are set for the successor stay
    if free:
        state.holdings.clear(free)
        state.free_gpus.give(free)
        if state.capacity.draining:
            withdraw(state, free)
        cause(state, Cause.FREED)
    for heir in heirs.values():
        state.amounts.refresh(heir)
    if lease.id in state.owners.leaving:
        state.owners.leaving[lease.id] -= {*gpus}
        if not state.owners.leaving[lease.id]:
            del state.owners.leaving[lease.id]


def mark(state: State, gpus: Sequence[int], to: int) -> None:
    """Set the state of GPUs without a holder, or on an offer to app masters."""
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
    """Take draining GPUs that are free out of service."""
    draining, states = state.capacity.draining, state.holdings.cells.state
    gone = [gpu for gpu in gpus if gpu in draining and states[gpu] == _FREE]
    state.capacity.drained.update(gone)
    mark(state, gone, _DOWN)


def divide(state: State, gpu: int, job: int) -> None:
    """Assign a GPU of an app to another of the app's jobs, or to none."""
    held, on, kind = state.holdings.cells, state.jobs.cells.on, state.capacity.type_of[gpu]
    for one, sign in ((held.job[gpu], -1), (job, 1)):
        if one != NONE:
            if state.jobs.cells.counted_at[one] != state.now:
                count(state, one, state.now)
            on[one, kind] += sign
    held.job[gpu] = job


def set_ranges(state: State, order: Transition) -> None:
    """Store the range of a lease's CPUs and memory, divided equally among its GPUs."""
    gpus, size = order.gpus, max(1, order.gpus.size)
    if order.cpus_range is not None:
        least, most = order.cpus_range
        state.holdings.set(gpus, least_cpus=least / size, most_cpus=most / size)
    if order.memory_range is not None:
        least, most = order.memory_range
        state.holdings.set(gpus, least_memory_gib=least / size, most_memory_gib=most / size)


def leave_all(state: State, lease: Lease) -> None:
    """Mark a lease as leaving: all its GPUs must be released."""
    if lease.job == NONE and lease.state is not LeaseState.LEAVING:
        state.owners.divided -= 1
    lease.state = LeaseState.LEAVING
    if state.lease_ends.overdue:
        state.lease_ends.released(lease.id)


def forget_probe(state: State, lease: Lease) -> None:
    """End a lease's measurement, which a newer order for the lease replaces."""
    lease.probe = None
    state.owners.probing.pop(lease.id, None)


def drop_lease(state: State, lease: Lease) -> None:
    """Drop a lease without GPUs; an ended app is dropped with its last lease."""
    number, job, owners = lease.id, lease.job, state.owners
    del state.leases[number]
    if state.amounts.are_known:
        state.amounts.drop(number)
    if state.owners.probing:
        state.owners.probing.pop(number, None)
    if state.lease_ends.overdue:
        state.lease_ends.released(number)
    if job != NONE:
        if state.jobs.cells.lease[job] == number:
            state.jobs.set(job, lease=NONE)
        return
    shared = owners.shared_by[lease.app]
    shared.discard(number)
    if lease.state is not LeaseState.LEAVING:
        owners.divided -= 1
    if not shared and state.apps.cells.ended[lease.app]:
        drop_app(state, lease.app)
