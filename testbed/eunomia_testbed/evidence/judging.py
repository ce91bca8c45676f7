"""Judges policies by goal: finds the best, and estimates how much more evidence would separate them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import polars as pl

from eunomia.model.shapes import builds, value
from eunomia_testbed.evidence.evidence import Evidence
from eunomia_testbed.evidence.goals import FAIRNESS, MEAN_JCT, Goal, fairness_goals, plain_goals
from eunomia_testbed.evidence.intervals import Estimate
from eunomia_testbed.metrics.fairness import KINDS

if TYPE_CHECKING:
    from eunomia_testbed.results.facts import RunFacts

MOST_MORE: Final = 100.0
"""The largest factor of additional evidence that an answer states; beyond it, policies count as equally good."""
EQUAL: Final = 1e-9
"""Largest relative difference that counts as a rounding error."""


@builds
class GoalAnswer:
    """The policies that are best by one goal.

    Attributes:
        goal: the goal.
        best: the best policy and those not distinguishable from it, sorted by their figures: the interval of the
            difference contains 0, or might with other resamples. For a single run, the policies with the best figure.
        decided: whether intervals show one policy, or several equal ones, to be better than all others.
        figures: by policy, its figure with the interval; policies without a known figure are left out.
        against: by policy other than the best, its difference from the best; for relative goals ln(policy / best).
        factor: multiple of the present evidence that would probably separate the policies in ``best``; None: decided,
            or more than ``MOST_MORE``.
        shows_chance: whether the figures have intervals.
    """

    goal: Goal
    best: tuple[str, ...]
    decided: bool
    figures: Mapping[str, Estimate]
    against: Mapping[str, Estimate]
    factor: float | None
    shows_chance: bool


@value
class Unfinished:
    """A policy that is left out because fewer apps finished under it than under another."""

    policy: str
    finished: int
    apps: int


@builds
class Answers:
    """The answers of one comparison of policies.

    Attributes:
        goals: an answer for each goal that does not depend on the kind of ρ.
        fairness: by kind of ρ, an answer for each of its figures; the first is the 90th percentile.
        fronts: by kind of ρ, the Pareto front of mean JCT and the 90th percentile of ρ.
        kind: the kind of ρ by which the run is judged.
        unfinished: policies that are left out since fewer apps finished under them.
    """

    goals: Sequence[GoalAnswer]
    fairness: Mapping[str, Sequence[GoalAnswer]]
    fronts: Mapping[str, tuple[str, ...]]
    kind: str
    unfinished: Sequence[Unfinished]
    apps: int
    """Number of apps of the workload, from which the length of a trace that would probably decide is estimated."""

    @property
    def front(self) -> tuple[str, ...]:
        """Return the Pareto front for the kind of ρ by which the run is judged."""
        return self.fronts.get(self.kind, ())

    def of(self, name: str) -> GoalAnswer | None:
        """Return the answer to the goal with this ``--goal`` value; None: no policy has a known figure."""
        if name == FAIRNESS:
            return next(iter(self.fairness.get(self.kind, ())), None)
        return next((each for each in self.goals if each.goal.name == name), None)

    def fairest_by_kind(self) -> dict[str, tuple[str, ...]]:
        """Return the fairest policies by kind of ρ, by the 90th percentile."""
        return {kind: answers[0].best for kind, answers in self.fairness.items() if answers}


def judge(evidence: Evidence, policies: Sequence[str], *, kind: str = "themis") -> Answers:
    """Return the answers to every goal.

    A policy is left out if fewer apps finished under it than under another. Without intervals, an answer is undecided,
    and names the policy with the best figure.

    Args:
        evidence: the figures of every policy.
        policies: the policies to compare, in the order in which ties are shown.
        kind: the kind of ρ by which the run is judged.
    """
    able, unfinished = _able(evidence, policies)
    apps = _apps(evidence)
    goals = [found for goal in plain_goals() if (found := judge_goal(evidence, able, goal)) is not None]
    fairness = {
        each: [found for goal in fairness_goals(each, apps) if (found := judge_goal(evidence, able, goal)) is not None]
        for each in KINDS
    }
    return Answers(
        goals=goals,
        fairness={each: found for each, found in fairness.items() if found},
        fronts=_fronts(next((each for each in goals if each.goal == MEAN_JCT), None), fairness),
        kind=kind,
        unfinished=unfinished,
        apps=apps,
    )


def judge_goal(evidence: Evidence, policies: Sequence[str], goal: Goal) -> GoalAnswer | None:
    """Return the answer to one goal; None: no policy has a known figure."""
    figures = {each: found for each in policies if (found := evidence.figure(each, goal.figure)) is not None}
    if not figures:
        return None
    sign = -1.0 if goal.more_is_better else 1.0
    first = min(figures, key=lambda policy: (sign * figures[policy].value, policies.index(policy)))
    compare = evidence.ratio if goal.relative and figures[first].value > 0.0 else evidence.difference
    against = {each: found for each in figures if each != first and (found := compare(first, each, goal.figure))}
    shows = any(each.known for each in against.values())
    if not shows:
        best = [each for each in figures if each == first or _equal(against.get(each))]
        alike = [each for each in against if not _equal(against[each])]
    else:
        alike = [each for each in figures if each != first and _not_told_apart(against.get(each))]
        best = [first, *alike]
    return GoalAnswer(
        goal=goal,
        best=tuple(sorted(best, key=lambda policy: (policy != first, policies.index(policy)))),
        decided=shows and all(_equal(against.get(each)) for each in alike),
        figures=figures,
        against=against,
        factor=_factor([against[each] for each in alike if each in against]) if shows else None,
        shows_chance=shows,
    )


def _not_told_apart(found: Estimate | None) -> bool:
    return found is None or found.holds_zero or found.near_zero


def _equal(found: Estimate | None) -> bool:
    """Return whether two policies have the same figure in every draw."""
    if found is None or abs(found.value) > EQUAL:
        return False
    return (found.low is None or abs(found.low) <= EQUAL) and (found.high is None or abs(found.high) <= EQUAL)


def _factor(differences: Sequence[Estimate]) -> float | None:
    """Return the factor of additional evidence at which all intervals would exclude 0; None: beyond the limit.

    The width of an interval shrinks with the square root of the evidence.
    """
    wanted = []
    for each in differences:
        if each.low is None or each.high is None:
            return None
        half = max(each.high - each.value, each.value - each.low)
        if abs(each.value) <= EQUAL or half <= 0.0:
            return None
        wanted.append((half / abs(each.value)) ** 2)
    most = max(wanted, default=None)
    return most if most is not None and 1.0 < most <= MOST_MORE else None


def _fronts(fast: GoalAnswer | None, fairness: Mapping[str, Sequence[GoalAnswer]]) -> dict[str, tuple[str, ...]]:
    """Return by kind of ρ the Pareto front of mean JCT and the first fairness figure."""
    return {} if fast is None else {kind: _front(fast, found[0]) for kind, found in fairness.items() if found}


def _front(fast: GoalAnswer, fair: GoalAnswer) -> tuple[str, ...]:
    both = [each for each in fast.figures if each in fair.figures]
    at = {each: (fast.figures[each].value, fair.figures[each].value) for each in both}
    return tuple(each for each in both if not any(_dominates(at[other], at[each]) for other in both))


def _dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] <= other[0] and one[1] <= other[1]


def _rows(evidence: Evidence) -> pl.DataFrame:
    return evidence.drawn if evidence.whole is None else evidence.whole


def _apps(evidence: Evidence) -> int:
    rows = _rows(evidence)
    most = rows["apps"].max() if rows.height and "apps" in rows.columns else None
    return int(most) if isinstance(most, int | float) else 0


def _able(evidence: Evidence, policies: Sequence[str]) -> tuple[list[str], list[Unfinished]]:
    """Return the policies under which the largest fraction of apps finished, and the others with their counts.

    Policies that a budget left without resamples are in neither list, unless fewer than two policies have resamples. If
    no app finished, both lists are empty.
    """
    rows = _rows(evidence)
    resampled = [each for each in policies if each not in evidence.draws.without]
    policies = resampled if len(resampled) > 1 else policies  # a single policy with resamples cannot be compared
    if not {"apps", "apps_finished"} <= set(rows.columns):
        return list(policies), []
    sums = {
        str(policy): (int(finished), int(apps))
        for policy, finished, apps in rows.group_by("policy").agg(pl.col("apps_finished", "apps").sum()).iter_rows()
    }
    parts = {policy: done / apps if apps else 0.0 for policy, (done, apps) in sums.items() if policy in policies}
    most = max(parts.values(), default=0.0)
    if most == 0.0:
        return [], []
    able = [each for each in policies if each in parts and math.isclose(parts[each], most, abs_tol=1e-12)]
    left = [each for each in policies if each in parts and each not in able]
    return able, [Unfinished(policy=each, finished=sums[each][0], apps=sums[each][1]) for each in left]


def policies_by_load(facts: RunFacts, among: Collection[str] | None = None) -> dict[float, list[str]]:
    """Return the policies of a run by load, each in the order of the command.

    Args:
        facts: facts of the run.
        among: the policies to name; None: all.
    """
    found: dict[float, list[str]] = {}
    for policy in facts.profiles:
        if among is None or policy in among:
            found.setdefault(facts.loads.get(policy, 1.0), []).append(policy)
    return dict(sorted(found.items()))
