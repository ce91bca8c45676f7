"""Turns comparisons into a measured claim: the verdict, and a text with every effect and its spread."""

import math
from collections.abc import Sequence
from statistics import fmean

from eunomia_testbed.reproduce.measures import GROWTH, MEASURES, Comparison, mean_of
from eunomia_testbed.reproduce.rows import ClaimRow
from eunomia_testbed.reproduce.rule import (
    FAVOUR,
    OUR_MARGIN,
    ClaimKind,
    EffectEstimate,
    is_beyond,
    judged_estimate,
    least_favourable,
)
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

MOST_SHOWN = 3
"""Largest number of comparisons that a result lists; if there are more, it shows only the least favourable one."""


def measured_row(
    row: ClaimRow, comparisons: Sequence[Comparison], *, drawn: bool, behind: Sequence[Sequence[Comparison]] = ()
) -> Measured:
    """Return the verdict on a row's comparisons, with the reason.

    Args:
        row: the claim.
        comparisons: at least one, with their printed values.
        drawn: whether seeds draw the input.
        behind: groups of all comparisons from which the judged ones were chosen.
    """
    if any(not math.isfinite(effect) for one in comparisons for effect in one.effects):
        reason = "a simulation gave no number: nothing finished in it"
        return Measured(text="-", verdict=Verdict.UNDECIDED, reason=reason)
    found = [(one, one.estimate(drawn=drawn)) for one in comparisons]
    judged = [(verdict_of(row, one, estimated), one, estimated) for one, estimated in found]
    counted = [each for each in judged if not each[1].partial or each[0] is Verdict.HOLDS]
    verdict = least_favourable([each[0] for each in counted]) if counted else Verdict.UNMEASURED
    if row.construction and verdict is not Verdict.FAILS:
        verdict = Verdict.BY_CONSTRUCTION
    shown = [_words(one, estimated.effect, row.unit) for one, estimated in found]
    text = ", ".join(shown)
    if len(shown) > MOST_SHOWN:
        worst = min(counted or judged, key=lambda each: (FAVOUR.index(each[0]), _slack(row, each[1], each[2])))
        text = f"{_words(worst[1], worst[2].effect, row.unit)} ({worst[1].label})"
    return Measured(
        text=text,
        verdict=verdict,
        reason="; ".join(_reasons(row, found, behind, drawn=drawn)),
        values=tuple(math.exp(e.effect) if one.is_ratio else e.effect for one, e in found),
        by_seed={one.label: one.shown for group in (*behind, comparisons) for one in group},
    )


def verdict_of(row: ClaimRow, one: Comparison, found: EffectEstimate) -> Verdict:
    """Return the verdict on one comparison, by the row's kind and margin; ``found``: the comparison's estimate."""
    printed = _printed(one)
    if row.kind == "at most":
        return judged_estimate(ClaimKind.AT_LEAST, found.negated(), -printed)
    margin = 0.0
    if row.kind == "within":
        part = OUR_MARGIN if row.margin is None else row.margin
        margin = math.log(1.0 + part) if one.is_ratio else part * abs(one.printed)
    return judged_estimate(ClaimKind(row.kind), found, printed, margin)


def _slack(row: ClaimRow, one: Comparison, found: EffectEstimate) -> float:
    """Return the distance of an effect from the printed value; positive: on the side that supports the claim."""
    off = found.effect - _printed(one)
    return {"at most": -off, "within": -abs(off)}.get(row.kind, off)


