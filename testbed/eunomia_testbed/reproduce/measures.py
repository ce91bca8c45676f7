"""The measures that rows refer to: which numbers of which cells are compared, and how comparisons form a claim.

A row compares its *own* cell with the cells of *other* policies. A measure has a form (other over own, own over other,
or a level), and a join over others or settings. Ratios are judged by their logarithms; effects are paired by seed.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.words import did_you_mean, shown
from eunomia_testbed.reproduce.rule import EffectEstimate, estimate

OVER_OWN, OWN_OVER, LEVEL = "others over own", "own over others", "level"
OTHERS, SETTINGS, NUMBERS = "others", "settings", "numbers"
EACH, MEAN, LEAST, GREATEST, ENDS, GROWTH = "each", "mean", "least", "greatest", "ends", "growth"
LARGEST_RATIO: Final = 100.0
"""Larger ratios are capped at this value, since a fraction of jobs may be 0."""


@value
class Measure:
    """The form of a row's comparisons, and how they are joined into a claim."""

    form: str
    across: str = OTHERS
    """The dimension over which comparisons are joined: the other policies, the settings, or the numbers of a cell."""
    join: str = EACH
    """How comparisons are joined: ``each`` is judged; or the ``mean`` (of logarithms), the ``least`` or the
    ``greatest``; or both ``ends``, the least by the first printed value and the greatest by the second; or the
    ``growth`` of the others' mean from the first setting to the last."""
    is_ratio: bool = True
    """Whether effects are logarithms of ratios, instead of plain levels."""


MEASURES: Final[Mapping[str, Measure]] = {
    "others over own": Measure(form=OVER_OWN),
    "own over others": Measure(form=OWN_OVER),
    "mean of others over own": Measure(form=OVER_OWN, join=MEAN),
    "growth of the mean of others over own": Measure(form=OVER_OWN, join=GROWTH),
    "best of others over own": Measure(form=OVER_OWN, join=LEAST),
    "worst of others over own": Measure(form=OVER_OWN, join=GREATEST),
    "ends of others over own": Measure(form=OVER_OWN, join=ENDS),
    "own over worst of others": Measure(form=OWN_OVER, join=GREATEST),
    "others over own, least setting": Measure(form=OVER_OWN, across=SETTINGS, join=LEAST),
    "others over own, greatest setting": Measure(form=OVER_OWN, across=SETTINGS, join=GREATEST),
    "others over own, ends of settings": Measure(form=OVER_OWN, across=SETTINGS, join=ENDS),
    "others over own, mean of settings": Measure(form=OVER_OWN, across=SETTINGS, join=MEAN),
    "others over own, greatest number": Measure(form=OVER_OWN, across=NUMBERS, join=GREATEST),
    "own over others, greatest number": Measure(form=OWN_OVER, across=NUMBERS, join=GREATEST),
    "level": Measure(form=LEVEL, is_ratio=False),
    "mean level": Measure(form=LEVEL, across=SETTINGS, join=MEAN, is_ratio=False),
    "level of a ratio": Measure(form=LEVEL),
}
"""The measures, by the name that rows of claims use."""

Numbers = Callable[[Mapping[str, Any], str], tuple[float, ...]]
"""Returns a number of a cell for each seed, given the cell's fields and the number's name."""
Labelled = Sequence[tuple[str, Mapping[str, Any]]]
"""Pairs of a label and the cell fields that it names."""


@value
class Comparison:
    """One comparison of a row, with an effect for each seed."""

    label: str
    effects: tuple[float, ...]
    """Effect for each seed: logarithms of ratios, or plain levels."""
    is_ratio: bool
    printed: float
    """The printed value: a ratio or a level, not its logarithm."""
    of: int = 1
    """The number of comparisons from which this one was chosen as the least or the greatest; 1: it was not chosen."""
    partial: bool = False
    """Whether it is the greatest over fewer settings than the paper has; it then counts only if the claim holds."""

    def estimate(self, *, drawn: bool) -> EffectEstimate:
        """Return the mean effect with its interval."""
        return estimate(self.effects, drawn=drawn)

    @property
    def shown(self) -> tuple[float, ...]:
        """Return the ratio or level of each seed."""
        return tuple(map(math.exp, self.effects)) if self.is_ratio else self.effects


def find_measure(name: str, place: str) -> Measure:
    """Return the measure with a name.

    Raises:
        InputError: no measure has that name.
    """
    if name not in MEASURES:
        hint = did_you_mean(name, MEASURES)
        raise InputError(f"measure must be one of: {'; '.join(MEASURES)}", value=f"{shown(name)}{hint}", place=place)
    return MEASURES[name]


