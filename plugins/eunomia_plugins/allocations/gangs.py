"""Serves jobs of one size each from a queue: the only claims are jobs that start, move, or leave for others.

The result equals that of ranking all jobs each round, but only few are looked at: the first waiting job of each size
and GPU type, and the running jobs behind the best waiting one.
"""

import heapq
import math
from typing import Final, NamedTuple

from eunomia import Queue
from eunomia.contract.queues import Bucket, Entry, Size, UndecidedError
from eunomia.units import NONE

MAX_BUCKETS: Final = 64
"""Most buckets of running jobs; with more of them, sorting all running jobs costs less."""
Head = tuple[Entry, Size, int]
"""The next job of a size: its entry, the size, and its index in the list of that size."""
RunningJob = tuple[Entry, Bucket]
Grant = tuple[int, int, int, float]
"""A job that is served: its row, the GPU type and the number of GPUs that it gets, and its place by arrival."""
Passed = tuple[Bucket, int, int, float]
"""A bucket, two positions in it, and what its keys have grown by since time 0."""


class Served(NamedTuple):
    """The answer: jobs that start or change their GPU type, in order of service, and rows of those that leave."""

    grants: list[Grant]
    evicted: list[int]


def limit(capacity: list[int], kind: int) -> int:
    """GPUs of a type in an empty cluster, of the largest one for -1 (any); 0: the cluster does not have the type."""
    if kind == NONE:
        return max(capacity)
    return capacity[kind] if 0 <= kind < len(capacity) else 0


def choose(left: list[int], idle: list[int], gpus: int, kind: int, home: int = NONE) -> int:
    """Return the type that a job gets: the requested or held one, else the one with the most idle GPUs.

    Where no type has enough idle GPUs, it is the one with most GPUs left.

    Args:
        left: by type, GPUs for jobs not served yet: free ones and those of running jobs not reached yet.
        idle: by type, GPUs that no job holds; they decide which type is chosen, not whether a job fits.
        gpus: the least that the job needs.
        kind: the type that it asks for; -1: any.
        home: the type that it holds; -1: it holds nothing.
    """
    if kind != NONE:
        return kind
    if home != NONE and gpus <= left[home]:
        return home
    most = max(idle)
    return idle.index(most) if gpus <= most else left.index(max(left))


def serve(queue: Queue, buckets: list[Bucket], free: list[int], capacity: list[int], *, stop: bool = False) -> Served:
    """Serve jobs in order, each its whole gang or nothing; a running job stays while it fits.

    A running job that no longer fits where it is continues on another type where it may, or leaves.

    Args:
        queue: the jobs.
        buckets: the running jobs whose GPUs are given out too.
        free: free GPUs by type.
        capacity: by type, GPUs in service; a job that needs more is left out.
        stop: whether the first waiting job that does not fit ends the service, instead of being passed over.

    Raises:
        UndecidedError: rounding hides the order of some running jobs.
    """
    heads: list[Head] = [(entries[0], size, 0) for size, entries in queue.waiting.items() if entries]
    if queue.widest > min(capacity):
        heads = [head for head in heads if head[1][1] <= limit(capacity, head[1][0])]
    heapq.heapify(heads)
    served, idle, nothing = Served([], []), [*free], [0] * len(free)
    running = _Running(buckets, queue.facts.now, idle, served) if buckets else None
    left, one_type = running.left if running else [*free], len(nothing) == 1
    while heads:
        (key, order, row), (kind, gpus), at = heads[0]
        of = 0 if one_type else kind if kind != NONE else left.index(max(left))
        if gpus <= left[of]:  # what is left only shrinks
            if running:
                running.advance(key, order)
            if not one_type:
                of = choose(left, idle, gpus, kind)
        if gpus > left[of]:
            if stop or left == nothing:
                break
            heapq.heappop(heads)
            continue
        left[of] -= gpus
        idle[of] = idle[of] - gpus if gpus < idle[of] else 0
        served.grants.append((row, of, gpus, order))
        entries = queue.waiting[kind, gpus]
        if at + 1 < len(entries):
            heapq.heapreplace(heads, (entries[at + 1], (kind, gpus), at + 1))
        else:
            heapq.heappop(heads)
    if running and served.grants:
        running.advance(math.inf, math.inf)
    return served


