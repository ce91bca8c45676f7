"""Functions that measure Shockwave's claims."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from eunomia_testbed.metrics.fairness import UNFAIR_RHO
from eunomia_testbed.metrics.intervals import interval
from eunomia_testbed.reproduce.shockwave.cells import PAPER_UNFAIR, ShockwaveCell, ShockwaveFigures
from eunomia_testbed.reproduce.shockwave.grid import (
    CONTENTIONS,
    ERRORS,
    FAIR,
    FRESH,
    LARGE,
    PUBLISHED_TRACE,
    SETTINGS,
    USUAL,
    ShockwaveRuns,
)
from eunomia_testbed.reproduce.verdicts import NOT_RUN, Measured, Verdict, all_of, judged

Number = Callable[[ShockwaveFigures], float]
Make = Callable[[str, int], ShockwaveCell]
By = Mapping[str, Sequence[ShockwaveFigures]]
PUBLISHED = (24197.0, 9958.0, 1.784, 0.05)
"""What the authors' simulator gives on Figure 7's trace: makespan and mean JCT in seconds, worst ρ, part above 1.05."""


def makespan(one: ShockwaveFigures) -> float:
    """Return the makespan in seconds."""
    return one.makespan_seconds


def worst(one: ShockwaveFigures) -> float:
    """Return the worst ρ."""
    return one.worst_rho


def above_one(one: ShockwaveFigures) -> float:
    """Return the fraction of jobs with ρ above 1, which the paper calls unfair."""
    return one.part_above(PAPER_UNFAIR)


def jct(one: ShockwaveFigures) -> float:
    """Return the mean JCT in seconds."""
    return one.mean_jct


def mean(figures: Iterable[ShockwaveFigures], number: Number) -> float:
    """Return the mean over seeds."""
    return fmean(map(number, figures))


def ratios(by: By, number: Number, base: str = "shockwave") -> dict[str, float]:
    """Return for each other policy a number over the base's, both summed over seeds."""
    own = sum(map(number, by[base]))
    return {
        policy: sum(map(number, runs)) / own if own else float("inf") for policy, runs in by.items() if policy != base
    }


def named(numbers: Mapping[str, float], form: str = ".2f") -> str:
    """Return numbers as text, such as ``themis 1.21, gavel 1.30``."""
    return ", ".join(f"{policy} {number:{form}}" for policy, number in numbers.items())


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Return the mean of values with its 95 % interval as text."""
    found = interval(values)
    if found is None or found.low is None or found.high is None:
        return f"{fmean(values):{form}}"
    return f"{found.mean:{form}} ({found.low:{form}} to {found.high:{form}})"


# --- over the baselines -----------------------------------------------------------------------------------------------


def over(
    make: Callable[[ShockwaveRuns], Make], policies: Sequence[str], number: Number, printed: float
) -> Callable[[ShockwaveRuns], Measured]:
    """Measure the mean of the baselines' number over Shockwave's; at least the printed ratio holds."""

    def measure(runs: ShockwaveRuns) -> Measured:
        by = runs.by_policy(make(runs), ("shockwave", *policies))
        if not by["shockwave"]:
            return NOT_RUN
        found = ratios(by, number)
        here = fmean(found.values())
        verdict = judged(here, printed, direction=here > 1.0, better=here > printed)
        own = spread([number(one) for one in by["shockwave"]], ".4g")
        return Measured(text=f"{here:.2f}", verdict=verdict, reason=f"{named(found)}; Shockwave's own {own}")

    return measure


def usual(runs: ShockwaveRuns) -> Make:
    """The cells of Figure 7."""
    return runs.grid.cell


def scaled(gpus: int) -> Callable[[ShockwaveRuns], Make]:
    """Return the cells of Figure 9."""
    return lambda runs: lambda policy, seed: runs.grid.scaled(gpus, policy, seed)


def mixed(static: float) -> Callable[[ShockwaveRuns], Make]:
    """Return the cells of Figure 10."""
    return lambda runs: lambda policy, seed: runs.grid.mixed(static, policy, seed)


def contended(contention: float) -> Callable[[ShockwaveRuns], Make]:
    """Return the cells of Figure 16."""
    return lambda runs: lambda policy, seed: runs.grid.contended(contention, policy, seed)


def jct_alike(runs: ShockwaveRuns) -> Measured:
    """Check that the mean JCT is similar to those of Themis, Gavel and MST (Figure 7)."""
    by = runs.by_policy(runs.grid.cell, USUAL)
    if not by["shockwave"]:
        return NOT_RUN
    found = ratios(by, jct)
    here = fmean(found[policy] for policy in ("themis", "gavel", "mst"))
    verdict = judged(here, 1.0, direction=here >= 0.9, better=here > 1.0)
    return Measured(text=f"{here:.2f}", verdict=verdict, reason=f"mean JCT over Shockwave's: {named(found)}")


def fairness_at_scale(runs: ShockwaveRuns) -> Measured:
    """Measure Shockwave's worst ρ and fraction of jobs with ρ above 1 (Figure 9)."""
    by_gpus = {gpus: runs.by_policy(scaled(gpus)(runs), LARGE)["shockwave"] for gpus in runs.grid.scales}
    found = [one for figures in by_gpus.values() for one in figures]
    if not found:
        return NOT_RUN
    rho, part = mean(found, worst), mean(found, above_one)
    verdicts = [judged(rho, 1.32, direction=rho < 2.0, better=rho < 1.32)]
    verdicts.append(judged(part, 0.04, direction=part < 0.1, better=part < 0.04))
    each = ", ".join(f"{gpus} GPUs {mean(them, worst):.2f}" for gpus, them in by_gpus.items() if them)
    return Measured(text=f"{rho:.2f}, {100 * part:.1f} %", verdict=all_of(verdicts), reason=f"worst ρ: {each}")


