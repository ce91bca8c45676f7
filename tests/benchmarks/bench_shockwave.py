"""CPU time of Shockwave's planner, and of whole simulations under the preset.

Run with ``python tests/benchmarks/bench_shockwave.py [--sizes 2000x256,10000x256] [--rounds 20] [--seeds 1,2,3]
[--simulate]``. Jobs are those of Shockwave's generator (0.2 to 5 hours, half Accordion, half GNS), each at a random
point of its life, so that many change their batch size within the window; weights are lognormal, in place of ρ^k. A λ
of 0 to 1 leaves H to the mean of the work; with a large λ and few jobs the longest job sets H and the gap is stated.
Prints CPU milliseconds on one thread, gap, starts and GPU-rounds; asserts no timing. Rates of real jobs lie in
``../shared/data``; without them nothing is run.
"""

import argparse
import time
from pathlib import Path
from typing import Final

import numpy as np

from eunomia_plugins.shockwave.instance import Instance, logarithmic
from eunomia_plugins.shockwave.outlook import Outlook
from eunomia_plugins.shockwave.planner import plan_window
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.workload import Workload

DATA: Final = Path(__file__).resolve().parents[3] / "shared" / "data" / "shockwave"
ROUND: Final = 120.0
SMOOTH: Final = tuple(np.linspace(0.0, 1.0, 51).tolist())


def drawn(jobs: int, gpus: int, rounds: int, seed: int, regularizer: float, points: tuple[float, ...]) -> Instance:
    """Jobs of the generator, each somewhere in its life."""
    rates = str(DATA / "tacc_throughputs.json.gz")
    workload = generate_workload("shockwave", {"jobs": jobs, "throughputs": rates}, seed)
    luck = np.random.default_rng(seed)
    seen = outlook_of(workload, luck.uniform(0.0, 1.0, jobs))
    utility = seen.progress_after(rounds, ROUND)
    return Instance(
        gpus=workload.jobs.most.astype(np.int64),
        value=logarithmic(utility, luck.lognormal(0.0, 0.5, jobs), points, 1e-6),
        left=seen.left,
        total=seen.total,
        capacity=gpus,
        seconds=ROUND,
        regularizer=regularizer,
    )


def outlook_of(workload: Workload, done: np.ndarray) -> Outlook:
    """The regimes that are left of jobs that have done this part of their iterations."""
    jobs = workload.jobs
    width = max((len(life) for life in workload.regimes.values()), default=1)
    work, seconds = np.zeros((workload.size, width)), np.zeros((workload.size, width))
    for job in range(workload.size):
        life = workload.regimes.get(job, ())
        whole = [(one.iterations, one.seconds_per_iteration) for one in life]
        for place, (iterations, pace) in enumerate(
            whole or [(float(jobs.iterations[job]), float(jobs.seconds_per_iteration[job]))]
        ):
            work[job, place], seconds[job, place] = iterations, iterations * pace
    begins = work.cumsum(axis=1) - work
    left = np.clip(begins + work - (done * work.sum(axis=1))[:, None], 0.0, work)
    part = np.divide(left, work, out=np.zeros_like(work), where=work > 0.0)
    attained = (seconds * (1.0 - part)).sum(axis=1)
    return Outlook(progress=done, iterations=left, seconds=seconds * part, attained=attained)


def plans(sizes: str, rounds: int, seeds: list[int]) -> None:
    """Measure the planner, the best of five runs each."""
    print(
        f"{'jobs x GPUs':>14}{'λ':>8}{'log':>8}{'seed':>5}{'ms':>8}{'gap %':>10}{'H by':>9}{'starts':>7}{'used %':>8}"
    )
    for size in sizes.split(","):
        jobs, gpus = map(int, size.split("x"))
        for regularizer in (0.001, 1.0, 100.0):
            for name, points in (("linear", (0.0, 1.0)), ("smooth", SMOOTH)):
                for seed in seeds:
                    instance = drawn(jobs, gpus, rounds, seed, regularizer, points)
                    spent = []
                    for _ in range(5):
                        began = time.process_time()
                        made = plan_window(instance, np.zeros(jobs, dtype=bool))
                        spent.append(1000.0 * (time.process_time() - began))
                    mean, longest = instance.terms(made.rounds.sum(axis=1))
                    record = made.record
                    used = 100.0 * record.granted / (gpus * rounds)
                    row = f"{size:>14}{regularizer:8g}{name:>8}{seed:5}{min(spent):8.1f}{100.0 * record.gap:10.5f}"
                    print(f"{row}{'mean' if mean >= longest else 'longest':>9}{record.starts:7}{used:8.2f}", flush=True)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="120x32,2000x256,10000x256")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", default="1,2,3")
    given = parser.parse_args()
    if not DATA.is_dir():
        print(f"nothing is measured, for the rates are not here: {DATA}")
        return
    plans(given.sizes, given.rounds, [int(seed) for seed in given.seeds.split(",")])


if __name__ == "__main__":
    main()
