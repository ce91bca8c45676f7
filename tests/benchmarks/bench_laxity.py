"""``laxity`` beside published policies on generated traces that tuned nothing: every table of its page, by one command.

Run with ``python tests/benchmarks/bench_laxity.py THROUGHPUTS [--traces 20] [-j 1] [--store FILE]``, where
THROUGHPUTS is a file of measured rates in Gavel's format. Traces, rules and knowledge are those of ``fresh_traces``;
their seeds are fixed here: 5001 to 5020. No setting of any policy was chosen on them. Prints:

1. every policy as shipped: means over the traces, with 95 % t intervals, of its makespan over OSSP's and of its mean
   JCT over SRTF's on the same trace, of its worst static ρ, and the part of the jobs above 1.05;
2. the worst ρ of every kind, and the most CPU of a round on the first of the largest traces;
3. the same where a policy knows the contention of the trace, a fact of the future, and what not knowing it costs;
4. the same with errors in measured rates, over OSSP and SRTF without errors;
5. what each part of ``laxity`` buys: the same with one part less, and its ratios to ``laxity`` on the same trace; and
   Shockwave's planner with each way to count N_avg, on the traces of at most 220 jobs;
6. the front in (worst static ρ, mean JCT, makespan) of each published policy, by trace;
7. the goals of ``laxity`` one by one;
8. policies as shipped on the published trace; ``--published`` prints this table alone, in seconds.

``--store`` keeps the figures of each run in a file, so that a run that was stopped goes on.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fresh_traces import PUBLISHED, RHO_KINDS, Found, Trace, Way, run_all, trace_of

from eunomia_testbed.metrics.intervals import Interval, interval

FIRST_SEED = 5001
OURS = Way("laxity", "laxity")
OSSP, SRTF = Way("ossp", "min_total_duration"), Way("srtf", "srtf")
FORECAST = Way("srtf+forecast", "srtf", {"stages.elasticity": "shockwave_forecast"})
SHOCKWAVE = Way("shockwave", "shockwave")
PUBLISHED_POLICIES = (
    SRTF,
    FORECAST,
    Way("srsf", "srsf"),
    OSSP,
    Way("themis", "themis", {"rounds.bid_deadline": "none"}),
    Way("finish_time_fairness", "finish_time_fairness"),
    Way("allox", "allox"),
    SHOCKWAVE,
)
"""Of papers; ``srtf+forecast`` is SRTF with Shockwave's forecast, so that ours has no more knowledge than it."""
SHIPPED = (OURS, *PUBLISHED_POLICIES, Way("shockwave_linear", "shockwave_linear"), Way("index_rule", "index_rule"))
INFORMED = (
    Way("laxity, knowing N", "laxity", informed="laxity"),
    Way("shockwave, knowing N", "shockwave", informed="shockwave_utility"),
)
ERRORS = tuple(
    Way(f"{one.name}, {100 * error:.0f} %", one.preset, one.settings, error=error)
    for one in (OURS, FORECAST, SRTF, SHOCKWAVE)
    for error in (0.1, 0.3)
)
LESS = (
    Way("without the forecast", "laxity", {"stages.elasticity": "fixed"}),
    Way("without late jobs", "laxity", {"plugins.laxity.late": False}),
    Way("without the path", "laxity", {"plugins.laxity.critical": 2.0, "plugins.laxity.critical_power": 100.0}),
    Way("without gangs", "laxity", {"plugins.laxity.gang_power": 0.0}),
    Way("without staying", "laxity", {"plugins.laxity.stay": 0.0}),
    Way("without its N: the average of (9)", "laxity", {"plugins.laxity.sharing": "average"}),
)
"""``laxity`` with one part less: seconds that are not forecast; no fair finish; no makespan; lengths in seconds;
running jobs count as long as they are; N falls while the queue drains, as Shockwave's N_avg does."""
PLANNER = tuple(
    Way(f"{preset}, {sharing}", preset, {"plugins.shockwave_utility.sharing": sharing})
    for preset in ("shockwave", "shockwave_linear")
    for sharing in ("average", "arrived")
)
"""The planner with both ways to count N_avg."""
FEW = 220
"""Jobs of the greatest traces on which both ways to count N_avg are compared."""
TIED = 0.01
"""Figures of two policies on a trace are tied if they differ by at most this part."""
Runs = Mapping[tuple[str, Trace], Found]