def unfair_jobs(static: float, limits: Mapping[str, float]) -> Callable[[ShockwaveRuns], Measured]:
    """Check that Shockwave's fraction of jobs with ρ above 1 is the least (Figure 10)."""

    def measure(runs: ShockwaveRuns) -> Measured:
        by = runs.by_policy(mixed(static)(runs), ("shockwave", *FAIR))
        if not by["shockwave"]:
            return NOT_RUN
        parts = {policy: mean(figures, above_one) for policy, figures in by.items()}
        least = parts["shockwave"] <= min(parts.values()) + 1e-9
        own = parts["shockwave"]
        verdict = judged(own, limits["shockwave"], direction=least, better=own < limits["shockwave"])
        text = ", ".join(f"{100 * parts[policy]:.0f} %" for policy in limits)
        return Measured(text=text, verdict=verdict, reason=named(parts, ".3f"))

    return measure


# --- the published trace ----------------------------------------------------------------------------------------------


def four_figures(one: ShockwaveFigures) -> tuple[float, float, float, float]:
    """Return makespan, mean JCT, worst ρ, and the fraction of jobs with ρ above 1.05 (the authors' limit)."""
    return one.makespan_seconds, one.mean_jct, one.worst_rho, one.part_above(UNFAIR_RHO)


def settings(runs: ShockwaveRuns) -> Measured:
    """Compare the planner of (11), also with half and double of k and λ, with the authors' published run."""
    texts, first = [], None
    for k, regularizer in SETTINGS:
        cell = runs.grid.setting(k, regularizer, runs.grid.seeds[0])
        one = runs.done.get(cell.key)
        if one is None:
            return NOT_RUN
        found = four_figures(one)
        first = first or found
        texts.append(f"k {k:g}, λ {regularizer:g}: {four_words(found)}")
    own = first or (math.inf,) * 4
    good = all(here <= printed + 1e-9 for here, printed in zip(own, PUBLISHED, strict=True))
    verdict = Verdict.HOLDS if good else Verdict.FAILS
    return Measured(text=four_words(own), verdict=verdict, reason="; ".join(texts[1:]))


GOALS = (22000.0, 8500.0, 1.15, 0.01)
"""On the published trace."""


def published(runs: ShockwaveRuns) -> Measured:
    """Measure policies on the published trace, and compare the first of them with the goals."""
    found = [runs.done.get(runs.grid.published(policy, forecast=on).key) for policy, on in PUBLISHED_TRACE]
    fours = [four_figures(one) for one in found if one is not None]
    if len(fours) < len(found):
        return NOT_RUN
    good = all(here <= goal + 1e-9 for here, goal in zip(fours[0], GOALS, strict=True))
    texts = [
        f"{policy}{'' if on else ' without a forecast'}: {four_words(four)}"
        for (policy, on), four in zip(PUBLISHED_TRACE, fours, strict=True)
    ]
    verdict = Verdict.HOLDS if good else Verdict.FAILS
    return Measured(text=four_words(fours[0]), verdict=verdict, reason="; ".join(texts[1:]))


