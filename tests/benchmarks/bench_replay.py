"""CPU time of a replay of the Philly trace through the four stages: arrivals and ends as they come, nothing costs time.

Run with ``python tests/benchmarks/bench_replay.py [--order fifo] [--speed 1] [--cluster big|small] [--jobs N]``.
Prints; asserts no timing. The trace is read from ``../shared/data/philly``.
"""

import argparse
import csv
import gzip
import heapq
import resource
import sys
import time
from pathlib import Path
from typing import NamedTuple

from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.contract.events import AppArrived, AppFinished, Event, JobAdded, JobFinished, Released, Started
from eunomia.contract.stages import Rounds, Stages
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import default_registry
from eunomia.units import AppId, Epoch, JobId, LeaseId, Seconds, UserId

sys.path.insert(0, str(Path(__file__).parents[1]))
from assembling import assemble

TRACE = Path(__file__).parents[3] / "shared" / "data" / "philly" / "philly_full_reconstructed.csv.gz"
CLUSTERS = {"big": "321x2 V100, 231x8 V100", "small": "187x8 V100, 1x4 V100"}
PREEMPTIVE = ("srtf", "srsf", "las")


class Line(NamedTuple):
    """One job of the trace."""

    submit: float
    seconds: float
    gpus: int
    user: str


def read_trace(jobs: int | None, speed: float) -> list[Line]:
    """Jobs by submission, arrivals ``speed`` times as fast."""
    with gzip.open(TRACE, "rt") as file:
        rows = [
            Line(float(row["submit_s"]) / speed, float(row["duration_s"]), int(row["num_gpus"]), row["vc"])
            for row in csv.DictReader(file)
        ]
    return sorted(rows)[:jobs]


def stages_of(order: str, *, lease: float | None) -> Stages:
    """The stages fixed / ORDER / ordered / packed; orders by length or service preempt."""
    made = default_registry().make
    options = {"las": {"queues": (3600.0, 36000.0, 360000.0)}}.get(order, {})
    return assemble(
        elasticity=made("fixed", {}, alias="fixed", place=str),
        valuation=made(order, options, alias=order, place=str),
        allocation=made("ordered", {"preemptive": order in PREEMPTIVE}, alias="ordered", place=str),
        placement=made("packed", {}, alias="packed", place=str),
        rounds=Rounds(lease=None if lease is None else Seconds(lease)),
    )


class Running(NamedTuple):
    """What a job runs on, and since when."""

    lease: LeaseId
    epoch: Epoch
    gpus: tuple[int, ...]
    since: float