def texts(values: Sequence[float], digits: int = 3) -> str:
    """Return a mean with its interval."""
    found = interval(list(values))
    if found is None or found.low is None or found.high is None:
        return f"{values[0]:.{digits}f}" if values else "-"
    return f"{found.mean:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def ratios(runs: Runs, way: Way, traces: Sequence[Trace]) -> tuple[list[float], list[float], list[float]]:
    """Return by trace makespan over OSSP's, mean JCT over SRTF's, and the worst static ρ."""
    own = [runs[way.name, trace] for trace in traces]
    makespan = [one.makespan / runs[OSSP.name, trace].makespan for one, trace in zip(own, traces, strict=True)]
    jct = [one.jct / runs[SRTF.name, trace].jct for one, trace in zip(own, traces, strict=True)]
    return makespan, jct, [one.worst["static"] for one in own]


def main_rows(runs: Runs, ways: Sequence[Way], traces: Sequence[Trace]) -> Iterator[str]:
    """Yield the table of makespan, mean JCT, worst static ρ, and CPU."""
    heads = ("policy", "makespan / OSSP's", "mean JCT / SRTF's", "worst static ρ", "greatest of all", "ρ > 1.05")
    yield f"| {' | '.join(heads)} | CPU of a run |"
    yield "|---|---|---|---|---|---|---|"
    for way in ways:
        own = [runs[way.name, trace] for trace in traces]
        makespan, jct, rho = ratios(runs, way, traces)
        above, cpu = sum(one.above for one in own) / len(own), sum(one.cpu for one in own) / len(own)
        tail = f"{max(rho):.2f} | {100 * above:.2f} % | {cpu:.2f} s"
        yield f"| {way.name} | {texts(makespan)} | {texts(jct)} | {texts(rho)} | {tail} |"


def kind_rows(runs: Runs, ways: Sequence[Way], traces: Sequence[Trace]) -> Iterator[str]:
    """Yield the table of the worst ρ by kind."""
    yield f"| policy | {' | '.join(f'worst {kind} ρ' for kind in RHO_KINDS)} |"
    yield "|---|---|---|---|---|"
    for way in ways:
        cells = [texts([runs[way.name, trace].worst[kind] for trace in traces], 2) for kind in RHO_KINDS]
        yield f"| {way.name} | {' | '.join(cells)} |"


def round_rows(runs: Runs, ways: Sequence[Way], trace: Trace) -> Iterator[str]:
    """Yield the most CPU that one round took on a trace."""
    yield f"| policy | most CPU of a round, {trace.jobs} jobs on {trace.gpus} GPUs |"
    yield "|---|---|"
    for way in ways:
        yield f"| {way.name} | {runs[way.name, trace].round_ms:.0f} ms |"


def paired_rows(runs: Runs, pairs: Sequence[tuple[str, str, str]], traces: Sequence[Trace]) -> Iterator[str]:
    """Yield the ratios on the same trace of what a policy has to what another has.

    Args:
        runs: what each run came to.
        pairs: the words of a row, and the names of the policy and of the other one.
        traces: the traces.
    """
    yield "| policy | makespan | mean JCT | worst static ρ |"
    yield "|---|---|---|---|"
    for words, name, base in pairs:
        own = [(runs[name, trace], runs[base, trace]) for trace in traces]
        cells = (
            [one.makespan / other.makespan for one, other in own],
            [one.jct / other.jct for one, other in own],
            [one.worst["static"] / other.worst["static"] for one, other in own],
        )
        yield f"| {words} | {' | '.join(texts(values) for values in cells)} |"


