"""What two processes cost and gain over one: a sweep of 50 runs of 40 jobs, in turns with ``-j 1`` and ``-j 2``.

Run with ``python tests/benchmarks/bench_sweep.py [--repeats 3] [--jobs 40]``. Each sweep is one ``eunomia simulate`` of
five policies and ten seeds in a process of its own. Prints CPU seconds (user and system, of all its processes) and wall
seconds, the lowest of each, and the ratios of ``-j 2`` to ``-j 1``; their goals are 1.03 of the CPU and 0.55 of the
wall time, which a machine with other work does not show. Modules are compiled once, as where Eunomia is installed.
Asserts no timing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

POLICIES: Final = ("fifo", "srtf", "las", "max_min", "srsf")
CPU_GOAL: Final = 1.03
WALL_GOAL: Final = 0.55


class Cost(NamedTuple):
    """What a command cost."""

    cpu_seconds: float
    wall_seconds: float


def run(processes: int, jobs: int, out: Path) -> Cost:
    """Runs the sweep and waits for it.

    Raises:
        SystemExit: the command failed.
    """
    words = ["simulate", "--workload", "gavel", "--set", f"gavel.jobs={jobs}", "--set", "gavel.interarrival=200s"]
    words += ["--cluster", "4x4 V100", "--seeds", "0-9", "--out", str(out), "--overwrite", "--no-progress", "-q"]
    for policy in POLICIES:
        words += ["--policy", policy]
    began = time.perf_counter()
    eunomia = str(Path(sys.executable).with_name("eunomia"))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(out.parent / "bytecode")}
    child = subprocess.Popen([eunomia, *words, "-j", str(processes)], env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"eunomia simulate ended with {child.returncode}")
    return Cost(used.ru_utime + used.ru_stime, time.perf_counter() - began)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=40)
    given = parser.parse_args()
    costs: dict[int, list[Cost]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.repeats):
            for processes, of_one in costs.items():
                of_one.append(run(processes, given.jobs, Path(folder) / "out"))
                print(
                    f"-j {processes}: {of_one[-1].cpu_seconds:6.2f} s CPU, {of_one[-1].wall_seconds:6.2f} s", flush=True
                )
    cpu, wall = ([min(getattr(cost, name) for cost in costs[number]) for number in (1, 2)] for name in Cost._fields)
    print(f"CPU {cpu[1] / cpu[0]:.3f} (goal {CPU_GOAL}), wall time {wall[1] / wall[0]:.3f} (goal {WALL_GOAL})")


if __name__ == "__main__":
    main()
