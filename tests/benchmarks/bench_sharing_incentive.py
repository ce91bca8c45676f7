"""What searches get that share a machine under Themis, beside what each gets alone on its part of the slots.

    python tests/benchmarks/bench_sharing_incentive.py FOLDER [--apps 2 4] [--speed 300x] [--seed 3]

Searches of Themis' workload 2 arrive at once and share four paced slots (``eunomia replay``, real training). Then each
runs alone on its 1/N of the slots, by the same rates. Themis' sharing incentive holds where no search takes longer
beside the others than alone on its part. Beside it stand the rho that the arbiter reported first and the one that came,
and the best trial of both runs.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from eunomia_testbed.generators import generate_workload
from eunomia_testbed.traces.writing import write_trace
from eunomia_testbed.workload.taking import taken
from eunomia_testbed.workload.workload import Workload

SLOTS = 4
DRAWN = 21
"""Searches from which those of median work are taken."""
EUNOMIA = str(Path(sys.executable).with_name("eunomia"))
OPTIONS: dict[str, Any] = {
    "most_gpus": 1, "least_demand": 4, "most_demand": 8, "search": "successive_halving", "demand": "full",
    "iterations": 400,
}  # fmt: skip


def main() -> None:
    """Run all replays, and print the tables."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    options.add_argument("folder", type=Path, help="for traces and results; new")
    options.add_argument("--apps", type=int, nargs="+", default=[2, 4], help="searches that share the slots")
    options.add_argument("--speed", default="300x", help="of all replays; a lease of 20 minutes then takes 4 s")
    options.add_argument("--seed", type=int, default=3, help="of the workload")
    given = options.parse_args()
    given.folder.mkdir(parents=True)
    profiles: Path | None = None
    for count in given.apps:
        workload = median_searches(count, given.seed)
        shared = replayed(given.folder, f"{count}-together", workload, SLOTS, given.speed, profiles)
        profiles = profiles or shared / "profiles.toml"
        alone = {
            name: replayed(
                given.folder,
                f"{count}-alone-{name}",
                taken(workload, np.array([row]), np.zeros(1)),
                SLOTS // count,
                given.speed,
                profiles,
            )
            for row, name in enumerate(workload.apps.id)
        }
        print_table(count, shared, alone)


def median_searches(count: int, seed: int) -> Workload:
    """Return so many searches of the trace, those whose work is nearest to the median; they arrive at once."""
    workload = generate_workload("themis2", OPTIONS | {"apps": DRAWN}, seed=seed)
    first = (DRAWN - count) // 2
    rows = np.sort(np.argsort(work_of(workload))[first : first + count])
    return taken(workload, rows, np.zeros(count))


def work_of(workload: Workload) -> Any:
    """Return the seconds of each app's jobs on one GPU, if no trial is stopped."""
    seconds = workload.jobs.iterations * workload.jobs.seconds_per_iteration
    return np.bincount(workload.jobs.app, weights=seconds, minlength=len(workload.apps.id))


def replayed(folder: Path, name: str, workload: Workload, slots: int, speed: str, profiles: Path | None) -> Path:
    """Replay searches; returns the folder of the result."""
    trace, out = folder / f"{name}.csv", folder / name
    write_trace(workload, trace)
    command = [EUNOMIA, "replay", str(trace), "--policy", "themis", "--slots", f"{slots}x cpu:0.35"]
    command += ["--speeds", "equal", "--speed", speed, "--budget", "30m", "--anyway", "--out", str(out)]
    command += [] if profiles is None else ["--profiles", str(profiles)]
    with (folder / f"{name}.txt").open("wb") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)
    return out


def print_table(count: int, shared: Path, alone: dict[str, Path]) -> None:
    """Print a line for each app."""
    apps = pl.read_parquet(shared / "real" / "apps.parquet").sort("app")
    first = pl.read_parquet(shared / "real" / "rho.parquet").drop_nulls("rho").sort("time_seconds")
    predicted = dict(first.group_by("app", maintain_order=True).first().select("app", "rho").iter_rows())
    print(f"{count} searches on {SLOTS} slots; alone: {SLOTS // count}")
    print(f"{'app':10}{'jct s':>8}{'alone s':>9}{'ratio':>7}{'rho':>7}{'first':>7}{'apart':>8}{'best':>9}{'alone':>9}")
    for row in apps.iter_rows(named=True):
        name = row["app"]
        folder = alone[name]
        own = pl.read_parquet(folder / "real" / "apps.parquet").row(0, named=True)
        rho, early = row["rho"], predicted.get(name)
        apart = "" if early is None else f"{100 * (early / rho - 1):+.1f}%"
        print(
            f"{name:10}{row['jct_seconds']:8.1f}{own['jct_seconds']:9.1f}{row['jct_seconds'] / own['jct_seconds']:7.2f}"
            f"{rho:7.2f}{early or float('nan'):7.2f}{apart:>8}{best_of(shared, name):9.4f}{best_of(folder, name):9.4f}",
            flush=True,
        )


def best_of(folder: Path, app: str) -> float:
    """Return the best metric of an app's trials."""
    mode = pl.read_parquet(folder / "real" / "searches.parquet").filter(pl.col("app") == app)["mode"][0]
    best = pl.read_parquet(folder / "real" / "trials.parquet").filter(pl.col("app") == app)["best"].drop_nulls()
    return float(best.max() if mode == "max" else best.min())  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
