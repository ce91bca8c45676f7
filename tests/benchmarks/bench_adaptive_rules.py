"""Digits under a static batch size, Accordion's rule and the noise scale: batch sizes by epoch, steps and accuracy.

Run with ``python tests/benchmarks/bench_adaptive_rules.py [--seeds 5] [--epochs 40]``. Trains the network of
``docs/examples/adapting/digits.py`` on one CPU under each rule with seeds from 1 on. Prints the batch sizes of the
first seed, and over the seeds, with 95 % t intervals, the optimizer steps, the accuracy on the held-out digits after
the last epoch, and its difference from that of the static run with the same seed. Training is real; asserts nothing.
"""

import argparse
import itertools
import os
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from eunomia_testbed.metrics.intervals import interval

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "adapting" / "digits.py"
RULES = ("static", "accordion", "gns")
EPOCH = re.compile(r"^epoch (\d+): batch size (\d+), step (\d+), accuracy ([0-9.]+)$", re.MULTILINE)


class Run(NamedTuple):
    """A training run."""

    sizes: list[int]
    """Batch size by epoch."""
    steps: int
    """Of the optimizer."""
    accuracy: float
    """On the held-out digits, after the last epoch."""


def trained(rule: str, seed: int, epochs: int) -> Run:
    """Train under a rule.

    Raises:
        subprocess.CalledProcessError: the script failed; what it wrote has been shown.
    """
    command = [sys.executable, str(SCRIPT), "--rule", rule, "--seed", str(seed), "--epochs", str(epochs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=True)
    rows = EPOCH.findall(done.stdout)
    _, _, steps, accuracy = rows[-1]
    return Run([int(size) for _, size, _, _ in rows], int(steps), float(accuracy))


def stretches(sizes: Sequence[int]) -> str:
    """Return batch sizes, each with the epoch from which on it holds."""
    starts = [epoch for epoch in range(1, len(sizes)) if sizes[epoch] != sizes[epoch - 1]]
    return "; ".join([str(sizes[0]), *(f"{sizes[epoch]} from epoch {epoch} on" for epoch in starts)])


def text(values: Sequence[float], digits: int, sign: str = "") -> str:
    """Return a mean with its interval, where there is one."""
    found = interval(list(values))
    shape = f"{sign}.{digits}f"
    if found is None or found.low is None or found.high is None:
        return format(values[0], shape)
    return f"{found.mean:{shape}} ({found.low:{shape}} to {found.high:{shape}})"


def main(words: Sequence[str]) -> None:
    """Train under each rule and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=40)
    given = parser.parse_args(words)
    seeds = range(1, given.seeds + 1)
    runs = {(rule, seed): trained(rule, seed, given.epochs) for rule, seed in itertools.product(RULES, seeds)}
    print("| rule | batch size by epoch, seed 1 | optimizer steps | accuracy at the end | over the static run's |")
    print("|---|---|---|---|---|")
    for rule in RULES:
        own = [runs[rule, seed] for seed in seeds]
        gains = [run.accuracy - runs["static", seed].accuracy for run, seed in zip(own, seeds, strict=True)]
        cells = (stretches(own[0].sizes), text([run.steps for run in own], 0), text([run.accuracy for run in own], 3))
        print(f"| `{rule}` | {' | '.join(cells)} | {text(gains, 3, '+')} |")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{len(runs)} runs, {spent.ru_utime + spent.ru_stime:.0f} s of CPU")


if __name__ == "__main__":
    main(sys.argv[1:])