def four_words(four: Sequence[float]) -> str:
    """Return four figures as text, such as ``21375, 7810, 1.02, 0.0 %``."""
    return f"{four[0]:.0f}, {four[1]:.0f}, {four[2]:.2f}, {100 * four[3]:.1f} %"


# --- knowledge --------------------------------------------------------------------------------------------------------


def reactive_fairness(runs: ShockwaveRuns) -> Measured:
    """Measure the worst ρ of jobs that adapt, under reactive Themis and proactive Shockwave (Figure 2)."""

    def worst_of_adapting(one: ShockwaveFigures) -> float:
        return max((rho for rho, adapts in zip(one.rho, one.adapts, strict=True) if adapts), default=0.0)

    themis = runs.of(lambda seed: runs.grid.known("themis", "measured", seed))
    ours = runs.of(lambda seed: runs.grid.known("shockwave", "regimes", seed))
    if not (themis and ours):
        return NOT_RUN
    reactive, proactive = mean(themis, worst_of_adapting), mean(ours, worst_of_adapting)
    verdicts = [judged(reactive, 2.07, direction=reactive > proactive, better=reactive > 2.07)]
    verdicts.append(judged(proactive, 1.0, direction=proactive < reactive, better=proactive < 1.0))
    reason = "the worst job that adapts of whole traces; the paper shows one job. Shockwave knows the coming regimes"
    return Measured(text=f"{reactive:.2f}, {proactive:.2f}", verdict=all_of(verdicts), reason=reason)


def reactive_makespan(runs: ShockwaveRuns) -> Measured:
    """Measure the makespan with initial and with present rates over that with known regimes (Figure 4)."""
    found = {know: runs.of(lambda seed, know=know: runs.grid.makespan(know, seed)) for know in KNOWLEDGE}  # type: ignore[misc]
    if not all(found.values()):
        return NOT_RUN
    base = sum(map(makespan, found["regimes"]))
    agnostic, reactive = (sum(map(makespan, found[know])) / base for know in ("declared", "measured"))
    verdicts = [
        judged(agnostic, 1.30, direction=agnostic > 1.0, better=agnostic > 1.30),
        judged(reactive, 1.223, direction=reactive > 1.0, better=reactive > 1.223),
    ]
    reason = "whole traces under the planner with the makespan bound alone; the paper's three jobs stand in a figure"
    return Measured(text=f"{agnostic:.2f}, {reactive:.2f}", verdict=all_of(verdicts), reason=reason)


KNOWLEDGE = ("declared", "measured", "regimes")


# --- batch, overhead, errors, contention ------------------------------------------------------------------------------


def batch(runs: ShockwaveRuns) -> Measured:
    """Measure the figures of 50 jobs that arrive together (Figure 8)."""
    by = runs.by_policy(runs.grid.batch, ("shockwave", "allox", "gavel", "ossp"))
    if not by["shockwave"]:
        return NOT_RUN
    rho = mean(by["shockwave"], worst)
    parts = {policy: mean(figures, above_one) for policy, figures in by.items()}
    more = min(parts["allox"], parts["gavel"])
    verdicts = [judged(rho, 1.23, direction=rho < mean(by["gavel"], worst), better=rho < 1.23)]
    verdicts.append(judged(more, 0.2, direction=more > parts["shockwave"], better=more > 0.2))
    reason = f"ρ > 1: {named(parts, '.3f')}; all jobs arrive at once on 14 GPUs, the paper does not name the cluster"
    return Measured(text=f"{rho:.2f}, {100 * more:.0f} %", verdict=all_of(verdicts), reason=reason)


def overhead(runs: ShockwaveRuns) -> Measured:
    """Measure the gap of plans (Figure 12)."""
    sizes = (500, 1000, 2000)
    found = {jobs: runs.of(lambda seed, jobs=jobs: runs.grid.crowd(jobs, seed)) for jobs in sizes}  # type: ignore[misc]
    if not all(found.values()):
        return NOT_RUN
    gaps = {jobs: fmean(gap for one in them for gap in one.gaps) for jobs, them in found.items()}
    printed = dict(zip(sizes, (0.0003, 0.0011, 0.0044), strict=True))
    good = all(gaps[jobs] <= printed[jobs] for jobs in sizes)
    verdict = Verdict.HOLDS if good else Verdict.DIRECTION if gaps[2000] <= printed[2000] else Verdict.FAILS
    text = ", ".join(f"{100 * gap:.3f} %" for gap in gaps.values())
    reason = "certified gaps of a first plan; CPU times: tests/benchmarks/bench_shockwave.py"
    return Measured(text=text, verdict=verdict, reason=reason, values=tuple(gaps.values()))


