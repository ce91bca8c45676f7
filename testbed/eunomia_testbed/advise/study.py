"""Runs what advice on a trace needs: a trial of each policy, the trace with its resamples, and the variations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from eunomia.model.shapes import builds
from eunomia_testbed.advise.trials import FirstRun, minutes, too_slow, trial
from eunomia_testbed.advise.variations import Variation, variations_of
from eunomia_testbed.evidence.evidence import Evidence, evidence_in
from eunomia_testbed.evidence.intervals import FEWEST_RESAMPLES, end_error
from eunomia_testbed.evidence.judging import Answers, judge
from eunomia_testbed.evidence.resampling import FEWEST_APPS
from eunomia_testbed.running.many import Outcome, run_plan
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.running.resamples import resampling_of
from eunomia_testbed.running.watching import Watch
from eunomia_testbed.spec.fitting import LeftOut
from eunomia_testbed.workload import Workload

MOST_RESAMPLES: Final = 400
STILL: Final = 0.1
"""An interval stands still when the error of its ends is below this part of its width."""
PART_OF_TRACE, PART_OF_VARIATIONS = 0.6, 0.35
"""Parts of the budget: for the trace with its resamples, and for the variations; the rest is for trials."""
FEWEST_POLICIES: Final = 3
"""The fastest policies, which are compared whatever the budget."""


@builds
class Turn:
    """A variation, and what it changes: the answers of the contending policies, by the same resamples."""

    text: str
    answers: Answers
    evidence: Evidence


@builds
class Study:
    """What the runs of one advice show.

    Attributes:
        plan: the plan of the trace, with the policies that were compared.
        outcome: the run of the trace and its resamples.
        evidence: its figures.
        answers: the judgement by goal.
        left_out: policies that were not compared, each with its reason.
        trials: the trial of each compared policy.
        turns: the variations that were run.
        without_lengths: the judgement among policies that do not use lengths; None: all or none use them.
        still: whether the ends of the intervals stand still; otherwise the budget ended first.
        spent_seconds: CPU time of all simulations.
        limits: sentences on what the budget or the trace did not allow.
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


@builds
class Means:
    """How a study runs its simulations."""

    folder: Path
    budget_seconds: float
    processes: int | None
    watch: Callable[[Plan], Watch | None]


def study(plan: Plan, left_out: Sequence[LeftOut], means: Means, *, seed: int) -> Study:
    """Run the policies of a plan on its trace, its resamples and the variations, within the budget.

    Args:
        plan: the plan of the trace, with one seed.
        left_out: policies that do not suit the trace or the cluster.
        means: folder, budget, processes and display.
        seed: the seed of the resamples.
    """
    spender = _Spender(means)
    trace = plan.workloads[plan.seeds[0]]
    trials = {name: trial(plan, name, trace) for name in plan.profiles}
    spender.spent += math.fsum(each.spent_seconds for each in trials.values())
    slow = _too_slow(trials, PART_OF_TRACE * means.budget_seconds)
    left = [*left_out, *(too_slow(name, trials[name], FEWEST_RESAMPLES) for name in slow)]
    plan = _only(plan, [name for name in plan.profiles if name not in slow])
    one_round = math.fsum(trials[name].cpu_seconds for name in plan.profiles)
    affordable = int(PART_OF_TRACE * means.budget_seconds / max(one_round, 1e-9))
    limits = _limits(len(trace.apps.id), affordable, one_round)
    outcome, still = _resampled(plan, trace, seed, 0 if limits else min(affordable, MOST_RESAMPLES), spender)
    evidence = evidence_in(outcome.folder, outcome.facts, outcome.metrics)
    names = list(plan.profiles)
    answers = judge(evidence, names, kind=plan.rho)
    if evidence.draws.shows_chance and not still:
        limits.append("The budget ended before the ends of the intervals stood still.")
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
        still=still,
        spent_seconds=spender.spent,
        limits=limits,
    )


def _too_slow(trials: Mapping[str, FirstRun], seconds: float) -> list[str]:
    """Return the policies whose resamples do not fit the budget beside those of all faster ones.

    The three fastest policies are kept in any case.

    Args:
        trials: the trial of each policy.
        seconds: CPU seconds for the trace and its resamples.
    """
    by_time = sorted(trials, key=lambda name: trials[name].cpu_seconds)
    spent = np.cumsum([(1 + FEWEST_RESAMPLES) * trials[name].cpu_seconds for name in by_time])
    return [name for at, name in enumerate(by_time) if at >= FEWEST_POLICIES and spent[at] > seconds]


def _limits(apps: int, affordable: int, one_round: float) -> list[str]:
    """Return why nothing will be known about chance; empty: resamples will show it.

    Args:
        apps: apps of the trace.
        affordable: resamples that the budget allows.
        one_round: CPU seconds of one resample under every policy.
    """
    if apps < FEWEST_APPS:
        return [f"The trace has {apps} apps: under {FEWEST_APPS} nothing is known about chance."]
    if affordable >= FEWEST_RESAMPLES:
        return []
    enough = minutes(one_round * FEWEST_RESAMPLES / PART_OF_TRACE)
    return [
        f"The budget allows {affordable} resamples, and {FEWEST_RESAMPLES} give an interval: "
        f"nothing is known about chance (--budget {enough} would do)."
    ]


