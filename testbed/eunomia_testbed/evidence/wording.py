"""Formats answers as text for the screen and the page: the answer to each goal, and what remains undecided."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from eunomia.model.shapes import value
from eunomia_testbed.evidence.draws import DrawKind, Draws
from eunomia_testbed.evidence.goals import FAIRNESS, Goal
from eunomia_testbed.evidence.intervals import FEWEST_RESAMPLES, Estimate
from eunomia_testbed.evidence.judging import MOST_MORE, Answers, GoalAnswer

ONE_RUN: Final = "One run: nothing is known about chance (--resample 100)."
FAIRNESS_PAGE: Final = "docs/explanation/fairness.md"
LEFT_OPEN: Final = "not decided"
KIND_WORDS: Final = {"themis": "Themis'", "static": "static", "contention": "contention", "exclusive": "exclusive"}
"""The kinds of ρ as adjectives that precede it."""
DRAW_WORDS: Final = {DrawKind.SEEDS: "seeds", DrawKind.WINDOWS: "windows", DrawKind.TRACES: "traces"}
EQUAL_PART: Final = 0.05
"""Policies are practically equal if no interval of their differences extends beyond 5 %, or 0.05 in goal units."""
TIME_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "min": 60.0, "s": 1.0}


@value
class AnswerLine:
    """The answer to one goal: its label, the answer, and whether intervals support it."""

    label: str
    text: str
    supported: bool


def unit_of(least_seconds: float) -> str:
    """Return the largest unit of time in which ``least_seconds``, the least value to show, is at least 3."""
    return next((name for name, size in TIME_UNITS.items() if least_seconds >= 3 * size), "s")


def seconds_in(unit: str) -> Callable[[float], str]:
    """Return a function that formats seconds in a unit, with two to three digits."""
    size = TIME_UNITS[unit]

    def show(seconds: float) -> str:
        number = seconds / size
        return f"{number:.1f}" if abs(number) < 9.95 else f"{number:,.0f}"

    return show


def with_interval(found: Estimate | None, show: Callable[[float], str], unit: str = "") -> str:
    """Return an estimate as text, such as ``9.4 h (8.6 to 10.3)``; ``-`` if it is unknown."""
    if found is None:
        return "-"
    text = f"{show(found.value)}{f' {unit}' if unit else ''}"
    return text if found.low is None or found.high is None else f"{text} ({show(found.low)} to {show(found.high)})"


def relative(found: Estimate) -> str:
    """Return a log ratio as a percentage, such as ``-5 % (-11 to +1 %)``."""
    low, high = found.low, found.high
    text = f"{_percent(found.value)} %"
    return text if low is None or high is None else f"{text} ({_percent(low)} to {_percent(high)} %)"


def _percent(log_ratio: float) -> str:
    part = 100.0 * math.expm1(log_ratio)
    return f"{part:+.1f}" if abs(part) < 2.0 else f"{part:+.0f}"


def difference(found: Estimate, goal: Goal) -> str:
    """Return as text the difference of two policies by a goal, as a percentage or in the goal's unit."""
    if goal.relative:
        return relative(found)
    text = f"{found.value:+.2f}"
    return text if found.low is None or found.high is None else f"{text} ({found.low:+.2f} to {found.high:+.2f})"


def lines_of(answers: Answers, draws: Draws) -> list[AnswerLine]:
    """Return a line for each goal, in the order of the goals; fairness names the fairest by each kind of ρ.

    Args:
        answers: the judgement.
        draws: how the runs were drawn.
    """
    lines, apps = [], answers.apps
    for each in answers.goals:
        if each.goal.name == "moves":
            lines += _fairness(answers, draws, apps)
        lines.append(_line(each, draws, apps))
    return (
        lines
        if any(each.goal.name == "moves" for each in answers.goals)
        else [*lines, *_fairness(answers, draws, apps)]
    )


def _line(found: GoalAnswer, draws: Draws, apps: int) -> AnswerLine:
    label = found.goal.label
    if not found.shows_chance:
        where = "in this trace" if draws.kind is DrawKind.RESAMPLES else "in this run"
        return AnswerLine(label=label, text=f"{_listed(found.best)} {where}, {_figure(found)}", supported=False)
    if found.decided:
        return AnswerLine(label=label, text=_decided(found), supported=True)
    first, *others = found.best
    text = f"{LEFT_OPEN}: {_listed(found.best, 'or')}"
    if len(others) == 1 and others[0] in found.against:
        text = f"{LEFT_OPEN}: {others[0]} against {first} {difference(found.against[others[0]], found.goal)}"
    return AnswerLine(label=label, text=f"{text}; {_further(found, draws, apps)}", supported=False)


def _decided(found: GoalAnswer) -> str:
    """Return as text the best policies, and how much the next one differs from them."""
    rest = {policy: each for policy, each in found.against.items() if policy not in found.best}
    best = _listed(found.best)
    if not rest:
        return f"{best}, equal in every draw"
    sign = -1.0 if found.goal.more_is_better else 1.0
    second = min(rest, key=lambda policy: sign * rest[policy].value)
    return f"{best}; next {second} {difference(rest[second], found.goal)}"


