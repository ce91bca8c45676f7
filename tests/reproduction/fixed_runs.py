"""Thirty fixed simulations whose tables a refactoring must leave as they are, byte for byte.

``python tests/reproduction/fixed_runs.py run FOLDER [--checkout DIR] [--only NAME] [--plain] [--add ARGUMENTS]`` makes
the runs with the code of a checkout, by default this one, and leaves one folder a run; ``--add`` gives further
arguments of ``eunomia simulate``. ``python tests/reproduction/fixed_runs.py compare BEFORE AFTER`` compares two such
folders file by file, and exits 1 where a table differs. A column of one folder only is named, and the others are
compared; preset files are named, and a run whose preset alone differs counts as equal.

The runs cover every preset, one and several GPU types, fixed and elastic jobs, costs, failures, wrong reports, app
masters that bid, hyperparameter searches, a peer's round rules and real traces. Traces are read from
``../shared/data``; runs on traces that are not there are skipped, and the output names them.
"""

import argparse
import csv
import gzip
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
DATA: Final = ROOT.parent / "shared" / "data"
FLOORS: Final = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
NOT_COMPARED: Final = frozenset({".resume.json", "run.json", "timings.parquet", "report.html"})
"""Files that hold clocks, versions and paths."""
PHILLY_JOBS: Final = 5000


class Run(NamedTuple):
    """One command: its name, the trace that it needs (empty: none) and the other arguments."""

    name: str
    trace: str
    arguments: str


CANONICAL: Final = "shockwave/canonical_120jobs_32gpus.trace"
GAVEL: Final = "gavel/max_min_fairness.trace"
PHILLY: Final = "philly/philly_full_reconstructed.csv.gz"
RATES: Final = "--throughputs {data}/shockwave/tacc_throughputs.json.gz --cluster '32x1 V100' --rules gavel"
THREE_TYPES: Final = (
    "--throughputs {data}/gavel/simulation_throughputs.json.gz --cluster '8x1 V100, 16x1 P100, 24x1 K80' "
    "--know oracle --set trace.first_jobs=120"
)
DRAWN: Final = "--workload gavel --set gavel.jobs=80 --set gavel.interarrival=200s --cluster '4x8 V100'"
COSTS: Final = "--cost start=30s --cost checkpoint=20s --cost restore=20s"
FEW: Final = "--workload gavel --set gavel.jobs=25 --set gavel.interarrival=200s --cluster '2x8 V100'"
THEMIS: Final = "--workload themis1 --set themis1.apps=8 --cluster '4x4 V100, 2x8 V100'"

RUNS: Final = (
    *(Run(name, CANONICAL, f"{RATES} --policy {name}") for name in ("fifo", "srtf", "srsf", "las", "tiresias")),
    *(Run(name, CANONICAL, f"{RATES} --policy {name}") for name in ("max_min", "drf", "themis_rho", "index_rule")),
    *(Run(name, CANONICAL, f"{RATES} --policy {name}") for name in ("max_min_fairness", "finish_time_fairness")),
    *(Run(name, CANONICAL, f"{RATES} --policy {name}") for name in ("min_total_duration", "max_sum_throughput")),
    *(Run(name, CANONICAL, f"{RATES} --policy {name}") for name in ("allox", "gandiva_fair")),
    Run("types_perf", GAVEL, f"{THREE_TYPES} --policy max_min_fairness_perf --rules gavel --rule round=6m"),
    Run("types_gandiva_fair", GAVEL, f"{THREE_TYPES} --policy gandiva_fair --policy allox"),
    Run("orders_costs", "", f"{DRAWN} {COSTS} --policy fifo --policy srtf --policy las --policy edf --seeds 0-1"),
    Run("sharing_costs", "", f"{DRAWN} {COSTS} --policy max_min_time --policy max_min_users --policy easy"),
    Run("failures", "", f"{DRAWN} {COSTS} --failures between=2d,repair=1h --policy las --policy max_min"),
    Run("errors", "", f"{DRAWN} {COSTS} --error 0.3 --know measured --policy srtf --policy optimus --policy slaq"),
    Run("gandiva", "", f"{FEW} {COSTS} --policy gandiva --policy isolated --policy random"),
    Run("themis", "", f"{THEMIS} --policy themis --policy themis_rho --seeds 0-1 --until 5d"),
    Run("themis_costs", "", f"{THEMIS} {COSTS} --policy themis --policy tiresias --until 5d"),
    Run("agents", "", f"{THEMIS} {COSTS} --agents --policy themis --failures between=5d,repair=1h --until 5d"),
    Run("searches", "", f"{THEMIS} --set themis1.apps=3 --policy demo --policy las --speeds analytic --until 1d"),
    Run("philly_fifo", PHILLY, "--cluster {data}/philly/machines/cluster_machine_list --speeds equal --policy fifo"),
    Run("philly_srtf", PHILLY, "--cluster '30x8 V100' --policy srtf"),
    Run("philly_las", PHILLY, "--cluster '60x8 V100' --policy las"),
    Run(
        "philly_shares",
        PHILLY,
        "--cluster '20x8 V100, 10x4 P100' --speeds equal --policy max_min --set trace.first_jobs=400",
    ),
)