def place(own: Found, other: Found) -> str:
    """Return how a policy stands to ours on a trace: ``dominated``, ``tied``, ``not dominated`` or ``dominates``."""
    pairs = [
        (own.worst["static"], other.worst["static"]),
        (own.jct, other.jct),
        (own.makespan, other.makespan),
    ]
    worse = [theirs > mine * (1.0 + TIED) for mine, theirs in pairs]
    better = [theirs < mine / (1.0 + TIED) for mine, theirs in pairs]
    if not any(better):
        return "dominated" if any(worse) else "tied"
    return "not dominated" if any(worse) else "dominates"


def front_rows(runs: Runs, traces: Sequence[Trace]) -> Iterator[str]:
    """Yield by published policy on how many traces ours dominates it, and the paired ratios."""
    heads = ("policy", "dominated by `laxity`", "tied", "not dominated", "dominates `laxity`")
    yield f"| {' | '.join(heads)} | worst ρ / ours | mean JCT / ours | makespan / ours |"
    yield "|---|---|---|---|---|---|---|---|"
    for way in PUBLISHED_POLICIES:
        pairs = [(runs[OURS.name, trace], runs[way.name, trace]) for trace in traces]
        places = [place(*pair) for pair in pairs]
        counts = [places.count(name) for name in ("dominated", "tied", "not dominated", "dominates")]
        cells = (
            [other.worst["static"] / own.worst["static"] for own, other in pairs],
            [other.jct / own.jct for own, other in pairs],
            [other.makespan / own.makespan for own, other in pairs],
        )
        yield f"| {way.name} | {' | '.join(map(str, counts))} | {' | '.join(texts(values, 2) for values in cells)} |"


def places_by_trace(runs: Runs, traces: Sequence[Trace]) -> Iterator[str]:
    """Yield by trace how each published policy stands: d dominated, = tied, n not dominated, ! it dominates ours."""
    signs = {"dominated": "d", "tied": "=", "not dominated": "n", "dominates": "!"}
    yield f"{'':<24}{' '.join(str(trace.seed % 1000).rjust(3) for trace in traces)}"
    for way in PUBLISHED_POLICIES:
        found = [signs[place(runs[OURS.name, trace], runs[way.name, trace])] for trace in traces]
        yield f"{way.name:<24}{' '.join(sign.rjust(3) for sign in found)}"


def goal_rows(runs: Runs, traces: Sequence[Trace]) -> Iterator[str]:
    """Yield the goals one by one: held if the whole interval is within the goal, missed if its mean is not."""
    makespan, jct, rho = ratios(runs, OURS, traces)
    own = [runs[OURS.name, trace] for trace in traces]
    yield "| goal | here | |"
    yield "|---|---|---|"
    for text, values, most in (
        ("makespan over OSSP's at most 0.95", makespan, 0.95),
        ("mean JCT over SRTF's at most 1.00", jct, 1.0),
        ("worst static ρ at most 1.00", rho, 1.0),
    ):
        yield f"| {text} | {texts(values)} | {verdict(interval(values), most)} |"
    above = sum(one.above for one in own) / len(own)
    slowest = max(one.round_ms for one in own)
    dominating = {
        way.name
        for way in PUBLISHED_POLICIES
        for trace in traces
        if place(runs["laxity", trace], runs[way.name, trace]) == "dominates"
    }
    for text, value, most, unit in (
        ("worst static ρ on no trace above 1.3", max(rho), 1.3, ""),
        ("part of the jobs above 1.05 at most 0.5 %", 100 * above, 0.5, " %"),
        ("no round over 20 ms of CPU", slowest, 20.0, " ms"),
    ):
        yield f"| {text} | {value:.2f}{unit} | {'held' if value <= most else 'missed'} |"
    named = ", ".join(sorted(dominating)) or "none on any trace"
    yield f"| no published policy dominates it | {named} | {'missed' if dominating else 'held'} |"


