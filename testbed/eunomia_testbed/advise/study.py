"""Runs the simulations behind advice: a trial of each policy, the trace with its resamples, and the variations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from eunomia.errors import EunomiaError
from eunomia.model.shapes import builds
from eunomia_testbed.advise.trials import FirstRun, minutes, start_of, too_slow, trial
from eunomia_testbed.advise.variations import Variation, variations_of
from eunomia_testbed.evidence.draws import DrawKind, Draws
from eunomia_testbed.evidence.evidence import Evidence, evidence_in
from eunomia_testbed.evidence.goals import MEAN_JCT
from eunomia_testbed.evidence.intervals import FEWEST_RESAMPLES, clear_of_zero, end_error, estimate
from eunomia_testbed.evidence.judging import Answers, judge, judge_goal
from eunomia_testbed.evidence.resampling import FEWEST_APPS
from eunomia_testbed.running.many import Outcome, run_plan
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.running.pool import has_others
from eunomia_testbed.running.resamples import resampling_of
from eunomia_testbed.running.watching import Watch
from eunomia_testbed.spec.fitting import LeftOut
from eunomia_testbed.workload import Workload

MOST_RESAMPLES: Final = 400
STILL: Final = 0.1
"""Largest Monte Carlo error of an interval's ends, as a fraction of its width, at which it counts as converged."""
PART_OF_TRACE, PART_OF_VARIATIONS = 0.6, 0.35
"""Fractions of the budget for the trace and its resamples, and for the variations; the rest is for trials."""
LEAST_TRIAL_SECONDS: Final = 5.0
"""Lower bound on the CPU time limit of a trial, in seconds, regardless of the budget."""
FEWEST_POLICIES: Final = 3
"""Number of policies (those that simulate fastest) that are compared regardless of the budget."""


@builds
class Turn:
    """A variation of the plan in words, with the answers that judge the contending policies under it."""

    text: str
    answers: Answers
    evidence: Evidence


@builds
class Study:
    """The findings of all simulations behind one piece of advice.

    Attributes:
        plan: the plan of the trace, with the policies that were compared.
        outcome: the result of simulating the trace and its resamples.
        evidence: the figures of ``outcome``.
        answers: the judgement by goal.
        left_out: policies that were not compared, each with its reason.
        trials: the trial of each compared policy.
        turns: the results of the variations that were run.
        without_lengths: the answers among policies that do not use job lengths; None: all or none use them.
        still: whether the intervals converged before the budget or the largest number of resamples was reached.
        spent_seconds: CPU time of all simulations.
        limits: sentences on what the budget or the trace was too small for.
        failed: errors of failed runs, such as a plugin's exception; their policies are left out.
    """

    plan: Plan
    outcome: Outcome
    evidence: Evidence
    answers: Answers
    left_out: Sequence[LeftOut]
    trials: Mapping[str, FirstRun]
    turns: Sequence[Turn]
    without_lengths: Answers | None
    still: bool
    spent_seconds: float
    limits: Sequence[str]
    failed: Sequence[str] = ()


@builds
class Means:
    """The resources of a study: result folder, budget of CPU time, worker processes and progress display."""

    folder: Path
    budget_seconds: float
    processes: int | None
    watch: Callable[[Plan], Watch | None]


