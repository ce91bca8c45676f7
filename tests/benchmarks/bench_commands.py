"""CPU of whole commands beside another checkout's, in turns.

Run with ``python tests/benchmarks/bench_commands.py [OTHER] [--case NAME,...] [--repeats 3]``. ``OTHER`` is the folder
of a checkout, as ``git worktree add --detach ../older 1ae87e4`` makes it; without it, this one is measured alone. Each
case is one ``eunomia simulate`` in a process of its own, with the code of one checkout and this interpreter; the
checkouts take turns. Prints the CPU seconds (user and system) of each, of which the lowest count, their ratio, the goal
that the ratio has against 1ae87e4, and both mean JCTs, which are equal where both did the same work. Asserts no timing.
The trace is read from ``../shared/data/philly``.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from bench_philly import LISTED, shortened

ROOT: Final = Path(__file__).resolve().parents[2]
FLOORS: Final = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
EIGHTS: Final = "187x8 V100, 1x4 V100"
TWO_TYPES: Final = "20x8 V100, 10x4 P100"


class Case(NamedTuple):
    """A command, and the goal of its ratio to 1ae87e4."""

    name: str
    jobs: int | None
    """The first so many jobs of the trace; None: all."""
    cluster: str
    policy: str
    goal: float


CASES: Final = (
    Case("listed_fifo", 20_000, LISTED, "fifo", 0.6),
    Case("listed_srtf", 20_000, LISTED, "srtf", 0.65),
    Case("listed_las", 20_000, LISTED, "las", 0.6),
    Case("eights_srtf", 20_000, EIGHTS, "srtf", 0.6),
    Case("eights_las", 20_000, EIGHTS, "las", 0.5),
    Case("all_fifo", None, LISTED, "fifo", 0.6),
    Case("max_min", 900, TWO_TYPES, "max_min", 0.7),
)


class Cost(NamedTuple):
    """What a command cost, and what came out."""

    cpu_seconds: float
    mean_jct: float


def words_of(case: Case, checkout: Path, folder: Path) -> list[str]:
    """The arguments of a case; a checkout from before ``--speeds equal`` takes the trace's times everywhere."""
    words = ["simulate", str(shortened(case.jobs, folder)), "--cluster", case.cluster, "--policy", case.policy]
    if any('"equal"' in path.read_text() for path in (checkout / "testbed" / "eunomia_testbed" / "spec").glob("*.py")):
        words += ["--speeds", "equal"]
    return [*words, "--out", str(folder / "out"), "--overwrite", "--no-progress", "--json", "-j", "1"]


def run(case: Case, checkout: Path, folder: Path) -> Cost:
    """Runs a case with the code of a checkout and waits for it.

    Raises:
        SystemExit: the command failed.
    """
    entry = "import sys; from eunomia.cli import main; sys.exit(main())"
    paths = os.pathsep.join(str(checkout / floor) for floor in FLOORS)
    compiled = str(folder / "bytecode")  # modules are compiled once, as where Eunomia is installed
    with tempfile.TemporaryFile() as told:
        child = subprocess.Popen(
            [sys.executable, "-c", entry, *words_of(case, checkout, folder)],
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": compiled},
            stdout=told,
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"eunomia simulate of {checkout} ended with {child.returncode}")
        told.seek(0)
        (row,) = json.load(told)["rows"]
    jct = row["jct_mean_seconds"]
    return Cost(used.ru_utime + used.ru_stime, math.nan if jct is None else float(jct))


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=Path, nargs="?", help="the folder of the other checkout")
    parser.add_argument("--case", default=",".join(case.name for case in CASES))
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    checkouts = [ROOT] if given.other is None else [given.other.resolve(), ROOT]
    if not (checkouts[0] / FLOORS[0]).is_dir():
        raise SystemExit(f"OTHER must be the folder of a checkout, but has no {FLOORS[0]}: {checkouts[0]}")
    chosen = [case for case in CASES if case.name in given.case.split(",")]
    print(
        f"{'case':14}{'CPU s':>{9 * len(checkouts)}}{'ratio':>8}{'goal':>7}   {'mean JCT (s)':24}all CPU s", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            turns = [[run(case, checkout, Path(folder)) for checkout in checkouts] for _ in range(given.repeats)]
            by_checkout = list(zip(*turns, strict=True))
            least = [min(cost.cpu_seconds for cost in costs) for costs in by_checkout]
            jcts = " and ".join(f"{costs[0].mean_jct:.1f}" for costs in by_checkout)
            spent = " / ".join(" ".join(f"{cost.cpu_seconds:.2f}" for cost in costs) for costs in by_checkout)
            figures = "".join(f"{seconds:9.2f}" for seconds in least)
            print(f"{case.name:14}{figures}{least[-1] / least[0]:8.3f}{case.goal:7.2f}   {jcts:24}{spent}", flush=True)


if __name__ == "__main__":
    main()
