"""The verdict on a measured claim, and what it rests on."""

import dataclasses
from collections.abc import Mapping
from enum import Enum

from eunomia.model.shapes import value


class Verdict(Enum):
    """The possible verdicts on a claim; ``rule`` says when each is given."""

    HOLDS = "holds"
    DIRECTION = "in direction"
    FAILS = "does not hold"
    UNDECIDED = "undecided"
    """The interval over seeds is too wide to say, or there are fewer than five seeds."""
    BY_CONSTRUCTION = "by construction"
    """The number is a constraint of the policy's own programme, or the workload leaves no choice."""
    NOT_MEASURABLE = "not measurable here"
    """It needs hardware, or the workload determines the number so that no policy can change it."""
    UNMEASURED = "not measured"


@value
class Measured:
    """The measured result of a claim."""

    text: str
    """The result as the table shows it."""
    verdict: Verdict
    reason: str
    """The reason of the verdict: each comparison with its spread over seeds."""
    values: tuple[float, ...] = ()
    """The numbers behind it."""
    by_seed: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    """Numbers by name, one for each seed that has been run, in order of seeds."""
    beside: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By another setting of the paper, such as another model of S, the verdict and the result under it."""
    depends_on: str = ""
    """What the verdict depends on, where it differs under another setting; empty: it does not."""
    stale: bool = False
    """Whether a simulation behind it was run by other code than this."""


NOT_RUN = Measured(text="-", verdict=Verdict.UNMEASURED, reason="no seed of it has been run")
"""The result of a claim without finished seeds; the reason of a row adds the estimated time of its simulations."""