def study(plan: Plan, left_out: Sequence[LeftOut], means: Means, *, seed: int) -> Study:
    """Run a plan's policies on its trace, resamples and variations, within the budget; EunomiaError: none can run.

    Args:
        plan: the plan of the trace, with one seed.
        left_out: policies that do not suit the trace or the cluster.
        means: folder, budget, processes and display.
        seed: the seed of the resamples.
    """
    spender = _Spender(means)
    trace = plan.workloads[plan.seeds[0]]
    broken = _broken(plan, trace, spender)
    plan = _only(plan, [name for name in plan.profiles if name not in {each.policy for each in broken}])
    most = max(LEAST_TRIAL_SECONDS, PART_OF_TRACE * means.budget_seconds / (1 + FEWEST_RESAMPLES))
    trials = {name: trial(plan, name, trace, most) for name in plan.profiles}
    spender.spent += math.fsum(each.spent_seconds for each in trials.values())
    broken += [LeftOut(policy=name, reason=each.failure) for name, each in trials.items() if each.failure]
    trials = {name: each for name, each in trials.items() if not each.failure}
    if not trials:
        raise EunomiaError("a policy must run on the trace", value="; ".join(each.text for each in broken))
    slow = _too_slow(trials, PART_OF_TRACE * means.budget_seconds)
    left = [*left_out, *broken, *(too_slow(name, trials[name], FEWEST_RESAMPLES) for name in slow)]
    plan = _only(plan, [name for name in trials if name not in slow])
    outcome = _resampled(plan, trace, seed, spender)
    failed = {each.policy: each.error for each in outcome.facts.failures}
    broken += [LeftOut(policy=name, reason=f"its run failed: {error}") for name, error in failed.items()]
    left += broken[len(broken) - len(failed) :]
    plan = _only(plan, [name for name in plan.profiles if name not in failed])
    if not plan.profiles:
        raise EunomiaError("a policy must run on the trace", value="; ".join(each.text for each in broken))
    evidence = evidence_in(outcome.folder, outcome.facts, outcome.metrics)
    names = list(plan.profiles)
    answers = judge(evidence, names, kind=plan.rho)
    limits = _limits(len(trace.apps.id), evidence.draws, outcome)
    turns = _turns(plan, trace, answers, seed, trials, spender, limits)
    blind = [name for name in names if not trials[name].uses_lengths]
    return Study(
        plan=plan,
        outcome=outcome,
        evidence=evidence,
        answers=answers,
        left_out=left,
        trials={name: trials[name] for name in names},
        turns=turns,
        without_lengths=judge(evidence, blind, kind=plan.rho) if 0 < len(blind) < len(names) else None,
        still=outcome.suffice,
        spent_seconds=spender.spent,
        limits=limits,
        failed=[each.text for each in broken],
    )


def _broken(plan: Plan, trace: Workload, spender: _Spender) -> list[LeftOut]:
    """Return the policies that fail on the start of the trace; none are tried if no third-party plugin is in use.

    The trials run in another process, which can be killed if a plugin's call does not return.
    """
    if not has_others(plan):
        return []
    start = dataclasses.replace(plan, workloads={plan.seeds[0]: start_of(trace)})
    outcome = spender.run(start, "trial", may_fail=True)
    return [LeftOut(policy=each.policy, reason=f"its run failed: {each.error}") for each in outcome.facts.failures]


def _too_slow(trials: Mapping[str, FirstRun], seconds: float) -> list[str]:
    """Return the policies whose resamples, added to those of all faster policies, exceed the budget.

    The three fastest policies are never returned.

    Args:
        trials: the trial of each policy.
        seconds: CPU seconds for the trace and its resamples.
    """
    by_time = sorted(trials, key=lambda name: trials[name].cpu_seconds)
    spent = np.cumsum([(1 + FEWEST_RESAMPLES) * trials[name].cpu_seconds for name in by_time])
    return [name for at, name in enumerate(by_time) if at >= FEWEST_POLICIES and spent[at] > seconds]


def _limits(apps: int, draws: Draws, outcome: Outcome) -> list[str]:
    """Return sentences on what the trace or the budget is too small for."""
    if apps < FEWEST_APPS:
        return [f"The trace has {apps} apps: under {FEWEST_APPS} nothing is known about chance."]
    found = []
    if draws.needed_seconds is not None:
        found.append(f"--budget {minutes(draws.needed_seconds / PART_OF_TRACE)}m would probably do for all policies.")
    if draws.shows_chance and not outcome.suffice:
        found.append(
            "The budget ended before the ends of the intervals stood still."
            if draws.budget_seconds is not None
            else f"The ends of the intervals do not stand still after {draws.count} resamples."
        )
    return found


class _Spender:
    """Runs plans, and sums the CPU seconds that they take in ``spent``."""

    def __init__(self, means: Means) -> None:
        self.means, self.spent = means, 0.0

    def run(
        self,
        plan: Plan,
        name: str,
        *,
        report: bool = False,
        may_fail: bool = False,
        enough: Callable[[pl.DataFrame], bool] | None = None,
    ) -> Outcome:
        watch = self.means.watch(plan)
        try:
            outcome = run_plan(
                plan,
                self.means.folder / name,
                processes=self.means.processes,
                report=report,
                watch=watch,
                enough=enough,
            )
        finally:
            close = getattr(watch, "close", None)
            if close is not None:
                close()
        if outcome.ended == "interrupted":
            raise KeyboardInterrupt
        self.spent += outcome.cpu_seconds
        if outcome.failed and not outcome.done and not may_fail:
            raise outcome.failed[0]
        return outcome