class _Spender:
    """Runs plans and adds up their CPU time."""

    def __init__(self, means: Means) -> None:
        self.means, self.spent = means, 0.0

    def run(self, plan: Plan, name: str, *, resume: bool = False, report: bool = False) -> Outcome:
        watch = self.means.watch(plan)
        try:
            outcome = run_plan(
                plan,
                self.means.folder / name,
                processes=self.means.processes,
                resume=resume,
                report=report,
                watch=watch,
            )
        finally:
            close = getattr(watch, "close", None)
            if close is not None:
                close()
        if outcome.ended == "interrupted":
            raise KeyboardInterrupt
        if outcome.failed:
            raise outcome.failed[0]
        return outcome


def _only(plan: Plan, names: Sequence[str]) -> Plan:
    return dataclasses.replace(plan, profiles={name: plan.profiles[name] for name in names})


def _resampled(plan: Plan, trace: Workload, seed: int, most: int, spender: _Spender) -> tuple[Outcome, bool]:
    """Run the trace and resamples of it until the ends of the intervals stand still, or their number is reached."""
    if most == 0:
        alone = spender.run(plan, "trace", report=True)
        spender.spent += _cpu(alone)
        return alone, False
    count, still = 0, False
    outcome: Outcome | None = None
    while outcome is None or not (still or count >= most):
        count = min(most, max(FEWEST_RESAMPLES, math.ceil(1.5 * count)))
        resampling = resampling_of(trace, count, seed=seed, block=None)
        more = dataclasses.replace(plan, resampling=resampling)
        resume = outcome is not None
        outcome = spender.run(more, "trace", resume=resume)
        still = _stand_still(evidence_in(outcome.folder, outcome.facts, outcome.metrics), list(plan.profiles))
    from eunomia_testbed.report import write_report

    write_report(outcome.folder)
    spender.spent += _cpu(outcome) * (1 + count)
    return outcome, still


def _cpu(outcome: Outcome) -> float:
    """Return the CPU time of the simulations of the trace itself."""
    from eunomia_testbed.results.run_data import read_table

    timings = read_table(outcome.folder, "timings").filter(pl.col("stage").is_in(["step", "driver"]))
    return float(timings["cpu_seconds"].sum())


def _stand_still(evidence: Evidence, policies: Sequence[str]) -> bool:
    """Return whether the ends of the intervals of mean JCT against the best policy stand still."""
    answers = judge(evidence, policies).of("mean_jct")
    if answers is None:
        return True
    first = answers.best[0]
    errors = [end_error(evidence.log_ratios(first, each, answers.goal.figure)) for each in policies if each != first]
    return all(error <= STILL for error in errors)


def _turns(
    plan: Plan,
    trace: Workload,
    answers: Answers,
    seed: int,
    trials: Mapping[str, FirstRun],
    spender: _Spender,
    limits: list[str],
) -> list[Turn]:
    """Run each variation under the contending policies, with intervals where the budget allows them."""
    names = _contenders(answers, list(plan.profiles))
    variations = variations_of(plan)
    one = math.fsum(trials[name].cpu_seconds for name in names)
    left = PART_OF_VARIATIONS * spender.means.budget_seconds / max(len(variations), 1)
    enough = left >= one * (1 + FEWEST_RESAMPLES) and len(trace.apps.id) >= FEWEST_APPS
    if not enough and len(trace.apps.id) >= FEWEST_APPS:
        limits.append(
            "Variations were run on the trace alone, for the budget: what they change is not held against chance."
        )
    turns = []
    for variation in variations:
        turns.append(_turn(variation, names, trace, seed if enough else None, spender))
        spender.spent += one * (1 + (FEWEST_RESAMPLES if enough else 0))
    return turns


def _turn(variation: Variation, names: Sequence[str], trace: Workload, seed: int | None, spender: _Spender) -> Turn:
    plan = _only(variation.plan, names)
    if seed is not None:
        plan = dataclasses.replace(plan, resampling=resampling_of(trace, FEWEST_RESAMPLES, seed=seed, block=None))
    outcome = spender.run(plan, variation.name)
    evidence = evidence_in(outcome.folder, outcome.facts, outcome.metrics)
    return Turn(text=variation.text, answers=judge(evidence, names, kind=plan.rho), evidence=evidence)


def _contenders(answers: Answers, names: list[str]) -> list[str]:
    """Return the policies that are best by some goal, and for each goal the next one."""
    wanted: set[str] = set()
    for each in [*answers.goals, *(found for by_kind in answers.fairness.values() for found in by_kind)]:
        sign = -1.0 if each.goal.more_is_better else 1.0
        ranked = sorted(each.figures, key=lambda policy: sign * each.figures[policy].value)
        wanted.update(each.best[:3], ranked[:2])
    return [name for name in names if name in wanted] or names
