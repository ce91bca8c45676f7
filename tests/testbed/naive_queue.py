"""Gangs on GPUs that are all alike, worked out the slow way: at every event all jobs are ranked anew, one by one.

It shares nothing with the arbiter, its stages or the simulator: plain lists, no columns, no caches, no placement.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Asked(NamedTuple):
    """A job as a trace tells it."""

    arrival: float
    gpus: int
    duration: float


@dataclass(slots=True)
class Job:
    number: int
    asked: Asked
    left: float
    received: float = 0.0
    """GPU-seconds, up to ``since`` where it runs."""
    since: float | None = None
    """When it was last counted; None: it waits."""

    def count(self, now: float) -> None:
        """Book what it did up to now."""
        if self.since is not None:
            self.left -= now - self.since
            self.received += (now - self.since) * self.asked.gpus
            self.since = now

    def ends_at(self) -> float:
        return math.inf if self.since is None else self.since + self.left


Key = Callable[[Job], tuple[float, ...]]
FIFO: Key = lambda job: (job.asked.arrival,)  # noqa: E731
SRTF: Key = lambda job: (job.left, job.asked.arrival)  # noqa: E731


def las(queues: Sequence[float] = ()) -> Key:
    """By GPU-seconds, or by the queue that they put a job into."""

    def key(job: Job) -> tuple[float, ...]:
        behind = float(sum(job.received >= end - 1e-6 for end in queues)) if queues else job.received
        return behind, job.asked.arrival

    return key


def finish_times(
    jobs: Sequence[Asked],
    gpus: int,
    key: Key,
    *,
    preemptive: bool,
    every: float | None = None,
    queues: Sequence[float] = (),
) -> list[float]:
    """When each job is done.

    Args:
        jobs: in any order.
        gpus: of the cluster.
        key: least first.
        preemptive: whether running jobs are ranked too.
        every: seconds between rounds that are held whatever happens.
        queues: GPU-seconds at which a job's key changes while it runs.
    """
    todo = sorted((Job(number, asked, asked.duration) for number, asked in enumerate(jobs)), key=_by_arrival)
    here: list[Job] = []
    done = [math.nan] * len(jobs)
    now, boundary = 0.0, 0.0
    while todo or here:
        now = min(
            todo[0].asked.arrival if todo else math.inf,
            min((job.ends_at() for job in here), default=math.inf),
            boundary + every if every is not None and here else math.inf,
            min((_crosses(job, queues) for job in here), default=math.inf),
        )
        for job in here:
            job.count(now)
        for job in [job for job in here if job.left <= 1e-9]:
            here.remove(job)
            done[job.number] = now
        while todo and todo[0].asked.arrival <= now:
            here.append(todo.pop(0))
        if every is not None and now >= boundary + every:
            boundary = math.floor(now / every) * every
        _serve(here, gpus, key, preemptive=preemptive, now=now)
    return done


def _by_arrival(job: Job) -> tuple[float, int]:
    return job.asked.arrival, job.number


def _crosses(job: Job, queues: Sequence[float]) -> float:
    if job.since is None:
        return math.inf
    ahead = [end for end in queues if end > job.received + 1e-6]
    return job.since + (ahead[0] - job.received) / job.asked.gpus if ahead else math.inf


def _serve(here: list[Job], gpus: int, key: Key, *, preemptive: bool, now: float) -> None:
    """Go down the order; who does not fit is passed."""
    ranked = [job for job in here if preemptive or job.since is None]
    free = gpus - sum(job.asked.gpus for job in here if not preemptive and job.since is not None)
    for job in sorted(ranked, key=key):
        if job.asked.gpus <= free:
            free -= job.asked.gpus
            job.since = now
        else:
            job.since = None