def _only(plan: Plan, names: Sequence[str]) -> Plan:
    return dataclasses.replace(plan, profiles={name: plan.profiles[name] for name in names})


def _resampled(plan: Plan, trace: Workload, seed: int, spender: _Spender) -> Outcome:
    """Run the trace, then resamples until the intervals have converged or their part of the budget is spent."""
    if len(trace.apps.id) < FEWEST_APPS:
        return spender.run(plan, "trace", report=True)
    resampled = dataclasses.replace(
        plan,
        resampling=resampling_of(trace, MOST_RESAMPLES, seed=seed, block=None),
        budget_seconds=PART_OF_TRACE * spender.means.budget_seconds,
    )
    return spender.run(resampled, "trace", report=True, enough=stand_still)


def stand_still(rows: pl.DataFrame) -> bool:
    """Return whether the interval of each policy's mean JCT relative to the best has converged.

    An interval has converged if the Monte Carlo error of its ends is at most a tenth of its width, and if no end is
    within two such errors of 0, so that other resamples would hardly change which policies differ.

    Args:
        rows: the figures of every policy by resample.
    """
    policies = rows["policy"].unique(maintain_order=True).to_list()
    draws = Draws(kind=DrawKind.RESAMPLES, count=rows["seed"].n_unique())
    evidence = Evidence(draws=draws, drawn=rows)
    answer = judge_goal(evidence, policies, MEAN_JCT)
    if answer is None:
        return True
    first = answer.best[0]
    return all(_stands_still(evidence.log_ratios(first, each, MEAN_JCT.figure)) for each in policies if each != first)


def _stands_still(ratios: Sequence[float]) -> bool:
    """Return whether the interval of log ratios, one per resample, has converged, with its ends clearly away from 0."""
    found = estimate(ratios, Draws(kind=DrawKind.RESAMPLES, count=len(ratios)))
    if found is None or found.low is None or found.high is None:
        return False
    if found.low == 0.0 or found.high == 0.0:
        return end_error(ratios) <= STILL
    return end_error(ratios) <= STILL and clear_of_zero(ratios, found.low, found.high)


def _turns(
    plan: Plan,
    trace: Workload,
    answers: Answers,
    seed: int,
    trials: Mapping[str, FirstRun],
    spender: _Spender,
    limits: list[str],
) -> list[Turn]:
    """Run each variation under the contending policies, with intervals if the budget allows."""
    names = _contenders(answers, list(plan.profiles))
    variations = variations_of(plan)
    budget = PART_OF_VARIATIONS * spender.means.budget_seconds / max(len(variations), 1)
    one = math.fsum(trials[name].cpu_seconds for name in names)
    enough = len(trace.apps.id) >= FEWEST_APPS and budget >= one * (1 + FEWEST_RESAMPLES)
    turns = [_turn(each, names, trace, seed if enough else None, spender) for each in variations]
    if len(trace.apps.id) >= FEWEST_APPS and not enough:
        limits.append(
            "Variations were run on the trace alone, for the budget: what they change is not held against chance."
        )
    return turns


def _turn(variation: Variation, names: Sequence[str], trace: Workload, seed: int | None, spender: _Spender) -> Turn:
    plan = _only(variation.plan, names)
    if seed is not None:
        plan = dataclasses.replace(plan, resampling=resampling_of(trace, FEWEST_RESAMPLES, seed=seed, block=None))
    outcome = spender.run(plan, variation.name)
    evidence = evidence_in(outcome.folder, outcome.facts, outcome.metrics)
    return Turn(text=variation.text, answers=judge(evidence, names, kind=plan.rho), evidence=evidence)


def _contenders(answers: Answers, names: list[str]) -> list[str]:
    """Return the policies that rank first or second by any goal, and up to three that tie for the best."""
    wanted: set[str] = set()
    for each in [*answers.goals, *(found for by_kind in answers.fairness.values() for found in by_kind)]:
        sign = -1.0 if each.goal.more_is_better else 1.0
        ranked = sorted(each.figures, key=lambda policy: sign * each.figures[policy].value)
        wanted.update(each.best[:3], ranked[:2])
    return [name for name in names if name in wanted] or names
