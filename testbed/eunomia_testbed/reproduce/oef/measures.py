"""Functions that measure OEF's claims."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from eunomia_testbed.reproduce.oef.cells import ALLOCATION, OefCell, OefFigures
from eunomia_testbed.reproduce.oef.grid import BASELINES, ERRORS, SIZES, OefRuns
from eunomia_testbed.reproduce.verdicts import NOT_RUN, Measured, Verdict, all_of, judged

Make = Callable[[int], OefCell]
Measure = Callable[[OefRuns], Measured]
EQUAL = 0.1
"""Throughputs that differ by at most this part count as almost equal."""


def percent(part: float) -> str:
    """Return a fraction as a percentage with its sign."""
    return f"{100.0 * part:+.1f} %"


def listed(values: Sequence[float]) -> str:
    """Return throughputs as text, in GPUs of the slowest type."""
    return ", ".join(f"{each:.2f}" for each in values)


def averaged(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean over seeds by tenant."""
    return [fmean(column) for column in zip(*rows, strict=True)]


def spread_of(values: Sequence[float]) -> float:
    """Return by what fraction the largest value exceeds the smallest."""
    return max(values) / min(values) - 1.0 if min(values) > 0.0 else math.inf


def equal_progress(make: Make) -> Measure:
    """Check that all tenants have equal throughput before and after tenant 4 leaves (Figure 4(a))."""

    def measure(runs: OefRuns) -> Measured:
        found = runs.of(make)
        if not found:
            return NOT_RUN
        before = averaged([one.before for one in found])
        after = averaged([one.throughput[:3] for one in found])
        spreads = [spread_of(before), spread_of(after)]
        verdict = Verdict.HOLDS if max(spreads) <= EQUAL else Verdict.FAILS
        return Measured(
            text=f"within {100.0 * spreads[0]:.1f} %, {100.0 * spreads[1]:.1f} %",
            verdict=verdict,
            reason=f"before: {listed(before)}; after: {listed(after)}",
            values=tuple(spreads),
        )

    return measure


def lie_is_punished(honest: Make, lying: Make) -> Measure:
    """Check that the tenant that lies has less, the others more, and all together about 10 % less (Figure 4(b))."""

    def measure(runs: OefRuns) -> Measured:
        true, false = runs.of(honest), runs.of(lying)
        if not (true and false):
            return NOT_RUN
        before, after = (averaged([one.throughput for one in them]) for them in (true, false))
        changes = [now / then - 1.0 for then, now in zip(before, after, strict=True)]
        total = sum(after) / sum(before) - 1.0
        punished = changes[0] < 0.0 < min(changes[1:])
        verdict = judged(total, -0.10, direction=punished and total < 0.0) if punished else Verdict.FAILS
        reason = f"tenants: {', '.join(map(percent, changes))}"
        return Measured(text=f"{percent(changes[0])}, all {percent(total)}", verdict=verdict, reason=reason)

    return measure


def against_max_min(ours: Make, equal: Make, printed: float, *, each: bool) -> Measure:
    """Measure tenants' throughput over that of max-min; the paper prints the greatest ratio (Figure 5(a))."""

    def measure(runs: OefRuns) -> Measured:
        own, other = runs.of(ours), runs.of(equal)
        if not (own and other):
            return NOT_RUN
        pairs = (averaged([one.throughput for one in them]) for them in (own, other))
        ratios = [one / two for one, two in zip(*pairs, strict=True)]
        best = max(ratios)
        direction = best > 1.0 and (not each or min(ratios) >= 1.0 - 1e-6)
        verdict = judged(best, printed, direction=direction, better=best > printed)
        return Measured(text=f"{best:.2f}", verdict=verdict, reason=f"tenants 1 to 4: {listed(ratios)}")

    return measure