def preempt(queue: Queue, free: list[int], capacity: list[int]) -> Served:
    """Serve all jobs of a queue, from the GPUs of the running ones too; see ``serve``."""
    if len(queue.buckets) <= MAX_BUCKETS:
        try:
            return serve(queue, list(queue.buckets.values()), free, capacity)
        except UndecidedError:
            pass  # the running jobs are sorted by their present keys
    return serve(queue, queue.exact(), free, capacity)


class _Running:
    """One pass over the running jobs in order of service: they keep their GPUs while enough remain.

    Args:
        buckets: of running jobs.
        now: seconds since the start.
        idle: by type, GPUs that no job holds.
        served: gets the running jobs that change their type, and those that do not fit.

    Attributes:
        left: by type, GPUs that are left for jobs that have not been served.
    """

    __slots__ = ("_at", "_buckets", "_idle", "_served", "left")

    def __init__(self, buckets: list[Bucket], now: float, idle: list[int], served: Served) -> None:
        self._idle, self._served, self.left = idle, served, idle.copy()
        self._at = [0] * len(buckets)
        self._buckets = [(bucket, len(bucket.entries), bucket.slope * now) for bucket in buckets]
        for bucket, many, _ in self._buckets:
            self.left[bucket.type] += many * bucket.gpus

    def advance(self, key: float, order: float) -> None:
        """Serve the running jobs ahead of a waiting job's key and place of arrival."""
        left, at, started, short = self.left, self._at, [*self._at], False
        for number, (bucket, many, grown) in enumerate(self._buckets):
            first, last = at[number], bucket.entries[-1][0] + grown
            if first == many or (last >= key and bucket.entries[first][0] + grown > key):
                continue
            end = many if last < key else bucket.before(key, order, grown, many)
            if end > first:
                at[number] = end
                left[bucket.type] -= (end - first) * bucket.gpus
                short = short or left[bucket.type] < 0
        if short:
            passed = [
                (bucket, first, end, grown)
                for (bucket, _, grown), first, end in zip(self._buckets, started, at, strict=True)
                if end > first
            ]
            self._serve_one_by_one(self._from_first_misfit(passed))

    def _from_first_misfit(self, passed: list[Passed]) -> list[RunningJob]:
        """Jobs between two positions of buckets, from the first one that does not fit on; the jobs before all fit."""
        left, found = [*self.left], list[RunningJob]()
        ends = [_last(one, number, one[2] - 1) for number, one in enumerate(passed)]
        heapq.heapify(ends)
        while min(left) < 0:  # the jobs found so far hold less than what is short
            _, _, number, at = ends[0]
            bucket, first, _, _ = one = passed[number]
            found.append((bucket.entries[at], bucket))
            left[bucket.type] += bucket.gpus
            if at > first:
                heapq.heapreplace(ends, _last(one, number, at - 1))
            else:
                heapq.heappop(ends)
        return found[::-1]

    def _serve_one_by_one(self, rest: list[RunningJob]) -> None:
        left, idle, served = self.left, self._idle, self._served
        for _, bucket in rest:
            left[bucket.type] += bucket.gpus
        for (_, order, row), bucket in rest:
            gpus, home = bucket.gpus, bucket.type
            of = choose(left, idle, gpus, NONE, home) if bucket.movable and len(left) > 1 else home
            if gpus > left[of]:
                served.evicted.append(row)
                continue
            left[of] -= gpus
            if of != home:
                idle[of] = max(0, idle[of] - gpus)
                served.grants.append((row, of, gpus, order))


def _last(passed: Passed, number: int, at: int) -> tuple[float, float, int, int]:
    """Return the place of a bucket's job in the reverse order of service; ``number``: of the bucket."""
    bucket, first, _, grown = passed
    key, order = bucket.entries[at][0] + grown, bucket.entries[at][1]
    if at > first and bucket.entries[at - 1][0] + grown == key:
        bucket.check_ties_before(at, first, key, order, grown)
    return -key, -order, number, at
