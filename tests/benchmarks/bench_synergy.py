"""CPU time of a round of Tune's by cluster size.

Run with ``python tests/benchmarks/bench_synergy.py [--gpus 128,4096,50000] [--seeds 1,2,3]``. The machines have 8 GPUs,
24 CPUs and 500 GiB; jobs have 1 to 8 GPUs, fill the cluster, and demand 1.8 times its CPUs. First all are placed
in one round; then they run, are granted the same again, and stay. Prints CPU milliseconds on one thread; asserts no
timing.
"""

import argparse
import dataclasses
import time

import numpy as np

from eunomia import Menus, Placement, curve_points
from eunomia.contract.allocations import AmountRange, Grants
from eunomia.testing.builders import World
from eunomia.testing.inputs import grants_to
from eunomia_plugins.synergy.tune import SynergyTune, TuneOptions

SIZES = np.array([1, 2, 4, 8])
CHANCES = (0.70, 0.10, 0.15, 0.05)
SHARE = (3.0, 62.5)
DEMANDS = np.array([1.0, 3.0, 6.0, 9.0])
"""CPUs a GPU; their mean is 1.8 times the share."""


def contended(gpus: int, seed: int) -> tuple[World, dict[str, int], np.ndarray]:
    """Machines, the jobs that fill them, and their CPUs a GPU."""
    luck = np.random.default_rng(seed)
    world, jobs, left = World(f"{gpus // 8}x8 V100 24cpu 500GiB"), {}, gpus
    while left:
        size = min(left, int(luck.choice(SIZES, p=CHANCES)))
        name = f"a/{len(jobs)}"
        world.job(name, gpus=size)
        jobs[name] = size
        left -= size
    return world, jobs, luck.choice(DEMANDS, size=len(jobs), p=(0.2, 0.2, 0.3, 0.3)) * 1.0


def placed(world: World, jobs: dict[str, int], cpus: np.ndarray) -> tuple[float, Placement]:
    """CPU milliseconds, and the placement."""
    allocation, sizes = grants_to(world, jobs), np.array(list(jobs.values()), float)
    assert isinstance(allocation.amount, Grants)
    ranges = AmountRange(least=np.minimum(cpus, SHARE[0]) * sizes, most=cpus * sizes)
    memory = AmountRange(least=SHARE[1] * sizes, most=SHARE[1] * sizes)
    amount = dataclasses.replace(allocation.amount, cpus=ranges, memory_gib=memory)
    allocation = dataclasses.replace(allocation, amount=amount)
    snapshot, offer = world.snapshot(), world.offer()
    stage = SynergyTune(TuneOptions())
    began = time.process_time()
    no_points = curve_points(np.empty(0, np.int32), np.empty(0, np.int64))
    menus = Menus(curve=np.empty(0, np.int32), points=no_points)
    answer = stage.eunomia_placement(snapshot, menus, offer, allocation)
    return 1000.0 * (time.process_time() - began), answer


def running(world: World, jobs: dict[str, int], answer: Placement) -> World:
    """The same machines, on which the jobs run as they were placed."""
    assert answer.cpus is not None
    cluster, names = world.snapshot().cluster, list(jobs)
    made = World(f"{cluster.gpus // 8}x8 V100 24cpu 500GiB")
    for name, size in jobs.items():
        made.job(name, gpus=size)
    for turn, claim in enumerate(answer.claim.tolist()):
        cpus = float(answer.cpus[answer.start[turn]])
        ranges = (min(SHARE[0], cpus), max(SHARE[0], cpus), SHARE[1], SHARE[1])
        gpus = answer.of(turn).tolist()
        made.holds(names[claim], *gpus, cpus=cpus, memory_gib=SHARE[1], ranges=ranges, ends_at=0.0)
    return made


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", default="128,4096,50000")
    parser.add_argument("--seeds", default="1,2,3")
    given = parser.parse_args()
    print(f"{'GPUs':>7}{'jobs':>7}{'seed':>5}{'placed':>8}{'ms':>10}{'us a job':>10}{'again ms':>10}")
    for gpus in map(int, given.gpus.split(",")):
        for seed in map(int, given.seeds.split(",")):
            world, jobs, cpus = contended(gpus, seed)
            spent, answer = placed(world, jobs, cpus)
            count = int((np.diff(answer.start) > 0).sum())
            again, _ = placed(running(world, jobs, answer), jobs, cpus)
            each = 1000.0 * spent / len(jobs)
            print(f"{gpus:>7}{len(jobs):>7}{seed:>5}{count:>8}{spent:>10.1f}{each:>10.1f}{again:>10.1f}")


if __name__ == "__main__":
    main()
