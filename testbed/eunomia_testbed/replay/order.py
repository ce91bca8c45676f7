"""The verdict on order: whether policies that differ in real runs have the same order in simulations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import polars as pl

from eunomia.model.shapes import builds, value
from eunomia_testbed.evidence.evidence import Evidence
from eunomia_testbed.evidence.intervals import Estimate
from eunomia_testbed.metrics.intervals import enough_to_decide

MOST_REPEATS: Final = 1000
"""The largest number of repeats that is reported as enough to tell two policies apart."""


@value
class PolicyPair:
    """A comparison of two policies by one figure; both ratios are ln(second / first).

    Attributes:
        real: ratio in the real runs, paired by repeat.
        simulated: ratio in the simulated runs; None: unknown.
        needed: how many repeats with the same mean and spread would tell the two apart; None: the interval excludes 0,
            there are fewer than two repeats, or more than ``MOST_REPEATS`` would be needed.
    """

    first: str
    second: str
    real: Estimate
    simulated: float | None
    needed: int | None

    @property
    def is_clear(self) -> bool:
        """Return whether the real runs tell the policies apart: the interval excludes 0."""
        return not self.real.holds_zero

    @property
    def agrees(self) -> bool | None:
        """Return whether the simulated order equals the real one; None: either order is unknown."""
        if not self.is_clear or self.simulated is None:
            return None
        return self.simulated * self.real.value > 0.0

    def row(self, figure: str) -> dict[str, Any]:
        """Return the pair as a row of a table."""
        return {
            "figure": figure,
            "first": self.first,
            "second": self.second,
            "repeats": self.real.count,
            "real_ratio": math.exp(self.real.value),
            "real_low": None if self.real.low is None else math.exp(self.real.low),
            "real_high": None if self.real.high is None else math.exp(self.real.high),
            "simulated_ratio": None if self.simulated is None else math.exp(self.simulated),
            "clear": self.is_clear,
            "agrees": self.agrees,
            "needed_repeats": self.needed,
        }


@builds
class OrderVerdict:
    """The comparison of all pairs of policies by one figure.

    Attributes:
        figure: the column of ``summary.csv``.
        correlation: Spearman's rank correlation of the policies' mean figures, real against simulated; None: fewer than
            two policies.
    """

    figure: str
    pairs: tuple[PolicyPair, ...]
    correlation: float | None

    @property
    def clear(self) -> tuple[PolicyPair, ...]:
        """Return the pairs that the real runs tell apart."""
        return tuple(pair for pair in self.pairs if pair.is_clear)

    @property
    def wrong(self) -> tuple[PolicyPair, ...]:
        """Return the pairs whose simulated order differs from the real one."""
        return tuple(pair for pair in self.pairs if pair.agrees is False)

    def describe(self) -> str:
        """Return the verdict in one line."""
        rank = "" if self.correlation is None else f"; rank correlation {self.correlation:.2f}"
        if not self.clear:
            needed = [pair.needed for pair in self.pairs if pair.needed is not None]
            more = f"; {min(needed)} repeats would probably tell a first pair apart" if needed else ""
            return f"{self.figure}: the real runs tell no pair of policies apart{more}{rank}"
        if self.wrong:
            names = ", ".join(f"{pair.first} and {pair.second}" for pair in self.wrong)
            return f"{self.figure}: the simulated order differs for {names}{rank}"
        count = len(self.clear)
        return f"{self.figure}: all {count} pair{'s' * (count != 1)} that the real runs tell apart agree{rank}"


def order_verdict(real: Evidence, simulated: Evidence, policies: Sequence[str], figure: str) -> OrderVerdict:
    """Compare the order of policies in real and in simulated runs, by one figure.

    Args:
        real: figures of the real runs by repeat.
        simulated: figures of the simulated runs by seed.
        policies: the policies.
        figure: the column of ``summary.csv``.
    """
    pairs = []
    for first, second in combinations(policies, 2):
        ratio = real.ratio(first, second, figure)
        if ratio is None:
            continue
        there = simulated.ratio(first, second, figure)
        logs = real.log_ratios(first, second, figure)
        needed = enough_to_decide(logs, MOST_REPEATS) if ratio.holds_zero and len(logs) > 1 else None
        pairs.append(
            PolicyPair(
                first=first,
                second=second,
                real=ratio,
                simulated=None if there is None else there.value,
                needed=needed,
            )
        )
    means = [_means(evidence, policies, figure) for evidence in (real, simulated)]
    return OrderVerdict(figure=figure, pairs=tuple(pairs), correlation=rank_correlation(*means))


def rank_correlation(one: Mapping[str, float], other: Mapping[str, float]) -> float | None:
    """Return Spearman's rank correlation over common names, with mean ranks for ties; None: fewer than two.

    The result is 0 if all values of one side are equal.
    """
    names = [name for name in one if name in other]
    if len(names) < 2:
        return None
    both = pl.DataFrame({"one": [one[name] for name in names], "other": [other[name] for name in names]})
    found = both.select(pl.corr("one", "other", method="spearman")).item()
    return 0.0 if found is None or math.isnan(found) else float(found)


def _means(evidence: Evidence, policies: Sequence[str], figure: str) -> dict[str, float]:
    found = {policy: evidence.figure(policy, figure) for policy in policies}
    return {policy: each.value for policy, each in found.items() if each is not None}
