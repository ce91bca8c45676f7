"""Functions that measure AFS' claims."""

import functools
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from eunomia_testbed.reproduce.afs.cells import QUARTERS, AfsCell, AfsFigures
from eunomia_testbed.reproduce.afs.grid import ORDER, AfsGrid, AfsRuns, number_of
from eunomia_testbed.reproduce.verdicts import NOT_RUN, Measured, Verdict, all_of, judged

HOUR, DAY = 3600.0, 86400.0
Number = Callable[[AfsFigures], float]
Make = Callable[[str, str, int], AfsCell]
"""Makes a cell from policy, cluster and seed."""
Variant = Callable[[AfsGrid, str, str, int], AfsCell]
"""Makes a cell of a grid: ``AfsGrid.cell``, ``AfsGrid.packed`` or ``AfsGrid.costly``."""


def jct(one: AfsFigures) -> float:
    """Return the mean JCT in seconds."""
    return one.mean_jct_seconds


def tail(one: AfsFigures) -> float:
    """Return the 99th percentile of JCTs, in seconds."""
    return one.p99_jct_seconds


def queue_length(one: AfsFigures) -> float:
    """Return the mean number of waiting jobs."""
    return one.queue


def cluster_efficiency(one: AfsFigures) -> float:
    """Return the mean cluster efficiency."""
    return one.efficiency


def blocking_index(one: AfsFigures) -> float:
    """Return the mean blocking index."""
    return one.blocking


def found(runs: AfsRuns, make: Make, policies: Sequence[str], number: Number) -> dict[str, dict[str, float]]:
    """Return the mean of a number over seeds by cluster and policy, for clusters that all policies have run."""
    made = {}
    for cluster in runs.grid.names:
        by = runs.by_policy(_on(make, cluster), policies)
        if all(by.values()):
            made[cluster] = {policy: fmean(map(number, figures)) for policy, figures in by.items()}
    return made


def _on(make: Make, cluster: str) -> Callable[[str, int], AfsCell]:
    return lambda policy, seed: make(policy, cluster, seed)


def average_times(cluster: str, printed: Mapping[str, float], unit: float) -> Callable[[AfsRuns], Measured]:
    """Compare average JCTs of policies on one cluster with the printed ones, in a unit of seconds."""

    def measure(runs: AfsRuns) -> Measured:
        here = found(runs, runs.grid.cell, tuple(printed), jct).get(cluster)
        if here is None:
            return NOT_RUN
        times = [here[policy] / unit for policy in printed]
        verdicts = [judged(time, number, direction=True) for time, number in zip(times, printed.values(), strict=True)]
        off = max(abs(time / number - 1.0) for time, number in zip(times, printed.values(), strict=True))
        text = ", ".join(f"{time:.3g}" for time in times)
        return Measured(
            text=text, verdict=all_of(verdicts), reason=f"off by at most {100 * off:.1f} %", values=tuple(times)
        )

    return measure


def gains(
    own: str,
    others: Sequence[str],
    printed: tuple[float, float],
    number: Number = jct,
    *,
    variant: Variant = AfsGrid.cell,
) -> Callable[[AfsRuns], Measured]:
    """Divide the best other policy's number by the own policy's, by cluster; report the least and greatest ratio.

    The greatest ratio is judged only if all clusters of Table 3 are run: the paper's may be on another cluster.

    Args:
        own: a policy.
        others: policies to compare it with.
        printed: the paper's least and greatest ratio.
        number: selects the number from figures.
        variant: makes a cell.
    """

    def measure(runs: AfsRuns) -> Measured:
        by = found(runs, functools.partial(variant, runs.grid), (own, *others), number)
        if not by:
            return NOT_RUN
        ratios = {cluster: min(here[policy] for policy in others) / here[own] for cluster, here in by.items()}
        low, high = min(ratios.values()), max(ratios.values())
        verdicts = [judged(low, printed[0], direction=low > 1.0, better=low > printed[0])]
        if len(by) == len(ORDER):
            verdicts.append(judged(high, printed[1], direction=high > 1.0, better=high > printed[1]))
        each = [f"{policy} {here[policy] / here[own]:.2f}" for here in by.values() for policy in others]
        where = ", ".join(f"{number_of(cluster)} {ratio:.2f}" for cluster, ratio in ratios.items())
        reason = f"the best of the others by cluster: {where}; each: {', '.join(each)}"
        text = f"{low:.2f} to {high:.2f}" if len(by) > 1 else f"{low:.2f}"
        return Measured(text=text, verdict=all_of(verdicts), reason=reason, values=tuple(ratios.values()))

    return measure


