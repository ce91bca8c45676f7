"""Audits a profile: draws instances, judges their allocations, and searches for misreports by which users gain."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from eunomia_testbed.audit.generators import instances
from eunomia_testbed.audit.instances import AuditInstance
from eunomia_testbed.audit.lies import KINDS, Lie, gain_of, lies_of
from eunomia_testbed.audit.policy import AuditedPolicy, Received
from eunomia_testbed.audit.properties import JUDGES, table
from eunomia_testbed.audit.smaller import smaller
from eunomia_testbed.audit.tally import Tally
from eunomia_testbed.audit.violations import LYING, Property, Violation

FOR_INSTANCES: Final = 0.8
"""Fraction of the time limit for judging instances; the rest is for shrinking counterexamples."""
LIES: Final = 0x11E
"""Seed of the random stream that draws lies."""


@dataclasses.dataclass(slots=True)
class Audit:
    """The results of an audit of one profile."""

    policy: AuditedPolicy
    tallies: dict[Property, Tally]
    cpu_seconds: float = 0.0
    cut_short: bool = False
    """Whether the time limit was reached before all instances were judged and all counterexamples shrunk."""
    sensitive: bool = False
    """Whether a lie about speedups ever changed the GPUs that users received."""
    lies: int = 0
    """Number of lies tried."""

    @property
    def insensitive(self) -> bool:
        """Return whether lies were tried, and none changed the GPUs that users received."""
        return self.lies > 0 and not self.sensitive


def audit(
    policy: AuditedPolicy,
    workload: str,
    *,
    count: int,
    seconds: float,
    kinds: Sequence[Property] = tuple(Property),
    said: Callable[[int], None] = lambda done: None,
) -> Audit:
    """Judge the allocations of a profile on drawn instances.

    Args:
        policy: the profile, with the seed of all draws.
        workload: a generator, or ``mixed``.
        count: number of instances.
        seconds: limit on CPU time. No instance starts after four fifths of it, and the search for smaller
            counterexamples ends with it.
        kinds: the properties that are judged.
        said: called with the number of instances judged so far.
    """
    began = time.process_time()
    made = Audit(policy=policy, tallies={each: Tally(kind=each) for each in kinds})
    drawn = instances(workload, policy.seed, whole=policy.whole)
    for number in range(count):
        if time.process_time() - began > FOR_INSTANCES * seconds:
            made.cut_short = True
            break
        _judge_one(made, next(drawn), np.random.default_rng([policy.seed, LIES, number]))
        said(number + 1)
    _make_smaller(made, until=began + seconds)
    made.cpu_seconds = time.process_time() - began
    return made


def _make_smaller(made: Audit, until: float) -> None:
    """Shrink the counterexamples until the process has used ``until`` seconds of CPU time."""

    def judge(instance: AuditInstance, found: Violation) -> Violation | None:
        if time.process_time() > until:
            made.cut_short = True
            return None
        return judged_again(made.policy, instance, found)

    for tally in made.tallies.values():
        if tally.smallest is not None:
            tally.smallest = smaller(tally.smallest, judge)


def _judge_one(made: Audit, instance: AuditInstance, luck: np.random.Generator) -> None:
    honest = made.policy.outcome(instance)
    for kind in JUDGES:
        if kind in made.tallies:
            made.tallies[kind].note(_judged(made.policy, kind, instance, honest))
    best: dict[Property, Violation] = {}
    for lie in lies_of(instance, luck):
        if lie.kind not in made.tallies:
            continue
        found = gain_of(made.policy, instance, honest, lie)
        made.lies += 1
        made.sensitive = made.sensitive or found.other != found.gpus
        if lie.kind not in best or found.size > best[lie.kind].size:
            best[lie.kind] = found
    for kind in LYING:
        if kind in made.tallies:
            made.tallies[kind].note(best.get(kind))


def _judged(policy: AuditedPolicy, kind: Property, instance: AuditInstance, honest: Received) -> Violation:
    size, users, other = JUDGES[kind](instance, honest)
    return Violation(
        kind=kind,
        size=size,
        instance=instance,
        gpus=table(honest.gpus),
        users=users,
        other=other,
        seed=policy.seed,
    )


def judged_again(policy: AuditedPolicy, instance: AuditInstance, found: Violation) -> Violation | None:
    """Measure on an instance the property that a known violation breaks; None: the property does not apply.

    For a violation by lying, the best of all lies on the instance counts; on the violation's own instance, only the
    stored lie is tried.
    """
    honest = policy.outcome(instance)
    if not found.kind.by_lying:
        return _judged(policy, found.kind, instance, honest)
    if instance == found.instance and found.reports is not None:
        rows = tuple(found.reports[user] for user in found.users)
        return gain_of(policy, instance, honest, Lie(kind=found.kind, users=found.users, rows=rows))
    gains = [gain_of(policy, instance, honest, lie) for lie in _all_lies(instance, found.kind)]
    return max(gains, key=lambda gain: gain.size, default=None)


def _all_lies(instance: AuditInstance, kind: Property) -> Iterator[Lie]:
    for make, alone, in_pairs in KINDS:
        rows = [make(instance, user) for user in range(instance.users)]
        if kind is alone:
            yield from (Lie(kind=kind, users=(user,), rows=(row,)) for user, mine in enumerate(rows) for row in mine)
        if kind is in_pairs:
            pairs = [(a, b) for a in range(instance.users) for b in range(a)]
            yield from (
                Lie(kind=kind, users=pair, rows=(one, other))
                for pair in pairs
                for one in rows[pair[0]][:TRIED_AGAIN]
                for other in rows[pair[1]][:TRIED_AGAIN]
            )


TRIED_AGAIN: Final = 3
"""For a pair of users, the number of each user's lies that are combined on a smaller instance."""
