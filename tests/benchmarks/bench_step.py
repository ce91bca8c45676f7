"""What ``Arbiter.step`` costs an event: against the number of jobs, and against the length of the queue.

Run with ``make bench``, or ``python tests/benchmarks/bench_step.py [most jobs]``. Prints; asserts no timing. Poisson
arrivals of one-GPU jobs go through the four stages; an event is an arrival or an end. CPU time is the whole process's
between first and last step, the smallest driver that there can be included (``bench_replay.Replay``).
"""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from bench_replay import Line, Replay, stages_of

from eunomia.arbiter import Arbiter
from eunomia.model.cluster import Cluster

HEAD = f"{'order':6}{'jobs':>8}{'GPUs':>6}{'load':>6}{'steps':>9}{'rounds':>9}{'quiet':>9}{'stage calls':>13}"
HEAD += f"{'longest queue':>15}{'us an event':>13}{'events/s':>10}"


def scripted(jobs: int, gpus: int, load: float) -> list[Line]:
    """Poisson arrivals of single jobs of 60 s on average, at ``load`` times what the GPUs can do."""
    luck = np.random.default_rng(7)
    arrivals = np.cumsum(luck.exponential(60.0 / (gpus * load), size=jobs)).tolist()
    lengths = luck.exponential(60.0, size=jobs).tolist()
    return [Line(arrival, length, 1, "ana") for arrival, length in zip(arrivals, lengths, strict=True)]


class Counted(Replay):
    """A replay that notes quiet rounds and the longest queue."""

    quiet = 0
    longest = 0

    def note(self, calls: int, rounds: int) -> None:
        """See ``Replay``: called after every step."""
        self.quiet += bool(rounds) and calls == 0
        self.longest = max(self.longest, len(self.arbiter.state.waiting_jobs.rows))


def measured(order: str, jobs: int, gpus: int, load: float) -> str:
    """Drive a run and say what its steps cost."""
    stages = stages_of(order, lease=None)
    arbiter = Arbiter(Cluster.parse(f"{gpus // 8}x8 V100"), stages, stages)
    replay = Counted(arbiter, scripted(jobs, gpus, load))
    began = time.process_time()
    replay.run()
    spent, events = time.process_time() - began, 2 * jobs
    return (
        f"{order:6}{jobs:8}{gpus:6}{load:6}{replay.steps:9}{replay.rounds:9}{replay.quiet:9}{arbiter.calls:13}"
        f"{replay.longest:15}{1e6 * spent / events:13.0f}{events / spent:10.0f}"
    )


def main(most: int = 100_000) -> None:
    """Measure where hardly anybody waits, by number of jobs; and where a queue grows, by its length."""
    print(HEAD)
    for jobs in (1_000, 10_000, 100_000):
        if jobs <= most:
            print(measured("fifo", jobs, 64, 0.8))
    for order in ("fifo", "srtf", "las"):
        for load in (0.8, 1.1, 2.0, 20.0):
            print(measured(order, min(most, 10_000), 64, load))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
