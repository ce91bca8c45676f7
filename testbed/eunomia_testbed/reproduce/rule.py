"""The rule for a claim's verdict: a pure function of an effect, its 95 % interval and the printed value.

Gains are logarithms of ratios, so that "1.4 times" and "29 % less" are judged equally, with the sign that makes the
printed gain positive. Levels are plain numbers.
"""

import math
from collections.abc import Sequence
from enum import Enum
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.metrics.intervals import interval
from eunomia_testbed.reproduce.verdicts import Verdict

ENOUGH: Final = 0.8
"""Fraction of the printed gain that a gain must reach for the claim to hold."""
SURE: Final = 0.5
"""Fraction of the printed gain that the whole interval must exceed for the claim to hold."""
MUCH: Final = 1.5
"""Multiple of the printed gain above which a gain is marked as beyond it."""
FEWEST_SEEDS: Final = 5
"""Number of seeds below which a drawn result is at most undecided."""
OUR_MARGIN: Final = 0.10
"""The relative margin of a level if the paper prints none."""
FAVOUR: Final = (
    Verdict.UNMEASURED,
    Verdict.NOT_MEASURABLE,
    Verdict.FAILS,
    Verdict.UNDECIDED,
    Verdict.DIRECTION,
    Verdict.HOLDS,
    Verdict.BY_CONSTRUCTION,
)
"""Verdicts, from the least to the most favourable."""


class ClaimKind(Enum):
    """What a claim states about its number."""

    GAIN = "gain"
    """The number is above zero, by at least about the printed value."""
    AT_LEAST = "at least"
    """The number is at least the printed value; "at most" is judged with all signs reversed."""
    WITHIN = "within"
    """The number equals the printed value within a margin: equalities and levels."""


@value
class EffectEstimate:
    """An effect with its interval over seeds."""

    effect: float
    low: float
    high: float
    """Upper end of the 95 % interval; both ends equal the effect if nothing is drawn."""
    seeds: int
    drawn: bool
    """Whether seeds draw the input; otherwise there is a single input, and only the number is judged."""

    def negated(self) -> "EffectEstimate":
        """Return the estimate with all signs reversed."""
        return EffectEstimate(effect=-self.effect, low=-self.high, high=-self.low, seeds=self.seeds, drawn=self.drawn)


def estimate(values: Sequence[float], *, drawn: bool) -> EffectEstimate:
    """Return the mean of an effect over seeds with its t interval.

    Args:
        values: the effect of each seed, at least one.
        drawn: whether seeds draw the input; for a single drawn value the interval is infinite.
    """
    found = interval(values)
    if found is None:
        raise InputError("an estimate must have a value", value="none")
    if not drawn:
        return EffectEstimate(effect=found.mean, low=found.mean, high=found.mean, seeds=1, drawn=False)
    low = -math.inf if found.low is None else found.low
    high = math.inf if found.high is None else found.high
    return EffectEstimate(effect=found.mean, low=low, high=high, seeds=found.count, drawn=True)


def verdict_on(kind: ClaimKind, effect: float, low: float, high: float, printed: float, margin: float = 0.0) -> Verdict:
    """Return the verdict on an effect with its interval and printed value.

    Args:
        kind: what the claim states about the number.
        effect: the measured effect.
        low: lower end of its 95 % interval, at most the effect.
        high: upper end, at least the effect.
        printed: the paper's value on the same scale; above 0 for a gain.
        margin: for ``WITHIN``, the accepted distance from the printed value on the same scale.

    Raises:
        InputError: the effect is outside its interval, ``printed`` is not finite or valid, or the margin is negative.
    """
    if not low <= effect <= high:
        raise InputError("an interval must hold its effect", value=f"{effect:g} in {low:g} to {high:g}")
    if not math.isfinite(printed) or (kind is ClaimKind.GAIN and printed <= 0.0):
        raise InputError("a printed gain must be a positive number", value=f"{printed:g}")
    if not margin >= 0.0:
        raise InputError("a margin must not be negative", value=f"{margin:g}")
    if kind is ClaimKind.GAIN:
        return _on_gain(effect, low, high, printed)
    if kind is ClaimKind.AT_LEAST:
        return Verdict.HOLDS if low >= printed else Verdict.FAILS if high < printed else Verdict.UNDECIDED
    if printed - margin <= low and high <= printed + margin:
        return Verdict.HOLDS
    outside = high < printed - margin or low > printed + margin
    return Verdict.FAILS if outside else Verdict.UNDECIDED


def _on_gain(effect: float, low: float, high: float, printed: float) -> Verdict:
    if effect >= ENOUGH * printed and low > SURE * printed:
        return Verdict.HOLDS
    if low > 0.0:
        return Verdict.DIRECTION
    return Verdict.FAILS if high < SURE * printed else Verdict.UNDECIDED


def judged_estimate(kind: ClaimKind, found: EffectEstimate, printed: float, margin: float = 0.0) -> Verdict:
    """Return the verdict on an estimate; it is at most undecided if seeds were drawn and are fewer than five.

    Args:
        kind: what the claim states about the number.
        found: the measured effect with its interval.
        printed: the paper's value on the same scale.
        margin: for ``WITHIN``, the accepted distance.
    """
    verdict = verdict_on(kind, found.effect, found.low, found.high, printed, margin)
    if found.drawn and found.seeds < FEWEST_SEEDS and verdict in (Verdict.HOLDS, Verdict.DIRECTION):
        return Verdict.UNDECIDED
    return verdict


def is_beyond(kind: ClaimKind, effect: float, printed: float) -> bool:
    """Return whether a gain is more than one and a half times the printed one."""
    return kind is ClaimKind.GAIN and effect > MUCH * printed


def least_favourable(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the least favourable verdict, which is that of a claim with several comparisons."""
    return min(verdicts, key=FAVOUR.index)
