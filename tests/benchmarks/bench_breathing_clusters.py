"""Policies on a cluster that breathes: ``python tests/benchmarks/bench_breathing_clusters.py``.

Options: ``[JOBS] [SEEDS]``, by default 120 and 5. A quarter of 16 machines of 4 GPUs leaves every twelve hours for six,
drained for an hour before, and comes back as new machines. Each policy runs Gavel's workload there and on 14 machines,
the average of the breathing cluster over time, with the same jobs by seed. Printed are the mean and the 99th percentile
of JCT, makespan, mean and worst ρ, and restarts a job of both, the ratio of mean JCTs with its 95 % t interval over
seeds, unfinished jobs, slots held twice, and CPU time. The page *Clusters that change* has the figures.
"""

import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np
from scipy.stats import t as student

from eunomia_testbed import simulate
from eunomia_testbed.results.counting import held_twice

POLICIES: Final = ("fifo", "themis", "shockwave", "oef_cooperative", "afs_p", "synergy_tune")
MACHINE: Final = "4 V100 32cpu 256GB"
HOUR: Final = 3600
INTERARRIVAL: Final = "8m"
DAYS: Final = 60
"""Days with changes; the workload ends long before."""


def plan() -> str:
    """Return the plan: machines 13 to 16 and their successors leave at hours 6, 18, 30 and so on, for six hours."""
    rows, here, names = ["time_seconds,machine,change,detail"], [f"m{number:02d}" for number in range(13, 17)], 16
    for begin in range(6 * HOUR, DAYS * 24 * HOUR, 12 * HOUR):
        for name in here:
            rows += [f"{begin - HOUR},{name},drain,{begin}", f"{begin},{name},leave,"]
        here = [f"m{names + more}" for more in range(1, 5)]
        names += 4
        rows += [f"{begin + 6 * HOUR},{name},join,{MACHINE}" for name in here]
    return "\n".join(rows) + "\n"


def figures(cluster: str, policy: str, seeds: int, jobs: int, machines_plan: str | None) -> list[dict[str, float]]:
    """Return JCT and makespan in hours, ρ, restarts a job and slots held twice, by seed."""
    found = []
    drawn = [f"gavel.jobs={jobs}", f"gavel.interarrival={INTERARRIVAL}"]
    for seed in range(seeds):
        result = simulate(
            "gavel", cluster, [policy], settings=drawn, speeds="equal", seeds=[seed],
            machines_plan=machines_plan,
        )  # fmt: skip
        row = result.summary().row(0, named=True)
        found.append(
            {
                "mean": row["jct_mean_seconds"] / HOUR,
                "p99": row["jct_p99_seconds"] / HOUR,
                "makespan": row["makespan_seconds"] / HOUR,
                "rho": row["rho_mean"],
                "worst": row["rho_worst"],
                "restarts": row["restarts"] / jobs,
                "twice": float(held_twice(result.run.leases)),
                "open": float(result.run.jobs["finish_seconds"].null_count()),
            }
        )
    return found


def main(jobs: int, seeds: int) -> None:
    """Print a row a policy."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.csv"
        path.write_text(plan())
        print(f"{jobs} jobs, {seeds} seeds; breathing 16 to 12 machines of 4 GPUs, and 14")
        heads = ("mean JCT, h", "p99 JCT, h", "makespan, h", "mean rho", "worst rho", "restarts/job")
        title = "".join(f"{head:>15s}" for head in heads)
        print(f"{'policy':16s}{title}   ratio of means (95 %)   open twice  CPU s")
        for policy in POLICIES:
            began = time.process_time()
            breathing = figures(f"16x{MACHINE}", policy, seeds, jobs, str(path))
            steady = figures(f"14x{MACHINE}", policy, seeds, jobs, None)
            logs = np.log([one["mean"] / other["mean"] for one, other in zip(breathing, steady, strict=True)])
            wide = student.ppf(0.975, seeds - 1) * np.std(logs, ddof=1) / math.sqrt(seeds) if seeds > 1 else math.nan
            low, middle, high = np.exp(np.mean(logs) + np.array([-wide, 0.0, wide]))
            cells = [
                f"{np.mean([one[key] for one in breathing]):8.2f} {np.mean([one[key] for one in steady]):6.2f}"
                for key in ("mean", "p99", "makespan", "rho", "worst", "restarts")
            ]
            left = sum(int(one["open"]) for one in breathing)
            twice = sum(int(one["twice"]) for one in breathing)
            spent = time.process_time() - began
            print(
                f"{policy:16s}{''.join(cells)}   {middle:.3f} ({low:.3f} to {high:.3f})"
                f"   {left:4d} {twice:5d} {spent:6.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main(*(int(option) for option in (*sys.argv[1:], *("120", "5")[len(sys.argv) - 1 :])))
