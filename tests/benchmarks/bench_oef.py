"""CPU time of OEF's programmes by number of claims, beside the specification in cvxpy where that ends.

Run with ``python tests/benchmarks/bench_oef.py [--claims 40,100,300,1000,5000] [--types 10]``.
Speedups are of a power law, times lognormal noise of 0.08 (0: ordered claims), all different; seeds are printed. Prints
CPU milliseconds on one thread, model built and solved, the greatest envy, the greatest shortfall from an equal share
and the certified loss of the objective; ``--bound 6`` computes a closer bound of that loss by as many programmes, whose
time is not counted, and ``--exact`` the loss itself where the optimum can be found. Asserts no timing.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.cooperative import MOST, solve_cooperative, solve_nearly
from eunomia_plugins.oef.envy_bounds import close_bound
from eunomia_plugins.oef.groups import Groups
from eunomia_plugins.oef.near_equal import BUNDLES, nearly_equal
from eunomia_plugins.oef.noncooperative import solve_noncooperative
from eunomia_plugins.oef.specification import state_cooperative, state_noncooperative

Solve = Callable[[Groups], Answer]
PROGRAMMES: dict[str, tuple[Solve, Solve, int]] = {
    "non-cooperative": (solve_noncooperative, state_noncooperative, 1_000_000),
    "cooperative": (solve_cooperative, state_cooperative, 5000),
}
"""By name: fast path, specification, and the most claims that are tried."""


def drawn(claims: int, types: int, noise: float, seed: int) -> Groups:
    """One random instance."""
    luck = np.random.default_rng(seed)
    speed = np.sort(luck.uniform(1.0, 8.0, types))
    table = speed ** luck.uniform(0.0, 1.2, (claims, 1)) * luck.lognormal(0.0, noise, (claims, types))
    return Groups(speedup=table, weight=np.ones(claims), gpus=luck.integers(10, 200, types).astype(float))


def timed(solve: Solve, groups: Groups) -> tuple[float, Answer]:
    """CPU milliseconds, and the answer."""
    began = time.process_time()
    answer = solve(groups)
    return 1000.0 * (time.process_time() - began), answer


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claims", default="40,100,300,1000,5000")
    parser.add_argument("--types", type=int, default=10)
    parser.add_argument("--noise", type=float, default=0.08)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--specification", type=int, default=60, help="most claims for which cvxpy is tried")
    parser.add_argument("--bound", type=int, default=0, help="programmes of a closer bound above 600 claims")
    parser.add_argument("--exact", action="store_true", help="up to 600 claims, also solve by bundles and compare")
    parser.add_argument("--only", choices=sorted(PROGRAMMES), help="this programme alone")
    given = parser.parse_args()
    solve_noncooperative(drawn(4, 2, 0.08, 0))  # imports the solver
    print(
        f"{'programme':16}{'claims':>7}{'seed':>5}{'ms':>10}{'programmes':>11}{'loss':>9}{'envy':>9}{'short':>9}  more"
    )
    for name, (fast, stated, most) in PROGRAMMES.items():
        for claims in map(int, given.claims.split(",")):
            for seed in map(int, given.seeds.split(",")):
                if claims > most or given.only not in (None, name):
                    continue
                groups = drawn(claims, given.types, given.noise, seed)
                spent, answer = timed(fast, groups)
                row = f"{name:16}{claims:7}{seed:5}{spent:10.1f}{answer.rounds:11}{answer.gap:9.1e}"
                row += f"{answer.envy:9.1e}{answer.shortfall:9.1e}"
                if claims <= given.specification:
                    other, slow = timed(stated, groups)
                    equal = abs(slow.objective - answer.objective) <= 1e-6 * abs(slow.objective)
                    row += f"  cvxpy {other:.1f} ms, {other / spent:.1f} times" + ("" if equal else ", not equal")
                if given.bound and answer.bundles:
                    close = close_bound(groups, nearly_equal(groups, BUNDLES), solves=given.bound)
                    row += f"  closer bound: loss {1.0 - answer.objective / close:.1e}"
                if given.exact and name == "cooperative" and claims <= MOST:
                    most, nearly = timed(solve_nearly, groups)
                    lost = 1.0 - nearly.objective / answer.objective
                    row += f"  by bundles: {most:.1f} ms, loss {lost:.1e} (certified {nearly.gap:.1e})"
                print(row, flush=True)


if __name__ == "__main__":
    main()
