"""CPU of AFS' Algorithm 1 alone: compiled (numba), by the best of prefixes, and as the plain loop.

``python tests/benchmarks/bench_afs.py`` prints milliseconds of CPU. Curves follow the universal scalability law with
random parameters; lengths are lognormal; seed 1.
"""

import time
from collections.abc import Callable

import numpy as np

from eunomia_plugins.afs import compiled
from eunomia_plugins.afs.prefixes import Raising
from eunomia_plugins.afs.shares import Ladder, Ladders, first_sizes, raised

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


def spent(work: Callable[[], list[int]]) -> tuple[float, list[int]]:
    """CPU milliseconds, the least of five, and the outcome."""
    found: list[int] = []
    times = []
    for _ in range(5):
        began = time.process_time()
        found = work()
        times.append((time.process_time() - began) * 1e3)
    return min(times), found


def main() -> None:
    """Print a line for each size."""
    luck = np.random.default_rng(1)
    began = time.process_time()
    loop = compiled.compiled()
    if loop is not None:
        loop(np.array([0, 1]), np.array([1]), np.array([1.0]), np.array([0]), 0, True)
        print(f"numba: import and compilation, or loading what was compiled: {time.process_time() - began:.2f} s CPU")
    print("jobs    GPUs   compiled ms   best of prefixes ms   plain loop ms")
    for jobs, gpus, grows in SIZES:
        columns = Ladders.of(ladders(jobs, luck))

        def run(
            way: Callable[[Ladders, list[int], int], list[int]], columns: Ladders = columns, gpus: int = gpus
        ) -> list[int]:
            smallest = columns.smallest()
            steps = first_sizes(smallest, gpus)
            left = gpus - sum(size for size, step in zip(smallest, steps, strict=True) if step == 0)
            return way(columns, steps, left) if left else steps

        ways: list[Callable[[Ladders, list[int], int], list[int]]] = [
            lambda made, steps, left: Raising(made.each(), steps, left, known=True).run()
        ]
        if loop is not None:
            ways.insert(0, lambda made, steps, left: compiled.fast_raised(made, steps, left, known=True))
        if grows and jobs <= 200:
            ways.append(lambda made, steps, left: raised(made.each(), steps, left, known=True))
        measured = [spent(lambda way=way, run=run: run(way)) for way in ways]  # type: ignore[misc]
        if any(found != measured[0][1] for _, found in measured):
            raise SystemExit("the ways differ")
        cells = [f"{cpu:14.2f}" for cpu, _ in measured]
        print(f"{jobs:6d} {gpus:6d} " + " ".join(([] if loop is not None else ["   not installed"]) + cells))


if __name__ == "__main__":
    main()
