"""``python -m chaos.crash_points``: stop the arbiter, the app masters and the launchers at every point of a run.

Of the script ``live`` the job's store is stopped, too; of the scripts ``joins`` and ``leaves`` the arbiter and the
machine's whole launcher are.
"""

import argparse
import sys
import time

from chaos.crash_points.enumeration import KINDS, Stopped, enumerate_points, table
from chaos.crash_points.joining import MACHINE
from chaos.crash_points.script import SCRIPTS
from chaos.crash_points.world import STORE


def main() -> int:
    """Enumerate, print the table, and return 1 if a run ended otherwise."""
    options = argparse.ArgumentParser(prog="python -m chaos.crash_points", description=__doc__)
    options.add_argument("--script", choices=sorted(SCRIPTS), default="search")
    options.add_argument("--only", choices=(*KINDS, MACHINE, STORE), help="stop processes of one kind alone")
    options.add_argument("--processes", type=int, default=1, metavar="N", help="runs side by side")
    options.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N parts of the points")
    chosen = options.parse_args()
    place, _, parts = chosen.part.partition("/")
    began = time.perf_counter()
    runs: list[Stopped] = []
    for run in enumerate_points(
        SCRIPTS[chosen.script],
        (chosen.only,) if chosen.only else (),
        processes=chosen.processes,
        part=(int(place) - 1, int(parts)),
    ):
        runs.append(run)
        if run.differences:
            sys.stderr.write(f"{run.kind} {run.number}, {run.point}\n")
            sys.stderr.writelines(f"    {difference}\n" for difference in run.differences)
        elif len(runs) % 20 == 0:
            sys.stderr.write(f"{len(runs)} points, {time.perf_counter() - began:.0f} s\n")
            sys.stderr.flush()
    out = [f"{'process':12}{'point':52}{'points':>8}{'recovered':>11}{'different':>11}"]
    rows = table(runs)
    out += [f"{kind:12}{point:52}{count:8}{good:11}{bad:11}" for kind, point, count, good, bad in rows]
    sums = [sum(numbers) for numbers in zip(*(row[2:] for row in rows), strict=True)]
    out.append(f"{'all':64}{sums[0]:8}{sums[1]:11}{sums[2]:11}")
    out.append(
        f"longest run {max(run.seconds for run in runs):.1f} virtual s, {time.perf_counter() - began:.0f} s in all"
    )
    out += [
        f"a job that changes live began {run.restarts} more times: {run.kind} {run.number}, {run.point}"
        for run in runs
        if run.restarts
    ]
    sys.stdout.write("\n".join(out) + "\n")
    return 1 if sums[2] else 0


if __name__ == "__main__":
    sys.exit(main())