def near(own: str, base: str, printed: float, *, least: bool = False) -> Callable[[AfsRuns], Measured]:
    """Check that the own policy's average JCT is at most the printed ratio times the base's.

    Args:
        own: a policy.
        base: a policy.
        printed: the paper's ratio.
        least: whether a smaller ratio holds as well.
    """

    def measure(runs: AfsRuns) -> Measured:
        by = found(runs, runs.grid.cell, (own, base), jct)
        if not by:
            return NOT_RUN
        ratios = {number_of(cluster): here[own] / here[base] for cluster, here in by.items()}
        worst = max(ratios.values())
        verdict = judged(worst, printed, direction=worst <= 1.5 * printed, better=least and worst <= printed)
        where = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        return Measured(text=f"{worst:.2f}", verdict=verdict, reason=where, values=tuple(ratios.values()))

    return measure


def series(cluster: str, own: str, other: str) -> Callable[[AfsRuns], Measured]:
    """Compare queue length, cluster efficiency and blocking index of two policies: lower, higher, lower."""

    def measure(runs: AfsRuns) -> Measured:
        means = [
            found(runs, runs.grid.cell, (own, other), number).get(cluster)
            for number in (queue_length, cluster_efficiency, blocking_index)
        ]
        known = [here for here in means if here is not None]
        if len(known) < len(means):
            return NOT_RUN
        ratios = [here[own] / here[other] if here[other] else 1.0 for here in known]
        shorter = ratios[0] < 1.0 and ratios[2] < 1.0
        verdict = Verdict.FAILS if not shorter else Verdict.HOLDS if ratios[1] > 1.01 else Verdict.DIRECTION
        said = ", ".join(f"{here[own]:.3g} against {here[other]:.3g}" for here in known)
        said += "; CE's mean over a run is its work over its length, which the last jobs decide"
        text = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        return Measured(text=text, verdict=verdict, reason=f"means over time: {said}", values=tuple(ratios))

    return measure


def even(own: str, other: str) -> Callable[[AfsRuns], Measured]:
    """Check that the other policy's JCT exceeds the own policy's in every quarter of the jobs by length."""

    def measure(runs: AfsRuns) -> Measured:
        quarters = [found(runs, runs.grid.cell, (own, other), _quarter(number)) for number in range(QUARTERS)]
        ratios = [here[other] / here[own] for by in quarters for here in by.values()]
        if not ratios:
            return NOT_RUN
        each = [
            f"{number_of(cluster)}: " + ", ".join(f"{by[cluster][other] / by[cluster][own]:.2f}" for by in quarters)
            for cluster in quarters[0]
        ]
        verdict = Verdict.HOLDS if min(ratios) >= 1.0 else Verdict.DIRECTION if fmean(ratios) > 1.0 else Verdict.FAILS
        text = f"{min(ratios):.2f} to {max(ratios):.2f}"
        return Measured(text=text, verdict=verdict, reason="; ".join(each), values=tuple(ratios))

    return measure


def _quarter(number: int) -> Number:
    return lambda one: one.jct_by_length_seconds[number]


def blowup(pairs: Mapping[str, str], printed: float) -> Callable[[AfsRuns], Measured]:
    """Measure the greatest ratio of average JCT if a policy gives each job its maximum number of GPUs."""

    def measure(runs: AfsRuns) -> Measured:
        by = found(runs, runs.grid.cell, (*pairs, *pairs.values()), jct)
        if not by:
            return NOT_RUN
        ratios = {
            f"{number_of(cluster)} {policy}": here[wide] / here[policy]
            for cluster, here in by.items()
            for policy, wide in pairs.items()
        }
        worst = max(ratios.values())
        verdict = judged(worst, printed, direction=worst > 1.0, better=worst > printed)
        return Measured(
            text=f"{worst:.2f}",
            verdict=verdict,
            reason=", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()),
            values=tuple(ratios.values()),
        )

    return measure
