"""What the simulator costs by itself: jobs that are granted at once by an arbiter that does next to nothing.

Run with ``python tests/benchmarks/bench_simulator.py [jobs]``. Prints; asserts no timing. ``bench_canonical.py`` beside
it measures every baseline on a real trace, as simulation and as whole command.
"""

import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from eunomia import Cluster, Profile
from eunomia.contract.decisions import TransitionKind
from eunomia.contract.events import Event, JobAdded, SingleJobArrived, SingleJobEnded
from eunomia.units import NEVER, Cause
from eunomia_testbed.simulator import SimulationOptions, assemble
from eunomia_testbed.workload import Workload

NOTHING = np.empty(0, np.int64)
ARRIVED = frozenset({Cause.ARRIVED})


class Granting:
    """Stands in for the arbiter: every job starts when it arrives, on GPUs that are free."""

    def __init__(self, cluster: Cluster) -> None:
        holdings = SimpleNamespace(cells=SimpleNamespace(successor=[-1] * cluster.gpus))
        amounts = SimpleNamespace(tight=set(), tuning=set())
        self.state = SimpleNamespace(
            cluster=cluster, holdings=holdings, leases={}, last_epoch=0, amounts=amounts, draws=0
        )  # fmt: skip
        self.calls, self.strict = 0, False
        self._free = list(range(cluster.gpus))

    def step(self, now: float, events: list[Event]) -> Any:
        """Grant."""
        transitions = []
        for event in events:
            if isinstance(event, SingleJobArrived):
                transitions.append(self._start(event.job))
            elif isinstance(event, SingleJobEnded):
                self._free += event.gpus
        return SimpleNamespace(
            orders=(), transitions=transitions, causes=ARRIVED, waiting=(), records=(), faults=(), offers=(),
            wake_at=NEVER, round=1,
        )  # fmt: skip

    def _start(self, event: JobAdded) -> Any:
        self.state.counters.last_epoch += 1
        gpus = np.array(self._free[-event.most :])
        del self._free[-event.most :]
        number = self.state.counters.last_epoch
        return SimpleNamespace(
            kind=TransitionKind.START, lease=number, epoch=number, app=event.app, job=event.job, gpus=gpus,
            leaving=NOTHING, after=NOTHING, ends_at=NEVER, probe=None,
        )  # fmt: skip


def main(jobs: int = 20_000) -> None:
    """Measure."""
    luck = np.random.default_rng(1)
    workload = Workload.single_jobs(
        "granted",
        ids=[f"j{number}" for number in range(jobs)],
        arrival_seconds=np.cumsum(luck.exponential(30.0, jobs)),
        gpus=luck.choice([1, 2, 4, 8], jobs, p=[0.8, 0.08, 0.06, 0.06]),
        iterations=10 ** luck.uniform(1.0, 4.0, jobs),
        seconds_per_iteration=np.ones(jobs),
    )
    engine = assemble(workload, Cluster.parse("320x8 V100"), Profile.load("fifo"), SimulationOptions())
    engine.sim.arbiter = Granting(engine.sim.cluster)  # type: ignore[assignment]
    began = time.process_time()
    run = engine.run()
    spent = time.process_time() - began
    print(f"{jobs} jobs, {run.events} events, {run.steps} steps: {spent:.2f} s CPU")
    print(f"{spent / run.events * 1e6:.1f} µs an event, {spent / jobs * 1e6:.0f} µs a job, the stand-in's included")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
