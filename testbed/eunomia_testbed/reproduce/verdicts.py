"""The verdict on a measured claim."""

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum

from eunomia.model.shapes import value

TOLERANCE = 0.10
"""Relative difference from the printed number up to which a measured number holds."""


class Verdict(Enum):
    """The possible verdicts on a claim."""

    HOLDS = "holds"
    DIRECTION = "direction only"
    FAILS = "does not hold"
    UNDECIDED = "undecided"
    """The interval over seeds is too wide to say, or there are fewer than five seeds."""
    BY_CONSTRUCTION = "by construction"
    """The number is a constraint of the policy's own programme, or the workload leaves no choice."""
    NOT_MEASURABLE = "not measurable on this workload"
    """The workload determines the number, so that no policy can change it."""
    UNMEASURED = "not measured here"


@value
class Measured:
    """The measured result of a claim."""

    text: str
    """The result as the table shows it."""
    verdict: Verdict
    reason: str
    """The reason of the verdict, in a sentence."""
    values: tuple[float, ...] = ()
    """The numbers behind it."""
    by_seed: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    """By name, a number for each seed that has been run, in order of seeds."""


NOT_RUN = Measured(text="-", verdict=Verdict.UNMEASURED, reason="no seed of it has been run")
"""The result of a claim without finished seeds."""


def judged(here: float, printed: float, *, direction: bool, better: bool = False) -> Verdict:
    """Compare a measured number with the printed one.

    Args:
        here: the measured number.
        printed: the paper's number.
        direction: whether the number has the claimed direction.
        better: whether the number exceeds the printed one in that direction, which holds as well.
    """
    if not math.isfinite(here):
        return Verdict.FAILS
    if direction and (better or abs(here - printed) <= TOLERANCE * abs(printed)):
        return Verdict.HOLDS
    return Verdict.DIRECTION if direction else Verdict.FAILS


def all_of(verdicts: "list[Verdict]") -> Verdict:
    """Return the verdict of a claim that consists of several: the least favourable."""
    for verdict in (Verdict.UNMEASURED, Verdict.NOT_MEASURABLE, Verdict.FAILS, Verdict.DIRECTION):
        if verdict in verdicts:
            return verdict
    return Verdict.HOLDS
