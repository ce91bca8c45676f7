"""Coverage of the 95 % intervals of resamples on a queue: `python tests/benchmarks/bench_coverage.py [TRIALS]`.

Eight servers, 300 jobs, 100 resamples; log ratio of mean times in the system, shortest first over first come. Beside
Poisson arrivals and bursts, the load alternates between stretches of some 30 jobs, longer than a block.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "testbed"))

import test_resampling as lab

from eunomia.units import Reals
from eunomia_testbed.evidence.draws import DrawKind


def alternating(rng: np.random.Generator, load: float) -> tuple[Reals, Reals]:
    """Arrivals whose gaps are 0.6 or 1.4 times the usual for stretches of 30 jobs on average."""
    gaps: list[float] = []
    while len(gaps) < lab.JOBS:
        stretch = rng.exponential(math.exp(0.5) / lab.SERVERS / load, size=rng.geometric(1 / 30))
        gaps += (stretch * rng.choice([0.6, 1.4])).tolist()
    return np.cumsum(gaps[: lab.JOBS]), rng.lognormal(0.0, 1.0, size=lab.JOBS)


def main() -> None:
    """Print a row for each kind of arrivals and load."""
    lab.TRIALS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{'arrivals':<12}{'load':>6}{'percentiles':>13}{'t interval':>12}{'CPU s':>8}   {lab.TRIALS} trials")
    for arrivals in (lab.poisson, lab.bursts, alternating):
        for load in lab.LOADS:
            began = time.process_time()
            found = [lab.coverage(arrivals, load, kind) for kind in (DrawKind.RESAMPLES, DrawKind.SEEDS)]
            spent = time.process_time() - began
            print(f"{arrivals.__name__:<12}{load:>6}{found[0]:>13.3f}{found[1]:>12.3f}{spent:>8.1f}")


if __name__ == "__main__":
    main()
