"""``python -m chaos.histories``: random histories of clusters that change, held against the arbiter and the checker.

Run it from the root of the repository, with it and ``tests`` in ``PYTHONPATH``, or by ``make histories``. A history
that breaks a rule is printed with the seed that finds it again.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter

from chaos.histories.batches import BATCH, run_batch
from chaos.histories.held import POLICIES


def main() -> int:
    """Hold the histories, print what was seen, and return 1 if a rule was broken."""
    options = argparse.ArgumentParser(prog="python -m chaos.histories", description=__doc__)
    options.add_argument("--histories", type=int, default=10_000, metavar="N")
    options.add_argument("--processes", type=int, default=1, metavar="N", help="side by side")
    options.add_argument("--seed", type=int, default=0, help="of the first batch")
    chosen = options.parse_args()
    batches = -(-chosen.histories // BATCH)
    work = [(chosen.seed + number, POLICIES[number % len(POLICIES)]) for number in range(batches)]
    seen: Counter[str] = Counter()
    seconds, broken, began = 0.0, 0, time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(chosen.processes, maxtasksperchild=8) as pool:
        for done, (counted, spent, why) in enumerate(pool.imap_unordered(run_batch, work), 1):
            seen, seconds = seen + counted, seconds + spent
            if why:
                broken += 1
                sys.stderr.write(f"{why}\n")
            elif done % 20 == 0:
                sys.stderr.write(f"{seen['histories']} histories, {time.perf_counter() - began:.0f} s\n")
            sys.stderr.flush()
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(seen.items()) if kind.startswith("Machine"))
    sys.stdout.write(
        f"{seen['histories']} histories, {seen['steps']} steps, {seen['checkpoints']} checkpoints: "
        f"{broken} batches with findings\n"
        f"{kinds}; {seen['refused']} of them contradict the cluster, and are refused\n"
        f"{seconds:.0f} CPU s, {time.perf_counter() - began:.0f} s on {chosen.processes} processes\n"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
