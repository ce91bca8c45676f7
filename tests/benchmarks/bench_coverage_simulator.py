"""Coverage of the intervals of resamples with the simulator: ``python tests/benchmarks/bench_coverage_simulator.py``.

Options: ``[TRIALS] [JOBS] [RESAMPLES]``, by default 40, 120 and 39. Each trial draws a trace of lognormal jobs on four
GPUs at a load of 0.8, simulates it and its resamples under FIFO and SRTF, and asks whether the 95 % interval of the log
ratio of mean JCTs holds the mean over fresh traces. ``bench_coverage.py`` does so for a queue of a few lines.
"""

import math
import sys
import time
from typing import Final

import numpy as np

from eunomia import Cluster, Profile
from eunomia_testbed.evidence.draws import DrawKind, Draws
from eunomia_testbed.evidence.intervals import estimate
from eunomia_testbed.running.resamples import KEPT, resampling_of
from eunomia_testbed.simulator import SimulationOptions, simulate_one
from eunomia_testbed.workload import Workload

GPUS, LOAD = 4, 0.8
FRESH: Final = 10
"""Fresh traces for the truth, as a multiple of the trials."""


def trace(rng: np.random.Generator, jobs: int) -> Workload:
    """Poisson arrivals of jobs of one GPU, with lognormal lengths."""
    return Workload.single_jobs(
        "drawn",
        ids=[f"j{at}" for at in range(jobs)],
        arrival_seconds=np.cumsum(rng.exponential(600.0 * math.exp(0.5) / GPUS / LOAD, jobs)),
        gpus=np.ones(jobs, int),
        iterations=600.0 * rng.lognormal(0.0, 1.0, jobs),
        seconds_per_iteration=np.ones(jobs),
    )


def log_ratio(workload: Workload) -> float:
    """ln(mean JCT under SRTF / mean JCT under FIFO)."""
    cluster, options = Cluster.parse(f"1x{GPUS} V100"), SimulationOptions(keep=KEPT)
    means = []
    for name in ("srtf", "fifo"):
        run = simulate_one(workload, cluster, Profile.load(name), options=options)
        means.append(float(np.mean(run.finish_seconds - workload.jobs.arrival_seconds)))
    return math.log(means[0] / means[1])


def main(trials: int, jobs: int, resamples: int) -> None:
    """Print the coverage and the CPU time."""
    rng, began = np.random.default_rng([27, jobs, resamples]), time.process_time()
    true = float(np.mean([log_ratio(trace(rng, jobs)) for _ in range(FRESH * trials)]))
    hits = 0
    for number in range(trials):
        mine = trace(rng, jobs)
        resampling = resampling_of(mine, resamples, seed=number, block=None)
        ratios = [log_ratio(resampling.workload(mine, each)) for each in range(1, resamples + 1)]
        found = estimate(ratios, Draws(kind=DrawKind.RESAMPLES, count=resamples), whole=log_ratio(mine))
        assert found is not None and found.low is not None and found.high is not None
        hits += found.low <= true <= found.high
        if (number + 1) % max(1, trials // 4) == 0:
            print(f"{number + 1} trials: {hits / (number + 1):.1%}", flush=True)
    error = math.sqrt(hits / trials * (1 - hits / trials) / trials)
    print(
        f"{hits} of {trials} intervals hold {true:.4f}: {hits / trials:.1%} (standard error {error:.1%}); "
        f"{jobs} jobs, {resamples} resamples, {time.process_time() - began:.0f} s of CPU time"
    )


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*(given + [40, 120, 39][len(given) :]))