def verdict(found: Interval | None, most: float) -> str:
    """Return whether a mean is within a goal."""
    if found is None or found.mean > most:
        return "missed"
    return "held" if found.high is not None and found.high <= most else "held by the mean, not by the whole interval"


def published_rows(runs: Runs) -> Iterator[str]:
    """Yield the figures of policies as shipped on the published trace."""
    yield "| policy | makespan s | mean JCT s | worst static ρ | ρ > 1.05 | worst contention ρ | CPU |"
    yield "|---|---|---|---|---|---|---|"
    for way in (*SHIPPED, *INFORMED):
        one = runs[way.name, PUBLISHED]
        rho = f"{one.worst['static']:.2f} | {100 * one.above:.1f} % | {one.worst['contention']:.2f}"
        yield f"| {way.name} | {one.makespan:.0f} | {one.jct:.0f} | {rho} | {one.cpu:.2f} s |"


def small_of(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces on which both ways to count N_avg are compared."""
    return [trace for trace in traces if trace.jobs <= FEW]


def tables_of(runs: Runs, traces: Sequence[Trace]) -> list[tuple[str, Iterator[str]]]:
    """Return the tables of the generated traces with their titles."""
    costs = [(f"{one.preset}, as shipped over knowing N", one.preset, one.name) for one in INFORMED]
    parts = [(one.name, one.name, OURS.name) for one in LESS]
    return [
        ("1. As shipped", main_rows(runs, SHIPPED, traces)),
        ("2. Every kind of ρ", kind_rows(runs, SHIPPED, traces)),
        ("   The most CPU of a round", round_rows(runs, SHIPPED, max(traces, key=lambda trace: trace.jobs))),
        ("3. Knowing the contention of the trace", main_rows(runs, INFORMED, traces)),
        ("   What not knowing it costs", paired_rows(runs, costs, traces)),
        ("4. Errors in measured rates", main_rows(runs, (OURS, *ERRORS), traces)),
        ("5. laxity with one part less", main_rows(runs, (OURS, *LESS), traces)),
        ("   Over laxity on the same trace", paired_rows(runs, parts, traces)),
        ("   N_avg of Shockwave's planner", main_rows(runs, PLANNER, small_of(traces))),
        ("6. The front", front_rows(runs, traces)),
        ("   By trace", places_by_trace(runs, traces)),
        ("7. Goals of laxity", goal_rows(runs, traces)),
    ]


def main(words: Sequence[str]) -> None:
    """Run all cells and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("throughputs")
    parser.add_argument("--traces", type=int, default=20)
    parser.add_argument("--published", action="store_true", help="table 8 alone: policies on the published trace")
    parser.add_argument("-j", type=int, default=1, help="processes")
    parser.add_argument("--store", type=Path, help="a file that keeps the figures of each run")
    given = parser.parse_args(words)
    traces = [] if given.published else [trace_of(number, FIRST_SEED) for number in range(given.traces)]
    for trace in traces:
        print(trace)
    cells = [(way, PUBLISHED) for way in (*SHIPPED, *INFORMED)]
    cells += [(way, trace) for trace in traces for way in (*SHIPPED, *INFORMED)]
    cells += [(way, trace) for trace in traces for way in (*ERRORS, *LESS)]
    cells += [(way, trace) for trace in small_of(traces) for way in PLANNER]
    runs = {(way.name, trace): found for way, trace, found in run_all(given.throughputs, cells, given.j, given.store)}
    published = [("8. The published trace", published_rows(runs))]
    for title, lines in published if given.published else [*tables_of(runs, traces), *published]:
        print(f"\n{title}\n")
        print("\n".join(lines))
    print(f"\n{len(runs)} runs, {sum(one.cpu for one in runs.values()):.0f} s of CPU")


if __name__ == "__main__":
    main(sys.argv[1:])