def errors(runs: ShockwaveRuns) -> Measured:
    """Measure makespan, worst ρ and mean JCT by injected error (Figure 13)."""
    found = {part: runs.of(lambda seed, part=part: runs.grid.error(part, seed)) for part in ERRORS}  # type: ignore[misc]
    if not all(found.values()):
        return NOT_RUN
    last = found[ERRORS[-1]]
    grows = {name: mean(last, number) / mean(found[0.0], number) for name, number in _NUMBERS.items()}
    verdicts = [judged(grows["makespan"], 1.3, direction=grows["makespan"] > 1.0)]
    verdicts.append(judged(grows["mean JCT"], 1.0, direction=grows["mean JCT"] < 1.3, better=grows["mean JCT"] < 1.0))
    each = "; ".join(
        f"{100 * part:.0f} %: {mean(them, makespan):.0f} s, {mean(them, jct):.0f} s, {mean(them, worst):.2f}"
        for part, them in found.items()
    )
    text = f"{grows['makespan']:.2f}, {grows['mean JCT']:.2f}"
    return Measured(text=text, verdict=all_of(verdicts), reason=f"makespan, mean JCT, worst ρ by error: {each}")


_NUMBERS: Mapping[str, Number] = {"makespan": makespan, "mean JCT": jct, "worst ρ": worst}


def by_contention(runs: ShockwaveRuns) -> Measured:
    """Check that the gain in makespan falls with contention, and measure worst ρ at contention 2 (Figure 16)."""
    printed = dict(zip(CONTENTIONS, (0.35, 0.19, 0.08), strict=True))
    gains: dict[float, float] = {}
    rho = float("nan")
    for contention in CONTENTIONS:
        by = runs.by_policy(contended(contention)(runs), ("shockwave", *FAIR))
        if not by["shockwave"]:
            return NOT_RUN
        gains[contention] = fmean(ratios(by, makespan).values()) - 1.0
        rho = mean(by["shockwave"], worst) if contention == 2.0 else rho
    verdicts = [
        judged(gains[one], printed[one], direction=gains[one] > 0.0, better=gains[one] > printed[one])
        for one in CONTENTIONS
    ]
    text = ", ".join(f"{100 * gain:.0f} %" for gain in gains.values())
    return Measured(text=text, verdict=all_of(verdicts), reason=f"worst ρ at contention 2: {rho:.2f} (printed 1.2)")


# --- fresh traces -----------------------------------------------------------------------------------------------------


def fresh(policy: str) -> Callable[[ShockwaveRuns], Measured]:
    """Compare a policy with the goals on fresh traces.

    The goals are makespan over OSSP's, JCT over SRTF's, unfair jobs, and mean worst ρ.
    """

    def measure(runs: ShockwaveRuns) -> Measured:
        by = runs.by_policy(runs.grid.fresh, FRESH)
        if not by[policy]:
            return NOT_RUN
        longest = [
            one.makespan_seconds / least.makespan_seconds for one, least in zip(by[policy], by["ossp"], strict=True)
        ]
        slower = [one.mean_jct / least.mean_jct for one, least in zip(by[policy], by["srtf"], strict=True)]
        parts = [four_figures(one)[3] for one in by[policy]]
        rho = [one.worst_rho for one in by[policy]]
        goals = ((longest, 1.0), (slower, 1.2), (parts, 0.02), (rho, 1.3))
        met = [fmean(values) <= goal for values, goal in goals]
        verdict = Verdict.HOLDS if all(met) else Verdict.FAILS
        text = ", ".join(f"{fmean(values):.2f}" for values, _ in goals)
        reason = f"95 % intervals: {'; '.join(spread(values) for values, _ in goals)}. All: {_every_policy(by)}"
        return Measured(text=text, verdict=verdict, reason=reason, values=tuple(longest))

    return measure


def _every_policy(by: By) -> str:
    """Return by policy the means over traces of makespan, mean JCT, worst ρ and the fraction with ρ > 1.05, as text."""
    rows = []
    for policy, figures in by.items():
        four = [four_figures(one) for one in figures]
        means = [fmean(row[at] for row in four) for at in range(4)]
        rows.append(f"{policy} {means[0]:.0f} s, {means[1]:.0f} s, {means[2]:.2f}, {100 * means[3]:.1f} %")
    return "; ".join(rows)
