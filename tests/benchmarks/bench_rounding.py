"""How far ``rounding`` strays from given shares, how long claims wait, and how many gangs run on two types.

``python tests/benchmarks/bench_rounding.py [--rounds 1000] [--seeds 1,2,3]`` runs users whose jobs never end through
the arbiter, on machines of 8 GPUs of three types. Prints for each case the largest deviation of received from promised
GPU-rounds over all rounds, users and types; where shares stand still, the longest wait of a user as a multiple of
twice the largest gang over its share (of all types, and of the type of which it has most), plus one round; and CPU
seconds. Then waits beside shares for gangs that do not add up to a machine, and job-rounds on two types.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins" / "oef"))

from rounding_runs import KINDS, TYPES, Seen, longest_wait_allowed, run, shares, with_a_loss

ONE_MACHINE = "1x8 K80, 1x8 P100, 1x8 V100"
Gangs = dict[int, list[int]]


class Case(NamedTuple):
    """Users on a cluster with ``gpus`` GPUs of each type."""

    name: str
    cluster: str
    gpus: int
    gangs: Gangs
    largest: int
    even: float
    """The smaller, the fewer users have most GPUs."""


def cases() -> list[Case]:
    """The cases whose deviation has a limit: that of their largest gang."""
    ones = {user: [1] * 48 for user in range(6)}
    all_sizes = {user: [1, 2, 4, 8] * 4 for user in range(6)}
    one_size = {user: [2 ** (user % 4)] * (48 >> user % 4) for user in range(6)}
    return [
        Case("jobs of 1 GPU", TYPES, 16, ones, 1, 1.0),
        Case("gangs 1 to 8, all a user", TYPES, 16, all_sizes, 8, 0.5),
        Case("gangs 1 to 8, one a user", TYPES, 16, one_size, 8, 0.5),
        Case("the same, a machine a type", ONE_MACHINE, 8, one_size, 8, 0.5),
        Case("gangs of 8, a machine a type", ONE_MACHINE, 8, {user: [8] * 3 for user in range(6)}, 8, 1.0),
    ]


def strays(rounds: int, seeds: list[int]) -> None:
    """Deviations and waits."""
    print(f"{'case':30}{'shares':>12}{'seed':>5}{'deviation':>11}{'limit':>6}{'wait':>6}{'of type':>9}{'CPU s':>7}")
    for case in cases():
        for kind in KINDS:
            for seed in seeds:
                promised = shares(seed, len(case.gangs), case.gpus, kind, even=case.even)
                began = time.process_time()
                seen = run(case.cluster, case.gangs, promised, rounds)
                waits = waited(seen, case.largest, promised(0)) if kind == "fixed" else ""
                _row(case.name, kind, seed, seen, case.largest, waits, began)


def waited(seen: Seen, gang: int, promised: np.ndarray) -> str:
    """The longest wait as multiples of those allowed by the share of all types, and by that of one type."""
    waits = seen.waits()
    of_all = float((waits / longest_wait_allowed(gang, promised.sum(axis=1, keepdims=True))).max())
    of_one = float((waits / longest_wait_allowed(gang, promised)).max())
    return f"{of_all:6.2f}{of_one:9.2f}"


def losses(rounds: int, seeds: list[int]) -> None:
    """The same with a machine that is lost for a third of the rounds, and three kills of the arbiter."""
    restarts = frozenset({rounds // 2, rounds // 2 + 1, rounds - 5})
    for gang in (1, 2, 4, 8):
        for seed in seeds:
            promised, events = with_a_loss(rounds, seed=seed)
            began = time.process_time()
            gangs: Gangs = {user: [gang] * (48 // gang) for user in range(5)}
            seen = run(TYPES, gangs, promised, rounds, events=events, restarts=restarts)
            _row(f"gangs of {gang}, loss and kills", "fixed", seed, seen, gang, "", began)


def _row(name: str, kind: str, seed: int, seen: Seen, limit: int, waits: str, began: float) -> None:
    spent = time.process_time() - began
    print(f"{name:30}{kind:>12}{seed:5}{seen.deviation():11.3f}{limit:6}{waits or ' ' * 15}{spent:7.1f}", flush=True)


def starving(rounds: int, seeds: list[int]) -> None:
    """Waits beside shares, with gangs of 3 and 5 on machines of 8."""
    print("gangs of 3 and 5: longest wait in rounds, share of the GPUs of all types; by user")
    for seed in seeds:
        promised = shares(seed, 6, 16, "fixed")
        seen = run(TYPES, {user: [3 + 2 * (user % 2)] * 14 for user in range(6)}, promised, rounds)
        pairs = zip(seen.waits().tolist(), (promised(0).sum(axis=1) / 48).tolist(), strict=True)
        print(f"seed {seed}: " + "  ".join(f"{wait} at {share:.1%}" for wait, share in pairs), flush=True)


def mixing(rounds: int, seeds: list[int]) -> None:
    """Job-rounds on two types: without and with ``mixed``, and with each user's GPUs dealt to its jobs at random."""
    print("gangs of 1 to 6: job-rounds on two types, of all")
    gangs = {user: [1 + (user + number) % 6 for number in range(20)] for user in range(5)}
    for seed in seeds:
        promised = shares(seed, 5, 16, "each round")
        apart, both = (run(TYPES, gangs, promised, rounds, mixed=on) for on in (False, True))
        parts = (("rounding", apart.mixed, apart), ("with mixed", both.mixed, both), ("blind", apart.ignoring, apart))
        print(f"seed {seed}: " + "  ".join(_part(*part) for part in parts), flush=True)


def _part(name: str, count: int, seen: Seen) -> str:
    return f"{name} {count / seen.served:.2%} of {seen.served}"


def numbers(text: str) -> Iterable[int]:
    """Whole numbers between commas."""
    return map(int, text.split(","))


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seeds", default="1,2,3")
    given = parser.parse_args()
    seeds = list(numbers(given.seeds))
    for measure in (strays, losses, starving, mixing):
        measure(given.rounds, seeds)


if __name__ == "__main__":
    main()
