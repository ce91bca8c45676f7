"""What a round costs under Themis with app masters that bid: CPU milliseconds by number of apps.

Run with ``python tests/benchmarks/bench_themis_agents.py [--apps 30,100,300,1000] [--cluster "6x8 V100"]``. With
``--against FOLDER`` the checkout in that folder is measured in turns with this one, each run in a process of its own.
Every app has one job; all of them arrive within ten minutes, and want far more than there is. A simulation is cut off
after ``--hours`` of simulated time, and a process after ``--limit`` seconds. Prints; asserts no timing.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")


class Cost(NamedTuple):
    """What one simulation cost."""

    cpu_seconds: float
    rounds: int
    service: str
    """A digest of when each job started and ended, and of what it held: equal where GPUs went alike."""

    @property
    def ms_a_round(self) -> float:
        """CPU milliseconds, all of the simulation's."""
        return 1000.0 * self.cpu_seconds / max(1, self.rounds)


def measure(apps: int, cluster: str, hours: float, elastic: bool) -> Cost:
    """Simulate in this process."""
    from eunomia import Cluster, Profile
    from eunomia_testbed.simulator import SimulationOptions, simulate_one
    from eunomia_testbed.workload import Workload

    luck = np.random.default_rng(3)
    workload = Workload.single_jobs(
        "crowd",
        ids=[f"a{number}" for number in range(apps)],
        arrival_seconds=np.sort(luck.uniform(0.0, 600.0, apps)),
        gpus=luck.choice([1, 2, 4, 8], apps, p=[0.4, 0.2, 0.3, 0.1]),
        iterations=10 ** luck.uniform(2.5, 4.0, apps),
        seconds_per_iteration=np.ones(apps),
    )
    if elastic:
        jobs = dataclasses.replace(workload.jobs, least=np.ones(apps, dtype=np.int64))
        workload = dataclasses.replace(workload, jobs=jobs)
    options = SimulationOptions(agents=True, until=3600.0 * hours)
    began = time.process_time()
    run = simulate_one(workload, Cluster.parse(cluster), Profile.load("themis"), options=options)
    spent = time.process_time() - began
    columns = (run.start_seconds, run.finish_seconds, run.slot_seconds)
    return Cost(spent, run.round_count, sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:8])


def in_process(checkout: Path, apps: int, given: argparse.Namespace) -> Cost | None:
    """Measure a checkout in a process of its own; None: it did not end in time."""
    flags = ["--apps", str(apps), "--cluster", given.cluster, "--hours", str(given.hours), "--one"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(checkout / floor) for floor in FLOORS)}
    command = [sys.executable, __file__, *flags, *(["--elastic"] if given.elastic else [])]
    try:
        told = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, timeout=given.limit, check=True, text=True
        ).stdout
    except subprocess.TimeoutExpired:
        return None
    return Cost(*json.loads(told))


def text(cost: Cost | None, limit: float) -> str:
    """One cell of the table."""
    if cost is None:
        return f"{f'over {limit:g} s':>12}{'':>8}{'':>10}"
    return f"{cost.ms_a_round:12.1f}{cost.rounds:8}{cost.service:>10}"


def show(checkouts: list[Path], given: argparse.Namespace) -> None:
    """Print a row a number of apps: each checkout's cost, and the last one's as a part of the first's."""
    kind = "any size up to its gang" if given.elastic else "gangs"
    print(f"{given.cluster}, jobs of {kind}, {given.hours:g} simulated hours")
    heads = "".join(f"{'ms a round':>12}{'rounds':>8}{'service':>10}" for _ in checkouts)
    print(f"{'apps':>6}{heads}{'ratio':>8}" if len(checkouts) > 1 else f"{'apps':>6}{heads}", flush=True)
    for apps in map(int, given.apps.split(",")):
        costs = [in_process(checkout, apps, given) for checkout in checkouts]
        first, last = costs[0], costs[-1]
        known = len(costs) > 1 and first is not None and last is not None
        ratio = f"{last.ms_a_round / first.ms_a_round:8.3f}" if known and first and last else ""
        print(f"{apps:6}" + "".join(text(cost, given.limit) for cost in costs) + ratio, flush=True)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apps", default="30,100,300,1000")
    parser.add_argument("--cluster", default="6x8 V100")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that a run may take")
    parser.add_argument("--elastic", action="store_true", help="jobs that run on any number of GPUs up to their gang")
    parser.add_argument("--against", type=Path, help="a checkout to compare with; it is run first")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(int(given.apps), given.cluster, given.hours, given.elastic)))
        return
    show([*([given.against] if given.against else []), ROOT], given)


if __name__ == "__main__":
    main()
