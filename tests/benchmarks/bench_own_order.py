"""The CPU of an order and of an allocation written outside of the tree, as ratios to that of the built-in ones.

Run with ``python tests/benchmarks/bench_own_order.py [--jobs 5000] [--load 2] [--cluster '30x8 V100'] [--turns 3]``. It
runs ``eunomia simulate`` on the first Philly jobs with the preset ``srtf``, once with the built-in valuation and once
with ``tests/plugins/shortest_first.py``, and with the preset ``easy``, once with the built-in allocation and once with
``tests/plugins/short_gaps.py``; both plugins are those of the guides. Sides run in turns, each in a process of its own.
Prints the CPU seconds (user and system) of each turn, the ratio of the least of both, and whether the tables of jobs
and leases are equal. Asserts no timing. The trace is read from ``../shared/data/philly``.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_philly import shortened

PLUGINS = Path(__file__).parents[1] / "plugins"
PAIRS = (("srtf", "valuation", "shortest_first"), ("easy", "allocation", "short_gaps"))
"""A preset, the stage that a plugin replaces, and the plugin."""
TABLES = ("jobs.parquet", "leases.parquet")


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


def compare(preset: str, stage: str, plugin: str, common: list[str], folder: Path, turns: int) -> None:
    """Measure a preset and the same one with a plugin, in turns; print."""
    profile = folder / f"{preset}.toml"
    profile.write_text(f'extends = "{preset}"\n\n[stages]\n{stage} = "{plugin}"\n')
    own = ["--policy", str(profile), "--plugin-path", str(PLUGINS / f"{plugin}.py")]
    sides = {"built-in": ["--policy", preset], "own": own}
    least = dict.fromkeys(sides, float("inf"))
    for turn in range(turns):
        for side, more in sides.items():
            seconds = cpu_seconds([*common, *more, "--out", str(folder / side)])
            least[side] = min(least[side], seconds)
            print(f"{preset}, turn {turn + 1}: {side:9} {seconds:6.2f} s CPU", flush=True)
    equal = all((folder / "built-in" / name).read_bytes() == (folder / "own" / name).read_bytes() for name in TABLES)
    print(f"{preset}: ratio {least['own'] / least['built-in']:.2f}, tables {'equal' if equal else 'differ'}")


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
        common = [str(shortened(given.jobs, folder)), "--cluster", given.cluster, "--load", f"{given.load:g}"]
        common += ["--no-progress", "--no-report", "-q", "-j", "1", "--overwrite"]
        for preset, stage, plugin in PAIRS:
            compare(preset, stage, plugin, common, folder, given.turns)


if __name__ == "__main__":
    main()
