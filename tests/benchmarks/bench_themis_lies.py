"""What an app of Themis gains by a lie, with standings that count the reported slowdown and with ones that do not.

Run with ``python tests/benchmarks/bench_themis_lies.py [--seeds 8] [--slowdowns footnote]``. Eight equal apps
share the cluster of Figure 18; the last one lies. A row prints the completion time of that app over its time without a
lie, as mean and standard error over the seeds, and the same of the truthful apps' mean. With ``dense`` the apps' model
is one that distance does not slow down. Worst rho and GPU hours are those of the runs without a lie.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eunomia.platform.profiles import Profile
from eunomia_testbed.metrics.serial import serial_seconds
from eunomia_testbed.reproduce.themis.cells import (
    COSTS,
    DENSE,
    FORECAST_SECONDS,
    HORIZON_SECONDS,
    Figures,
    figures_of,
    identical_apps,
    make_cluster,
)
from eunomia_testbed.reproduce.themis.speeds import speeds_of
from eunomia_testbed.simulator import Keep, Reports, SimulationOptions, simulate_one

LIAR = "app7"


class Lie(NamedTuple):
    """What the last app reports: factors on its iterations and on S beyond a machine."""

    name: str
    work: float = 1.0
    far: float = 1.0
    dense: bool = False


LIES = (
    Lie("no lie"),
    Lie("S x1.4", far=1.4),
    Lie("S x2", far=2.0),
    Lie("S x0.7", far=0.7),
    Lie("iterations x1.5", work=1.5),
    Lie("iterations x0.7", work=0.7),
    Lie("no lie, dense", dense=True),
    Lie("S x1.4, dense", far=1.4, dense=True),
)


def run(lie: Lie, slowdowns: str, seed: int, *, standing_slowdown: bool) -> Figures:
    """Simulate eight equal apps of which the last one lies."""
    workload, cluster = identical_apps(seed), make_cluster("lying")
    if lie.dense:
        workload = dataclasses.replace(workload, models=(DENSE,))
    lies: Mapping[str, float] = {LIAR: lie.work} if lie.work != 1.0 else {}
    far: Mapping[str, float] = {LIAR: lie.far} if lie.far != 1.0 else {}
    reports = Reports(forecast_seconds=FORECAST_SECONDS, know="oracle", profiles=False, lies=lies, far_lies=far)
    keep = Keep(rounds=False, leases=False, waits=False, queue=False, records=False, segments=True)
    settings = {
        "rounds.bid_deadline": "none",
        "rounds.lease": "10m",
        "rounds.settle": "60s",
        "plugins.themis.standing_slowdown": standing_slowdown,
    }
    options = SimulationOptions(costs=COSTS, reports=reports, keep=keep, until=HORIZON_SECONDS)
    speeds = speeds_of(slowdowns)
    profile = Profile.load("themis", settings=settings)
    made = simulate_one(workload, cluster, profile, options=options, models=speeds, seed=seed)
    return figures_of(made, workload, cluster, serial_seconds(workload, cluster, speeds))


def mean(values: Sequence[float]) -> str:
    """Mean and standard error of the mean."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{np.mean(values):.3f} ± {error:.3f}"


def main() -> None:
    """Read the arguments, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--slowdowns", default="footnote,analytic")
    parser.add_argument("--standings", default="with,without", help="with the reported S, without it, or both")
    given = parser.parse_args()
    began = time.process_time()
    for slowdowns in given.slowdowns.split(","):
        for standing in (word == "with" for word in given.standings.split(",")):
            way = "with the reported S" if standing else "without S"
            sys.stdout.write(f"{slowdowns}, standings {way}, {given.seeds} seeds: own time, others' time\n")
            honest: dict[bool, list[Figures]] = {}
            for lie in LIES:
                found = [run(lie, slowdowns, seed, standing_slowdown=standing) for seed in range(given.seeds)]
                base = honest.setdefault(lie.dense, found)
                pairs = list(zip(found, base, strict=True))
                own = [one.jct_seconds[-1] / other.jct_seconds[-1] for one, other in pairs]
                rest = [np.mean(one.jct_seconds[:-1]) / np.mean(other.jct_seconds[:-1]) for one, other in pairs]
                if found is base:
                    worst, hours = mean([one.worst_rho for one in found]), mean([one.gpu_hours for one in found])
                    sys.stdout.write(f"  {lie.name:<18} worst rho {worst}, GPU hours {hours}\n")
                else:
                    sys.stdout.write(f"  {lie.name:<18} {mean(own)}   {mean(rest)}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{time.process_time() - began:.0f} s of CPU time\n")


if __name__ == "__main__":
    main()
