"""Resamples of a trace: block lengths, circular draws, workloads of drawn apps, and the coverage of the intervals.

The coverage runs the functions that draw and judge on a queue of a few lines, whose truth a long run gives.
"""

import math
from collections.abc import Callable

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia.units import Reals
from eunomia_testbed.evidence.draws import DrawKind, Draws
from eunomia_testbed.evidence.intervals import estimate
from eunomia_testbed.evidence.resampling import Blocks, automatic_blocks, block_length, check_blocks, draw, gaps_of
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.taking import taken


def test_every_app_is_drawn_equally_often() -> None:
    arrivals = np.cumsum(np.ones(60))
    rng = np.random.default_rng(1)
    counts = np.zeros(60)
    for _ in range(2000):
        counts += np.bincount(draw(rng, arrivals, Blocks(apps=10))[0], minlength=60)
    assert counts.mean() == 2000.0
    assert abs(counts - 2000.0).max() < 5.5 * math.sqrt(2000.0)  # as many draws as apps: about Poisson


@given(st.integers(50, 120), st.integers(1, 10), st.integers(0, 2**32))
def test_a_resample_has_as_many_apps_as_the_trace_in_blocks_with_their_gaps(apps: int, block: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(size=apps))
    rows, times = draw(rng, arrivals, Blocks(apps=block))
    gaps = gaps_of(arrivals)
    assert rows.size == times.size == apps
    assert times[0] == 0.0
    assert np.diff(times) == pytest.approx(gaps[rows][1:])
    inside = np.arange(1, apps) % block != 0
    assert (np.diff(rows) % apps == 1)[inside].all()


def test_blocks_by_time_keep_the_time_of_day() -> None:
    rng = np.random.default_rng(2)
    arrivals = np.sort(rng.uniform(0.0, 12 * 86_400.0, size=800))
    rows, times = draw(rng, arrivals, Blocks(apps=66, seconds=86_400.0))
    apart = (times - times[0]) % 86_400.0 - (arrivals[rows] - arrivals[rows[0]]) % 86_400.0
    assert np.minimum(abs(apart), 86_400.0 - abs(apart)).max() < 1e-3
    assert (np.diff(times) >= 0.0).all()
    assert rows.size == 800


def test_correlated_values_need_longer_blocks_than_independent_ones() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(size=2000)
    assert block_length(noise) < 12.0
    slow = np.empty(2000)
    slow[0] = noise[0]
    for at in range(1, 2000):
        slow[at] = 0.9 * slow[at - 1] + noise[at]
    # The optimum of an AR(1) with parameter 0.9, by G / g(0) = 2 * 0.9 / (1 - 0.9^2).
    best = (1.5 * (2 * 0.9 / (1 - 0.81)) ** 2) ** (1 / 3) * 2000 ** (1 / 3)
    assert 0.5 * best < block_length(slow) < 2.0 * best
    assert block_length(np.ones(100)) == 1.0
    assert automatic_blocks(noise**2, noise**2).apps >= math.ceil(math.sqrt(2000))


