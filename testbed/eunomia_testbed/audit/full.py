"""Audits a profile on single allocations, then over simulated rounds."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Final

from eunomia_testbed.audit.auditing import Audit, audit, judged_again
from eunomia_testbed.audit.auditing_rounds import OVER_ROUNDS, judged_again_over_rounds, over_rounds
from eunomia_testbed.audit.policy import AuditedPolicy
from eunomia_testbed.audit.rounds import OverTime
from eunomia_testbed.audit.tally import Tally
from eunomia_testbed.audit.violations import Property, Violation

ONCE: Final = 0.75
"""Fraction of the time limit for instances with a single allocation, if others are simulated over rounds."""
BEGUN: Final = 0.95
"""Fraction of the time limit after which no further run starts, so that the current one can finish."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FullAudit:
    """The results of an audit of one profile.

    Attributes:
        once: violations in the single allocation of each instance.
        over_rounds: by property, violations in the GPU time received over simulated rounds.
        times: by simulated instance, finish-time fairness and deviation from ideal shares.
        cpu_seconds: CPU time of the whole audit, in seconds.
        cut_short: whether the time limit was reached before the audit was complete.
    """

    once: Audit
    over_rounds: dict[Property, Tally]
    times: list[OverTime]
    cpu_seconds: float
    cut_short: bool

    @property
    def name(self) -> str:
        """Return the profile's name."""
        return self.once.policy.profile.name

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """Return all tallies; those over rounds come last."""
        return (*self.once.tallies.values(), *self.over_rounds.values())


def full_audit(
    policy: AuditedPolicy,
    workload: str,
    *,
    counts: tuple[int, int],
    seconds: float,
    kinds: Sequence[Property] = tuple(Property),
    said: Callable[[int], None] = lambda done: None,
) -> FullAudit:
    """Judge a profile on drawn instances, by single allocations and over simulated rounds.

    Args:
        policy: the profile, with the seed of all draws.
        workload: a generator, or ``mixed``.
        counts: number of instances judged by a single allocation, and number judged over simulated rounds.
        seconds: limit on CPU time, in seconds; it includes simulated rounds and the search for smaller counterexamples.
        kinds: the properties that are judged.
        said: called with the number of instances judged so far by a single allocation.
    """
    began = time.process_time()
    simulates = counts[1] > 0 and any(kind in OVER_ROUNDS for kind in kinds)
    first = (ONCE if simulates else BEGUN) * seconds
    once = audit(policy, workload, count=counts[0], seconds=first, kinds=kinds, said=said)
    tallies, times = over_rounds(policy, workload, count=counts[1], until=began + BEGUN * seconds, kinds=kinds)
    return FullAudit(
        once=once,
        over_rounds=tallies,
        times=times,
        cpu_seconds=time.process_time() - began,
        cut_short=once.cut_short or (bool(tallies) and len(times) < counts[1]),
    )


def replayed(policy: AuditedPolicy, found: Violation) -> Violation | None:
    """Judge a stored violation again, by the method that found it: a single allocation, or simulated rounds."""
    return judged_again_over_rounds(policy, found) if found.over_rounds else judged_again(policy, found.instance, found)
