"""Formats advice as text: the policies that fit, the answer by goal, its conditions, and what would change it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from eunomia.model.shapes import value
from eunomia_testbed.advise.study import Study
from eunomia_testbed.evidence.goals import FAIRNESS
from eunomia_testbed.evidence.judging import Answers, GoalAnswer
from eunomia_testbed.evidence.wording import AnswerLine, lines_of, method
from eunomia_testbed.report.words import duration
from eunomia_testbed.results.assumptions import assumption_sentences


@value
class Advice:
    """Advice as text, in parts."""

    assumed: Sequence[str]
    fits: str
    left_out: Sequence[str]
    answers: Sequence[AnswerLine]
    method: str
    conditions: Sequence[str]
    turns: Sequence[str]
    limits: Sequence[str]
    spent: str
    command: str


def worded(study: Study, goals: Sequence[str], command: Sequence[str]) -> Advice:
    """Return the findings of a study as text.

    Args:
        study: the findings of the simulations.
        goals: values of ``--goal``; empty: all.
        command: the command that repeats the advice.
    """
    draws = study.evidence.draws
    wanted = {_label(study.answers, goal) for goal in goals}
    lines = [line for line in lines_of(study.answers, draws) if not goals or line.label in wanted]
    return Advice(
        assumed=assumption_sentences(study.plan.assumptions),
        fits=", ".join(study.plan.profiles),
        left_out=[each.text for each in study.left_out],
        answers=lines,
        method=method(draws),
        conditions=_conditions(study),
        turns=_turns(study, goals),
        limits=list(study.limits),
        spent=f"{duration(study.spent_seconds)} of CPU time",
        command=shlex.join(command),
    )


def _label(answers: Answers, goal: str) -> str:
    """Return the label of the answer line for a value of ``--goal``."""
    found = answers.of(goal)
    return "Fairest" if goal == FAIRNESS else found.goal.label if found is not None else ""


def _conditions(study: Study) -> list[str]:
    """Return the assumptions behind the answer, as sentences: job lengths, costs, knowledge, notes on the trace."""
    options = study.plan.options
    costs = {
        name: getattr(options.costs, name)
        for name in ("start", "checkpoint", "restore", "migrate", "join", "pause", "release")
        if getattr(options.costs, name) > 0.0
    }
    given_costs = ", ".join(f"{name} {_cost(seconds)}" for name, seconds in costs.items())
    users = [name for name, trial in study.trials.items() if trial.uses_lengths]
    found = [
        f"Costs: {given_costs}."
        if given_costs
        else "Costs are not modelled: every start, save and restore takes no time (--cost)."
    ]
    if users:
        error = f", off by up to {options.reports.error_of('work'):.0%}" if options.reports.error_of("work") else ""
        found.append(f"Lengths of jobs are known{error} to {', '.join(users)}.")
    return [*found, *study.plan.notes]


def _cost(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 120.0 else duration(seconds)


def _turns(study: Study, goals: Sequence[str]) -> list[str]:
    """Return a sentence for each variation: the goals for which other policies are best under it."""
    lines = [_changed(f"With {turn.text}", study.answers, turn.answers, goals) for turn in study.turns]
    if study.without_lengths is not None:
        lines.append(_changed("With lengths unknown", study.answers, study.without_lengths, goals))
    return lines


def _changed(what: str, before: Answers, after: Answers, goals: Sequence[str]) -> str:
    changes = []
    for one, other in _pairs(before, after):
        if goals and one.goal.name not in goals and not (FAIRNESS in goals and one.goal.name.startswith(FAIRNESS)):
            continue
        if not set(one.best) & set(other.best):
            sure = "" if other.decided else " (not held against chance)" if not other.shows_chance else " (not decided)"
            changes.append(f"{one.goal.label[:1].lower()}{one.goal.label[1:]}: {' or '.join(other.best)}{sure}")
    return f"{what}: {'; '.join(changes)}." if changes else f"{what}: the best policies stay among the best."


def _pairs(before: Answers, after: Answers) -> list[tuple[GoalAnswer, GoalAnswer]]:
    """Pair the answers of two judgements by goal; fairness is compared by the 90th percentile of ρ."""
    found = [(one, after.of(one.goal.name)) for one in before.goals]
    found += [(each, after.of(FAIRNESS)) for each in [before.of(FAIRNESS)] if each is not None]
    return [(one, other) for one, other in found if other is not None]


def screen(advice: Advice) -> list[str]:
    """Return the lines that the command prints."""
    width = max((len(line.label) for line in advice.answers), default=0)
    return [
        *advice.assumed,
        f"Compared: {advice.fits}.",
        *(f"Left out: {line}." for line in advice.left_out),
        "",
        *(f"{line.label:<{width}}   {line.text}" for line in advice.answers),
        advice.method,
        *advice.limits,
        "",
        *(f"Condition: {line}" for line in advice.conditions),
        *(f"Turns: {line}" for line in advice.turns),
    ]
