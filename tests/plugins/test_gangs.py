"""Jobs in a queue are served as when all jobs are ranked: in random histories, ties included."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Facts, Linear
from eunomia.contract.index import Bucket, Queue, Ranked, UndecidedError
from eunomia.units import NONE, Seconds
from eunomia_plugins.allocations import gangs
from eunomia_plugins.allocations.gangs import Grant, Served, choose, preempt, serve

TYPES = 2
slopes = st.sampled_from([0.0, 1.0, 2.0, -1.0])
sizes = st.sampled_from([1, 1, 2, 3, 8])
kinds = st.integers(NONE, TYPES - 1)


class Job(SimpleNamespace):
    """A job as the model knows it: ``line``, ``gpus``, ``kind`` and, where it runs, ``movable`` and ``protected``."""


class Jobs:
    """The rows that a queue reads; jobs arrive in the order of their rows."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rows: dict[int, Job] = {}
        self.keys_asked: list[int] = []
        self.queue = Queue(self.key, self.read, running=True)

    def key(self, facts: Facts, row: int) -> Linear:
        self.keys_asked.append(row)
        line: Linear = self.rows[row].line
        return line

    def read(self, row: int) -> Ranked | None:
        job = self.rows.get(row)
        if job is None:
            return None
        if not job.runs:
            return False, job.gpus, job.kind, False, row, -math.inf
        return True, job.gpus, job.kind, job.movable, row, job.protected

    def update(self, *rows: int, whole: bool = False) -> None:
        unread: Any = None
        facts = Facts(Seconds(self.now), *[unread] * (len(Facts._fields) - 1))
        if whole:
            self.queue = Queue(self.key, self.read, running=True)
        self.queue.update(facts, list(self.rows) if whole else list(rows))

    def waits(self, row: int, key: float, kind: int, gpus: int) -> None:
        self.rows[row] = Job(runs=False, line=Linear(key), kind=kind, gpus=gpus)

    def runs(
        self, row: int, line: Linear, gpus: int, kind: int, *, movable: bool = True, until: float = -math.inf
    ) -> None:
        self.rows[row] = Job(runs=True, line=line, gpus=gpus, kind=kind, movable=movable, protected=until)

    def present_key(self, row: int) -> float:
        line: Linear = self.rows[row].line
        return line.at_zero + line.slope * self.now

    def in_order(self) -> list[int]:
        there = [row for row, job in self.rows.items() if not job.runs or job.protected <= self.now]
        return sorted(there, key=lambda row: (self.present_key(row), row))


def rank_all(jobs: Jobs, free: list[int]) -> Served:
    """The model of ``preempt``: looks at every job in order."""
    left = free.copy()
    for row in jobs.in_order():
        if jobs.rows[row].runs:
            left[jobs.rows[row].kind] += jobs.rows[row].gpus
    idle, grants, evicted, passed = free.copy(), list[Grant](), list[int](), set[Any]()
    for row in jobs.in_order():
        job = jobs.rows[row]
        if job.runs:
            of = choose(left, idle, job.gpus, NONE, job.kind) if job.movable else job.kind
            if job.gpus > left[of]:
                evicted.append(row)
                continue
            left[of] -= job.gpus
            if of != job.kind:
                idle[of] = max(0, idle[of] - job.gpus)
                grants.append((row, of, job.gpus, row))
            continue
        of = choose(left, idle, job.gpus, job.kind)
        if (job.kind, job.gpus) in passed or job.gpus > left[of]:
            passed.add((job.kind, job.gpus))
            continue
        left[of] -= job.gpus
        idle[of] = max(0, idle[of] - job.gpus)
        grants.append((row, of, job.gpus, row))
    return Served(grants, evicted)


CAPACITY = [100, 100]
keys = st.integers(-8, 8).map(float) | st.sampled_from([math.inf, 0.1, 0.3])
arrivals = st.tuples(st.integers(0, 15), keys, slopes, sizes, st.integers(0, TYPES - 1), st.booleans(), keys)
moments = st.tuples(
    st.sampled_from([0.0, 0.0, 1.0, 0.1, 7.0]),
    st.lists(arrivals, max_size=6),
    st.sets(st.integers(0, 15), max_size=3),
    st.lists(st.tuples(keys, kinds, sizes), max_size=5),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
)


@given(st.lists(moments, max_size=12))
def test_over_random_histories_the_queue_serves_the_same_jobs_as_a_full_ranking(history: list[Any]) -> None:
    jobs, whole = Jobs(), Jobs()
    for seconds, arrived, left, waits, free in history:
        jobs.now += seconds
        changed = [*range(20, 25), *left]
        for row in changed:
            jobs.rows.pop(row, None)
        for row, at_zero, slope, gpus, kind, movable, protected in arrived:
            jobs.runs(row, Linear(at_zero, slope), gpus, kind, movable=movable, until=jobs.now + protected)
            changed.append(row)
        for number, (key, kind, gpus) in enumerate(waits):
            jobs.waits(20 + number, key, kind, gpus)
        jobs.update(*changed)
        expected = rank_all(jobs, list(free))
        assert list(jobs.queue.in_order()) == jobs.in_order()
        assert jobs.queue.keys(list(jobs.rows)) == [jobs.present_key(row) for row in jobs.rows]
        assert preempt(jobs.queue, list(free), CAPACITY) == expected
        running = [row for row in jobs.in_order() if jobs.rows[row].runs]
        assert serve(jobs.queue, jobs.queue.exact(running), list(free), CAPACITY) == expected
        whole.rows, whole.now = jobs.rows, jobs.now
        whole.update(whole=True)
        assert preempt(whole.queue, list(free), CAPACITY) == expected


