"""CPU time of ``Arbiter.step`` an event: 10,000 one-GPU jobs through the four stages, with the count of stage calls.

Run with ``make bench``, or ``python tests/benchmarks/bench_step.py [jobs]``. Prints; asserts no timing.
"""

import sys
import time
from collections.abc import Iterable

import numpy as np

from eunomia.arbiter import Arbiter
from eunomia.cluster import Cluster
from eunomia.decisions import Decision
from eunomia.events import AppArrived, Event, JobAdded
from eunomia.registry import default_registry
from eunomia.testing.assemble import assemble
from eunomia.testing.drive import Drive
from eunomia.units import AppId, JobId, Seconds, UserId


def scripted(jobs: int, gpus: int, load: float) -> tuple[list[tuple[float, Event]], dict[JobId, float]]:
    """Poisson arrivals of single jobs of 60 s on average, at ``load`` times what the GPUs can do."""
    luck = np.random.default_rng(7)
    arrivals = np.cumsum(luck.exponential(60.0 / (gpus * load), size=jobs))
    script: list[tuple[float, Event]] = []
    for number, arrival in enumerate(arrivals.tolist()):
        app = AppId(f"a{number}")
        script.append((arrival, AppArrived(app=app, user=UserId("ana"), divides=False)))
        script.append((arrival, JobAdded(job=JobId(f"{app}/0"), app=app)))
    return script, {JobId(f"a{number}/0"): float(luck.exponential(60.0)) for number in range(jobs)}


def measured(load: float, jobs: int, gpus: int) -> str:
    """Drive a run and say what its steps cost."""
    registry = default_registry()
    elasticity, valuation, allocation, placement = (
        registry.make(name, {}, alias=name, place=str) for name in ("fixed", "fifo", "ordered", "packed")
    )
    stages = assemble(elasticity=elasticity, valuation=valuation, allocation=allocation, placement=placement)
    arbiter = Arbiter(Cluster.parse(f"{gpus // 8}x8 V100"), stages, stages)
    spent = rounds = longest = 0
    step = arbiter.step

    def timed(now: Seconds, events: Iterable[Event] = ()) -> Decision:
        nonlocal spent, rounds, longest
        began = time.process_time_ns()
        decision = step(now, events)
        spent += time.process_time_ns() - began
        rounds += bool(decision.causes)
        longest = max(longest, int(arbiter.state.waiting().size))
        return decision

    arbiter.step = timed  # type: ignore[method-assign]
    script, work = scripted(jobs, gpus, load)
    outcome = Drive(arbiter, work=work, keep=False).run(script, steps=10**6)
    return (
        f"{len(outcome.finished)} jobs on {gpus} GPUs at load {load}: {spent / 1e9:.2f} s CPU in step, "
        f"{outcome.events} events, {spent / 1e3 / outcome.events:.0f} µs an event, {outcome.steps} steps, "
        f"{rounds} rounds, {arbiter.calls} stage calls, longest queue {longest}"
    )


def main(jobs: int = 10_000, gpus: int = 64) -> None:
    """Measure where hardly anybody waits, and where a queue grows."""
    for load in (0.8, 1.1):
        print(measured(load, jobs, gpus))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
