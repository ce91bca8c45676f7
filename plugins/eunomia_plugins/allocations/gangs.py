"""Serve rigid jobs from a queue; only jobs that start, move, or are preempted become claims.

The result equals that of ranking all jobs in each round, but only few are read: the first waiting job of each size and
GPU type, and the running jobs ranked behind the best waiting one.
"""

import heapq
import math
from typing import Final, NamedTuple

from eunomia import Queue
from eunomia.contract.index import Bucket, Entry, Size, UndecidedError
from eunomia.units import NONE

MAX_BUCKETS: Final = 64
"""Maximum number of buckets of running jobs; with more, sorting all running jobs is cheaper."""
Head = tuple[Entry, Size, int]
"""The next waiting job of a size: its entry, the size, and its index in the list of that size."""
RunningJob = tuple[Entry, Bucket]
Grant = tuple[int, int, int, float]
"""A served job: its row, the type and number of its GPUs, and its place in the order of arrival."""
Passed = tuple[Bucket, int, int, float]
"""A range of a bucket: the bucket, first and end position, and the growth of its keys since time 0."""


class Served(NamedTuple):
    """The result: jobs that start or change their GPU type, in order of service, and rows of preempted jobs."""

    grants: list[Grant]
    evicted: list[int]


def limit(capacity: list[int], kind: int) -> int:
    """Return the GPUs of a type in service, for -1 (any) those of the largest type; 0 if the type does not exist."""
    if kind == NONE:
        return max(capacity)
    return capacity[kind] if 0 <= kind < len(capacity) else 0


def choose(left: list[int], idle: list[int], gpus: int, kind: int, home: int = NONE) -> int:
    """Return the GPU type that a job gets: the requested or held type, else the one with the most idle GPUs.

    If no type has enough idle GPUs, it is the type with the most GPUs left.

    Args:
        left: [type] GPUs for jobs not served yet: free ones, and those of running jobs not reached yet.
        idle: [type] GPUs that no job holds; they affect which type is chosen, not whether a job fits.
        gpus: number of GPUs that the job needs.
        kind: the requested type; -1: any.
        home: the type that the job holds; -1: it holds no GPUs.
    """
    if kind != NONE:
        return kind
    if home != NONE and gpus <= left[home]:
        return home
    most = max(idle)
    return idle.index(most) if gpus <= most else left.index(max(left))


def serve(queue: Queue, buckets: list[Bucket], free: list[int], capacity: list[int], *, stop: bool = False) -> Served:
    """Serve jobs in order, each with its whole gang or nothing; a running job keeps its GPUs while it fits.

    A running job that no longer fits continues on another GPU type if it can, or else is preempted.

    Args:
        queue: the queue of jobs.
        buckets: the running jobs whose GPUs may be reassigned.
        free: [type] free GPUs.
        capacity: [type] GPUs in service; a job that needs more is left out.
        stop: whether the first waiting job that does not fit ends the service, instead of being skipped.

    Raises:
        UndecidedError: rounding leaves the order of some running jobs undecided.
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
        if gpus <= left[of]:  # the GPUs left only decrease
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
    """Serve all jobs of a queue, with the GPUs of running jobs as well; see ``serve``."""
    if len(queue.buckets) <= MAX_BUCKETS:
        try:
            return serve(queue, list(queue.buckets.values()), free, capacity)
        except UndecidedError:
            pass  # the running jobs are sorted by their present keys
    return serve(queue, queue.exact(), free, capacity)


class _Running:
    """A pass over the running jobs in order of service; they keep their GPUs while enough remain.

    Args:
        buckets: buckets of running jobs.
        now: seconds since the arbiter's start.
        idle: [type] GPUs that no job holds.
        served: the result, to which running jobs that change their type or do not fit are added.

    Attributes:
        left: [type] GPUs left for jobs that have not been served.
    """

    __slots__ = ("_at", "_buckets", "_idle", "_served", "left")

    def __init__(self, buckets: list[Bucket], now: float, idle: list[int], served: Served) -> None:
        self._idle, self._served, self.left = idle, served, idle.copy()
        self._at = [0] * len(buckets)
        self._buckets = [(bucket, len(bucket.entries), bucket.slope * now) for bucket in buckets]
        for bucket, many, _ in self._buckets:
            self.left[bucket.type] += many * bucket.gpus

    def advance(self, key: float, order: float) -> None:
        """Serve the running jobs that come before a waiting job with this key and place of arrival."""
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
        """Return the jobs in these ranges from the first one that does not fit; all jobs before it fit."""
        left, found = [*self.left], list[RunningJob]()
        ends = [_last(one, number, one[2] - 1) for number, one in enumerate(passed)]
        heapq.heapify(ends)
        while min(left) < 0:  # the jobs found so far hold fewer GPUs than are missing
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
    """Return the place of a bucket's job in the reverse order of service; ``number`` identifies the bucket."""
    bucket, first, _, grown = passed
    key, order = bucket.entries[at][0] + grown, bucket.entries[at][1]
    if at > first and bucket.entries[at - 1][0] + grown == key:
        bucket.check_ties_before(at, first, key, order, grown)
    return -key, -order, number, at
