"""``laxity`` and others as shipped, on 20 traces on which no setting was chosen: means of ratios on the same trace.

Run with ``python tests/benchmarks/bench_laxity.py THROUGHPUTS [--traces N] [--set KEY=VALUE ...] [policy ...]``, where
THROUGHPUTS is a file of measured rates in Gavel's format. The traces are those of Shockwave's generator with seeds 101
to 120, in turn 120 jobs on 32 GPUs, 220 on 64, 460 on 128 and 900 on 256; in the first half all jobs arrive within the
first third of the run, in the second half arrivals go on over the whole run (a job every 150 s on 32 GPUs). Policies
run under the round rules of the peer's simulator (rounds of 120 s, a restart costs 20 s) and know the work and the
rates measured so far; no policy has an option that its preset does not set. Prints a row for each policy: the mean over
the traces of its makespan over OSSP's and of its mean JCT over SRTF's with 95 % t intervals, its static ρ, the part
above 1.05, and CPU seconds. The goals are those of the project's page on ``laxity``.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.metrics.intervals import interval
from eunomia_testbed.metrics.judged import judge
from eunomia_testbed.reproduce.shockwave.cells import make_rates
from eunomia_testbed.simulator import Keep, Reports, SimulationOptions, simulate_one
from eunomia_testbed.simulator.gavel_rules import SHOCKWAVE, gavel_rules, under_rules

FIRST_SEED = 101
SIZES = ((120, 32), (220, 64), (460, 128), (900, 256))
DENSE, STEADY = 40.0, 150.0
"""Mean seconds between arrivals on 32 GPUs."""
POLICIES = ("laxity", "srtf", "srsf", "min_total_duration", "shockwave", "index_rule", "finish_time_fairness", "allox")
NAMES = {"min_total_duration": "ossp"}
WITH_FORECAST = {"srtf+forecast": "srtf"}
"""Twins that differ from a preset by Shockwave's forecast."""


def trace_of(number: int) -> dict[str, object]:
    """Return the options of the generator for one of the traces, from 0."""
    jobs, gpus = SIZES[number % len(SIZES)]
    gap = (DENSE if number % 20 < 10 else STEADY) * 32 / gpus
    return {"jobs": jobs, "gpus": gpus, "interarrival_seconds": gap, "seed": FIRST_SEED + number}


def run_cell(throughputs: str, settings: dict[str, object], policy: str, number: int) -> tuple[str, int, list[float]]:
    """Simulate a policy on a trace; return makespan, mean JCT, worst ρ, mean ρ, part above 1.05, CPU seconds."""
    trace = trace_of(number)
    gpus = int(str(trace["gpus"]))
    options = {"jobs": trace["jobs"], "interarrival_seconds": trace["interarrival_seconds"], "throughputs": throughputs}
    workload = generate_workload("shockwave", options, int(str(trace["seed"])))
    cluster = Cluster.parse(f"{gpus}x1 V100")
    rules = replace(SHOCKWAVE, least_between_seconds=0.0)
    simulation = SimulationOptions(
        rules=gavel_rules(workload, cluster, make_rates(throughputs), rules),
        reports=Reports(know="measured"),
        keep=Keep(rounds=False, leases=False, waits=False, queue=False, records=False),
    )
    own = dict(settings) if policy == "laxity" else {}
    if policy in WITH_FORECAST:
        own["stages.elasticity"] = "shockwave_forecast"
    profile = under_rules(Profile.load(WITH_FORECAST.get(policy, policy), settings=own), rules)
    began = time.process_time()
    run = simulate_one(workload, cluster, profile, options=simulation, seed=0)
    spent = time.process_time() - began
    jobs = judge(run, workload, cluster).jobs
    rho = np.asarray(jobs.rho_static)
    figures = [np.nanmax(run.finish_seconds), np.nanmean(jobs.jct_seconds), rho.max(), rho.mean(), (rho > 1.05).mean()]
    return policy, number, [*map(float, figures), spent]


def rows(found: dict[tuple[str, int], list[float]], policies: Sequence[str], traces: range) -> Iterator[str]:
    """Yield the lines of the table."""
    heads = f"{'makespan / OSSP':>24} {'mean JCT / SRTF':>24} {'worst ρ':>22} {'most':>6} {'>1.05':>7} {'CPU s':>7}"
    yield f"{'policy':<22} {heads}"
    for policy in policies:
        mine = [found[policy, number] for number in traces]
        ossp = [found["min_total_duration", number][0] for number in traces]
        srtf = [found["srtf", number][1] for number in traces]
        cells = (
            [one[0] / other for one, other in zip(mine, ossp, strict=True)],
            [one[1] / other for one, other in zip(mine, srtf, strict=True)],
            [one[2] for one in mine],
        )
        texts = [
            " ".join(_text(values).split()).rjust(width) for values, width in zip(cells, (24, 24, 22), strict=True)
        ]
        above, cpu = sum(one[4] for one in mine) / len(mine), sum(one[5] for one in mine) / len(mine)
        yield f"{NAMES.get(policy, policy):<22} {' '.join(texts)} {max(cells[2]):6.2f} {100 * above:6.2f}% {cpu:7.2f}"


def _text(values: Sequence[float]) -> str:
    found = interval(list(values))
    if found is None or found.low is None or found.high is None or math.isnan(found.mean):
        return "-" if found is None else f"{found.mean:.3f}"
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


def main(words: Sequence[str]) -> None:
    """Run all cells on two processes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("throughputs")
    parser.add_argument("policies", nargs="*")
    parser.add_argument("--traces", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first trace; 1000 and more: other seeds")
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--by-trace", action="store_true")
    parser.add_argument("--set", action="append", default=[], dest="settings", help="KEY=NUMBER, for laxity alone")
    given = parser.parse_intermixed_args(words)
    settings: dict[str, object] = {key: float(text) for key, text in (item.split("=", 1) for item in given.settings)}
    policies = tuple(given.policies) or (*POLICIES, *WITH_FORECAST)
    policies = tuple(dict.fromkeys((*policies, "srtf", "min_total_duration")))
    traces = range(given.first, given.first + given.traces)
    found: dict[tuple[str, int], list[float]] = {}
    work = [(policy, number) for number in traces for policy in policies]
    with ProcessPoolExecutor(given.j) as pool:
        one = partial(run_cell, given.throughputs, settings)
        for policy, number, figures in pool.map(one, *zip(*work, strict=True)):
            found[policy, number] = figures
            if given.by_trace:
                print(
                    f"{number:4} {trace_of(number)} {policy:<20}",
                    *(f"{figure:10.3f}" for figure in figures),
                    flush=True,
                )
    for line in rows(found, policies, traces):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