def _reasons(
    row: ClaimRow,
    found: Sequence[tuple[Comparison, EffectEstimate]],
    behind: Sequence[Sequence[Comparison]],
    *,
    drawn: bool,
) -> list[str]:
    made = [row.why] if row.why else []
    if row.construction:
        made.append(f"by construction: {row.construction}")
    made.append(", ".join(_with_spread(one, estimated, row.unit) for one, estimated in found))
    if row.measure in MEASURES and MEASURES[row.measure].join == GROWTH:
        levels = [mean_of(group) for group in (behind[0], behind[-1])]
        made.append(", ".join(_with_spread(one, one.estimate(drawn=drawn), row.unit) for one in levels))
    made.append(_evidence(found) if drawn else "one input")
    chosen = [one for one, _ in found if one.of > 1]
    if row.front:
        names = [group[0].label.removeprefix(f"{row.number[0]} ") for group in behind]
        made += [f"{name}: {front_words(group, drawn=drawn)}" for name, group in zip(names, behind, strict=True)]
    elif chosen:
        every = [one for group in behind for one in group]
        of = ", ".join(f"{one.label} {_words(one, fmean(one.effects), row.unit)}" for one in every)
        made.append(f"chosen among {chosen[0].of} by this very number, so chance favours it ({of})")
    if row.kind == "within":
        part = OUR_MARGIN if row.margin is None else row.margin
        made.append(f"margin {100.0 * part:g} %" + (", ours" if row.margin is None or row.goal else ", the paper's"))
    if any(one.partial for one, _ in found):
        made.append("the greatest counts only where it holds: not all settings of the paper were run")
    if row.kind == "gain" and any(is_beyond(ClaimKind.GAIN, e.effect, _printed(one)) for one, e in found):
        made.append(f"beyond the printed gain: {row.beyond}")
    return made


def _evidence(found: Sequence[tuple[Comparison, EffectEstimate]]) -> str:
    """Return a text with the number of seeds, which also states if the result is the same for all of them."""
    seeds = found[0][1].seeds
    alike = all(math.isclose(least, most) for least, most in ((min(one.effects), max(one.effects)) for one, _ in found))
    if seeds > 1 and alike:
        return f"{seeds} seeds, all with the same result: what they draw does not change it"
    return f"{seeds} seeds, 95 % intervals"


def front_words(group: Sequence[Comparison], *, drawn: bool) -> str:
    """Return as text which of two policies dominates; ``group``: the other's numbers over ours, lower is better."""
    found = [one.estimate(drawn=drawn) for one in group]
    traces = list(zip(*(one.effects for one in group), strict=True))
    worse, better = (sum(all(sign * each >= 0.0 for each in trace) for trace in traces) for sign in (1.0, -1.0))
    state = "not dominated"
    if all(one.low <= 0.0 <= one.high for one in found):
        state = "tied"
    elif all(one.low >= 0.0 for one in found):
        state = "dominated by ours"
    elif all(one.high <= 0.0 for one in found):
        state = "dominates ours"
    return f"{state} (worse in all on {worse} of {len(traces)} traces, better in all on {better})"


def _printed(one: Comparison) -> float:
    return math.log(one.printed) if one.is_ratio else one.printed


def _with_spread(one: Comparison, found: EffectEstimate, unit: str) -> str:
    middle = f"{one.label}: {_words(one, found.effect, unit)}"
    if not found.drawn:
        return middle
    if not math.isfinite(found.low):
        return f"{middle} (one seed)"
    low, high = sorted((found.low, found.high), reverse=unit == "less")
    return f"{middle} ({_words(one, low, unit)} to {_words(one, high, unit)})"


def _words(one: Comparison, effect: float, unit: str) -> str:
    """Return an effect as text: a ratio, its change in percent, or a level in its unit."""
    if one.is_ratio:
        ratio = math.exp(min(effect, 50.0))
        if unit == "change":
            return f"{100.0 * (ratio - 1.0):+.1f} %"
        if unit == "less":
            return f"{100.0 * (1.0 / ratio - 1.0):+.1f} %"
        return f"{ratio:.2f}" if ratio < 1000.0 else f"{ratio:.0f}"
    if unit == "%":
        return f"{100.0 * effect:.3g} %"
    number = f"{effect:.0f}" if abs(effect) >= 1000.0 else f"{effect:.3g}"
    return f"{number} {unit}".rstrip()
