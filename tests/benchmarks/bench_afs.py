"""CPU of AFS' Algorithm 1 alone: the short way (best of prefixes) beside the plain loop.

``python tests/benchmarks/bench_afs.py`` prints milliseconds of CPU. Curves follow the universal scalability law with
random parameters; lengths are lognormal; seed 1.
"""

import time

import numpy as np

from eunomia_plugins.afs.shares import Ladder, Raising, first_sizes, raised

SIZES = ((1000, 4096, True), (4000, 4096, True), (10_000, 4096, False), (200, 512, True), (50, 128, True))
"""Jobs, GPUs, and whether the plain loop is measured as well where it is not too slow."""


def ladders(jobs: int, luck: np.random.Generator) -> list[Ladder]:
    """Random jobs, the shortest first."""
    sizes = np.arange(1, 65)
    work = np.sort(np.exp(luck.normal(8.0, 1.5, jobs)))
    made = []
    for length in work.tolist():
        contention, coherency = luck.uniform(0.0, 0.1), luck.uniform(1e-5, 2e-3)
        speed = sizes / (1.0 + contention * (sizes - 1) + coherency * sizes * (sizes - 1))
        most = int(np.argmax(speed)) + 1
        made.append(Ladder(sizes[:most].tolist(), (length / speed[:most]).tolist()))
    return made


def main() -> None:
    """Print a line for each size."""
    luck = np.random.default_rng(1)
    print("jobs    GPUs   short way ms   plain loop ms   ratio")
    for jobs, gpus, grows in SIZES:
        made = ladders(jobs, luck)
        began = time.process_time()
        steps = first_sizes(made, gpus)
        left = gpus - sum(each.sizes[0] for each, step in zip(made, steps, strict=True) if step == 0)
        short = Raising(made, steps, left, known=True).run() if left else steps
        spent = (time.process_time() - began) * 1e3
        line = f"{jobs:6d} {gpus:6d} {spent:14.1f}"
        if grows and jobs <= 200:
            began = time.process_time()
            plain = raised(made, steps, left, known=True)
            other = (time.process_time() - began) * 1e3
            line += f" {other:15.1f} {other / spent:7.1f}"
            if plain != short:
                raise SystemExit("the two ways differ")
        print(line)


if __name__ == "__main__":
    main()
