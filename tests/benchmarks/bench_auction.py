"""CPU time of the Themis auction with all payments, first call and warm, and its distance to the specification.

Run it by ``python tests/benchmarks/bench_auction.py`` from the repository with the six roots on ``PYTHONPATH``, or
with ``--specification 200`` for the comparison on that many random instances alone.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eunomia.contract.bundles import ByBundle, MachineClasses
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.units import Locality
from eunomia_plugins.themis.auction import Method, run_auction
from eunomia_plugins.themis.reference import Specification
from eunomia_plugins.themis.rho import BidContext, bid, ideal_seconds, rho_now
from eunomia_plugins.themis.work import RemainingWork


@dataclass(frozen=True, slots=True)
class Case:
    """Machines as (number, GPUs each), and the bidders."""

    name: str
    machines: tuple[tuple[int, int], ...]
    apps: int
    most: tuple[int, ...]
    limit_ms: float

    @property
    def gpus(self) -> int:
        return sum(number * gpus for number, gpus in self.machines)


CASES = (
    Case("64 GPUs, 8 machines of 2 and 12 of 4, 20 apps", ((8, 2), (12, 4)), 20, (4, 8, 16), 10.0),
    Case("4096 GPUs, machines of 8, 100 apps", ((512, 8),), 100, (64, 128, 256), 60.0),
    Case("1024 GPUs, machines of 4 and 8, 100 apps", ((128, 4), (64, 8)), 100, (16, 32, 64), 1000.0),
)


def classes_of(case: Case) -> MachineClasses:
    free = np.concatenate([np.full(number, gpus) for number, gpus in case.machines])
    return MachineClasses.of(
        machine=np.arange(free.size), free=free, gpu_type=np.zeros(free.size), rack=np.zeros(free.size)
    )


def forecast(rng: np.random.Generator, most: int) -> Forecast:
    """A single job, or a search that halves from as many jobs as it has GPUs at most."""
    slowdown = (1.0, 1.0, float(rng.uniform(1.0, 1.5)), 1.6)
    seconds = float(rng.uniform(0.5, 3.0))

    def jobs(many: int, iterations: float, most_a_job: int) -> Phase:
        one = JobForecast(iterations_left=iterations, seconds_per_iteration=seconds, most=most_a_job, slowdown=slowdown)
        return Phase(jobs=(one,) * many)

    if rng.random() < 0.5:
        iterations = float(rng.uniform(500, 5000)) * most
        phases: tuple[Phase, ...] = (jobs(1, iterations, most),)
        total = iterations * seconds
    else:
        many = min(most, 32)
        each = float(rng.uniform(300, 3000))
        phases = tuple(jobs(many >> k, each, max(1, most // (many >> k))) for k in range(many.bit_length()))
        total = sum(len(phase.jobs) for phase in phases) * each * seconds
    return Forecast(phases=phases, total_gpu_seconds=total, most=most)


def instance(case: Case, seed: int) -> tuple[ByBundle, float, list[float]]:
    """Bids of random apps, demand over supply, and the milliseconds that each bid took to prepare."""
    rng = np.random.default_rng(seed)
    classes = classes_of(case)
    bids, now, wanted, taken = [], [], 0, []
    for _ in range(case.apps):
        most = int(rng.choice(case.most))
        wanted += most
        work = forecast(rng, most)
        elapsed = float(rng.uniform(0, 3000))
        began = time.process_time()
        place = BidContext(
            elapsed=elapsed,
            waited=float(rng.uniform(0, elapsed)),
            ideal=ideal_seconds(work.total_gpu_seconds, case.gpus, most, case.apps / 2),
            lease=600.0,
            usable=np.arange(1, most + 1),
            gpu_type=-1,
            held={},
            rack_of={},
            near=Locality.ISLAND,
        )
        left = RemainingWork(work)
        now.append(rho_now(left, place))
        bids.append(bid(left, place, classes))
        taken.append(1000 * (time.process_time() - began))
    return ByBundle.of(classes, now, bids), wanted / case.gpus, taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--specification", type=int, default=20, help="random instances to compare on")
    options = parser.parse_args()
    for case in CASES:
        show(case)
    compare(options.specification)


def show(case: Case) -> None:
    times = []
    for seed in range(6):
        table, demand, bidding = instance(case, seed)
        began = time.process_time()
        outcome = run_auction(table)
        times.append(1000 * (time.process_time() - began))
        if seed == 0:
            sys.stdout.write(f"{case.name}: {table.rho.size} rows, demand {demand:.2f} times supply\n")
        sys.stdout.write(
            f"  seed {seed}: {times[-1]:8.1f} ms CPU "
            f"({'first call' if seed == 0 else 'warm'}, limit {case.limit_ms:g}), "
            f"{outcome.method.value}, gap {outcome.gap:g}, mean c_i {outcome.mean_kept:.3f}, "
            f"{(outcome.row >= 0).sum()} winners; bid preparation median {np.median(bidding):.2f} ms, "
            f"p95 {np.percentile(bidding, 95):.2f} ms\n"
        )


def compare(instances: int) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "plugins" / "themis"))
    from themis_instances import random_bids

    worst_objective = worst_payment = 0.0
    methods = dict.fromkeys(Method, 0)
    kept = []
    for seed in range(instances):
        table = random_bids(np.random.default_rng(seed), odd=seed % 3 != 0)
        outcome = run_auction(table)
        specification = Specification(table)
        _, objective = specification.best()
        fractions = specification.fractions(outcome.row, outcome.objective)
        worst_objective = max(worst_objective, abs(objective - outcome.objective))
        worst_payment = max(worst_payment, float(np.abs(fractions - outcome.kept).max(initial=0.0)))
        methods[outcome.method] += 1
        kept.append(outcome.mean_kept)
    counts = ", ".join(f"{number} by {method.value}" for method, number in methods.items() if number)
    sys.stdout.write(
        f"{instances} random contended instances ({counts}), mean c_i {np.mean(kept):.3f}: "
        f"objective within {worst_objective:.1e}, payments within {worst_payment:.1e} of the specification\n"
    )


if __name__ == "__main__":
    main()