def test_sorting_all_jobs_at_once_gives_the_same_order_as_one_by_one() -> None:
    luck, jobs, few = np.random.default_rng(5), Jobs(), Jobs()
    for row in range(200):
        key, gpus = float(luck.integers(0, 9)), int(luck.integers(1, 4))
        if row % 2:
            jobs.waits(row, key, NONE, gpus)
        else:
            jobs.runs(row, Linear(key, float(luck.integers(0, 3))), gpus, int(luck.integers(0, 2)))
    jobs.now = few.now = 3.0
    few.rows = jobs.rows
    jobs.update(whole=True)
    for row in luck.permutation(200).tolist():
        few.update(row)
    assert list(jobs.queue.in_order()) == list(few.queue.in_order()) == jobs.in_order()
    assert jobs.queue.waiting == few.queue.waiting
    entries = ({kind: bucket.entries for kind, bucket in one.queue.buckets.items()} for one in (jobs, few))
    assert next(entries) == next(entries)


def test_a_key_that_is_no_longer_valid_is_computed_again() -> None:
    jobs = Jobs()
    jobs.runs(3, Linear(0.0, 1.0, 5.0), 2, 1)
    jobs.update(3)
    jobs.rows[3].line = Linear(1.0)
    for now, times in ((4.0, 1), (5.0, 2), (6.0, 2)):
        jobs.now = now
        jobs.update()
        assert jobs.keys_asked == [3] * times
    assert [bucket.entries for bucket in jobs.queue.buckets.values()] == [[(1.0, 3, 3)]]


def test_a_job_enters_its_bucket_when_its_protection_ends() -> None:
    jobs = Jobs()
    jobs.runs(3, Linear(1.0), 2, 1, until=5.0)
    jobs.update(3)
    assert not jobs.queue.buckets
    jobs.now = 4.0
    jobs.update()
    assert not jobs.queue.buckets
    jobs.now = 5.0
    jobs.update()
    assert list(jobs.queue.in_order()) == [3]


def test_jobs_with_keys_that_differ_only_by_rounding_are_ordered_by_arrival() -> None:
    """Two keys that differ at time 0 but are equal now are in the order opposite to arrival in their bucket."""
    jobs = Jobs()
    jobs.now = 2.0**54
    for row, at_zero in ((5, 0.0), (4, 0.5)):
        jobs.runs(row, Linear(at_zero, 1.0), 1, 0, movable=False)
    jobs.waits(20, 0.0, 0, 1)
    jobs.update(4, 5, 20)
    with pytest.raises(UndecidedError):
        serve(jobs.queue, list(jobs.queue.buckets.values()), [0, 0], [2, 0])
    assert preempt(jobs.queue, [0, 0], [2, 0]) == Served([(20, 0, 1, 20)], [5])
    assert rank_all(jobs, [0, 0]).evicted == [5]
    assert list(jobs.queue.in_order()) == [20, 4, 5]


@pytest.mark.parametrize("many", [3, gangs.MAX_BUCKETS, gangs.MAX_BUCKETS + 1])
def test_with_too_many_buckets_all_jobs_are_sorted(many: int) -> None:
    jobs = Jobs()
    for row in range(many):
        jobs.runs(row, Linear(0.0, float(row)), 1, 0)
    jobs.waits(100, -1.0, 0, 1)
    jobs.now = 1.0
    jobs.update(*range(many), 100)
    assert len(jobs.queue.buckets) == many
    assert preempt(jobs.queue, [0, 0], CAPACITY) == rank_all(jobs, [0, 0])
    assert rank_all(jobs, [0, 0]).evicted == [many - 1]


def test_the_latest_validity_of_a_key_replaces_earlier_ones() -> None:
    jobs = Jobs()
    jobs.runs(0, Linear(0.0, 1.0, 5.0), 1, 0)
    jobs.update(0)
    jobs.runs(0, Linear(0.0, 1.0, 9.0), 1, 0)
    jobs.update(0)  # the same entry, which holds longer
    jobs.keys_asked.clear()
    jobs.now = 5.0
    jobs.update()
    assert jobs.keys_asked == []
    jobs.now = 9.0
    jobs.rows[0].line = Linear(3.0)
    jobs.update()
    assert jobs.keys_asked == [0]
    assert list(jobs.queue.buckets) == [(0.0, 1, 0, True)]


class Read(list[Any]):
    """A list that counts how often an entry of it is read."""

    reads = 0

    def __getitem__(self, at: Any) -> Any:
        self.reads += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("at", [0, 1, 2_000, 4_095, 4_096])
def test_a_bucket_of_equal_keys_is_searched_by_bisection(at: int) -> None:
    """Jobs in one queue of ``las`` have equal keys: bisection finds a position among them by arrival."""
    bucket = Bucket((0.0, 1, 0, True))
    bucket.entries = read = Read((1.0, 2 * row, row) for row in range(4_096))
    assert bucket.before(1.0, 2 * at - 1, 0.0, len(bucket.entries)) == at
    if at:
        bucket.check_ties_before(at - 1, 0, 1.0, 2 * at - 2, 0.0)
    assert read.reads < 100