@pytest.mark.parametrize(
    ("apps", "blocks", "rule"),
    [
        (10, Blocks(apps=2), "at least 50 apps"),
        (60, Blocks(apps=13), "at most a fifth of the trace's 60 apps"),
        (60, Blocks(apps=600), "at most a fifth of the trace's 60 apps"),
        (60, Blocks(apps=6, seconds=86_400.0), "must last 10 days"),
    ],
)
def test_traces_that_are_too_short_are_refused(apps: int, blocks: Blocks, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        check_blocks(blocks, np.arange(apps) * 60.0)


def test_a_workload_of_drawn_apps_keeps_the_data_of_each_app() -> None:
    made = Workload.single_jobs(
        "w",
        ids=["a", "b", "c"],
        users=["u", "v", "u"],
        arrival_seconds=np.array([0.0, 10.0, 30.0]),
        gpus=np.array([1, 2, 4]),
        iterations=np.array([5.0, 6.0, 7.0]),
        seconds_per_iteration=np.ones(3),
        models=["x", None, "y"],
    )
    found = taken(made, np.array([2, 0, 2]), np.array([0.0, 5.0, 25.0]))
    assert list(found.jobs.id) == ["c/0", "a/0", "c~2/0"]
    assert list(found.apps.id) == ["c", "a", "c~2"]
    assert found.jobs.most.tolist() == [4, 1, 4]
    assert found.jobs.arrival_seconds.tolist() == [0.0, 5.0, 25.0]
    assert [found.users.id[user] for user in found.apps.user] == ["u", "u", "u"]
    assert [found.models[kind] for kind in found.jobs.model] == ["y", "x", "y"]


# -- coverage

SERVERS, JOBS, TRIALS, LOADS = 8, 300, 200, (0.8, 0.95)
SEED = 2009


@numba.njit
def first_come(came: Reals, work: Reals) -> float:
    """Mean time in the system of a queue with eight servers, in order of arrival."""
    free, total = np.zeros(SERVERS), 0.0
    for job in range(work.size):
        server = np.argmin(free)
        free[server] = max(came[job], free[server]) + work[job]
        total += free[server] - came[job]
    return total / work.size


@numba.njit
def shortest_first(came: Reals, work: Reals) -> float:
    """Mean time in the system of the same queue, shortest job first, without preemption."""
    free, total, waiting, count, at = np.zeros(SERVERS), 0.0, np.empty(work.size, np.int64), 0, 0
    for _ in range(work.size):
        server = np.argmin(free)
        now = free[server] if count else max(free[server], came[at])
        while at < work.size and came[at] <= now:
            waiting[count] = at
            at, count = at + 1, count + 1
        least = 0
        for place in range(1, count):
            if work[waiting[place]] < work[waiting[least]]:
                least = place
        job, count = waiting[least], count - 1
        waiting[least] = waiting[count]
        free[server] = now + work[job]
        total += free[server] - came[job]
    return total / work.size


def log_ratio(came: Reals, work: Reals) -> float:
    return math.log(shortest_first(came, work) / first_come(came, work))


def poisson(rng: np.random.Generator, load: float) -> tuple[Reals, Reals]:
    work = rng.lognormal(0.0, 1.0, size=JOBS)
    return np.cumsum(rng.exponential(math.exp(0.5) / SERVERS / load, size=JOBS)), work


def bursts(rng: np.random.Generator, load: float) -> tuple[Reals, Reals]:
    """Arrivals in bursts of four on average, a tenth of the usual gap apart."""
    work = rng.lognormal(0.0, 1.0, size=JOBS)
    usual, within = math.exp(0.5) / SERVERS / load, rng.random(JOBS) < 0.75
    gaps = np.where(within, rng.exponential(0.1 * usual, size=JOBS), rng.exponential(3.7 * usual, size=JOBS))
    return np.cumsum(gaps), work


Arrivals = Callable[[np.random.Generator, float], tuple[Reals, Reals]]


def coverage(arrivals: Arrivals, load: float, kind: DrawKind) -> float:
    """The part of intervals that hold the expected log ratio of fresh traces of 300 jobs."""
    rng = np.random.default_rng([SEED, round(100 * load)])
    true, hits = float(np.mean([log_ratio(*arrivals(rng, load)) for _ in range(4000)])), 0
    for _ in range(TRIALS):
        came, work = arrivals(rng, load)
        blocks = automatic_blocks(gaps_of(came), work)
        drawn = [draw(rng, came, blocks) for _ in range(100)]
        ratios = [log_ratio(times, work[rows]) for rows, times in drawn]
        found = estimate(ratios, Draws(kind=kind, count=len(ratios)), whole=log_ratio(came, work))
        assert found is not None and found.low is not None and found.high is not None
        hits += found.low <= true <= found.high
    return hits / TRIALS


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("arrivals", [poisson, bursts])
def test_nominal_95_percent_intervals_of_100_resamples_cover_90_to_98_percent(arrivals: Arrivals, load: float) -> None:
    assert 0.90 <= coverage(arrivals, load, DrawKind.RESAMPLES) <= 0.98


def test_a_t_interval_over_resamples_covers_far_too_little() -> None:
    assert coverage(poisson, 0.8, DrawKind.SEEDS) < 0.35