def two_models(make: Make) -> Measure:
    """Check that both models of tenant 1 have equal throughput, half of each other tenant's (Figure 5(b))."""

    def measure(runs: OefRuns) -> Measured:
        found = runs.of(make)
        if not found:
            return NOT_RUN
        *tenants, second = averaged([one.throughput for one in found])
        first, others = tenants[0], fmean(tenants[1:])
        parts = [first / others, second / others]
        verdict = all_of([judged(part, 0.5, direction=part < 1.0) for part in parts])
        reason = f"tenants 2 to 4: {listed(tenants[1:])}; models of tenant 1: {listed([first, second])}"
        return Measured(text=listed(parts), verdict=verdict, reason=reason)

    return measure


def no_envy(make: Make, printed: float) -> Measure:
    """Measure each tenant's throughput over the most that it could reach with another's GPUs (Figure 6)."""

    def measure(runs: OefRuns) -> Measured:
        found = runs.of(make)
        if not found:
            return NOT_RUN
        one = found[0]
        ratios = [own / other for own, other in zip(one.throughput, one.with_others, strict=True)]
        first = max(own / other for own, other in list(zip(one.throughput, one.with_first, strict=True))[1:])
        free = min(ratios) >= 1.0 - 1e-6
        verdict = judged(first, printed, direction=free, better=first > printed)
        reason = f"own over the best of the others': {listed(ratios)}"
        return Measured(text=f"at least {min(ratios):.2f}, {first:.2f}", verdict=verdict, reason=reason)

    return measure


def gain(ours: Make, others: Sequence[Make], printed: float, *, comparable: bool = False) -> Measure:
    """Measure the gain in the sum of throughputs over Gavel and Gandiva-fair; the greater is judged (Figures 7 and 8).

    Args:
        ours: OEF's cell.
        others: the cells of ``BASELINES``.
        printed: the claimed gain, as a fraction.
        comparable: whether the claim also holds at up to 10 % less throughput.
    """

    def measure(runs: OefRuns) -> Measured:
        own, rest = runs.of(ours), [runs.of(make) for make in others]
        if not own or not all(rest):
            return NOT_RUN
        total = fmean(one.total for one in own)
        gains = [total / fmean(one.total for one in them) - 1.0 for them in rest]
        best = max(gains)
        direction = min(gains) >= -EQUAL if comparable else best > 0.0
        verdict = judged(best, printed, direction=direction, better=best > printed)
        if comparable:
            verdict = Verdict.HOLDS if direction else Verdict.FAILS
        reason = _over(gains) + f"; gangs over several hosts: {_several([own, *rest])}"
        return Measured(text=percent(best), verdict=verdict, reason=reason, values=tuple(gains))

    return measure


def _over(gains: Sequence[float]) -> str:
    return "over " + ", ".join(f"{name} {percent(each)}" for name, each in zip(BASELINES, gains, strict=True))


def _several(cells: Sequence[Sequence[OefFigures]]) -> str:
    parts = [fmean(one.several for one in them) for them in cells]
    return ", ".join(f"{name} {100.0 * part:.0f} %" for name, part in zip(("oef", *BASELINES), parts, strict=True))


def faster(ours: Make, other: Make, printed: float) -> Measure:
    """Measure mean JCT over a baseline's (Figure 9)."""

    def measure(runs: OefRuns) -> Measured:
        own, rest = runs.of(ours), runs.of(other)
        if not (own and rest):
            return NOT_RUN
        by_seed = [one.mean_jct_seconds / two.mean_jct_seconds - 1.0 for one, two in zip(own, rest, strict=True)]
        here = fmean(one.mean_jct_seconds for one in own) / fmean(one.mean_jct_seconds for one in rest) - 1.0
        verdict = judged(here, printed, direction=here < 0.0, better=here < printed)
        hours = [fmean(one.mean_jct_seconds for one in them) / 3600.0 for them in (own, rest)]
        done = min(one.finished for one in (*own, *rest))
        reason = (
            f"mean JCT {hours[0]:.2f} h, {hours[1]:.2f} h; by seed {', '.join(map(percent, by_seed))}; "
            f"at least {100.0 * done:.1f} % of the jobs finished"
        )
        return Measured(text=percent(here), verdict=verdict, reason=reason, values=tuple(by_seed))

    return measure


