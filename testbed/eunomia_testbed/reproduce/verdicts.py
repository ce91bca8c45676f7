"""The verdict on a measured claim, and the evidence behind it."""

import dataclasses
from collections.abc import Mapping
from enum import Enum

from eunomia.model.shapes import value


class Verdict(Enum):
    """The possible verdicts on a claim; ``rule`` defines when each is given."""

    HOLDS = "holds"
    DIRECTION = "in direction"
    FAILS = "does not hold"
    UNDECIDED = "undecided"
    """The interval over seeds is too wide to decide, or there are fewer than five seeds."""
    BY_CONSTRUCTION = "by construction"
    """The number is a constraint of the policy's own optimization problem, or the workload leaves no choice."""
    NOT_MEASURABLE = "not measurable here"
    """The claim needs special hardware, or the workload alone determines the number, whatever the policy."""
    UNMEASURED = "not measured"


@value
class Measured:
    """The measured result of a claim."""

    text: str
    """The result as the table shows it."""
    verdict: Verdict
    reason: str
    """The reason for the verdict: each comparison with its spread over seeds."""
    values: tuple[float, ...] = ()
    """The measured ratios or levels, one for each comparison."""
    by_seed: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    """Numbers by name, one for each seed that has been run, in order of seeds."""
    beside: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Verdict and result under the paper's other settings, such as another model of S, by setting."""
    depends_on: str = ""
    """The setting on which the verdict depends; empty: all settings give the same verdict."""
    stale: bool = False
    """Whether a simulation behind the result was run by a different version of the code."""


NOT_RUN = Measured(text="-", verdict=Verdict.UNMEASURED, reason="no seed of it has been run")
"""The result of a claim without finished seeds; a row's reason adds the estimated time of its simulations."""