def _further(found: GoalAnswer, draws: Draws, apps: int) -> str:
    """Return as text the evidence that would decide: more resamples, a longer trace or more seeds; else why not."""
    alike = [found.against[policy] for policy in found.best if policy in found.against]
    if alike and all(each.near_zero for each in alike):
        return "tied, as an interval ends near 0; further resamples might decide"
    if found.factor is None:
        return _open(found, draws)
    if draws.kind is DrawKind.RESAMPLES:
        return f"a trace of about {_rounded(found.factor * apps):,} apps probably would"
    return f"about {math.ceil(found.factor * draws.count):,} {DRAW_WORDS.get(draws.kind, 'runs')} probably would"


def _open(found: GoalAnswer, draws: Draws) -> str:
    """Return why no additional evidence is suggested: no interval, practical equality, or an unreasonable amount."""
    others = {policy: found.against[policy] for policy in found.best if policy in found.against}
    without = [policy for policy, each in others.items() if not each.known]
    if without:
        return f"no interval for {_listed(without)}, whose runs draw nothing"
    ends = [abs(end) for each in others.values() for end in (each.low, each.high) if end is not None]
    if max(ends, default=0.0) <= (math.log1p(EQUAL_PART) if found.goal.relative else EQUAL_PART):
        return "as good as equal here"
    if draws.kind is DrawKind.RESAMPLES:
        return f"a trace {MOST_MORE:.0f} times as long probably would not be enough"
    return f"{MOST_MORE:.0f} times as many {DRAW_WORDS.get(draws.kind, 'runs')} probably would not be enough"


def _rounded(number: float) -> int:
    """Round a number up to two significant digits."""
    size = 10 ** max(0, math.floor(math.log10(max(number, 1.0))) - 1)
    return int(math.ceil(number / size) * size)


def _fairness(answers: Answers, draws: Draws, apps: int) -> list[AnswerLine]:
    by_kind = answers.fairest_by_kind()
    if not by_kind:
        return []
    own = answers.of(FAIRNESS)
    if own is None or _agree(list(by_kind.values())):
        found = own or next(iter(answers.fairness.values()))[0]
        line = _line(found, draws, apps)
        return [
            AnswerLine(
                label="Fairest", text=f"{line.text} (90th percentile of ρ, every kind)", supported=line.supported
            )
        ]
    text = "; ".join(f"{KIND_WORDS[kind]} {_listed(best, 'or')}" for kind, best in by_kind.items())
    return [
        AnswerLine(
            label="Fairest",
            text=f"it depends on ρ: {text} (what each asks: {FAIRNESS_PAGE})",
            supported=False,
        )
    ]


def _agree(sets: Sequence[tuple[str, ...]]) -> bool:
    """Return whether at least one policy is among the fairest by every kind of ρ."""
    return bool(set(sets[0]).intersection(*map(set, sets[1:]))) if sets else False


def _figure(found: GoalAnswer) -> str:
    estimate = found.figures[found.best[0]]
    if found.goal.unit == "s":
        unit = unit_of(estimate.value)
        return f"{seconds_in(unit)(estimate.value)} {unit}"
    return f"{estimate.value:.2f}"


def _listed(names: Sequence[str], word: str = "and") -> str:
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def method(draws: Draws) -> str:
    """Return how the intervals were made, such as ``100 resamples of jobs.csv in blocks of 18 apps: 95 % ...``."""
    if not draws.shows_chance:
        return ONE_RUN if draws.budget_seconds is None else _too_small(draws, draws.budget_seconds)
    if draws.kind is DrawKind.RESAMPLES:
        return _of_resamples(draws)
    parts = {DrawKind.WINDOWS: f"windows of {draws.source}", DrawKind.TRACES: "traces", DrawKind.SEEDS: "seeds"}
    said = " They speak of a part of the trace, not of the whole." if draws.kind is DrawKind.WINDOWS else ""
    return f"{draws.count} {parts[draws.kind]}: 95 % intervals are Student's t.{said}"


def _of_resamples(draws: Draws) -> str:
    block = f"{draws.block_apps} apps" if draws.block_seconds is None else f"{draws.block_seconds / 86_400:g} days"
    source = f" of {draws.source}" if draws.source else ""
    text = f"{draws.count} resamples{source} by circular blocks of {block}: 95 % intervals are percentiles."
    if draws.budget_seconds is None:
        return text
    budget = _duration(draws.budget_seconds)
    if draws.asked is not None and draws.count < draws.asked:
        text += f" {budget} of CPU time allowed no more ({draws.asked} were asked for)."
    if draws.without:
        text += f" No resamples of {_listed(draws.without)}, whose runs take too long for {budget} of CPU time"
        text += f"{_would_do(draws)}: nothing is known about chance of them."
    return text


def _too_small(draws: Draws, budget_seconds: float) -> str:
    """Return a sentence that the budget allowed too few resamples for intervals."""
    budget = _duration(budget_seconds)
    few = f"{budget} of CPU time allow no {FEWEST_RESAMPLES} resamples, the fewest that give an interval"
    return f"One run: nothing is known about chance. {few}{_would_do(draws)}."


def _would_do(draws: Draws) -> str:
    if draws.needed_seconds is None:
        return ""
    return f" (about {_duration(draws.needed_seconds, up=True)} would do for all policies)"


def _duration(seconds: float, *, up: bool = False) -> str:
    """Return a duration with its largest unit, such as ``10 min``; ``up``: rounded up to a whole one."""
    unit = unit_of(seconds)
    number = seconds / TIME_UNITS[unit]
    return f"{math.ceil(number)} {unit}" if up else f"{number:.3g} {unit}"