def shortened(trace: Path, folder: Path) -> Path:
    """The first jobs of a Philly trace, in a file of its own."""
    path = folder / f"philly_{PHILLY_JOBS}.csv"
    if not path.exists():
        with gzip.open(trace, "rt", newline="") as file, path.open("w", newline="") as made:
            reader = csv.DictReader(file)
            writer = csv.DictWriter(made, reader.fieldnames or ())
            writer.writeheader()
            writer.writerows(sorted(reader, key=lambda row: float(row["submit_s"]))[:PHILLY_JOBS])
    return path


def command(run: Run, folder: Path, more: Sequence[str]) -> list[str]:
    """The arguments of ``eunomia`` for one run, ``more`` after them."""
    words = ["simulate"]
    if run.trace:
        trace = DATA / run.trace
        words.append(str(shortened(trace, folder) if run.trace == PHILLY else trace))
    words += shlex.split(run.arguments.replace("{data}", str(DATA)))
    words += ["--out", str(folder / run.name), "--overwrite", "--no-progress", "--no-report", "-q", "-j", "1"]
    return [*words, *more]


def make(run: Run, folder: Path, checkout: Path, more: Sequence[str]) -> float:
    """Make one run with the code of a checkout; return its CPU seconds.

    Raises:
        SystemExit: the command failed.
    """
    paths = os.pathsep.join(str(checkout / floor) for floor in FLOORS)
    entry = "import sys; from eunomia.cli import main; sys.exit(main())"
    child = subprocess.Popen(
        [sys.executable, "-c", entry, *command(run, folder, more)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{run.name}: eunomia simulate ended with {child.returncode}")
    return used.ru_utime + used.ru_stime


def chosen(names: Sequence[str]) -> Iterator[Run]:
    """The runs of these names, or all, whose traces are there."""
    for run in RUNS:
        if names and run.name not in names:
            continue
        if run.trace and not (DATA / run.trace).exists():
            print(f"{run.name:<22} skipped: no {run.trace} in ../shared/data")
            continue
        yield run


def tables(folder: Path) -> dict[str, bytes]:
    """The files of all runs that must not change, by name."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in NOT_COMPARED)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.parent != folder}


class Difference(NamedTuple):
    """What differs in a file of a run."""

    file: str
    what: str
    decides: bool
    """False: the file holds settings, or only columns that one side lacks."""


def differences(before: Path, after: Path) -> list[Difference]:
    """What differs between two folders, file by file."""
    old, new = tables(before), tables(after)
    found = [Difference(name, f"only in {before}", True) for name in old.keys() - new.keys()]
    found += [Difference(name, f"only in {after}", True) for name in new.keys() - old.keys()]
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            found.append(_difference(name, before / name, after / name))
    return found


def _difference(name: str, before: Path, after: Path) -> Difference:
    """How two versions of a file differ."""
    import polars as pl

    if before.suffix not in (".parquet", ".csv"):
        return Difference(name, "bytes differ", "/profiles/" not in name)
    read = pl.read_parquet if before.suffix == ".parquet" else pl.read_csv
    one, two = read(before), read(after)
    if one.height != two.height:
        return Difference(name, f"{one.height} rows, then {two.height}", True)
    shared = [column for column in one.columns if column in two.columns]
    changed = [column for column in shared if not one[column].equals(two[column], null_equal=True)]
    lacking = sorted({*one.columns} ^ {*two.columns})
    what = f"columns changed: {', '.join(changed) or 'none'}; columns of one only: {', '.join(lacking) or 'none'}"
    return Difference(name, what, bool(changed) or not lacking)


def report(before: Path, after: Path) -> int:
    """Print every difference and the number of runs that are equal; return the exit code."""
    found = differences(before, after)
    for difference in found:
        print(f"{difference.file}: {difference.what}")
    runs = {name.split("/")[0] for name in tables(before)}
    differ = {difference.file.split("/")[0] for difference in found if difference.decides}
    names = f"; not: {', '.join(sorted(differ))}" if differ else ""
    print(f"{len(runs - differ)} of {len(runs)} runs are equal{names}")
    return int(bool(differ))


def main() -> int:
    """Make the runs, or compare two folders of them."""
    options = argparse.ArgumentParser(description=__doc__)
    verbs = options.add_subparsers(dest="verb", required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("folder", type=Path)
    runs.add_argument("--checkout", type=Path, default=ROOT)
    runs.add_argument("--only", action="append", default=[], choices=[run.name for run in RUNS], metavar="NAME")
    runs.add_argument("--plain", action="store_true")
    runs.add_argument("--add", default="", metavar="ARGUMENTS")
    both = verbs.add_parser("compare")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    given = options.parse_args()
    if given.verb == "compare":
        return report(given.before, given.after)
    given.folder.mkdir(parents=True, exist_ok=True)
    more = [*shlex.split(given.add), *(["--plain"] if given.plain else [])]
    for run in chosen(given.only):
        began = time.monotonic()
        spent = make(run, given.folder, given.checkout.resolve(), more)
        print(f"{run.name:<22} {spent:7.2f} s CPU {time.monotonic() - began:7.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
