"""Chooses window, λ and k of a preset of Shockwave's planner on generated traces.

Run with ``python tests/benchmarks/bench_shockwave_settings.py THROUGHPUTS [--preset shockwave] [--traces 6] [-j 1]``,
where THROUGHPUTS is a file of measured rates in Gavel's format. The traces are generated from seeds 2001 on, which no
other table uses; the published trace is not among them. For every setting prints the means over the traces of the
makespan over OSSP's, of the mean JCT over SRTF's and of the worst static ρ, all geometric, and their product, by which
rows are sorted: the first row is the choice. Beside it stands the error of the preset's logarithm.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from statistics import fmean

from fresh_traces import Found, Trace, Way, run_all, trace_of

from eunomia.platform.profiles import Profile
from eunomia_plugins.shockwave.options import ShockwaveOptions

FIRST_SEED = 2001
NUMBERS = (0, 1, 12, 13, 4, 16)
"""Of 120 jobs and of 220; dense and steady."""
WINDOWS = (20, 30)
LAMBDAS = (0.001, 0.1, 1.0, 4.0, 10.0)
POWERS = (1.0, 2.5, 5.0, 10.0)
OSSP, SRTF = Way("ossp", "min_total_duration"), Way("srtf", "srtf")


def log_errors(options: ShockwaveOptions) -> list[tuple[float, float, float]]:
    """Return each stretch of progress and the most by which the straight line there lies below the logarithm.

    The line from (a, log a) to (b, log b) has slope s; it is furthest below at 1/s, by s a - 1 - log(s a).
    """
    points = [max(point, options.log_origin) for point in options.log_points]
    found = []
    for low, high in itertools.pairwise(points):
        start = low * math.log(high / low) / (high - low)
        found.append((low, high, start - 1.0 - math.log(start)))
    return found


def ways(preset: str) -> list[tuple[tuple[int, float, float], Way]]:
    """Return every setting with its run."""
    found = []
    for window, price, power in itertools.product(WINDOWS, LAMBDAS, POWERS):
        settings: Mapping[str, object] = {
            "plugins.shockwave_utility.window": window,
            "plugins.shockwave.regularizer": price,
            "plugins.shockwave_utility.k": power,
        }
        found.append(((window, price, power), Way(f"{window}/{price:g}/{power:g}", preset, settings)))
    return found


def main(words: Sequence[str]) -> None:
    """Run every setting on every trace and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("throughputs")
    parser.add_argument("--preset", default="shockwave")
    parser.add_argument("--traces", type=int, default=len(NUMBERS))
    parser.add_argument("-j", type=int, default=1)
    given = parser.parse_args(words)
    traces = [trace_of(number, FIRST_SEED) for number in NUMBERS[: given.traces]]
    print("\n".join(map(str, traces)))
    stage = Profile.load(given.preset).merged.tree["plugins"]["shockwave"]
    for low, high, error in log_errors(ShockwaveOptions.model_validate(stage)):
        print(f"the logarithm lies at most {error:.3f} above its line at progress {low:g} to {high:g}")
    settings = ways(given.preset)
    cells = [(way, trace) for trace in traces for way in (OSSP, SRTF, *(way for _, way in settings))]
    found = {(way.name, trace): one for way, trace, one in run_all(given.throughputs, cells, given.j)}
    table = sorted((*means(found, way.name, traces), *setting) for setting, way in settings)
    print(f"{'window':>6} {'lambda':>7} {'k':>5} {'makespan':>9} {'mean JCT':>9} {'worst ρ':>8} {'product':>8}")
    for product, makespan, jct, rho, window, price, power in table:
        print(f"{window:6} {price:7g} {power:5g} {makespan:9.3f} {jct:9.3f} {rho:8.2f} {product:8.3f}")
    print(f"{sum(one.cpu for one in found.values()):.0f} s of CPU")


def means(
    found: Mapping[tuple[str, Trace], Found], name: str, traces: Sequence[Trace]
) -> tuple[float, float, float, float]:
    """Return the product, and the geometric means of makespan over OSSP's, mean JCT over SRTF's and worst ρ."""
    makespan = fmean(math.log(found[name, one].makespan / found["ossp", one].makespan) for one in traces)
    jct = fmean(math.log(found[name, one].jct / found["srtf", one].jct) for one in traces)
    rho = fmean(math.log(found[name, one].worst["static"]) for one in traces)
    return math.exp(makespan + jct + rho), math.exp(makespan), math.exp(jct), math.exp(rho)


if __name__ == "__main__":
    main(sys.argv[1:])
