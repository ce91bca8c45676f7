"""The simulator, the arbiter and its four stages against a reference that shares nothing with them: every finish time.

2,000 jobs each, most of them waiting for some time; a job's own duration is drawn, so no two keys are ever equal.
"""

import math

import numpy as np
import pytest
from naive_queue import FIFO, SRTF, Asked, Key, finish_times, las

from eunomia import Cluster, Profile
from eunomia_testbed.simulator import Keep, SimulationOptions, simulate_one
from eunomia_testbed.workload import Workload

JOBS = 2_000
PLAIN = SimulationOptions(keep=Keep(rounds=False, leases=False, waits=False, queue=False, timings=False))
QUEUES = (3600.0, 36_000.0)


def drawn(seed: int, jobs: int = JOBS, gap_seconds: float = 33.0) -> list[Asked]:
    """Mostly small jobs of 10 s to 9 h, arriving at random moments."""
    luck = np.random.default_rng(seed)
    arrivals = np.cumsum(luck.exponential(gap_seconds, jobs))
    gpus = luck.choice([1, 2, 4, 8, 16], jobs, p=[0.6, 0.15, 0.1, 0.1, 0.05])
    durations = 10.0 ** luck.uniform(1.0, 4.5, jobs)
    return [Asked(*row) for row in zip(arrivals.tolist(), gpus.tolist(), durations.tolist(), strict=True)]


def workload_of(jobs: list[Asked]) -> Workload:
    arrival, gpus, duration = (np.array(column) for column in zip(*jobs, strict=True))
    return Workload.single_jobs(
        "drawn",
        ids=[f"j{number:05d}" for number in range(len(jobs))],
        arrival_seconds=arrival,
        gpus=gpus,
        iterations=duration,
        seconds_per_iteration=np.ones(len(jobs)),
    )


CASES: dict[str, tuple[str, dict[str, object], Key, dict[str, object]]] = {
    "fifo": ("fifo", {}, FIFO, {"preemptive": False}),
    "srtf": ("srtf", {}, SRTF, {"preemptive": True}),
    "las": ("las", {"rounds.every": "6m", "rounds.protected": "0s"}, las(), {"preemptive": True, "every": 360.0}),
    "las in queues": (
        "las",
        {"plugins.las.queues": list(QUEUES), "rounds.every": "1000d", "rounds.protected": "0s"},
        las(QUEUES),
        {"preemptive": True, "queues": QUEUES},
    ),
}


@pytest.mark.parametrize("cluster", [pytest.param("32x8 V100", marks=pytest.mark.slow), "40x2 V100, 11x16 V100"])
@pytest.mark.parametrize("case", CASES)
def test_finish_times_equal_those_of_the_naive_reference(case: str, cluster: str) -> None:
    policy, settings, key, options = CASES[case]
    jobs = drawn(seed=3)
    expected = finish_times(jobs, 256, key, **options)  # type: ignore[arg-type]
    run = simulate_one(
        workload_of(jobs), Cluster.parse(cluster), Profile.load(policy, settings=settings), options=PLAIN
    )
    waited = np.array(expected) - np.array([job.arrival + job.duration for job in jobs])
    assert np.count_nonzero(waited > 1.0) > JOBS / 20
    assert not any(map(math.isnan, expected))
    # A crossing of queues is met a millisecond late, so that rounding never asks for the same moment twice.
    np.testing.assert_allclose(run.finish_seconds, expected, rtol=0, atol=0.05 if "queues" in options else 1e-6)