class Replay:
    """The smallest driver that there can be: what is ordered is so at once; news of it come with the next step."""

    def __init__(self, arbiter: Arbiter, trace: list[Line], *, two_steps: bool = False) -> None:
        self.arbiter, self.trace, self.two_steps = arbiter, trace, two_steps
        self.left = {f"j{number}/0": line.seconds for number, line in enumerate(trace)}
        self.runs: dict[str, Running] = {}
        self.ends: list[tuple[float, int, str]] = []
        self.news: list[Event] = []
        self.finished: dict[str, float] = {}
        self.steps = self.rounds = self.starts = self.stops = self.longest = 0

    def run(self) -> None:
        """Replay to the end."""
        trace = self.trace
        at, wake_at, calls = 0, float("inf"), 0
        while True:
            now = min(trace[at].submit if at < len(trace) else float("inf"), wake_at)
            while self.ends and self._stale(*self.ends[0]):
                heapq.heappop(self.ends)
            if self.ends:
                now = min(now, self.ends[0][0])
            if now == float("inf"):
                return
            events, self.news = self.news, []
            while at < len(trace) and trace[at].submit <= now:
                events += _arrival(at, trace[at])
                at += 1
            while self.ends and self.ends[0][0] <= now:
                events += self._end(*heapq.heappop(self.ends))
            decision = self.arbiter.step(Seconds(now), events)
            wake_at = float(decision.wake_at)
            calls, before = self.arbiter.calls, calls
            self.note(calls - before, len(decision.causes))
            self.steps += 1
            self.rounds += bool(decision.causes)
            if decision.transitions:
                self._carry_out(decision, now)
            if decision.orders:
                self.news += [
                    Released(lease=order.lease, epoch=order.fence, gpus=tuple(order.leaving.tolist()))
                    for order in decision.orders
                ]
                wake_at = now

    def note(self, calls: int, rounds: int) -> None:
        """Called after every step with the stages that it asked, and the causes of its round."""

    def _stale(self, _: float, epoch: int, job: str) -> bool:
        """The job was stopped before it came to this end."""
        return job not in self.runs or self.runs[job].epoch != epoch

    def _end(self, time: float, epoch: int, job: str) -> list[Event]:
        if self._stale(time, epoch, job):
            return []
        run = self.runs.pop(job)
        del self.left[job]
        self.finished[job] = time
        if self.two_steps:
            return [JobFinished(job=JobId(job)), AppFinished(app=AppId(job[:-2]))]
        return [
            Released(lease=run.lease, epoch=run.epoch, gpus=run.gpus, at=Seconds(time)),
            JobFinished(job=JobId(job)),
            AppFinished(app=AppId(job[:-2])),
        ]

    def _carry_out(self, decision: Decision, now: float) -> None:
        at = Seconds(now)
        for order in decision.transitions:
            job = str(order.job)
            if order.kind is TransitionKind.START:
                run = Running(order.lease, order.epoch, tuple(order.gpus.tolist()), now)
                self.runs[job] = run
                self.starts += 1
                heapq.heappush(self.ends, (now + self.left[job], run.epoch, job))
                self.news.append(Started(lease=order.lease, epoch=order.epoch, at=at))
            elif order.kind is TransitionKind.SUSPEND:
                run = self.runs.pop(job)
                self.stops += 1
                self.left[job] -= now - run.since
                self.news.append(
                    Released(lease=order.lease, epoch=order.fence, gpus=tuple(order.leaving.tolist()), at=at)
                )
            else:
                raise NotImplementedError(order.kind)


def _arrival(number: int, line: Line) -> list[Event]:
    app = AppId(f"j{number}")
    return [
        AppArrived(app=app, user=UserId(line.user), divides=False),
        JobAdded(
            job=JobId(f"j{number}/0"),
            app=app,
            least=line.gpus,
            most=line.gpus,
            iterations=line.seconds,
            seconds_per_iteration=float(line.gpus),
            kind="philly",
        ),
    ]


def measured(
    order: str, speed: float, cluster: str, jobs: int | None, lease: float | None, *, two_steps: bool = False
) -> str:
    """Replay once and say what it cost."""
    trace = read_trace(jobs, speed)
    stages = stages_of(order, lease=lease)
    arbiter = Arbiter(Cluster.parse(CLUSTERS[cluster]), stages, stages)
    began = time.process_time()
    replay = Replay(arbiter, trace, two_steps=two_steps)
    replay.run()
    spent = time.process_time() - began
    events = len(trace) + len(replay.finished)
    mean = sum(replay.finished[f"j{n}/0"] - line.submit for n, line in enumerate(trace)) / len(trace)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{order} x{speed:g} {cluster}: {spent:.1f} s CPU, "
        f"{events} arrivals and ends, {1e6 * spent / events:.1f} us each, "
        f"{replay.steps} steps, {replay.rounds} rounds, {arbiter.calls} stage calls, {replay.starts} starts, "
        f"{replay.stops} stops, mean JCT {mean:.3f} s, {memory:.0f} MiB"
    )


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--order", default="fifo")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--cluster", choices=sorted(CLUSTERS), default="big")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--lease", type=float)
    parser.add_argument("--two-steps", action="store_true", help="ends first, and their GPUs in a step of their own")
    given = parser.parse_args()
    print(measured(given.order, given.speed, given.cluster, given.jobs, given.lease, two_steps=given.two_steps))


if __name__ == "__main__":
    main()
