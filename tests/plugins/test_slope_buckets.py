"""Running jobs in slope buckets are served as when all jobs are ranked: in random histories, ties included."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import LinearKey
from eunomia.units import NONE, Rows
from eunomia_plugins.allocations import slope_buckets
from eunomia_plugins.allocations.preemption import Capacity, ColumnScan, Grant
from eunomia_plugins.allocations.queue import Fits, Queue, ScanResult, scan_all, scan_with
from eunomia_plugins.allocations.slope_buckets import JobKey, SlopeBucket, SlopeBuckets, UndecidedError

TYPES = 2
slopes = st.sampled_from([0.0, 1.0, 2.0, -1.0])
sizes = st.sampled_from([1, 1, 2, 3, 8])
kinds = st.integers(NONE, TYPES - 1)


class FakeSnapshot:
    """The parts of a snapshot and of its live index that slope buckets read; jobs arrive in the order of their rows."""

    def __init__(self) -> None:
        self.now = 0.0
        self.live_index, self.jobs = self, self
        self.gpu_type = np.full(64, NONE, np.int32)
        self.cluster = SimpleNamespace(gpu_type=np.arange(TYPES))
        self.held: dict[int, tuple[int, int]] = {}
        self.protected: dict[int, float] = {}

    def gpus_of(self, row: int) -> Any:
        gpus, kind = self.held[row]
        return np.full(gpus, kind)

    def protected_until(self, row: int) -> float:
        return self.protected[row]


class Running(SimpleNamespace):
    """A running job, as the model represents it."""

    key: JobKey
    gpus: int
    kind: int


def rank_all(waiting: list[tuple[float, int, int, int]], runs: dict[int, Running], free: list[int], now: float) -> Any:
    """The model of ``scan_with``: ranks all jobs; waiting jobs are (key, row, kind, gpus), and rows break ties."""
    turns: list[tuple[float, int, Any]] = [(key, row, (kind, gpus)) for key, row, kind, gpus in waiting]
    turns += [(run.key[0] + run.key[1] * now, row, run) for row, run in runs.items()]
    left = [own + sum(run.gpus for run in runs.values() if run.kind == of) for of, own in enumerate(free)]
    capacity, grants, evicted = Capacity(left, free.copy()), [], []
    passed: set[Any] = set()
    for _, row, job in sorted(turns, key=lambda turn: turn[:2]):
        if isinstance(job, Running):
            of = capacity.choose(job.gpus, NONE, job.kind) if job.movable else job.kind
            if job.gpus > capacity.left[of]:
                evicted.append(row)
                continue
            capacity.take(job.gpus, of, job.kind)
            if of != job.kind:
                grants.append(Grant(row, of, job.gpus))
            continue
        kind, gpus = job
        of = capacity.choose(gpus, kind)
        if job in passed or gpus > capacity.left[of]:
            passed.add(job)
            continue
        capacity.take(gpus, of)
        grants.append(Grant(row, of, gpus))
    return ScanResult(grants, evicted)


def waiting_in(queue: Queue, waiting: list[tuple[float, int, int, int]]) -> None:
    queue.waiting = {}
    for key, row, kind, gpus in sorted(waiting):
        queue.waiting.setdefault((kind, gpus), []).append((key, row, row))


keys_of = st.integers(-8, 8).map(float) | st.sampled_from([math.inf, 0.1, 0.3])
arrivals = st.tuples(st.integers(0, 15), keys_of, slopes, sizes, st.integers(0, TYPES - 1), st.booleans(), keys_of)
moments = st.tuples(
    st.sampled_from([0.0, 0.0, 1.0, 0.1, 7.0]),
    st.lists(arrivals, max_size=6),
    st.sets(st.integers(0, 15), max_size=3),
    st.lists(st.tuples(keys_of, kinds, sizes), max_size=5),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
)


@given(st.lists(moments, max_size=12))
def test_a_random_history_is_served_as_if_all_jobs_were_ranked(history: list[Any]) -> None:
    snapshot, queue = FakeSnapshot(), Queue()
    queue.running = buckets = SlopeBuckets()
    runs: dict[int, Running] = {}
    for seconds, arrived, left, waits, free in history:
        snapshot.now += seconds
        for row in left:
            buckets.drop(row)
            runs.pop(row, None)
        for row, intercept, slope, gpus, kind, movable, protected in arrived:
            buckets.drop(row)
            snapshot.held[row], snapshot.protected[row] = (gpus, kind), snapshot.now + protected
            snapshot.gpu_type[row] = NONE if movable else kind
            key = (intercept, slope, math.inf)
            buckets.add(snapshot, row, row, key)  # type: ignore[arg-type]
            runs[row] = Running(key=key, gpus=gpus, kind=kind, movable=movable)
        buckets.refresh(snapshot, None)  # type: ignore[arg-type]
        here = {row: run for row, run in runs.items() if snapshot.protected[row] <= snapshot.now}
        assert set(buckets.preemptible(snapshot.now).rows.tolist()) == set(here)
        waiting = [(key, 20 + number, kind, gpus) for number, (key, kind, gpus) in enumerate(waits)]
        waiting_in(queue, waiting)
        expected = rank_all(waiting, here, list(free), snapshot.now)
        fits = Fits(np.array([100, 100]))
        assert scan_all(queue, snapshot, list(free), fits) == expected  # type: ignore[arg-type]
        columns = ColumnScan(buckets.preemptible(snapshot.now), list(free))
        assert scan_with(queue, columns, list(free), fits) == expected


def test_a_key_that_is_no_longer_valid_is_recomputed() -> None:
    snapshot, buckets, asked = FakeSnapshot(), SlopeBuckets(), list[int]()
    snapshot.held[3], snapshot.protected[3] = (2, 1), -math.inf

    def key(jobs: Rows) -> LinearKey:
        asked.extend(jobs.tolist())
        return LinearKey(intercept=np.ones(jobs.size))

    buckets.add(snapshot, 3, 3, (0.0, 1.0, 5.0))  # type: ignore[arg-type]
    for now, times in ((4.0, 0), (5.0, 1), (6.0, 1)):
        snapshot.now = now
        buckets.refresh(snapshot, key)  # type: ignore[arg-type]
        assert len(asked) == times
    assert buckets.preemptible(6.0).keys.tolist() == [1.0]


def test_jobs_that_differ_only_before_rounding_go_by_arrival() -> None:
    """Two keys that differ at time 0 but are equal now are in the order opposite to arrival in their bucket."""
    snapshot, queue = FakeSnapshot(), Queue()
    queue.running = buckets = SlopeBuckets()
    snapshot.now = 2.0**54
    runs = {}
    for row, at_zero in ((5, 0.0), (4, 0.5)):
        snapshot.held[row], snapshot.protected[row] = (1, 0), -math.inf
        buckets.add(snapshot, row, row, (at_zero, 1.0, math.inf))  # type: ignore[arg-type]
        runs[row] = Running(key=(at_zero, 1.0), gpus=1, kind=0, movable=False)
    waiting = [(0.0, 20, 0, 1)]
    waiting_in(queue, waiting)
    fits, scan = Fits(np.array([2, 0])), buckets.scan(snapshot.now, [0, 0])
    assert scan is not None
    with pytest.raises(UndecidedError):
        scan_with(queue, scan, [0, 0], fits)
    snapshot.gpu_type[:] = 0
    assert scan_all(queue, snapshot, [0, 0], fits) == ScanResult([Grant(20, 0, 1)], [5])  # type: ignore[arg-type]
    assert rank_all(waiting, runs, [0, 0], snapshot.now).evicted == [5]


def test_with_too_many_buckets_all_jobs_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slope_buckets, "MAX_BUCKETS", 1)
    snapshot, buckets = FakeSnapshot(), SlopeBuckets()
    for row in range(3):
        snapshot.held[row], snapshot.protected[row] = (1, 0), -math.inf
        buckets.add(snapshot, row, row, (0.0, float(row), math.inf))  # type: ignore[arg-type]
    assert buckets.scan(0.0, [0, 0]) is None


class Read(list[Any]):
    """A list that counts how often an entry of it is read."""

    reads = 0

    def __getitem__(self, at: Any) -> Any:
        self.reads += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("at", [0, 1, 2_000, 4_095, 4_096])
def test_a_bucket_in_which_all_keys_are_equal_is_not_read_entry_by_entry(at: int) -> None:
    """Jobs in one queue of ``las`` have equal keys: bisection finds a position among them by arrival."""
    bucket = SlopeBucket((0.0, 1, 0, True))
    bucket.entries = read = Read((1.0, 2 * row, row) for row in range(4_096))
    assert bucket.before((1.0, 2 * at - 1, 9_999), 50.0) == at
    if at:
        assert bucket.checked(at - 1, 0, 50.0) == (1.0, 2 * at - 2)
    assert read.reads < 100
