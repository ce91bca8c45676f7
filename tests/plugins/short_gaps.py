"""A backfilling allocation as the guide on allocations teaches it, with public names alone; it decides as ``easy``."""

import heapq
import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from eunomia import (
    Allocation,
    Claims,
    Contract,
    Facts,
    Feature,
    Grants,
    Linear,
    Menus,
    Offer,
    Scores,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    hookimpl,
)


def seconds_left(facts: Facts, job: int) -> float:
    """The run time that a job has left on all its GPUs; infinite where it is not known."""
    _, speed = facts.largest(job)  # iterations a second
    left = (facts.jobs.iterations[job] - facts.jobs.done[job]) / speed
    return left if left == left else math.inf  # NaN: not known


def end(facts: Facts, job: int) -> Linear:
    """When a job ends; the end of a job that has not begun to run lies ahead."""
    since, rate = facts.jobs.since[job], facts.jobs.rate[job]
    if since == since and rate > 0.0:
        return Linear(since + (facts.jobs.iterations[job] - facts.jobs.done[job]) / rate)
    return Linear(seconds_left(facts, job), slope=1.0)


class ShortGaps:
    """Jobs in order; a later job passes if the first that does not fit starts no later for it (EASY backfilling)."""

    name = "short_gaps"
    api = 1
    contracts: ClassVar = {
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.SCORES, Feature.ONE_GPU_TYPE}),
            gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}),
        )
    }

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Names the jobs that start; the GPUs of running jobs stay where they are."""
        index, facts = snapshot.index, snapshot.index.facts(menus)
        order = valuations.form(Scores).key
        if order is None:
            raise ValueError("short_gaps needs an order with a key of each job, such as fifo")
        waiting = index.queue(order, menus, running=False)
        free, started = index.free.free[0], list[tuple[float, int, int]]()
        held_from, spare = math.inf, 0  # when the first job that does not fit starts, and GPUs that it leaves then
        for job in waiting.in_order():
            gpus, ends = facts.largest(job)[0], snapshot.now + seconds_left(facts, job)
            if free == 0 and held_from < math.inf:
                break
            if gpus <= free and (ends <= held_from or gpus <= spare):
                started.append((ends, job, gpus))
                free -= gpus
                spare -= gpus if ends > held_from else 0
            elif gpus > free and held_from == math.inf and gpus <= offer.capacity[0]:
                there = free
                for at, _, back in heapq.merge(sorted(started), self.ends(snapshot, menus)):
                    there += back
                    if there >= gpus and at < math.inf:
                        held_from, spare = max(at, math.nextafter(snapshot.now, math.inf)), there - gpus
                        break
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=np.array([job for _, job, _ in started], np.int32)),
            amount=Grants(gpus=np.array([gpus for _, _, gpus in started], np.int64)),
            order=np.arange(len(started), dtype=np.int32),
        )

    def ends(self, snapshot: Snapshot, menus: Menus) -> Iterator[tuple[float, int, int]]:
        """The running jobs, the first to end first: when, the job, and its GPUs."""
        running = snapshot.index.queue(end, menus, running=True, protected=True)
        for job in running.in_order(waiting=False):
            line = end(running.facts, job)
            yield line.at_zero + line.slope * snapshot.now, job, len(snapshot.index.gpus_of(job))
