"""EASY backfilling of gangs on one GPU type, read from sorted queues, with the same decisions as ``backfill``.

The cost of a round grows with the jobs examined, whereas ``backfill`` ranks every candidate: the service ends as soon
as no GPU is left and the first job that does not fit has its reservation.
"""

import heapq
import math
from collections.abc import Iterable
from typing import NamedTuple

from eunomia import Facts, Linear, Menus, Queue, Snapshot
from eunomia.units import NONE
from eunomia_plugins.allocations.gangs import Grant

NEAR_SECONDS = 1e-3
"""Ends that differ by less than this are compared by their exact values, since the sort keys have rounding errors."""


class Filled(NamedTuple):
    """The jobs that start, and the job with a reservation."""

    grants: list[Grant]
    held: int | None
    """Row of the first job that does not fit; None: all fit, or its start is not known."""
    starts_at: float
    """Planned start of that job, in seconds since the arbiter's start; inf if there is no reservation."""


def fill_gaps(snapshot: Snapshot, menus: Menus, queue: Queue, free: int, capacity: int) -> Filled:
    """Start jobs in order; a job that does not fit reserves GPUs, and later jobs start if they do not delay it.

    Args:
        snapshot: the current state.
        menus: the sizes and rates of jobs, with one size per job.
        queue: the waiting jobs, in order of service.
        free: number of free GPUs.
        capacity: number of GPUs of the cluster.
    """
    now, facts, kinds = snapshot.now, queue.facts, queue.facts.jobs.gpu_type
    order = snapshot.jobs.arrived if snapshot.arrivals is None else snapshot.arrivals
    filled, ends, spare = Filled([], None, math.inf), list[tuple[float, int]](), 0
    for job in queue.in_order():
        if free == 0 and filled.held is not None:
            break
        gpus, speed = facts.largest(job)
        if not 0 < gpus <= capacity or kinds[job] not in (NONE, 0):
            continue  # too large for the cluster, or for a type that it does not have
        if gpus <= free:
            end = now + _seconds(facts, job, speed)
            if end <= filled.starts_at or gpus <= spare:
                filled.grants.append((job, 0, gpus, order.item(job)))
                ends.append((end, gpus))
                free -= gpus
                spare -= gpus if end > filled.starts_at else 0
        elif filled.held is None:
            start, left = _first_start(snapshot, menus, gpus, free, ends)
            if start < math.inf:
                filled, spare = Filled(filled.grants, job, start), left
    return filled


def _first_start(
    snapshot: Snapshot, menus: Menus, gpus: int, free: int, ends: Iterable[tuple[float, int]]
) -> tuple[float, int]:
    """Return the first time, in seconds, at which enough GPUs are free (inf: not known), and the number of spare GPUs.

    Args:
        snapshot: the current state.
        menus: the sizes and rates of jobs, with one size per job.
        gpus: number of GPUs that a job waits for.
        free: number of GPUs that are free now.
        ends: end in seconds and number of GPUs of each job that starts now.
    """
    now, index = snapshot.now, snapshot.index
    running = index.queue(_end, menus, running=True, protected=True)
    facts, enough = running.facts, math.inf
    back = [(end, more) for end, more in ends if end < math.inf]
    there = free + sum(more for _, more in back)
    for job in running.in_order(waiting=False):
        held = len(index.gpus_of(job))
        end = _exact_end(facts, job, held)
        if end == math.inf or end > enough + NEAR_SECONDS:
            break
        back.append((end, held))
        there += held
        if there >= gpus and enough == math.inf:
            enough = max(ended for ended, _ in back)
    heapq.heapify(back)
    soon = math.nextafter(now, math.inf)  # GPUs of overdue jobs are not free yet
    at, there = -math.inf, free
    while back and (there < gpus or max(back[0][0], soon) == at):
        end, more = heapq.heappop(back)
        at, there = max(end, soon), there + more
    return (at, there - gpus) if there >= gpus else (math.inf, 0)


def _end(facts: Facts, job: int) -> Linear:
    """Return the sort key of a job, its end; the end of a job that makes no progress yet moves on with time."""
    jobs = facts.jobs
    since, rate, left = jobs.since[job], jobs.rate[job], jobs.iterations[job] - jobs.done[job]
    if since == since and rate > 0.0:
        return Linear(since + left / rate)
    return Linear(_seconds(facts, job, facts.largest(job)[1]), slope=1.0)


def _exact_end(facts: Facts, job: int, gpus: int) -> float:
    """Return the end of a running job in seconds, at its present rate or else that of its menu; inf: not known."""
    jobs, now = facts.jobs, facts.now
    since, rate = jobs.since[job], jobs.rate[job]
    ran = 0.0 if since != since else (now - since) * rate
    left = jobs.iterations[job] - jobs.done[job] - ran
    if not rate > 0.0:
        rate = facts.menus.rate(job, gpus)
    if left != left or not rate > 0.0:
        return math.inf
    return float(now + max(left, 0.0) / rate)


def _seconds(facts: Facts, job: int, speed: float) -> float:
    """Return the run time that a waiting job has left at a speed in iterations per second; inf: not known."""
    left = facts.jobs.iterations[job] - facts.jobs.done[job]
    return float(max(left, 0.0) / speed) if left == left and speed > 0.0 else math.inf