def stragglers(ours: Make, others: Sequence[Make]) -> Measure:
    """Measure the GPU time of gangs on several GPU types (§6.3.3)."""

    def measure(runs: OefRuns) -> Measured:
        own, rest = runs.of(ours), [runs.of(make) for make in others]
        if not own or not all(rest):
            return NOT_RUN
        parts = [fmean(one.mixed for one in them) for them in (own, *rest)]
        named = zip(("oef", *BASELINES), parts, strict=True)
        reason = "GPU time of gangs on several GPU types: " + ", ".join(
            f"{name} {100 * part:.2f} %" for name, part in named
        )
        if max(parts[1:]) == 0.0:
            why = "no gang of a baseline is on GPUs of several types here: gavel_rounds grants gangs of one type; "
            return Measured(text=f"{100 * parts[0]:.2f} %", verdict=Verdict.NOT_MEASURABLE, reason=why + reason)
        changes = [parts[0] / part - 1.0 if part else math.inf for part in parts[1:]]
        printed = dict(zip(BASELINES, (-0.26, -0.14), strict=True))
        verdicts = [
            judged(each, printed[name], direction=each < 0.0, better=each < printed[name])
            for name, each in zip(BASELINES, changes, strict=True)
        ]
        return Measured(text=", ".join(map(percent, changes)), verdict=all_of(verdicts), reason=reason)

    return measure


def overhead(make: Callable[[str, int, int], OefCell]) -> Measure:
    """Check that a cooperative allocation takes longer than a non-cooperative one, far less than a round (10(a))."""

    def measure(runs: OefRuns) -> Measured:
        times: dict[str, list[float]] = {}
        for policy in ("cooperative", "noncooperative"):
            for size in SIZES:
                found = runs.of(lambda seed, policy=policy, size=size: make(policy, size, seed))  # type: ignore[misc]
                if not found:
                    return NOT_RUN
                times.setdefault(policy, []).append(1000.0 * fmean(one.cpu_seconds for one in found))
        longer = all(one > two for one, two in zip(times["cooperative"], times["noncooperative"], strict=True))
        short = max(times["cooperative"]) < 30_000.0
        verdict = Verdict.HOLDS if longer and short else Verdict.FAILS
        text = ", ".join(f"{each:.0f}" for each in times["cooperative"])
        other = ", ".join(f"{each:.0f}" for each in times["noncooperative"])
        reason = f"CPU ms of a whole round of the arbiter, {SIZES} tenants; non-cooperative: {other}"
        return Measured(text=f"{text} ms", verdict=verdict, reason=reason)

    return measure


def deviation(make: Callable[[float, int], OefCell], what: str) -> Measure:
    """Measure throughput by true speedups over that promised by reported ones, at an error of 20 % (10(b))."""

    def measure(runs: OefRuns) -> Measured:
        found = {error: runs.of(lambda seed, error=error: make(error, seed)) for error in ERRORS}  # type: ignore[misc]
        if not all(found.values()):
            return NOT_RUN
        if what == ALLOCATION:
            by_error = {
                error: fmean(abs(1.0 - one.total / one.promised) for one in them) for error, them in found.items()
            }
        else:
            true = [one.total for one in found[0.0]]
            by_error = {
                error: fmean(1.0 - one.total / base for one, base in zip(them, true, strict=True))
                for error, them in found.items()
            }
        here = by_error[0.2]
        verdict = judged(here, 0.03, direction=here < 0.1, better=here < 0.03)
        each = ", ".join(f"{100 * error:.0f} %: {100 * part:.1f} %" for error, part in by_error.items())
        against = "what reports promise" if what == ALLOCATION else "the run without errors"
        return Measured(text=f"{100 * here:.1f} %", verdict=verdict, reason=f"against {against}, by error: {each}")

    return measure
