"""The CPU of an order written outside of the tree, as a ratio to that of the built-in order with equal tables.

Run with ``python tests/benchmarks/bench_own_order.py [--jobs 5000] [--load 2] [--cluster '30x8 V100'] [--turns 3]``. It
runs ``eunomia simulate`` on the first Philly jobs with the preset ``srtf``, once with the built-in valuation and once
with ``tests/plugins/shortest_first.py``, in turns, each in a process of its own. Prints the CPU seconds (user and
system) of each turn, the ratio of the least of both, and whether the tables are equal. Asserts no timing. The trace is
read from ``../shared/data/philly``.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_philly import shortened

PLUGIN = Path(__file__).parents[1] / "plugins" / "shortest_first.py"
PROFILE = 'extends = "srtf"\n\n[stages]\nvaluation = "shortest_first"\n'
NOT_TABLES = {".resume.json", "run.json", "timings.parquet"}


def cpu_seconds(arguments: list[str]) -> float:
    """The CPU that one command takes.

    Raises:
        SystemExit: the command failed.
    """
    child = subprocess.Popen([sys.executable, "-m", "eunomia", "simulate", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"eunomia simulate ended with {child.returncode}")
    return used.ru_utime + used.ru_stime


def tables(folder: Path) -> dict[str, bytes]:
    """The tables of a run, by file name."""
    files = (path for path in folder.iterdir() if path.is_file() and path.name not in NOT_TABLES)
    return {path.name: path.read_bytes() for path in files}


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--load", type=float, default=2.0)
    parser.add_argument("--cluster", default="30x8 V100")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = folder / "srtf.toml"
        profile.write_text(PROFILE)
        common = [str(shortened(given.jobs, folder)), "--cluster", given.cluster, "--load", f"{given.load:g}"]
        common += ["--no-progress", "--no-report", "-q", "-j", "1", "--overwrite"]
        sides = {"built-in": ["--policy", "srtf"], "own": ["--policy", str(profile), "--plugin-path", str(PLUGIN)]}
        least = dict.fromkeys(sides, float("inf"))
        for turn in range(given.turns):
            for side, more in sides.items():
                seconds = cpu_seconds([*common, *more, "--out", str(folder / side)])
                least[side] = min(least[side], seconds)
                print(f"turn {turn + 1}: {side:9} {seconds:6.2f} s CPU", flush=True)
        equal = tables(folder / "built-in") == tables(folder / "own")
        print(f"ratio {least['own'] / least['built-in']:.2f}, tables {'equal' if equal else 'differ'}")


if __name__ == "__main__":
    main()
