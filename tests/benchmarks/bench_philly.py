"""The whole command on the Philly trace: reading, ``Arbiter.step`` with its four stages, leases, metrics, report.

Run with ``python tests/benchmarks/bench_philly.py [--policy fifo,srtf,las] [--case listed,twice,eights] [--jobs N]
[--curve]``. Each case is one ``eunomia simulate`` in a process of its own, whose CPU time (user and system) and largest
memory the kernel tells. Prints; asserts no timing. The trace is read from ``../shared/data/philly``.

``listed``: the 2,490 GPUs of the trace's machine list; ``twice``: there, with arrivals twice as fast; ``eights``: 1,500
GPUs in machines of 8. ``--curve``: the cost of an event for 1,000, 10,000 and 100,000 jobs, and for queues of several
lengths, made by faster and faster arrivals of 10,000 jobs.
"""

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parents[3] / "shared" / "data" / "philly"
TRACE = DATA / "philly_full_reconstructed.csv.gz"
LISTED = str(DATA / "machines" / "cluster_machine_list")
POLICIES = ("fifo", "srtf", "las")


class Case(NamedTuple):
    """A cluster, and how many times as fast jobs arrive."""

    name: str
    cluster: str
    load: float


CASES = (
    Case("listed", LISTED, 1.0),
    Case("twice", LISTED, 2.0),
    Case("eights", "187x8 V100, 1x4 V100", 1.0),
)


class Cost(NamedTuple):
    """What a command cost, and what it had to do."""

    cpu_seconds: float
    most_mib: float
    row: dict[str, Any]
    """The metrics of its only run."""


def command(trace: Path, case: Case, policy: str, out: Path) -> Cost:
    """Run ``eunomia simulate`` and wait for it."""
    arguments = [str(trace), "--cluster", case.cluster, "--speeds", "equal", "--policy", policy]
    arguments += ["--load", f"{case.load:g}"]
    flags = ["--out", str(out), "--no-progress", "--json", "-j", "1"]
    eunomia = str(Path(sys.executable).with_name("eunomia"))
    with tempfile.TemporaryFile() as told:
        child = subprocess.Popen([eunomia, "simulate", *arguments, *flags], stdout=told)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"eunomia simulate ended with {child.returncode}")
        told.seek(0)
        (row,) = json.load(told)["rows"]
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, row)


def shortened(jobs: int | None, folder: Path) -> Path:
    """The trace, or a file of its first jobs."""
    if jobs is None:
        return TRACE
    path = folder / f"philly_{jobs}.csv"
    with gzip.open(TRACE, "rt", newline="") as file, path.open("w", newline="") as made:
        reader = csv.DictReader(file)
        writer = csv.DictWriter(made, reader.fieldnames or ())
        writer.writeheader()
        writer.writerows(sorted(reader, key=lambda row: float(row["submit_s"]))[:jobs])
    return path


HEAD = f"{'case':8}{'policy':8}{'load':>5}{'jobs':>8}{'CPU s':>8}{'MiB':>6}{'rounds':>9}{'quiet':>9}"
HEAD += (
    f"{'stage calls':>12}{'events':>9}{'events/s':>10}{'us/event':>10}{'queue mean':>12}{'most':>7}{'mean JCT s':>12}"
)


def line(case: Case, policy: str, cost: Cost) -> str:
    """One row of the table; events a second and their cost are of the whole command."""
    row, events = cost.row, cost.row["events"]
    counts = f"{row['rounds']:9}{row['quiet_rounds']:9}{row['stage_calls']:12}{events:9}"
    queue = f"{row['queue_length_mean']:12.1f}{row['queue_length_max']:7}{row['jct_mean_seconds']:12.1f}"
    each = f"{events / cost.cpu_seconds:10.0f}{1e6 * cost.cpu_seconds / events:10.1f}"
    head = f"{case.name:8}{policy:8}{case.load:5g}{row['jobs']:8}{cost.cpu_seconds:8.2f}{cost.most_mib:6.0f}"
    return head + counts + each + queue


def curve() -> Iterator[tuple[int, Case]]:
    """By number of jobs; then by length of the queue."""
    for jobs in (1_000, 10_000, 100_000):
        yield jobs, CASES[0]
    for load in (1.0, 2.0, 4.0, 16.0):
        yield 10_000, Case("queue", CASES[2].cluster, load)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", default=",".join(POLICIES))
    parser.add_argument("--case", default=",".join(case.name for case in CASES))
    parser.add_argument("--jobs", type=int, help="the first so many jobs; all of them by default")
    parser.add_argument("--curve", action="store_true", help="the cost by number of jobs and by length of the queue")
    given = parser.parse_args()
    policies = given.policy.split(",")
    runs = [(given.jobs, case) for case in CASES if case.name in given.case.split(",")]
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for jobs, case in curve() if given.curve else runs:
            trace = shortened(jobs, Path(folder))
            for number, policy in enumerate(policies):
                cost = command(trace, case, policy, Path(folder) / f"{case.name}-{case.load:g}-{jobs}-{number}")
                print(line(case, policy, cost), flush=True)


if __name__ == "__main__":
    main()