def compared(
    measure: Measure, own: Mapping[str, Any], others: Labelled, settings: Labelled, names: Sequence[str], of: Numbers
) -> list[list[Comparison]]:
    """Return the comparisons of a row in groups to be joined; printed values are not set yet.

    Args:
        measure: the measure of the row.
        own: fields of the row's own cell.
        others: by other policy, the fields that override ``own``; not used for a level.
        settings: fields of each setting, for own and other cells; a row without settings has one without fields.
        names: the numbers to compare.
        of: returns the numbers of a cell by seed.
    """
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for name in names:
        for setting, changed in settings:
            base = of({**own, **changed}, name)
            for other, fields in others if measure.form != LEVEL else [("", {})]:
                if measure.form == LEVEL:
                    effects = tuple(map(_log_ratio, base, [1.0] * len(base))) if measure.is_ratio else base
                else:
                    pair = (of({**own, **changed, **fields}, name), base)
                    effects = ratio_effects(*(pair if measure.form == OVER_OWN else pair[::-1]))
                parts = [name if len(names) > 1 else "", other if len(others) > 1 else "", setting]
                label = " ".join(part for part in parts if part) or other or name
                made = Comparison(label=label, effects=effects, is_ratio=measure.is_ratio, printed=math.nan)
                key = {OTHERS: (name, setting), SETTINGS: (name, other), NUMBERS: (setting, other)}[measure.across]
                groups.setdefault(key, []).append(made)
    return list(groups.values())


def joined(measure: Measure, groups: Sequence[Sequence[Comparison]]) -> list[Comparison]:
    """Join the comparisons of each group as the measure defines."""
    if measure.join == EACH:
        return [one for group in groups for one in group]
    if measure.join == MEAN:
        return [mean_of(group) for group in groups]
    if measure.join == GROWTH:
        return [_growth(groups[0], groups[-1])]
    made = []
    for group in groups:
        ranked = sorted(group, key=lambda one: math.fsum(one.effects) / len(one.effects))
        chosen = {LEAST: ranked[:1], GREATEST: ranked[-1:], ENDS: [ranked[0], ranked[-1]]}[measure.join]
        made += [dataclasses.replace(one, of=len(group)) for one in chosen]
    return made


def with_printed(
    comparisons: Sequence[Comparison], printed: Sequence[float], others: int, place: str
) -> list[Comparison]:
    """Assign printed values to comparisons: one for all, or one for each comparison, other or setting.

    Raises:
        InputError: the number of printed values matches none of these.
    """
    count = len(comparisons)
    if len(printed) not in (1, count, max(1, others), max(1, count // max(1, others))):
        raise InputError("a row must have a printed value, or one for each comparison", value=str(printed), place=place)
    if len(printed) in (count, max(1, others)):
        chosen = [printed[at % len(printed)] for at in range(count)]
    else:
        chosen = [printed[min(at * len(printed) // count, len(printed) - 1)] for at in range(count)]
    return [dataclasses.replace(one, printed=value) for one, value in zip(comparisons, chosen, strict=True)]


def ratio_effects(top: Sequence[float], bottom: Sequence[float]) -> tuple[float, ...]:
    """Return the logarithm of the ratio for each seed.

    If a number is 0, such as a fraction of jobs, the ratio of the sums is used, with jackknife pseudo-values in place
    of the seeds' ratios.
    """
    if min(*top, *bottom) > 0.0:
        return tuple(math.log(one / other) for one, other in zip(top, bottom, strict=True))
    count, whole = len(top), _log_ratio(math.fsum(top), math.fsum(bottom))
    if count == 1:
        return (whole,)
    left = [_log_ratio(math.fsum(top) - a, math.fsum(bottom) - b) for a, b in zip(top, bottom, strict=True)]
    return tuple(count * whole - (count - 1) * one for one in left)


def _log_ratio(top: float, bottom: float) -> float:
    if math.isnan(top + bottom) or (top <= 0.0 and bottom <= 0.0):
        return math.nan if math.isnan(top + bottom) else 0.0
    ratio = top / bottom if bottom > 0.0 else LARGEST_RATIO
    return math.log(min(max(ratio, 1.0 / LARGEST_RATIO), LARGEST_RATIO))


def mean_of(group: Sequence[Comparison]) -> Comparison:
    """Return the mean of comparisons for each seed: of logarithms, or of levels."""
    effects = tuple(math.fsum(seed) / len(group) for seed in zip(*(one.effects for one in group), strict=True))
    return dataclasses.replace(group[0], label=f"mean of {', '.join(one.label for one in group)}", effects=effects)


def _growth(before: Sequence[Comparison], after: Sequence[Comparison]) -> Comparison:
    """Return the ratio of the last setting's mean to the first setting's, on the same seeds."""
    first, last = mean_of(before), mean_of(after)
    effects = tuple(late - early for early, late in zip(first.effects, last.effects, strict=True))
    return dataclasses.replace(last, label="last setting over first", effects=effects)
