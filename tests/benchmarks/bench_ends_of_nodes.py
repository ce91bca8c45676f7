"""Work lost at the ends of nodes that are known and of nodes that are not: ``bench_ends_of_nodes.py [JOBS] [SEEDS]``.

By default 100 jobs and 3 seeds. Six machines of 4 GPUs, each for 24 h, one ends every 4 h and another joins at that
moment, as an engine replaces its nodes. Jobs save every half hour. Known: the machine drains for half an hour before
its end. Unknown: it leaves without notice. Printed are, for each policy, GPU hours of work done twice, the most that a
job lost by a restart (mean over its restarts), restarts a job, mean JCT and makespan of both, and CPU time.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import polars as pl

from eunomia_testbed import simulate
from eunomia_testbed.results.counting import held_twice

POLICIES: Final = ("fifo", "las", "themis", "shockwave", "oef_cooperative", "afs_p")
NODES: Final = 6
MACHINE: Final = "4 V100 32cpu 256GB"
HOUR: Final = 3600
LIFE_HOURS: Final = 24
NOTICE_SECONDS: Final = 1800
DAYS: Final = 40
"""Days with changes; the workload ends before."""
COSTS: Final = ("start=20s", "checkpoint=20s", "restore=10s", "checkpoint_every=30m")


def plan(*, known: bool) -> str:
    """Return the plan: the oldest of the machines ends every four hours, and another joins."""
    rows, last = ["time_seconds,machine,change,detail"], NODES
    here = [f"m{number:02d}" for number in range(1, NODES + 1)]
    for end in range(LIFE_HOURS // NODES * HOUR, DAYS * 24 * HOUR, LIFE_HOURS // NODES * HOUR):
        oldest = here.pop(0)
        last += 1
        here.append(f"m{last:02d}")
        rows += [f"{end - NOTICE_SECONDS},{oldest},drain,{end}"] if known else []
        rows += [f"{end},{here[-1]},join,{MACHINE}", f"{end},{oldest},leave,"]
    return "\n".join(rows) + "\n"


def figures(policy: str, jobs: int, seeds: int, machines_plan: str) -> dict[str, float]:
    """Return means over seeds, and the greatest loss of a job a restart in minutes."""
    result = simulate(
        "gavel", f"{NODES}x{MACHINE}", [policy], settings=[f"gavel.jobs={jobs}", "gavel.interarrival=16m"],
        speeds="equal", seeds=range(seeds), cost=COSTS, machines_plan=machines_plan,
    )  # fmt: skip
    table, row = result.run.jobs, result.summary().row(0, named=True)
    seconds = pl.col("iterations_lost") * pl.col("ideal_seconds") / pl.col("iterations")
    lost = table.with_columns(seconds.alias("lost"), (seconds / pl.col("restarts")).alias("each"))
    return {
        "hours": float((lost["lost"] * lost["slots_asked"]).sum()) / HOUR / seeds,
        "worst": float(lost.filter(pl.col("restarts") > 0)["each"].max() or 0.0) / 60,  # type: ignore[arg-type]
        "restarts": float(table["restarts"].sum()) / table.height,
        "jct": row["jct_mean_seconds"] / HOUR,
        "makespan": row["makespan_seconds"] / HOUR,
        "open": float(table["finish_seconds"].null_count()),
        "twice": float(held_twice(result.run.leases)),
    }


def main(jobs: int, seeds: int) -> None:
    """Print two rows a policy."""
    print(f"{jobs} jobs, {seeds} seeds; {NODES} machines of 4 GPUs, each for {LIFE_HOURS} h")
    print(f"{'policy':16s} end      lost GPU h  worst min  restarts/job  JCT h  makespan h  open  twice  CPU s")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.csv"
        for policy in POLICIES:
            for known in (True, False):
                path.write_text(plan(known=known))
                began = time.process_time()
                found = figures(policy, jobs, seeds, str(path))
                print(
                    f"{policy:16s} {'known' if known else 'unknown':8s} {found['hours']:10.2f} {found['worst']:10.1f} "
                    f"{found['restarts']:13.2f} {found['jct']:6.2f} {found['makespan']:11.1f} {found['open']:5.0f} "
                    f"{found['twice']:6.0f} {time.process_time() - began:6.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main(*(int(option) for option in (*sys.argv[1:], *("100", "3")[len(sys.argv) - 1 :])))
